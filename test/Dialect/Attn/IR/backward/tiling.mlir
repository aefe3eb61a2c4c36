// RUN: fovea-opt %s --transform-interpreter --canonicalize --cse --split-input-file --verify-diagnostics | FileCheck %s

// Batch entries are apart; a log weight that they share stays whole.
// CHECK-LABEL: func @dense(
// CHECK: scf.forall (%[[I:.*]]) in (3)
// CHECK: %[[Q:.*]] = tensor.extract_slice %{{.*}}[%[[I]], 0, 0, 0] [1, 4, 8, 16]
// CHECK: %[[R:.*]]:3 = attn.dense_backward ins(%[[Q]], {{[^:]*}} : tensor<1x4x8x16xf32>, tensor<1x2x12x16xf32>, tensor<1x2x12x16xf32>)
// CHECK-SAME: log_weight({{[^:]*}} : tensor<1x2x12xf32>)
// CHECK-SAME: forward({{[^:]*}} : tensor<1x4x8x16xf32>, tensor<1x4x8xf32>)
// CHECK-DAG: tensor.parallel_insert_slice %[[R]]#0 into %{{.*}}[%[[I]], 0, 0, 0] [1, 4, 8, 16]
// CHECK-DAG: tensor.parallel_insert_slice %[[R]]#2 into %{{.*}}[%[[I]], 0, 0, 0] [1, 2, 12, 16]
func.func @dense(%q: tensor<3x4x8x16xf32>, %k: tensor<3x2x12x16xf32>, %w: tensor<1x2x12xf32>, %l: tensor<3x4x8xf32>)
    -> (tensor<3x4x8x16xf32>, tensor<3x2x12x16xf32>, tensor<3x2x12x16xf32>) {
  %a = tensor.empty() : tensor<3x4x8x16xf32>
  %b = tensor.empty() : tensor<3x2x12x16xf32>
  %c = tensor.empty() : tensor<3x2x12x16xf32>
  %r:3 = attn.dense_backward ins(%q, %k, %k : tensor<3x4x8x16xf32>, tensor<3x2x12x16xf32>, tensor<3x2x12x16xf32>) log_weight(%w : tensor<1x2x12xf32>)
      forward(%q, %l : tensor<3x4x8x16xf32>, tensor<3x4x8xf32>) gradient(%q : tensor<3x4x8x16xf32>)
      outs(%a, %b, %c : tensor<3x4x8x16xf32>, tensor<3x2x12x16xf32>, tensor<3x2x12x16xf32>)
      -> tensor<3x4x8x16xf32>, tensor<3x2x12x16xf32>, tensor<3x2x12x16xf32>
  return %r#0, %r#1, %r#2 : tensor<3x4x8x16xf32>, tensor<3x2x12x16xf32>, tensor<3x2x12x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense_backward"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @shared_bias(%q: tensor<2x1x8x4xf32>, %b: tensor<1x1x8x8xf32>, %l: tensor<2x1x8xf32>) -> tensor<1x1x8x8xf32> {
  // expected-error @below {{cannot be tiled with a gradient of a log weight, bias or sink that batch entries share}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %r:4 = attn.dense_backward ins(%q, %q, %q : tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32>) bias(%b : tensor<1x1x8x8xf32>)
      forward(%q, %l : tensor<2x1x8x4xf32>, tensor<2x1x8xf32>) gradient(%q : tensor<2x1x8x4xf32>)
      outs(%q, %q, %q : tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32>) d_bias(%b : tensor<1x1x8x8xf32>)
      -> tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32>, tensor<1x1x8x8xf32>
  return %r#3 : tensor<1x1x8x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense_backward"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
