// Attention by sums of convolutions over pairs of groups of 8 tokens.
func.func @conv(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %count = tensor.empty() : tensor<1x1xi32>
  %out, %found, %recomputed = attn.conv ins(%q, %k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
      outs(%init, %count, %count : tensor<1x1x32x32xf32>, tensor<1x1xi32>, tensor<1x1xi32>)
      {num_basis = 4 : i64, window = 4 : i64, delta = 0.1 : f64, epsilon = 0.01 : f64, group = 8 : i64}
      -> tensor<1x1x32x32xf32>, tensor<1x1xi32>, tensor<1x1xi32>
  return %out : tensor<1x1x32x32xf32>
}
