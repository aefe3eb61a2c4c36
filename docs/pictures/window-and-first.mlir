// The own block of 8 tokens and the one before, and the first 4 tokens, as StreamingLLM keeps them.
func.func @window_and_first(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.stream query(%q : tensor<1x1x32x8xf32>)
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 8 - 8, b * 8 + 8, 4, rows)>] mask <causal>
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 4)>] mask <causal>
      outs(%init : tensor<1x1x32x32xf32>)
      {block = 8 : i64, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
