// Blocks of 4 tokens, as BigBird has them: those beside a query's own, one that all read and which reads all, and one at random.
func.func @bigbird(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %random = arith.constant dense<[[[[-1], [5], [7], [1], [6], [2], [3], [4]]]]> : tensor<1x1x8x1xi32>
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.stream query(%q : tensor<1x1x32x8xf32>)
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 4 - 4, b * 4 + 8, 4, b * 4096)>]
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 4)>]
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 4096, rows, 4, rows)>]
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          rows(%random : tensor<1x1x8x1xi32>) unit = 4
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : tensor<1x1x32x32xf32>)
      {block = 4 : i64, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
