// Windows of images have a bias each, which takes the batch apart when all else is known.

// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-run %s --random --compare=reference

// CHECK-LABEL: func.func @main(
// CHECK-NOT:     linalg.softmax
// CHECK:         attn.dense {{.*}} bias(%{{.+}} : tensor<{{.*}}5x5xf32>)
func.func @main(%q: tensor<6x5x8xf32>, %k: tensor<6x5x8xf32>, %v: tensor<6x5x8xf32>, %bias: tensor<3x5x5xf32>) -> tensor<6x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %scores = tensor.empty() : tensor<6x5x5xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<6x5x5xf32>) -> tensor<6x5x5xf32>
  %s = linalg.batch_matmul
      indexing_maps = [affine_map<(b, n, m, d) -> (b, n, d)>, affine_map<(b, n, m, d) -> (b, m, d)>, affine_map<(b, n, m, d) -> (b, n, m)>]
      ins(%q, %k : tensor<6x5x8xf32>, tensor<6x5x8xf32>) outs(%zeros : tensor<6x5x5xf32>) -> tensor<6x5x5xf32>
  %into = tensor.empty() : tensor<2x3x5x5xf32>
  %all = linalg.broadcast ins(%bias : tensor<3x5x5xf32>) outs(%into : tensor<2x3x5x5xf32>) dimensions = [0]
  %biases = tensor.collapse_shape %all [[0, 1], [2], [3]] : tensor<2x3x5x5xf32> into tensor<6x5x5xf32>
  %x = arith.addf %s, %biases : tensor<6x5x5xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<6x5x5xf32>) outs(%scores : tensor<6x5x5xf32>) -> tensor<6x5x5xf32>
  %result = tensor.empty() : tensor<6x5x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<6x5x5xf32>, tensor<6x5x8xf32>) outs(%none : tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  return %o : tensor<6x5x8xf32>
}
