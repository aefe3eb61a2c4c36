// Transformer-VQ: blocks of 8 tokens.
func.func @vq(%q: tensor<1x1x32x8xf32>, %codes: tensor<1x1x32xi32>, %v: tensor<1x1x32x32xf32>,
              %codebook: tensor<1x32x8xf32>) -> tensor<1x1x32x32xf32> {
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.vq ins(%q, %codes, %v, %codebook : tensor<1x1x32x8xf32>, tensor<1x1x32xi32>, tensor<1x1x32x32xf32>, tensor<1x32x8xf32>)
      outs(%init : tensor<1x1x32x32xf32>) {block = 8 : i64, causal} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
