// A window of 5 tokens to either side, and 4 global tokens, which all read and which read all, as Longformer and BigBird have them.
func.func @window_and_global(%q: tensor<1x1x32x8xf32>, %k: tensor<1x1x32x8xf32>, %v: tensor<1x1x32x32xf32>) -> tensor<1x1x32x32xf32> {
  %init = tensor.empty() : tensor<1x1x32x32xf32>
  %out = attn.stream query(%q : tensor<1x1x32x8xf32>)
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * -4096 + 4096, rows, 4, rows)>] mask <window = 6>
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 4)>]
      source(%k, %v : tensor<1x1x32x8xf32>, tensor<1x1x32x32xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 4096, rows, 4, rows)>]
      outs(%init : tensor<1x1x32x32xf32>)
      {block = 4 : i64, scale = 1.0 : f64} -> tensor<1x1x32x32xf32>
  return %out : tensor<1x1x32x32xf32>
}
