// RUN: fovea-opt %s --canonicalize --split-input-file | FileCheck %s

// Adding zero to the scores changes nothing, whatever its sign or shape.
// CHECK-LABEL: func @drop_zero_terms(
// CHECK-NOT: arith.constant
// CHECK: attn.dense ins({{.*}}) outs(
func.func @drop_zero_terms(%q: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %w = arith.constant dense<-0.0> : tensor<1x2x4xf32>
  %b = arith.constant dense<0.0> : tensor<1x1x4x4xf32>
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      log_weight(%w : tensor<1x2x4xf32>) bias(%b : tensor<1x1x4x4xf32>) outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// -----

// A sink of minus infinity takes nothing; one of zero does.
// CHECK-LABEL: func @drop_sinks(
// CHECK: attn.dense ins({{[^)]*}}) outs(
// CHECK: attn.dense ins({{[^)]*}}) sink(
// CHECK: attn.stream query
// CHECK-NOT: sink
// CHECK: return
func.func @drop_sinks(%q: tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) {
  %none = arith.constant dense<0xFF800000> : tensor<1x2xf32>
  %zero = arith.constant dense<0.0> : tensor<1x2xf32>
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      sink(%none : tensor<1x2xf32>) outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %1 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      sink(%zero : tensor<1x2xf32>) outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %2 = attn.stream query(%q : tensor<1x2x4x8xf32>) source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] sink(%none : tensor<1x2xf32>)
      outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return %0, %1, %2 : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
}

// -----

