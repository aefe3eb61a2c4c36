func.func @attend(%q: tensor<1x2x?x8xf32>, %k: tensor<1x2x?x8xf32>,
                  %o: tensor<1x2x100x8xf32>) -> tensor<1x2x100x8xf32> {
  %r = attn.dense ins(%q, %k, %k : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>)
      outs(%o : tensor<1x2x100x8xf32>) {mask = #attn.mask<causal>} -> tensor<1x2x100x8xf32>
  return %r : tensor<1x2x100x8xf32>
}
