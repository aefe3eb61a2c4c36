// DeepSeek-V4's heavily compressed attention, of docs/patterns; here a summary
// counts as often as its tokens, which the test compares.
func.func @hca(%q: tensor<1x1x64x8xf32>, %k: tensor<1x1x64x8xf32>, %v: tensor<1x1x64x64xf32>) -> tensor<1x1x64x64xf32> {
  %gate_k = arith.constant dense<0.0> : tensor<1x1x64x8xf32>
  %gate_v = arith.constant dense<0.0> : tensor<1x1x64x64xf32>
  %count = arith.constant dense<2.77258873> : tensor<1x1x4xf32>
  %empty_k = tensor.empty() : tensor<1x1x4x8xf32>
  %empty_v = tensor.empty() : tensor<1x1x4x64xf32>
  %ks = attn.pool ins(%k, %gate_k : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>)
      outs(%empty_k : tensor<1x1x4x8xf32>) {interval = 16 : i64} -> tensor<1x1x4x8xf32>
  %vs = attn.pool ins(%v, %gate_v : tensor<1x1x64x64xf32>, tensor<1x1x64x64xf32>)
      outs(%empty_v : tensor<1x1x4x64xf32>) {interval = 16 : i64} -> tensor<1x1x4x64xf32>
  %init = tensor.empty() : tensor<1x1x64x64xf32>
  %out = attn.stream query(%q : tensor<1x1x64x8xf32>)
      source(%k, %v : tensor<1x1x64x8xf32>, tensor<1x1x64x64xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 8>
      source(%ks, %vs : tensor<1x1x4x8xf32>, tensor<1x1x4x64xf32>)
          log_weight(%count : tensor<1x1x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, stride = 16>
      outs(%init : tensor<1x1x64x64xf32>) {scale = 1.0 : f64} -> tensor<1x1x64x64xf32>
  return %out : tensor<1x1x64x64xf32>
}
