// Fast multipole attention: groups of 4 tokens, 2 summaries for each interval.
func.func @fast_multipole(%q: tensor<1x1x64x8xf32>, %k: tensor<1x1x64x8xf32>, %v: tensor<1x1x64x64xf32>,
                          %k1: tensor<1x2x4x8xf32>, %k2: tensor<1x2x8x8xf32>, %k3: tensor<1x2x16x8xf32>,
                          %v1: tensor<1x2x4x64xf32>, %v2: tensor<1x2x8x64xf32>, %v3: tensor<1x2x16x64xf32>) -> tensor<1x1x64x64xf32> {
  %init = tensor.empty() : tensor<1x1x64x64xf32>
  %out = attn.fast_multipole ins(%q, %k, %v : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x64xf32>)
      key_weights(%k1, %k2, %k3 : tensor<1x2x4x8xf32>, tensor<1x2x8x8xf32>, tensor<1x2x16x8xf32>)
      value_weights(%v1, %v2, %v3 : tensor<1x2x4x64xf32>, tensor<1x2x8x64xf32>, tensor<1x2x16x64xf32>)
      outs(%init : tensor<1x1x64x64xf32>) {group = 4 : i64, causal} -> tensor<1x1x64x64xf32>
  return %out : tensor<1x1x64x64xf32>
}
