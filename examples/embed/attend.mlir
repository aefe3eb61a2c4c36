// Causal attention of 4 heads with keys and values of 2, for any number of tokens.
func.func @attend(%q: tensor<1x4x?x16xf32>, %k: tensor<1x2x?x16xf32>, %v: tensor<1x2x?x16xf32>) -> tensor<1x4x?x16xf32> {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<1x4x?x16xf32>
  %init = tensor.empty(%n) : tensor<1x4x?x16xf32>
  %out = attn.dense ins(%q, %k, %v : tensor<1x4x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>)
      outs(%init : tensor<1x4x?x16xf32>) {mask = #attn.mask<causal>} -> tensor<1x4x?x16xf32>
  return %out : tensor<1x4x?x16xf32>
}
