// Blocks of 4 tokens: a query reads its own, and two earlier ones that were chosen for its block.
func.func @selected_blocks(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %chosen = arith.constant dense<[[[[0, -1, -1], [1, 0, -1], [2, 0, 1], [3, 0, 2], [4, 1, 2], [5, 4, 0], [6, 2, 4], [7, 5, 2]]]]>
      : tensor<1x1x8x3xi32>
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.stream query(%q : tensor<1x1x32x8xf32>)
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          rows(%chosen : tensor<1x1x8x3xi32>) unit = 4
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%init : tensor<1x1x32x32xf32>)
      {block = 4 : i64, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