// CHECK-LABEL: func @drop_zero_weight_keep_bias(
// CHECK-SAME: %{{.*}}: tensor<1x2x4x8xf32>, %[[B:.*]]: tensor<1x2x4x4xf32>
// CHECK: attn.dense ins({{[^)]*}}) bias(%[[B]] : tensor<1x2x4x4xf32>) outs({{.*}}, {{.*}}) {mask = #attn.mask<causal>, scale = 5.000000e-01 : f64}
func.func @drop_zero_weight_keep_bias(%q: tensor<1x2x4x8xf32>, %b: tensor<1x2x4x4xf32>, %l: tensor<1x2x4xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) {
  %w = arith.constant dense<0.0> : tensor<1x2x4xf32>
  %0, %1 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      log_weight(%w : tensor<1x2x4xf32>) bias(%b : tensor<1x2x4x4xf32>) outs(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
      {scale = 0.5, mask = #attn.mask<causal>} -> tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
  return %0, %1 : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
}

// -----

// Neither a constant that is not zero nor an unknown value is dropped.
// CHECK-LABEL: func @keep_terms(
// CHECK-DAG: %[[ONE:.*]] = arith.constant dense<1.000000e+00>
// CHECK-DAG: %[[MIXED:.*]] = arith.constant dense<[{{.*}}0.000000e+00, 1.000000e+00
// CHECK: attn.dense ins({{.*}}) log_weight(%[[ONE]] : tensor<1x1x1xf32>) bias(%[[MIXED]] : tensor<1x1x1x4xf32>)
func.func @keep_terms(%q: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %w = arith.constant dense<1.0> : tensor<1x1x1xf32>
  %b = arith.constant dense<[[[[0.0, 1.0, 0.0, 0.0]]]]> : tensor<1x1x1x4xf32>
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      log_weight(%w : tensor<1x1x1xf32>) bias(%b : tensor<1x1x1x4xf32>) outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// -----

// CHECK-LABEL: func @drop_mask(
// CHECK-NOT: mask
func.func @drop_mask(%q: tensor<1x1x4x8xf32>, %k: tensor<1x1x6x8xf32>, %one: tensor<1x1x1x8xf32>) -> (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x1x8xf32>) {
  // Nothing is masked.
  %0 = attn.dense ins(%q, %k, %k : tensor<1x1x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) {mask = #attn.mask<none>} -> tensor<1x1x4x8xf32>
  // Distances reach 5 at most.
  %1 = attn.dense ins(%0, %k, %k : tensor<1x1x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) {mask = #attn.mask<window = 6>} -> tensor<1x1x4x8xf32>
  // The only query is the last position.
  %2 = attn.dense ins(%one, %k, %k : tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>)
      outs(%one : tensor<1x1x1x8xf32>) {mask = #attn.mask<causal>} -> tensor<1x1x1x8xf32>
  return %0, %1, %2 : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x1x8xf32>
}

// -----

// CHECK-LABEL: func @simplify_mask(
// CHECK: attn.dense {{.*}} {mask = #attn.mask<causal>}
// CHECK: attn.dense {{.*}} {mask = #attn.mask<window = 3>}
func.func @simplify_mask(%q: tensor<1x1x4x8xf32>, %k: tensor<1x1x6x8xf32>, %one: tensor<1x1x1x8xf32>) -> (tensor<1x1x4x8xf32>, tensor<1x1x1x8xf32>) {
  %0 = attn.dense ins(%q, %k, %k : tensor<1x1x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) {mask = #attn.mask<causal, window = 9>} -> tensor<1x1x4x8xf32>
  %1 = attn.dense ins(%one, %k, %k : tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>)
      outs(%one : tensor<1x1x1x8xf32>) {mask = #attn.mask<causal, window = 3>} -> tensor<1x1x1x8xf32>
  return %0, %1 : tensor<1x1x4x8xf32>, tensor<1x1x1x8xf32>
}

// -----

// A window one narrower than the keys cuts a corner; with more queries than
// keys, positions are negative and farther away; unknown extents say nothing.
// CHECK-LABEL: func @keep_mask(
// CHECK: attn.dense {{.*}} {mask = #attn.mask<window = 5>}
// CHECK: attn.dense {{.*}} {mask = #attn.mask<window = 4>}
// CHECK: attn.dense {{.*}} {mask = #attn.mask<causal, window = 100>}
// CHECK: attn.dense {{.*}} {mask = #attn.mask<causal>}
func.func @keep_mask(%q: tensor<1x1x4x8xf32>, %k: tensor<1x1x6x8xf32>, %d: tensor<1x1x?x8xf32>)
    -> (tensor<1x1x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x?x8xf32>, tensor<1x1x4x8xf32>) {
  %0 = attn.dense ins(%q, %k, %k : tensor<1x1x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) {mask = #attn.mask<window = 5>} -> tensor<1x1x4x8xf32>
  %1 = attn.dense ins(%k, %q, %q : tensor<1x1x6x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%k : tensor<1x1x6x8xf32>) {mask = #attn.mask<window = 4>} -> tensor<1x1x6x8xf32>
  %2 = attn.dense ins(%d, %d, %d : tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>)
      outs(%d : tensor<1x1x?x8xf32>) {mask = #attn.mask<causal, window = 100>} -> tensor<1x1x?x8xf32>
  %3 = attn.dense ins(%q, %q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) {mask = #attn.mask<causal>} -> tensor<1x1x4x8xf32>
  return %0, %1, %2, %3 : tensor<1x1x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x?x8xf32>, tensor<1x1x4x8xf32>
}

// -----

// On memrefs too.
// CHECK-LABEL: func @memref_mask(
// CHECK: attn.dense ins({{.*}}) outs(%{{.*}} : memref<1x1x4x8xf32>){{$}}
func.func @memref_mask(%q: memref<1x1x4x8xf32>, %o: memref<1x1x4x8xf32>) {
  attn.dense ins(%q, %q, %q : memref<1x1x4x8xf32>, memref<1x1x4x8xf32>, memref<1x1x4x8xf32>)
      outs(%o : memref<1x1x4x8xf32>) {mask = #attn.mask<causal, window = 4>}
  attn.dense ins(%q, %q, %q : memref<1x1x4x8xf32>, memref<1x1x4x8xf32>, memref<1x1x4x8xf32>)
      outs(%o : memref<1x1x4x8xf32>) {mask = #attn.mask<none>}
  return
}

// -----

// A source without rows, or whose ranges have none, goes, and takes its terms along.
// CHECK-LABEL: func @drop_empty_sources(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x1x4x8xf32>, %[[E:[^:]*]]: tensor<1x1x0x8xf32>, %[[W0:[^:]*]]: tensor<1x1x0xf32>, %[[W1:[^:]*]]: tensor<1x1x4xf32>, %[[B0:[^:]*]]: tensor<1x1x4x0xf32>, %[[B1:[^:]*]]: tensor<1x1x4x4xf32>
// CHECK: attn.stream query(%[[Q]] : tensor<1x1x4x8xf32>)
// CHECK-NEXT: source(%[[Q]], %[[Q]] : {{.*}}) log_weight(%[[W1]] : tensor<1x1x4xf32>) bias(%[[B1]] : tensor<1x1x4x4xf32>) ranges [#{{.*}}] mask <causal>
// CHECK-NEXT: outs
func.func @drop_empty_sources(%q: tensor<1x1x4x8xf32>, %e: tensor<1x1x0x8xf32>, %w0: tensor<1x1x0xf32>, %w1: tensor<1x1x4xf32>,
    %b0: tensor<1x1x4x0xf32>, %b1: tensor<1x1x4x4xf32>) -> tensor<1x1x4x8xf32> {
  %0 = attn.stream query(%q : tensor<1x1x4x8xf32>)
      source(%e, %e : tensor<1x1x0x8xf32>, tensor<1x1x0x8xf32>) log_weight(%w0 : tensor<1x1x0xf32>) bias(%b0 : tensor<1x1x4x0xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, 0)>]
      source(%q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) log_weight(%w1 : tensor<1x1x4xf32>) bias(%b1 : tensor<1x1x4x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      source(%e, %e : tensor<1x1x0x8xf32>, tensor<1x1x0x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x4x8xf32>) {scale = 1.0} -> tensor<1x1x4x8xf32>
  return %0 : tensor<1x1x4x8xf32>
}

// -----

// The last source stays: an op has at least one. So does a source whose number
// of rows is unknown.
// CHECK-LABEL: func @keep_sources(
// CHECK: attn.stream
// CHECK-NEXT: source({{.*}}tensor<1x1x0x8xf32>) ranges
// CHECK: attn.stream
// CHECK-NEXT: source
// CHECK-NEXT: source
func.func @keep_sources(%q: tensor<1x1x4x8xf32>, %e: tensor<1x1x0x8xf32>, %d: tensor<1x1x?x8xf32>) -> (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) {
  %0 = attn.stream query(%q : tensor<1x1x4x8xf32>)
      source(%e, %e : tensor<1x1x0x8xf32>, tensor<1x1x0x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x4x8xf32>) {scale = 1.0} -> tensor<1x1x4x8xf32>
  %1 = attn.stream query(%q : tensor<1x1x4x8xf32>)
      source(%q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%d, %d : tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x4x8xf32>) {scale = 1.0} -> tensor<1x1x4x8xf32>
  return %0, %1 : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>
}

// -----

// Casts to less static types disappear into the operation.
// CHECK-LABEL: func @fold_casts(
// CHECK-SAME: %[[Q:.*]]: tensor<1x2x4x8xf32>)
// CHECK: %[[R:.*]] = attn.dense ins(%[[Q]], %[[Q]], %[[Q]] : {{.*}}) outs(%[[Q]] : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
// CHECK: return %[[R]]
func.func @fold_casts(%q: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %d = tensor.cast %q : tensor<1x2x4x8xf32> to tensor<?x?x?x8xf32>
  %0 = attn.dense ins(%d, %d, %d : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>) outs(%d : tensor<?x?x?x8xf32>) -> tensor<?x?x?x8xf32>
  %1 = tensor.cast %0 : tensor<?x?x?x8xf32> to tensor<1x2x4x8xf32>
  return %1 : tensor<1x2x4x8xf32>
}

// -----

// Sizes count tokens: a stride has more of them than rows. Alone it says nothing.
// CHECK-LABEL: func @strides(
// CHECK: attn.dense ins({{[^)]*}}) outs({{[^)]*}}) -> tensor
// CHECK: attn.dense ins({{[^)]*}}) outs({{[^)]*}}) {mask = #attn.mask<causal, prefix = 11, stride = 3>}
// CHECK: attn.dense ins({{[^)]*}}) outs({{[^)]*}}) {mask = #attn.mask<causal, stride = 3>}
// CHECK: attn.dense ins({{[^)]*}}) outs({{[^)]*}}) -> tensor
func.func @strides(%q: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%q : tensor<1x2x4x8xf32>) {mask = #attn.mask<causal, prefix = 12, stride = 3>} -> tensor<1x2x4x8xf32>
  %1 = attn.dense ins(%0, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%q : tensor<1x2x4x8xf32>) {mask = #attn.mask<causal, prefix = 11, stride = 3>} -> tensor<1x2x4x8xf32>
  %2 = attn.dense ins(%1, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%q : tensor<1x2x4x8xf32>) {mask = #attn.mask<causal, window = 12, stride = 3>} -> tensor<1x2x4x8xf32>
  %3 = attn.dense ins(%2, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%q : tensor<1x2x4x8xf32>) {mask = #attn.mask<stride = 3>} -> tensor<1x2x4x8xf32>
  return %3 : tensor<1x2x4x8xf32>
}

// -----

// A prefix of all keys leaves no mask; one of some stays.
// CHECK-LABEL: func @prefixes(
// CHECK: attn.dense ins({{[^)]*}}) outs({{[^)]*}}) -> tensor
// CHECK: attn.dense ins({{[^)]*}}) outs({{[^)]*}}) {mask = #attn.mask<causal, prefix = 3>}
func.func @prefixes(%q: tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%q : tensor<1x2x4x8xf32>) {mask = #attn.mask<causal, prefix = 4>} -> tensor<1x2x4x8xf32>
  %1 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%q : tensor<1x2x4x8xf32>) {mask = #attn.mask<causal, prefix = 3>} -> tensor<1x2x4x8xf32>
  return %0, %1 : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
}
