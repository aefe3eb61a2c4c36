// RUN: fovea-opt %s --attn-differentiate | FileCheck %s

// A layer without attention. The gradients of a product are products, and the
// hyperbolic tangent is computed where its derivative is.

// CHECK-DAG:   #[[$W:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG:   #[[$Y:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG:   #[[$X:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @layer(
// CHECK-LABEL: func.func @layer_vjp(
//  CHECK-SAME:     %[[X_IN:.*]]: tensor<4x8xf32>, %[[W_IN:.*]]: tensor<8x16xf32>, %[[D:.*]]: tensor<4x16xf32>
//  CHECK-SAME:     -> (tensor<4x8xf32>, tensor<8x16xf32>)
//       CHECK:   %[[PRODUCT:.*]] = linalg.matmul ins(%[[X_IN]], %[[W_IN]]
//       CHECK:   %[[DY:.*]] = linalg.generic {{.*}} ins(%[[PRODUCT]], %[[D]]
//       CHECK:   ^bb0(%[[IN:.*]]: f32, %[[D_OUT:.*]]: f32, %{{.*}}: f32):
//       CHECK:     %[[TANH:.*]] = math.tanh %[[IN]]
//       CHECK:     %[[ONE:.*]] = arith.constant 1.0
//       CHECK:     %[[SQUARE:.*]] = arith.mulf %[[TANH]], %[[TANH]]
//       CHECK:     %[[REST:.*]] = arith.subf %[[ONE]], %[[SQUARE]]
//       CHECK:     arith.mulf %[[D_OUT]], %[[REST]]
//       CHECK:   %[[DX:.*]] = linalg.generic {indexing_maps = [#[[$W]], #[[$Y]], #[[$X]]], iterator_types = ["parallel", "reduction", "parallel"]}
//  CHECK-SAME:       ins(%[[W_IN]], %[[DY]]
//       CHECK:     %[[TERM:.*]] = arith.mulf
//       CHECK:     arith.addf %{{.*}}, %[[TERM]]
//       CHECK:   %[[DW:.*]] = linalg.generic {indexing_maps = [#[[$X]], #[[$Y]], #[[$W]]], iterator_types = ["reduction", "parallel", "parallel"]}
//  CHECK-SAME:       ins(%[[X_IN]], %[[DY]]
//       CHECK:   return %[[DX]], %[[DW]]
func.func @layer(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x16xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x16xf32>) -> tensor<4x16xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x16xf32>)
      outs(%init : tensor<4x16xf32>) -> tensor<4x16xf32>
  %t = math.tanh %y : tensor<4x16xf32>
  return %t : tensor<4x16xf32>
}
