func.func @fixed(%q: tensor<1x2x64x8xf32>, %w: tensor<1x2x32x8xf32>) -> tensor<1x2x64x8xf32> {
  %si = tensor.empty() : tensor<1x2x4x8xf32>
  %s = attn.summarize ins(%q : tensor<1x2x64x8xf32>) weights(%w : tensor<1x2x32x8xf32>) outs(%si : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %o = tensor.empty() : tensor<1x2x64x8xf32>
  %r = attn.dense ins(%q, %s, %s : tensor<1x2x64x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%o : tensor<1x2x64x8xf32>) -> tensor<1x2x64x8xf32>
  return %r : tensor<1x2x64x8xf32>
}
