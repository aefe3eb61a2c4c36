// NSA, of docs/patterns: summaries of blocks of 4 tokens, the query's own block and the two whose summaries weigh most, and a
// window of 6. Each is a soft-max of its own; their gates are a third here.
func.func @nsa(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %gate_k = arith.constant dense<0.0> : tensor<1x1x32x8xf32>
  %gate_v = arith.constant dense<0.0> : tensor<1x1x32x32xf32>
  %empty_k = tensor.empty() : tensor<1x1x8x8xf32>
  %empty_v = tensor.empty() : tensor<1x1x8x32xf32>
  %ks = attn.pool ins(%k, %gate_k : tensor<1x1x32x8xf32>, tensor<1x1x32x8xf32>) outs(%empty_k : tensor<1x1x8x8xf32>) {interval = 4 : i64} -> tensor<1x1x8x8xf32>
  %vs = attn.pool ins(%v, %gate_v : tensor<1x1x32x32xf32>, tensor<1x1x32x32xf32>) outs(%empty_v : tensor<1x1x8x32xf32>) {interval = 4 : i64} -> tensor<1x1x8x32xf32>
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %far = attn.stream query(%q : tensor<1x1x32x8xf32>)
      source(%ks, %vs : tensor<1x1x8x8xf32>, tensor<1x1x8x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, stride = 4>
      outs(%init : tensor<1x1x32x32xf32>) {scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  %chosen = arith.constant dense<[[[[0, -1, -1], [0, -1, -1], [0, -1, -1], [0, -1, -1], [1, 0, -1], [1, 0, -1],
      [1, 0, -1], [1, 0, -1], [2, 0, 1], [2, 1, 0], [2, 1, 0], [2, 0, 1],
      [3, 0, 1], [3, 0, 1], [3, 0, 1], [3, 0, 1], [4, 3, 1], [4, 1, 3],
      [4, 0, 1], [4, 0, 1], [5, 0, 1], [5, 1, 2], [5, 2, 1], [5, 2, 1],
      [6, 4, 1], [6, 1, 4], [6, 4, 1], [6, 0, 3], [7, 3, 5], [7, 5, 3],
      [7, 5, 3], [7, 3, 5]]]]> : tensor<1x1x32x3xi32>
  %blocks = attn.stream query(%q : tensor<1x1x32x8xf32>)
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          rows(%chosen : tensor<1x1x32x3xi32>) unit = 4
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%init : tensor<1x1x32x32xf32>) {block = 1 : i64, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  %near = attn.dense ins(%q, %k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
      outs(%init : tensor<1x1x32x32xf32>) {mask = #attn.mask<causal, window = 6>, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  %gate = arith.constant dense<0.333333343> : tensor<1x1x32x32xf32>
  %two = arith.addf %far, %blocks : tensor<1x1x32x32xf32>
  %three = arith.addf %two, %near : tensor<1x1x32x32xf32>
  %out = arith.mulf %three, %gate : tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
