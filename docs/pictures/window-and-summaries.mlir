// The pattern of docs/Patterns.md.
func.func @window_and_summaries(%q: tensor<1x1x64x8xf32>, %k: tensor<1x1x64x8xf32>, %v: tensor<1x1x64x64xf32>) -> tensor<1x1x64x64xf32> {
  %mean_k = arith.constant dense<6.25e-02> : tensor<1x1x16x8xf32>
  %mean_v = arith.constant dense<6.25e-02> : tensor<1x1x16x64xf32>
  %count = arith.constant dense<2.77258873> : tensor<1x1x4xf32>
  %empty_k = tensor.empty() : tensor<1x1x4x8xf32>
  %empty_v = tensor.empty() : tensor<1x1x4x64xf32>
  %ks = attn.summarize ins(%k : tensor<1x1x64x8xf32>) weights(%mean_k : tensor<1x1x16x8xf32>)
      outs(%empty_k : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  %vs = attn.summarize ins(%v : tensor<1x1x64x64xf32>) weights(%mean_v : tensor<1x1x16x64xf32>)
      outs(%empty_v : tensor<1x1x4x64xf32>) -> tensor<1x1x4x64xf32>
  %init = tensor.empty() : tensor<1x1x64x64xf32>
  %out = attn.stream query(%q : tensor<1x1x64x8xf32>)
      source(%k, %v : tensor<1x1x64x8xf32>, tensor<1x1x64x64xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
      source(%ks, %vs : tensor<1x1x4x8xf32>, tensor<1x1x4x64xf32>)
          log_weight(%count : tensor<1x1x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
      outs(%init : tensor<1x1x64x64xf32>)
      {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x64x64xf32>
  return %out : tensor<1x1x64x64xf32>
}
