// RUN: fovea-opt %s --attn-expand-patterns --canonicalize | FileCheck %s

// Whole intervals are one product, and a last one that is cut is another, with
// the weights of its tokens alone.

// CHECK-LABEL: func @summarize(
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x4x50x8xf32>, %[[W:[^:]*]]: tensor<2x2x16x8x8xf32>
// CHECK: %[[WHOLE:.*]] = tensor.extract_slice %[[X]][0, 0, 0, 0] [3, 4, 48, 8]
// CHECK: %[[XS:.*]] = tensor.expand_shape %[[WHOLE]] {{.*}} into tensor<3x2x2x3x16x8xf32>
// CHECK: linalg.contract {{.*}} ins(%[[XS]], %[[W]] : {{.*}}) outs({{.*}} : tensor<3x2x2x3x2x8xf32>)
// CHECK: %[[REST:.*]] = tensor.extract_slice %[[X]][0, 0, 48, 0] [3, 4, 2, 8]
// CHECK: %[[XR:.*]] = tensor.expand_shape %[[REST]] {{.*}} into tensor<3x2x2x1x2x8xf32>
// CHECK: %[[WR:.*]] = tensor.extract_slice %[[W]][0, 0, 0, 0, 0] [2, 2, 2, 8, 8]
// CHECK: linalg.contract {{.*}} ins(%[[XR]], %[[WR]] : {{.*}}) outs({{.*}} : tensor<3x2x2x1x2x8xf32>)
// CHECK-NOT: attn.summarize
func.func @summarize(%x: tensor<3x4x50x8xf32>, %w: tensor<2x2x16x8x8xf32>, %o: tensor<3x4x8x8xf32>) -> tensor<3x4x8x8xf32> {
  %0 = attn.summarize ins(%x : tensor<3x4x50x8xf32>) weights(%w : tensor<2x2x16x8x8xf32>)
      outs(%o : tensor<3x4x8x8xf32>) -> tensor<3x4x8x8xf32>
  return %0 : tensor<3x4x8x8xf32>
}
