func.func @sum(%x: tensor<64xf16>, %y: f16) -> f16 {
  %init = tensor.from_elements %y : tensor<f16>
  %sum = linalg.reduce { arith.addf } ins(%x : tensor<64xf16>) outs(%init : tensor<f16>) dimensions = [0]
  %r = tensor.extract %sum[] : tensor<f16>
  return %r : f16
}
