func.func @narrow(%x: tensor<3x5xbf16>, %y: tensor<3x5xf16>, %a: bf16, %b: f16) -> (tensor<3x5xbf16>, tensor<3x5xf16>, bf16, f16) {
  %0 = arith.mulf %x, %x : tensor<3x5xbf16>
  %1 = arith.mulf %y, %y : tensor<3x5xf16>
  %2 = arith.addf %a, %a : bf16
  %3 = arith.addf %b, %b : f16
  return %0, %1, %2, %3 : tensor<3x5xbf16>, tensor<3x5xf16>, bf16, f16
}
