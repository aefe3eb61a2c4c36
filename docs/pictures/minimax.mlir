// MiniMax M3, of docs/patterns: a query of a key head reads its own block of 8 tokens, and three earlier ones, each for the
// best key that it has for the indexer. The model has blocks of 128, and 15 of them.
func.func @minimax(%q: tensor<1x1x64x8xf32>, %k: tensor<1x1x64x8xf32>, %v: tensor<1x1x64x64xf32>) -> tensor<1x1x64x64xf32> {
  %chosen = arith.constant dense<[[[[0, -1, -1, -1], [0, -1, -1, -1], [0, -1, -1, -1], [0, -1, -1, -1], [0, -1, -1, -1], [0, -1, -1, -1],
      [0, -1, -1, -1], [0, -1, -1, -1], [1, 0, -1, -1], [1, 0, -1, -1], [1, 0, -1, -1], [1, 0, -1, -1],
      [1, 0, -1, -1], [1, 0, -1, -1], [1, 0, -1, -1], [1, 0, -1, -1], [2, 0, 1, -1], [2, 0, 1, -1],
      [2, 1, 0, -1], [2, 0, 1, -1], [2, 0, 1, -1], [2, 0, 1, -1], [2, 0, 1, -1], [2, 0, 1, -1],
      [3, 1, 2, 0], [3, 0, 1, 2], [3, 0, 1, 2], [3, 1, 2, 0], [3, 1, 0, 2], [3, 2, 1, 0],
      [3, 1, 0, 2], [3, 0, 2, 1], [4, 2, 1, 0], [4, 3, 0, 1], [4, 1, 3, 0], [4, 3, 1, 0],
      [4, 2, 3, 1], [4, 3, 2, 1], [4, 1, 2, 3], [4, 1, 2, 3], [5, 1, 3, 2], [5, 2, 1, 3],
      [5, 1, 2, 4], [5, 1, 4, 2], [5, 1, 4, 2], [5, 2, 4, 0], [5, 2, 4, 0], [5, 0, 4, 2],
      [6, 2, 4, 0], [6, 2, 5, 4], [6, 4, 2, 5], [6, 4, 2, 5], [6, 4, 2, 1], [6, 2, 4, 1],
      [6, 1, 5, 4], [6, 1, 0, 5], [7, 1, 5, 0], [7, 2, 0, 5], [7, 0, 5, 1], [7, 3, 1, 5],
      [7, 2, 3, 5], [7, 5, 3, 1], [7, 5, 1, 4], [7, 3, 1, 4]]]]> : tensor<1x1x64x4xi32>
  %init = tensor.empty() : tensor<1x1x64x64xf32>
  %out = attn.stream query(%q : tensor<1x1x64x8xf32>)
      source(%k, %v : tensor<1x1x64x8xf32>, tensor<1x1x64x64xf32>)
          rows(%chosen : tensor<1x1x64x4xi32>) unit = 8
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%init : tensor<1x1x64x64xf32>)
      {block = 1 : i64, scale = 1.0 : f64} -> tensor<1x1x64x64xf32>
  return %out : tensor<1x1x64x64xf32>
}
