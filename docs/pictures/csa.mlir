// DeepSeek-V4's compressed sparse attention, of docs/patterns: a window, and summaries that were chosen. Each query has a
// list of its own there, here 8 have one. A summary counts as often as its tokens here, which the test compares.
func.func @csa(%q: tensor<1x1x64x8xf32>, %k: tensor<1x1x64x8xf32>, %v: tensor<1x1x64x64xf32>) -> tensor<1x1x64x64xf32> {
  %chosen = arith.constant dense<[[[[-1, -1, -1], [0, -1, -1], [1, 0, 2], [3, 0, 5], [1, 4, 6], [2, 5, 9], [3, 10, 4], [12, 1, 8]]]]>
      : tensor<1x1x8x3xi32>
  %gate_k = arith.constant dense<0.0> : tensor<1x1x64x8xf32>
  %gate_v = arith.constant dense<0.0> : tensor<1x1x64x64xf32>
  %count = arith.constant dense<1.38629436> : tensor<1x1x16xf32>
  %empty_k = tensor.empty() : tensor<1x1x16x8xf32>
  %empty_v = tensor.empty() : tensor<1x1x16x64xf32>
  %ks = attn.pool ins(%k, %gate_k : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>)
      outs(%empty_k : tensor<1x1x16x8xf32>) {interval = 4 : i64} -> tensor<1x1x16x8xf32>
  %vs = attn.pool ins(%v, %gate_v : tensor<1x1x64x64xf32>, tensor<1x1x64x64xf32>)
      outs(%empty_v : tensor<1x1x16x64xf32>) {interval = 4 : i64} -> tensor<1x1x16x64xf32>
  %init = tensor.empty() : tensor<1x1x64x64xf32>
  %out = attn.stream query(%q : tensor<1x1x64x8xf32>)
      source(%ks, %vs : tensor<1x1x16x8xf32>, tensor<1x1x16x64xf32>)
          log_weight(%count : tensor<1x1x16xf32>)
          rows(%chosen : tensor<1x1x8x3xi32>) unit = 1
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, stride = 4>
      source(%k, %v : tensor<1x1x64x8xf32>, tensor<1x1x64x64xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 8>
      outs(%init : tensor<1x1x64x64xf32>)
      {block = 8 : i64, scale = 1.0 : f64} -> tensor<1x1x64x64xf32>
  return %out : tensor<1x1x64x64xf32>
}
