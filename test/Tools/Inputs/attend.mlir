func.func @attend(%q: tensor<1x4x?x16xf32>, %k: tensor<1x2x?x16xf32>, %v: tensor<1x2x?x16xf32>)
    -> (tensor<1x4x?x16xf32>, tensor<1x4x?xf32>) {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<1x4x?x16xf32>
  %o = tensor.empty(%n) : tensor<1x4x?x16xf32>
  %l = tensor.empty(%n) : tensor<1x4x?xf32>
  %r:2 = attn.dense ins(%q, %k, %v : tensor<1x4x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>)
      outs(%o, %l : tensor<1x4x?x16xf32>, tensor<1x4x?xf32>) -> tensor<1x4x?x16xf32>, tensor<1x4x?xf32>
  return %r#0, %r#1 : tensor<1x4x?x16xf32>, tensor<1x4x?xf32>
}
