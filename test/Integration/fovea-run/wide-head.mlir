// RUN: fovea-run %s --random --compare=reference | FileCheck %s

// One wide head over quantized keys: the columns of the values take many register
// tiles, and rows are prefetched.
// CHECK: result 0: f32[1x1x150x1536]
func.func @run(%q: tensor<1x1x150x128xf32>, %k: tensor<1x1x150x128xf32>, %v: tensor<1x1x150x1536xf32>, %c: tensor<1x32x128xf32>) -> tensor<1x1x150x1536xf32> {
  %i = tensor.empty() : tensor<1x1x150xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x1x150x128xf32>, tensor<1x32x128xf32>) outs(%i : tensor<1x1x150xi32>) -> tensor<1x1x150xi32>
  %o = tensor.empty() : tensor<1x1x150x1536xf32>
  %r = attn.vq ins(%q, %z, %v, %c : tensor<1x1x150x128xf32>, tensor<1x1x150xi32>, tensor<1x1x150x1536xf32>, tensor<1x32x128xf32>)
      outs(%o : tensor<1x1x150x1536xf32>) {block = 32 : i64, causal, scale = 0.1} -> tensor<1x1x150x1536xf32>
  return %r : tensor<1x1x150x1536xf32>
}
