func.func @runs(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func private @callee(f32) -> f32
func.func @refused(%x: f8E4M3FN) -> f8E4M3FN {
  %0 = arith.addf %x, %x : f8E4M3FN
  return %0 : f8E4M3FN
}
// -----
func.func @invalid(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addi %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
// -----
#map = affine_map<(i) -> (i)>
func.func @aliases(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel"]} outs(%x : tensor<4xf32>) {
  ^bb0(%a: f32):
    %b = func.call @twice(%a) : (f32) -> f32
    linalg.yield %b : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @twice(%a: f32) -> f32 {
  %b = arith.addf %a, %a : f32
  return %b : f32
}
// -----
func.func @several(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
