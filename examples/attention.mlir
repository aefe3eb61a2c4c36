// Attention of a layer of MiniLM, whose queries, keys and values are in data (README.md):
//
//   fovea-suggest attention.mlir --arg=data/q.npy --arg=data/k.npy --arg=data/v.npy
func.func @attention(%q: tensor<1x12x512x32xf32>, %k: tensor<1x12x512x32xf32>, %v: tensor<1x12x512x32xf32>)
    -> tensor<1x12x512x32xf32> {
  %init = tensor.empty() : tensor<1x12x512x32xf32>
  %out = attn.dense ins(%q, %k, %v : tensor<1x12x512x32xf32>, tensor<1x12x512x32xf32>, tensor<1x12x512x32xf32>)
      outs(%init : tensor<1x12x512x32xf32>) -> tensor<1x12x512x32xf32>
  return %out : tensor<1x12x512x32xf32>
}
