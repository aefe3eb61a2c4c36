// MoBA, of docs/patterns: every query of a head reads its own block of 4 tokens, and the two earlier ones whose means it likes best.
func.func @moba(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %chosen = arith.constant dense<[[[[0, -1, -1], [0, -1, -1], [0, -1, -1], [0, -1, -1], [1, 0, -1], [1, 0, -1],
      [1, 0, -1], [1, 0, -1], [2, 1, 0], [2, 1, 0], [2, 1, 0], [2, 1, 0],
      [3, 0, 1], [3, 2, 1], [3, 2, 1], [3, 0, 2], [4, 1, 0], [4, 3, 0],
      [4, 3, 0], [4, 3, 0], [5, 3, 2], [5, 1, 3], [5, 3, 1], [5, 3, 1],
      [6, 3, 1], [6, 1, 3], [6, 1, 3], [6, 1, 3], [7, 1, 0], [7, 1, 0],
      [7, 0, 1], [7, 0, 1]]]]> : tensor<1x1x32x3xi32>
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.stream query(%q : tensor<1x1x32x8xf32>)
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          rows(%chosen : tensor<1x1x32x3xi32>) unit = 4
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%init : tensor<1x1x32x32xf32>)
      {block = 1 : i64, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
