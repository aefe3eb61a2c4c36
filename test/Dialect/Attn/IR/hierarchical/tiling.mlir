// RUN: fovea-opt %s --transform-interpreter --canonicalize --cse --split-input-file --verify-diagnostics | FileCheck %s

// One batch entry and one head: its set of weights is h / (4 / 2), its rows and
// summaries stay whole.
// CHECK: #[[$SET:.*]] = affine_map<(d0) -> (d0 floordiv 2)>
// CHECK-LABEL: func @shared_sets(
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x4x50x8xf32>, %[[W:[^:]*]]: tensor<2x2x16x8xf32>, %[[B:[^:]*]]: tensor<2x2x8xf32>, %[[O:[^:]*]]: tensor<3x4x8x8xf32>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]]) in (3, 4) shared_outs(%[[OUT:.*]] = %[[O]])
// CHECK-DAG: %[[S:.*]] = affine.apply #[[$SET]](%[[H]])
// CHECK-DAG: %[[WT:.*]] = tensor.extract_slice %[[W]][%[[S]], 0, 0, 0] [1, 2, 16, 8]
// CHECK-DAG: %[[BT:.*]] = tensor.extract_slice %[[B]][%[[S]], 0, 0] [1, 2, 8]
// CHECK-DAG: %[[XT:.*]] = tensor.extract_slice %[[X]][%[[I]], %[[H]], 0, 0] [1, 1, 50, 8]
// CHECK-DAG: %[[OT:.*]] = tensor.extract_slice %[[OUT]][%[[I]], %[[H]], 0, 0] [1, 1, 8, 8]
// CHECK: %[[T:.*]] = attn.summarize ins(%[[XT]] : {{.*}}) weights(%[[WT]] : {{.*}}) bias(%[[BT]] : {{.*}}) outs(%[[OT]] :
// CHECK: tensor.parallel_insert_slice %[[T]] into %[[OUT]][%[[I]], %[[H]], 0, 0] [1, 1, 8, 8]
func.func @shared_sets(%x: tensor<3x4x50x8xf32>, %w: tensor<2x2x16x8xf32>, %b: tensor<2x2x8xf32>, %o: tensor<3x4x8x8xf32>) -> tensor<3x4x8x8xf32> {
  %0 = attn.summarize ins(%x : tensor<3x4x50x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : tensor<2x2x8xf32>)
      outs(%o : tensor<3x4x8x8xf32>) -> tensor<3x4x8x8xf32>
  return %0 : tensor<3x4x8x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.summarize"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// One set for all heads, and pairs of heads.
// CHECK-LABEL: func @one_set(
// CHECK: scf.forall
// CHECK-NOT: tensor.extract_slice %{{.*}} : tensor<1x2x16x8xf32>
// CHECK: attn.summarize ins(%{{.*}} : tensor<3x2x50x8xf32>) weights(%{{.*}} : tensor<1x2x16x8xf32>)
func.func @one_set(%x: tensor<3x4x50x8xf32>, %w: tensor<1x2x16x8xf32>, %o: tensor<3x4x8x8xf32>) -> tensor<3x4x8x8xf32> {
  %0 = attn.summarize ins(%x : tensor<3x4x50x8xf32>) weights(%w : tensor<1x2x16x8xf32>)
      outs(%o : tensor<3x4x8x8xf32>) -> tensor<3x4x8x8xf32>
  return %0 : tensor<3x4x8x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.summarize"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [0, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Three of six heads do not fall into whole sets.
func.func @partial_sets(%x: tensor<1x6x50x8xf32>, %w: tensor<3x2x16x8xf32>, %o: tensor<1x6x8x8xf32>) -> tensor<1x6x8x8xf32> {
  // expected-error @below {{'attn.summarize' op with shared weights can be tiled only by one head or all of them}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %0 = attn.summarize ins(%x : tensor<1x6x50x8xf32>) weights(%w : tensor<3x2x16x8xf32>)
      outs(%o : tensor<1x6x8x8xf32>) -> tensor<1x6x8x8xf32>
  return %0 : tensor<1x6x8x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.summarize"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 3] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// One head of four: keys, weights and bias of key head h / 2, lse beside the
// output. Tokens stay whole.
// CHECK: #[[$PAIR:.*]] = affine_map<(d0) -> (d0 floordiv 2)>
// CHECK-LABEL: func @multipole(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x4x16x8xf32>, %[[K:[^:]*]]: tensor<2x2x16x8xf32>, %[[W:[^:]*]]: tensor<2x2x4x8xf32>, %[[B:[^:]*]]: tensor<2x2x8xf32>,
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]]) in (2, 4) shared_outs(%[[O:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}})
// CHECK-DAG: %[[G:.*]] = affine.apply #[[$PAIR]](%[[H]])
// CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[Q]][%[[I]], %[[H]], 0, 0] [1, 1, 16, 8]
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[I]], %[[G]], 0, 0] [1, 1, 16, 8]
// CHECK-DAG: %[[WT:.*]] = tensor.extract_slice %[[W]][%[[G]], 0, 0, 0] [1, 2, 4, 8]
// CHECK-DAG: %[[BT:.*]] = tensor.extract_slice %[[B]][%[[G]], 0, 0] [1, 2, 8]
// CHECK: %[[T:.*]]:2 = attn.fast_multipole ins(%[[QT]], %[[KT]], %[[KT]] : {{.*}}) key_weights(%[[WT]] : {{.*}}) value_weights(%[[WT]] : {{.*}}) key_biases(%[[BT]] : {{.*}}) {{.*}} {causal, group = 4 : i64
// CHECK-DAG: tensor.parallel_insert_slice %[[T]]#0 into %[[O]][%[[I]], %[[H]], 0, 0] [1, 1, 16, 8]
// CHECK-DAG: tensor.parallel_insert_slice %[[T]]#1 into %[[L]][%[[I]], %[[H]], 0] [1, 1, 16]
func.func @multipole(%q: tensor<2x4x16x8xf32>, %k: tensor<2x2x16x8xf32>, %w: tensor<2x2x4x8xf32>, %b: tensor<2x2x8xf32>,
                     %o: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>) -> (tensor<2x4x16x8xf32>, tensor<2x4x16xf32>) {
  %0:2 = attn.fast_multipole ins(%q, %k, %k : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x8xf32>)
      key_weights(%w : tensor<2x2x4x8xf32>) value_weights(%w : tensor<2x2x4x8xf32>) key_biases(%b : tensor<2x2x8xf32>)
      outs(%o, %l : tensor<2x4x16x8xf32>, tensor<2x4x16xf32>) {group = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x4x16xf32>
  return %0#0, %0#1 : tensor<2x4x16x8xf32>, tensor<2x4x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.fast_multipole"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Batch entries alone: all heads, all weights.
// CHECK-LABEL: func @linear(
// CHECK: scf.forall (%{{.*}}) in (2)
// CHECK: attn.fast_multipole_linear ins(%{{.*}} : tensor<1x4x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>)
// CHECK-SAME: query_weights(%{{.*}} : tensor<4x2x4x8xf32>) key_weights(%{{.*}} : tensor<2x2x4x8xf32>)
func.func @linear(%q: tensor<2x4x16x8xf32>, %k: tensor<2x2x16x8xf32>, %qw: tensor<4x2x4x8xf32>, %w: tensor<2x2x4x8xf32>,
                  %o: tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32> {
  %0 = attn.fast_multipole_linear ins(%q, %k, %k : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x8xf32>)
      query_weights(%qw : tensor<4x2x4x8xf32>) key_weights(%w : tensor<2x2x4x8xf32>) value_weights(%w : tensor<2x2x4x8xf32>)
      outs(%o : tensor<2x4x16x8xf32>) {group = 4 : i64} -> tensor<2x4x16x8xf32>
  return %0 : tensor<2x4x16x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.fast_multipole_linear"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Two of four heads, which share keys in pairs.
func.func @partial(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %w: tensor<1x2x4x8xf32>) -> tensor<1x4x16x8xf32> {
  // expected-error @below {{'attn.fast_multipole' op with shared key heads can be tiled only by one query head or all of them}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %0 = attn.fast_multipole ins(%q, %k, %k : tensor<1x4x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>)
      key_weights(%w : tensor<1x2x4x8xf32>) value_weights(%w : tensor<1x2x4x8xf32>)
      outs(%q : tensor<1x4x16x8xf32>) {group = 4 : i64} -> tensor<1x4x16x8xf32>
  return %0 : tensor<1x4x16x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.fast_multipole"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// One batch entry has its row of a mask.
// CHECK-LABEL: func @masked(
// CHECK-SAME: %[[M:[^:]*]]: tensor<3x64xi1>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]]) in (3, 2)
// CHECK: %[[MT:.*]] = tensor.extract_slice %[[M]][%[[I]], 0] [1, 64]
// CHECK: attn.fast_multipole ins({{.*}}) mask(%[[MT]] : tensor<1x64xi1>)
func.func @masked(%m: tensor<3x64xi1>, %q: tensor<3x2x64x8xf32>, %o: tensor<3x2x64x8xf32>) -> tensor<3x2x64x8xf32> {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<3x2x64x8xf32>, tensor<3x2x64x8xf32>, tensor<3x2x64x8xf32>)
      mask(%m : tensor<3x64xi1>) outs(%o : tensor<3x2x64x8xf32>) {group = 32 : i64} -> tensor<3x2x64x8xf32>
  return %0 : tensor<3x2x64x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.fast_multipole"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
