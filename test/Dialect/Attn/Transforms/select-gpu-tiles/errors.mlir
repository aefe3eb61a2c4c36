// RUN: fovea-opt %s --attn-select-gpu-tiles --split-input-file --verify-diagnostics

// What has no kernel is refused before anything else is done: here, a pattern
// that has not been expanded.
func.func @pattern(%q: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  // expected-error@+1 {{'attn.dense' op has no form for GPUs; compile it for the CPU}}
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%q : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %r : tensor<1x1x4x8xf32>
}

// -----

func.func @f64(%q: tensor<1x1x4x8xf64>) -> tensor<1x1x4x8xf64> {
  // expected-error@+1 {{'attn.stream' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  %r = attn.stream query(%q : tensor<1x1x4x8xf64>) source(%q, %q : tensor<1x1x4x8xf64>, tensor<1x1x4x8xf64>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x1x4x8xf64>) {scale = 1.0 : f64} -> tensor<1x1x4x8xf64>
  return %r : tensor<1x1x4x8xf64>
}

// -----

func.func @many(%q: tensor<1x1x4x8xf32>, %k: tensor<1x1x1073741824x8xf32>) -> tensor<1x1x4x8xf32> {
  // expected-error@+1 {{'attn.stream' op has 1073741824 rows of keys, but GPU kernels take fewer than 2^30}}
  %r = attn.stream query(%q : tensor<1x1x4x8xf32>) source(%k, %k : tensor<1x1x1073741824x8xf32>, tensor<1x1x1073741824x8xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x1x4x8xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x8xf32>
  return %r : tensor<1x1x4x8xf32>
}

// -----

func.func @wide(%q: tensor<1x1x4x264xf32>) -> tensor<1x1x4x264xf32> {
  // expected-error@+1 {{'attn.stream' op has heads of width 264, but GPU kernels take at most 256}}
  %r = attn.stream query(%q : tensor<1x1x4x264xf32>) source(%q, %q : tensor<1x1x4x264xf32>, tensor<1x1x4x264xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x1x4x264xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x264xf32>
  return %r : tensor<1x1x4x264xf32>
}
