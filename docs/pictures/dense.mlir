// Dense attention under a causal mask.
func.func @dense(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.dense ins(%q, %k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
      outs(%init : tensor<1x1x32x32xf32>) {causal} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
