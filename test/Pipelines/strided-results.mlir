// RUN: fovea-opt %s -attn-reference-pipeline | FileCheck %s

// No call of a support library remains, whatever the layout of a slice.

//   CHECK-NOT: memrefCopy
// CHECK-LABEL: llvm.func @slices(
//   CHECK-NOT: memrefCopy
func.func @slices(%x: tensor<4x6xf32>) -> (tensor<2x3xf32>, tensor<4x6xf32>) {
  %slice = tensor.extract_slice %x[1, 0] [2, 3] [2, 2] : tensor<4x6xf32> to tensor<2x3xf32>
  return %slice, %x : tensor<2x3xf32>, tensor<4x6xf32>
}
