// RUN: fovea-opt %s --split-input-file | fovea-opt --split-input-file | FileCheck %s
// RUN: fovea-opt %s --split-input-file --mlir-print-op-generic | fovea-opt --split-input-file | FileCheck %s
// RUN: fovea-opt %s --split-input-file --canonicalize | FileCheck %s --check-prefix=CANON

#all = affine_map<(b)[rows, n] -> (0, rows)>

// Captures are operands, and arguments of the region behind its own.
// CHECK-LABEL: func @captures(
// CHECK-SAME: %{{.*}}: tensor<1x2x4x8xf32>, %[[T:.*]]: tensor<?x2xbf16>, %[[C:.*]]: f32
// CHECK: attn.dense ins({{.*}}) score(%[[T]], %[[C]] : tensor<?x2xbf16>, f32) {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %[[B:.*]]: index, %[[H:.*]]: index, %[[I:.*]]: index, %[[J:.*]]: index, %[[X:.*]]: tensor<?x2xbf16>, %[[Y:.*]]: f32):
// CHECK-NEXT: %[[E:.*]] = tensor.extract %[[X]][%[[J]], %[[H]]] : tensor<?x2xbf16>
// CHECK: attn.yield %{{.*}} : f32
// CHECK-NEXT: } outs(
func.func @captures(%q: tensor<1x2x4x8xf32>, %t: tensor<?x2xbf16>, %c: f32) -> tensor<1x2x4x8xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      score(%t, %c : tensor<?x2xbf16>, f32) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<?x2xbf16>, %y: f32):
        %e = tensor.extract %x[%j, %h] : tensor<?x2xbf16>
        %n = arith.extf %e : bf16 to f32
        %t0 = arith.addf %s, %n : f32
        %t1 = arith.mulf %t0, %y : f32
        attn.yield %t1 : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// CHECK-LABEL: func @stream(
// CHECK: attn.stream query(
// CHECK: query_lengths(
// CHECK-NEXT: score {
// CHECK: attn.yield %{{.*}} : f64
// CHECK: outs(
func.func @stream(%q: tensor<1x2x4x8xf64>, %n: tensor<1xi32>) -> tensor<1x2x4x8xf64> {
  %0 = attn.stream query(%q : tensor<1x2x4x8xf64>) source(%q, %q : tensor<1x2x4x8xf64>, tensor<1x2x4x8xf64>) ranges [#all]
      query_lengths(%n : tensor<1xi32>) score {
      ^bb0(%s: f64, %b: index, %h: index, %i: index, %j: index):
        %t = math.tanh %s : f64
        attn.yield %t : f64
      } outs(%q : tensor<1x2x4x8xf64>) {scale = 0.5} -> tensor<1x2x4x8xf64>
  return %0 : tensor<1x2x4x8xf64>
}

// CHECK-LABEL: func @gradients(
// CHECK: attn.dense_backward ins({{.*}}) score {
// CHECK: } forward(
// CHECK: attn.stream_backward query
// CHECK: score {
// CHECK: forward(
func.func @gradients(%q: tensor<1x2x4x8xf32>, %l: tensor<1x2x4xf32>) {
  %0:3 = attn.dense_backward ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t = math.tanh %s : f32
        attn.yield %t : f32
      } forward(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%q : tensor<1x2x4x8xf32>)
      outs(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
  %1:3 = attn.stream_backward query(%q : tensor<1x2x4x8xf32>) source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [#all] score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t = math.tanh %s : f32
        attn.yield %t : f32
      } forward(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%q : tensor<1x2x4x8xf32>)
      outs(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) {scale = 0.5}
      -> tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
  return
}

// -----

// A region that yields its score is none, once constants in it are folded; and
// what it does not read is not captured.
// CANON-LABEL: func @identity(
// CANON: attn.dense ins({{[^)]*}}) outs(
func.func @identity(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>) -> tensor<1x2x4x8xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<3xf32>):
        %a = arith.constant 3.0 : f32
        %c = arith.constant 2.0 : f32
        %d = arith.subf %a, %c : f32
        %e = arith.mulf %s, %d : f32
        attn.yield %e : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// CANON-LABEL: func @unused(
// CANON-SAME: %{{.*}}: tensor<1x2x4x8xf32>, %{{.*}}: tensor<3xf32>, %[[C:.*]]: f32
// CANON: score(%[[C]] : f32) {
// CANON-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: f32):
func.func @unused(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: f32) -> tensor<1x2x4x8xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t, %c : tensor<3xf32>, f32) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<3xf32>, %y: f32):
        %e = arith.mulf %s, %y : f32
        attn.yield %e : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// -----

#all = affine_map<(b)[rows, n] -> (0, rows)>

