// RUN: fovea-opt %s --canonicalize --split-input-file | FileCheck %s

// Slices keep the extents that their types say, where several are 1. Upstream's own
// patterns make them invalid or crash; ours come first, also for IR without the dialect.

// CHECK-LABEL: func @extract(
//       CHECK:   tensor.extract_slice %{{.*}}[0, 0, 0] [1, 4, 1] [1, 1, 1] : tensor<1x?x8xf32> to tensor<1x4xf32>
//       CHECK:   tensor.cast %{{.*}} : tensor<1x4xf32> to tensor<1x?xf32>
func.func @extract(%x: tensor<1x?x8xf32>) -> tensor<1x?xf32> {
  %c4 = arith.constant 4 : index
  %s = tensor.extract_slice %x[0, 0, 0] [1, %c4, 1] [1, 1, 1] : tensor<1x?x8xf32> to tensor<1x?xf32>
  return %s : tensor<1x?xf32>
}

// CHECK-LABEL: func @cast(
//  CHECK-NEXT:   tensor.extract_slice %{{.*}}[0, 0, 0] [1, 4, 1] [1, 1, 1] : tensor<1x4x8xf32> to tensor<1x4xf32>
//  CHECK-NEXT:   return
func.func @cast(%x: tensor<1x4x8xf32>) -> tensor<1x4xf32> {
  %c1 = arith.constant 1 : index
  %cast = tensor.cast %x : tensor<1x4x8xf32> to tensor<1x?x8xf32>
  %n = tensor.dim %cast, %c1 : tensor<1x?x8xf32>
  %s = tensor.extract_slice %cast[0, 0, 0] [1, %n, 1] [1, 1, 1] : tensor<1x?x8xf32> to tensor<1x?xf32>
  %r = tensor.cast %s : tensor<1x?xf32> to tensor<1x4xf32>
  return %r : tensor<1x4xf32>
}

// CHECK-LABEL: func @insert(
//       CHECK:   tensor.cast %{{.*}} : tensor<1x?xf32> to tensor<1x4xf32>
//       CHECK:   tensor.insert_slice %{{.*}} into %{{.*}}[0, 0, 2] [1, 4, 1] [1, 1, 1] : tensor<1x4xf32> into tensor<1x?x8xf32>
func.func @insert(%s: tensor<1x?xf32>, %x: tensor<1x?x8xf32>) -> tensor<1x?x8xf32> {
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %r = tensor.insert_slice %s into %x[0, 0, %c2] [1, %c4, 1] [1, 1, 1] : tensor<1x?xf32> into tensor<1x?x8xf32>
  return %r : tensor<1x?x8xf32>
}
