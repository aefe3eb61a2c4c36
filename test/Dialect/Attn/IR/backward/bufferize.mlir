// RUN: fovea-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --canonicalize | FileCheck %s

// Destinations of dense gradients are overwritten, whatever they hold.
// CHECK-LABEL: func @dense(
// CHECK-SAME: %[[Q:[^:]*]]: memref<1x2x4x8xf32>, %[[L:[^:]*]]: memref<1x2x4xf32>, %[[DQ:[^:]*]]: memref<1x2x4x8xf32>, %[[DK:[^:]*]]: memref<1x2x4x8xf32>, %[[DV:[^:]*]]: memref<1x2x4x8xf32>
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: attn.dense_backward ins(%[[Q]], %[[Q]], %[[Q]] :
// CHECK-SAME: outs(%[[DQ]], %[[DK]], %[[DV]] : memref<1x2x4x8xf32>, memref<1x2x4x8xf32>, memref<1x2x4x8xf32>)
// CHECK-NOT: memref.copy
// CHECK: return %[[DQ]]
func.func @dense(%q: tensor<1x2x4x8xf32>, %l: tensor<1x2x4xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x4x8xf32>, %dv: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %r:3 = attn.dense_backward ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      forward(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%q : tensor<1x2x4x8xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
  return %r#0 : tensor<1x2x4x8xf32>
}

// Gradients of summaries are added in place, level after level.
// CHECK-LABEL: func @levels(
// CHECK-SAME: memref<1x1x2x4xf32>, %[[DX:[^:]*]]: memref<1x1x8x4xf32>, %[[DW:[^:]*]]: memref<1x1x4x4xf32>
// CHECK-NOT: memref.alloc
// CHECK: attn.summarize_backward {{.*}} outs(%[[DX]], %[[DW]] :
// CHECK-NOT: memref.copy
// CHECK: attn.summarize_backward {{.*}} outs(%[[DX]], %[[DW]] :
// CHECK: return %[[DX]], %[[DW]]
func.func @levels(%x: tensor<1x1x8x4xf32>, %w: tensor<1x1x4x4xf32>, %g: tensor<1x1x2x4xf32>, %dx: tensor<1x1x8x4xf32>, %dw: tensor<1x1x4x4xf32>)
    -> (tensor<1x1x8x4xf32>, tensor<1x1x4x4xf32>) {
  %0:2 = attn.summarize_backward ins(%x : tensor<1x1x8x4xf32>) weights(%w : tensor<1x1x4x4xf32>) gradient(%g : tensor<1x1x2x4xf32>)
      outs(%dx, %dw : tensor<1x1x8x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x1x8x4xf32>, tensor<1x1x4x4xf32>
  %1:2 = attn.summarize_backward ins(%x : tensor<1x1x8x4xf32>) weights(%w : tensor<1x1x4x4xf32>) gradient(%g : tensor<1x1x2x4xf32>)
      outs(%0#0, %0#1 : tensor<1x1x8x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x1x8x4xf32>, tensor<1x1x4x4xf32>
  return %1#0, %1#1 : tensor<1x1x8x4xf32>, tensor<1x1x4x4xf32>
}