// All regions of an operation capture the same.
// CHECK-LABEL: func @of_sources(
// CHECK-SAME: %[[Q:.*]]: tensor<1x2x4x8xf32>, %[[T:.*]]: tensor<2xf32>
// CHECK: attn.stream query(%[[Q]]
// CHECK-NEXT: source({{.*}}) ranges
// CHECK-NEXT: source(
// CHECK-NEXT: score {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, {{.*}}: index, %[[H:.*]]: index, {{.*}}: index, {{.*}}: index, %[[X:.*]]: tensor<2xf32>):
// CHECK: tensor.extract %[[X]][%[[H]]]
// CHECK: } ranges [{{.*}}] mask <causal>
// CHECK-NEXT: captures(%[[T]] : tensor<2xf32>)
// CHECK-NEXT: outs(
// CHECK: attn.stream query(%[[Q]]
// CHECK: score {
// CHECK: } ranges
// CHECK-NEXT: source({{.*}}) ranges
// CHECK-NEXT: score(%[[T]] : tensor<2xf32>) {
// CHECK: math.tanh
// CHECK: outs(
func.func @of_sources(%q: tensor<1x2x4x8xf32>, %t: tensor<2xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) {
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [#all]
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<2xf32>):
        %e = tensor.extract %x[%h] : tensor<2xf32>
        %t0 = arith.addf %s, %e : f32
        attn.yield %t0 : f32
      } ranges [#all] mask <causal>
      captures(%t : tensor<2xf32>) outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  %1 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<2xf32>):
        %e = tensor.extract %x[%h] : tensor<2xf32>
        %t0 = arith.addf %s, %e : f32
        attn.yield %t0 : f32
      } ranges [#all]
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [#all]
      score(%t : tensor<2xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<2xf32>):
        %t0 = math.tanh %s : f32
        attn.yield %t0 : f32
      } outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return %0, %1 : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
}

// CHECK-LABEL: func @gradients_of_sources(
// CHECK: attn.stream_backward query
// CHECK-NEXT: source(
// CHECK-NEXT: score {
// CHECK: } ranges
// CHECK-NEXT: captures(
// CHECK-NEXT: forward(
// CHECK: d_captures(
func.func @gradients_of_sources(%q: tensor<1x2x4x8xf32>, %l: tensor<1x2x4xf32>, %t: tensor<2xf32>) {
  %0:4 = attn.stream_backward query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<2xf32>):
        %e = tensor.extract %x[%h] : tensor<2xf32>
        %t0 = arith.addf %s, %e : f32
        attn.yield %t0 : f32
      } ranges [#all]
      captures(%t : tensor<2xf32>) forward(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%q : tensor<1x2x4x8xf32>)
      outs(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) d_captures(%t : tensor<2xf32>) {scale = 0.5}
      -> tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<2xf32>
  return
}

// -----

#all = affine_map<(b)[rows, n] -> (0, rows)>

// The region of a source that contributes nothing goes with it, and with the
// last one what it captures.
// CANON-LABEL: func @empty_source(
// CANON: attn.stream query
// CANON-NEXT: source({{.*}}) ranges
// CANON-NEXT: outs(
func.func @empty_source(%q: tensor<1x2x4x8xf32>, %z: tensor<1x2x0x8xf32>, %t: tensor<2xf32>) -> tensor<1x2x4x8xf32> {
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%z, %z : tensor<1x2x0x8xf32>, tensor<1x2x0x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<2xf32>):
        %e = tensor.extract %x[%h] : tensor<2xf32>
        %t0 = arith.addf %s, %e : f32
        attn.yield %t0 : f32
      } ranges [#all]
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [#all]
      captures(%t : tensor<2xf32>) outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// Those of others stay theirs.
// CANON-LABEL: func @other_source(
// CANON: attn.stream query
// CANON-NEXT: source(
// CANON-NEXT: score {
// CANON: math.tanh
// CANON: } ranges
// CANON-NEXT: score {
// CANON: math.exp
// CANON: outs(
func.func @other_source(%q: tensor<1x2x4x8xf32>, %z: tensor<1x2x0x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%z, %z : tensor<1x2x0x8xf32>, tensor<1x2x0x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t0 = math.sin %s : f32
        attn.yield %t0 : f32
      } ranges [#all]
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t0 = math.tanh %s : f32
        attn.yield %t0 : f32
      } ranges [#all]
      score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t0 = math.exp %s : f32
        attn.yield %t0 : f32
      } outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// Regions that change nothing are none, if that holds for all.
// CANON-LABEL: func @identities(
// CANON: attn.stream query
// CANON-NEXT: source({{.*}}) ranges
// CANON-NEXT: outs(
func.func @identities(%q: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        attn.yield %s : f32
      } ranges [#all] outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}
