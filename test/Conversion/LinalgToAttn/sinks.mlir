// A score beside those of the keys, whose weight is dropped, is a sink.

// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-run %s --entry=main --random --compare=reference
// RUN: fovea-run %s --entry=main --random --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=shifted --random --compare=reference

// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[Q:.+]]: tensor<2x4x8xf32>, %[[K:.+]]: tensor<2x6x8xf32>, %[[V:.+]]: tensor<2x6x8xf32>, %[[S:.+]]: tensor<2xf32>)
// CHECK-NOT:     linalg.softmax
// CHECK:         %[[SINK:.+]] = tensor.expand_shape %[[S]] {{.*}} tensor<2xf32> into tensor<2x1xf32>
// CHECK:         attn.dense {{.*}} sink(%[[SINK]] : tensor<2x1xf32>)
func.func @main(%q: tensor<2x4x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x8xf32>, %sink: tensor<2xf32>) -> tensor<2x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %scores = tensor.empty() : tensor<2x4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %s = linalg.batch_matmul
      indexing_maps = [affine_map<(b, n, m, d) -> (b, n, d)>, affine_map<(b, n, m, d) -> (b, m, d)>, affine_map<(b, n, m, d) -> (b, n, m)>]
      ins(%q, %k : tensor<2x4x8xf32>, tensor<2x6x8xf32>) outs(%zeros : tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %rows = tensor.empty() : tensor<2x4xf32>
  %sinks = linalg.broadcast ins(%sink : tensor<2xf32>) outs(%rows : tensor<2x4xf32>) dimensions = [1]
  %column = tensor.expand_shape %sinks [[0], [1, 2]] output_shape [2, 4, 1] : tensor<2x4xf32> into tensor<2x4x1xf32>
  %all = tensor.concat dim(2) %s, %column : (tensor<2x4x6xf32>, tensor<2x4x1xf32>) -> tensor<2x4x7xf32>
  %weights = tensor.empty() : tensor<2x4x7xf32>
  %p = linalg.softmax dimension(2) ins(%all : tensor<2x4x7xf32>) outs(%weights : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
  %kept = tensor.extract_slice %p[0, 0, 0] [2, 4, 6] [1, 1, 1] : tensor<2x4x7xf32> to tensor<2x4x6xf32>
  %result = tensor.empty() : tensor<2x4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %r = linalg.batch_matmul ins(%kept, %v : tensor<2x4x6xf32>, tensor<2x6x8xf32>) outs(%none : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %r : tensor<2x4x8xf32>
}

// What is subtracted from all scores but the sink counts.
// CHECK-LABEL: func.func @shifted(
// CHECK:         attn.dense {{.*}} bias(%{{.+}} : tensor<1x1x1x1xf32>) sink(
func.func @shifted(%q: tensor<2x4x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x8xf32>, %sink: tensor<2xf32>) -> tensor<2x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %scores = tensor.empty() : tensor<2x4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %s = linalg.batch_matmul
      indexing_maps = [affine_map<(b, n, m, d) -> (b, n, d)>, affine_map<(b, n, m, d) -> (b, m, d)>, affine_map<(b, n, m, d) -> (b, n, m)>]
      ins(%q, %k : tensor<2x4x8xf32>, tensor<2x6x8xf32>) outs(%zeros : tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %two = arith.constant 2.0 : f32
  %t = linalg.generic {indexing_maps = [affine_map<(b, n, m) -> (b, n, m)>, affine_map<(b, n, m) -> (b, n, m)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x4x6xf32>) outs(%scores : tensor<2x4x6xf32>) {
  ^bb0(%score: f32, %o: f32):
    %d = arith.subf %score, %two : f32
    linalg.yield %d : f32
  } -> tensor<2x4x6xf32>
  %rows = tensor.empty() : tensor<2x4xf32>
  %sinks = linalg.broadcast ins(%sink : tensor<2xf32>) outs(%rows : tensor<2x4xf32>) dimensions = [1]
  %column = tensor.expand_shape %sinks [[0], [1, 2]] output_shape [2, 4, 1] : tensor<2x4xf32> into tensor<2x4x1xf32>
  %all = tensor.concat dim(2) %t, %column : (tensor<2x4x6xf32>, tensor<2x4x1xf32>) -> tensor<2x4x7xf32>
  %weights = tensor.empty() : tensor<2x4x7xf32>
  %p = linalg.softmax dimension(2) ins(%all : tensor<2x4x7xf32>) outs(%weights : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
  %kept = tensor.extract_slice %p[0, 0, 0] [2, 4, 6] [1, 1, 1] : tensor<2x4x7xf32> to tensor<2x4x6xf32>
  %result = tensor.empty() : tensor<2x4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %r = linalg.batch_matmul ins(%kept, %v : tensor<2x4x6xf32>, tensor<2x6x8xf32>) outs(%none : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %r : tensor<2x4x8xf32>
}
