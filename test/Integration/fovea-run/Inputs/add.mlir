func.func @add(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %init = tensor.empty() : tensor<4xf32>
  %out = linalg.add ins(%x, %y : tensor<4xf32>, tensor<4xf32>)
                    outs(%init : tensor<4xf32>) -> tensor<4xf32>
  return %out : tensor<4xf32>
}
func.func @twice(%x: tensor<2xbf16>) -> tensor<2xbf16> {
  %init = tensor.empty() : tensor<2xbf16>
  %out = linalg.add ins(%x, %x : tensor<2xbf16>, tensor<2xbf16>)
                    outs(%init : tensor<2xbf16>) -> tensor<2xbf16>
  return %out : tensor<2xbf16>
}
func.func @scalars(%n: index, %f: f64, %b: i1) -> (index, f64, i1) {
  return %n, %f, %b : index, f64, i1
}
func.func @empty(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {
  return %x : tensor<0x4xf32>
}
