// Documents of 9, 13, 4 and 6 tokens beside one another, of docs/patterns: a query reads those before it of its own.
func.func @documents(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %ids = arith.constant dense<[[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3]]> : tensor<1x32xi32>
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.dense ins(%q, %k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
      score(%ids : tensor<1x32xi32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %of: tensor<1x32xi32>):
      %own = tensor.extract %of[%b, %i] : tensor<1x32xi32>
      %other = tensor.extract %of[%b, %j] : tensor<1x32xi32>
      %same = arith.cmpi eq, %own, %other : i32
      %none = arith.constant 0xFF800000 : f32
      %score = arith.select %same, %s, %none : f32
      attn.yield %score : f32
  } outs(%init : tensor<1x1x32x32xf32>) {mask = #attn.mask<causal>, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
