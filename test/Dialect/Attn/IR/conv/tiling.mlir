// RUN: fovea-opt %s --transform-interpreter --canonicalize --cse | FileCheck %s

// One head at a time, with the keys it reads.
// CHECK-LABEL: func @heads(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<3x4x9x6xf32>, %[[K:[^:]*]]: tensor<3x2x9x6xf32>, %[[V:[^:]*]]: tensor<3x2x9x5xf32>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]]) in (3, 4)
// CHECK-DAG: %[[KH:.*]] = affine.apply {{.*}}(%[[H]])
// CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[Q]][%[[I]], %[[H]], 0, 0] [1, 1, 9, 6]
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[I]], %[[KH]], 0, 0] [1, 1, 9, 6]
// CHECK: attn.conv_recover ins(%[[QT]], %[[KT]] : {{.*}}) outs(%{{.*}} : tensor<1x1x3x9xf32>, tensor<1x1x3xi32>, tensor<1x1xi32>) {delta = 1.000000e+00 : f64, epsilon = 0.000000e+00 : f64, window = 2 : i64}
// CHECK: tensor.parallel_insert_slice {{.*}}[%[[I]], %[[H]], 0, 0] [1, 1, 3, 9]
// CHECK: scf.forall
// CHECK-DAG: tensor.extract_slice %[[V]][%{{.*}}, %{{.*}}, 0, 0] [1, 1, 9, 5]
// CHECK: attn.conv ins({{.*}} : tensor<1x1x9x6xf32>, tensor<1x1x9x6xf32>, tensor<1x1x9x5xf32>) outs({{.*}} : tensor<1x1x9x5xf32>, tensor<1x1xi32>, tensor<1x1xi32>)
func.func @heads(%q: tensor<3x4x9x6xf32>, %k: tensor<3x2x9x6xf32>, %v: tensor<3x2x9x5xf32>, %b: tensor<3x4x3x9xf32>, %m: tensor<3x4x3xi32>,
    %n: tensor<3x4xi32>, %o: tensor<3x4x9x5xf32>) -> (tensor<3x4x3x9xf32>, tensor<3x4x9x5xf32>) {
  %0:3 = attn.conv_recover ins(%q, %k : tensor<3x4x9x6xf32>, tensor<3x2x9x6xf32>) outs(%b, %m, %n : tensor<3x4x3x9xf32>, tensor<3x4x3xi32>, tensor<3x4xi32>)
      {window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<3x4x3x9xf32>, tensor<3x4x3xi32>, tensor<3x4xi32>
  %1:3 = attn.conv ins(%q, %k, %v : tensor<3x4x9x6xf32>, tensor<3x2x9x6xf32>, tensor<3x2x9x5xf32>) outs(%o, %n, %n : tensor<3x4x9x5xf32>, tensor<3x4xi32>, tensor<3x4xi32>)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<3x4x9x5xf32>, tensor<3x4xi32>, tensor<3x4xi32>
  return %0#0, %1#0 : tensor<3x4x3x9xf32>, tensor<3x4x9x5xf32>
}

// Heads of a batch entry share its length.
// CHECK-LABEL: func @lengths(
// CHECK-SAME: %[[L:[^:]*]]: tensor<3xi32>
// CHECK: scf.forall (%[[I:.*]], %{{.*}}) in (3, 4)
// CHECK-DAG: %[[LT:.*]] = tensor.extract_slice %[[L]][%[[I]]] [1] [1]
// CHECK: attn.conv_recover ins({{.*}}) lengths(%[[LT]] : tensor<1xi32>)
func.func @lengths(%lengths: tensor<3xi32>, %q: tensor<3x4x9x6xf32>, %b: tensor<3x4x3x9xf32>, %m: tensor<3x4x3xi32>, %n: tensor<3x4xi32>) -> tensor<3x4x3x9xf32> {
  %0:3 = attn.conv_recover ins(%q, %q : tensor<3x4x9x6xf32>, tensor<3x4x9x6xf32>) lengths(%lengths : tensor<3xi32>) outs(%b, %m, %n : tensor<3x4x3x9xf32>, tensor<3x4x3xi32>, tensor<3x4xi32>)
      {window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<3x4x3x9xf32>, tensor<3x4x3xi32>, tensor<3x4xi32>
  return %0#0 : tensor<3x4x3x9xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.conv_recover", "attn.conv"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
