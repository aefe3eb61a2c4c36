// RUN: fovea-opt %s --attn-decompose-linalg | FileCheck %s

// CHECK-LABEL: func.func @softmax(
//   CHECK-NOT:   arith.extf
//       CHECK:   arith.maximumf
//       CHECK:   math.exp
//       CHECK:   arith.addf
//       CHECK:   arith.divf
func.func @softmax(%x: tensor<4x8xf32>, %o: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%o : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// Sums of many narrow numbers would stop to grow.
// CHECK-LABEL: func.func @narrow(
//       CHECK:   %[[WIDE:.*]] = arith.extf %{{.*}} : tensor<4x?xbf16> to tensor<4x?xf32>
//       CHECK:   arith.addf %{{.*}} : f32
//       CHECK:   %[[R:.*]] = arith.truncf %{{.*}} : tensor<4x?xf32> to tensor<4x?xbf16>
//       CHECK:   return %[[R]]
func.func @narrow(%x: tensor<4x?xbf16>, %o: tensor<4x?xbf16>) -> tensor<4x?xbf16> {
  %r = linalg.softmax dimension(1) ins(%x : tensor<4x?xbf16>) outs(%o : tensor<4x?xbf16>) -> tensor<4x?xbf16>
  return %r : tensor<4x?xbf16>
}

// CHECK-LABEL: func.func @pack(
//   CHECK-NOT:   linalg.pack
//       CHECK:   tensor.pad
//       CHECK:   tensor.expand_shape
//       CHECK:   linalg.transpose
//   CHECK-NOT:   linalg.unpack
//       CHECK:   tensor.extract_slice
func.func @pack(%x: tensor<5x8xf32>, %p: tensor<2x2x3x4xf32>, %z: f32) -> tensor<5x8xf32> {
  %0 = linalg.pack %x padding_value(%z : f32) inner_dims_pos = [0, 1] inner_tiles = [3, 4] into %p
      : tensor<5x8xf32> -> tensor<2x2x3x4xf32>
  %1 = linalg.unpack %0 inner_dims_pos = [0, 1] inner_tiles = [3, 4] into %x : tensor<2x2x3x4xf32> -> tensor<5x8xf32>
  return %1 : tensor<5x8xf32>
}
