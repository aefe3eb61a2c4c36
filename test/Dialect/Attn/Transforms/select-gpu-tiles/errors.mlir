// RUN: fovea-opt %s --attn-select-gpu-tiles --verify-diagnostics

// What has no kernel is refused before anything else is done: here, a pattern
// that has not been expanded.
func.func @pattern(%q: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  // expected-error@+1 {{'attn.dense' op has no form for GPUs; compile it for the CPU}}
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %r : tensor<1x1x4x8xf32>
}
