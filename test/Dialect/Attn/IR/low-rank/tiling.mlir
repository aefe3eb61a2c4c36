// RUN: fovea-opt %s --transform-interpreter --canonicalize --cse --split-input-file --verify-diagnostics | FileCheck %s

// Rows are cut; positions that all heads share are not cut by head.
// CHECK-LABEL: func @rows(
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x4x50x8xf32>, %[[P:[^:]*]]: tensor<3x1x50xi32>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]], %[[T:.*]]) in (3, 4, 5)
// CHECK-DAG: %[[ROW:.*]] = affine.apply {{.*}}(%[[T]])
// CHECK-DAG: %[[XT:.*]] = tensor.extract_slice %[[X]][%[[I]], %[[H]], %[[ROW]], 0] [1, 1, 10, 8]
// CHECK-DAG: %[[PT:.*]] = tensor.extract_slice %[[P]][%[[I]], 0, %[[ROW]]] [1, 1, 10]
// CHECK: attn.rope ins(%[[XT]], %[[PT]] : {{.*}}) outs({{.*}}) {base = 5.000000e+02 : f64}
// CHECK: tensor.parallel_insert_slice {{.*}}[%[[I]], %[[H]], %[[ROW]], 0] [1, 1, 10, 8]
// CHECK: scf.forall
// CHECK: attn.polynomial_features ins(%{{.*}} : tensor<1x1x10x8xf32>) outs(%{{.*}} : tensor<1x1x10x9xf32>) {degree = 1 : i64, scale = 2.000000e+00 : f64}
// CHECK: tensor.parallel_insert_slice {{.*}} [1, 1, 10, 9]
// CHECK: scf.forall
// CHECK: attn.polynomial_features_backward ins(%{{.*}} : tensor<1x1x10x8xf32>) gradient(%{{.*}} : tensor<1x1x10x9xf32>) outs(%{{.*}} : tensor<1x1x10x8xf32>) {degree = 1 : i64, scale = 2.000000e+00 : f64}
// CHECK: tensor.parallel_insert_slice {{.*}} [1, 1, 10, 8]
func.func @rows(%x: tensor<3x4x50x8xf32>, %p: tensor<3x1x50xi32>, %o: tensor<3x4x50x8xf32>, %f: tensor<3x4x50x9xf32>)
    -> (tensor<3x4x50x8xf32>, tensor<3x4x50x9xf32>, tensor<3x4x50x8xf32>) {
  %0 = attn.rope ins(%x, %p : tensor<3x4x50x8xf32>, tensor<3x1x50xi32>) outs(%o : tensor<3x4x50x8xf32>) {base = 500.0 : f64} -> tensor<3x4x50x8xf32>
  %1 = attn.polynomial_features ins(%x : tensor<3x4x50x8xf32>) outs(%f : tensor<3x4x50x9xf32>) {degree = 1 : i64, scale = 2.0 : f64} -> tensor<3x4x50x9xf32>
  %2 = attn.polynomial_features_backward ins(%x : tensor<3x4x50x8xf32>) gradient(%f : tensor<3x4x50x9xf32>)
      outs(%o : tensor<3x4x50x8xf32>) {degree = 1 : i64, scale = 2.0 : f64} -> tensor<3x4x50x8xf32>
  return %0, %1, %2 : tensor<3x4x50x8xf32>, tensor<3x4x50x9xf32>, tensor<3x4x50x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.rope", "attn.polynomial_features", "attn.polynomial_features_backward"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 10] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A head finds its keys, and its part of the mask where it has one.
// CHECK-LABEL: func @heads(
// CHECK-SAME: %[[U1:[^:]*]]: tensor<3x4x9x5xf32>, %[[U2:[^:]*]]: tensor<3x2x7x5xf32>, %[[V:[^:]*]]: tensor<3x2x7x8xf32>, %[[G:[^:]*]]: tensor<1x1x9xi32>, %[[R:[^:]*]]: tensor<1x4x3x7xi1>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]]) in (3, 4)
// CHECK-DAG: %[[KH:.*]] = affine.apply {{.*}}(%[[H]])
// CHECK-DAG: %[[U2T:.*]] = tensor.extract_slice %[[U2]][%[[I]], %[[KH]], 0, 0] [1, 1, 7, 5]
// CHECK-DAG: %[[VT:.*]] = tensor.extract_slice %[[V]][%[[I]], %[[KH]], 0, 0] [1, 1, 7, 8]
// CHECK-DAG: %[[RT:.*]] = tensor.extract_slice %[[R]][0, %[[H]], 0, 0] [1, 1, 3, 7]
// CHECK: attn.low_rank ins(%{{.*}}, %[[U2T]], %[[VT]] : {{.*}}) mask(%[[G]], %[[RT]] : tensor<1x1x9xi32>, tensor<1x1x3x7xi1>)
func.func @heads(%u1: tensor<3x4x9x5xf32>, %u2: tensor<3x2x7x5xf32>, %v: tensor<3x2x7x8xf32>, %g: tensor<1x1x9xi32>, %r: tensor<1x4x3x7xi1>, %o: tensor<3x4x9x8xf32>) -> tensor<3x4x9x8xf32> {
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<3x4x9x5xf32>, tensor<3x2x7x5xf32>, tensor<3x2x7x8xf32>)
      mask(%g, %r : tensor<1x1x9xi32>, tensor<1x4x3x7xi1>) outs(%o : tensor<3x4x9x8xf32>) {mask = #attn.row_mask<distinct_rows>} -> tensor<3x4x9x8xf32>
  return %0 : tensor<3x4x9x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.low_rank"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
