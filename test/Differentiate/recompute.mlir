// RUN: fovea-opt %s --attn-differentiate | FileCheck %s
// RUN: fovea-opt %s --attn-differentiate=recompute=false | FileCheck %s --check-prefix=KEPT

// What the first product reads is computed again: that takes an exponential of an
// argument. What the second product reads is kept: what it is computed from is not.

// CHECK-LABEL: func.func @gate_vjp(
//  CHECK-SAME:     %[[X:[a-z0-9]*]]: tensor<4x8xf32>
//       CHECK:   %[[E:.*]] = linalg.generic {{.*}} ins(%[[X]]
//       CHECK:     math.exp
//       CHECK:   %[[Y:.*]] = linalg.matmul ins(%[[E]],
//       CHECK:   %[[R:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[X]]
//       CHECK:     arith.addf
// The gradients of the second product.
//       CHECK:   linalg.generic
//       CHECK:   %[[DW:.*]] = linalg.generic {{.*}} ins(%[[R]],
// Those of the first, whose weights are the same.
//       CHECK:   linalg.generic
//       CHECK:   %[[E2:.*]] = linalg.generic {{.*}} ins(%[[X]] {{.*}} attrs = {{ *}}{attn.recomputed}
//       CHECK:   linalg.generic {{.*}} ins(%[[E2]], {{.*}} outs(%[[DW]]

// KEPT-LABEL: func.func @gate_vjp(
//       KEPT:   %[[E:.*]] = linalg.generic
//       KEPT:     math.exp
//   KEPT-NOT:   attn.recomputed
//       KEPT:   linalg.generic {{.*}} ins(%[[E]], %{{.*}} outs(%{{.*}} : tensor<8x8xf32>)
func.func @gate(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %zeros = arith.constant dense<0.0> : tensor<4x8xf32>
  %e = math.exp %x : tensor<4x8xf32>
  %y = linalg.matmul ins(%e, %w : tensor<4x8xf32>, tensor<8x8xf32>)
      outs(%zeros : tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = arith.addf %y, %x : tensor<4x8xf32>
  %z = linalg.matmul ins(%r, %w : tensor<4x8xf32>, tensor<8x8xf32>)
      outs(%zeros : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %z : tensor<4x8xf32>
}
