// RUN: fovea-opt %s --attn-select-tiles --verify-diagnostics

func.func @wide_heads(%q: tensor<1x1x4x1048577xf32>, %v: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  // expected-error @below {{'attn.stream' op has rows of 1048577 columns, but the CPU's kernels take at most 1048576}}
  %r = attn.stream query(%q : tensor<1x1x4x1048577xf32>)
      source(%q, %v : tensor<1x1x4x1048577xf32>, tensor<1x1x4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%v : tensor<1x1x4x8xf32>) {scale = 1.0} -> tensor<1x1x4x8xf32>
  return %r : tensor<1x1x4x8xf32>
}

func.func @wide_values(%q: tensor<1x1x4x8xf32>, %v: tensor<1x1x4x1048577xf32>) -> tensor<1x1x4x1048577xf32> {
  // expected-error @below {{has rows of 1048577 columns}}
  %r = attn.stream query(%q : tensor<1x1x4x8xf32>)
      source(%q, %v : tensor<1x1x4x8xf32>, tensor<1x1x4x1048577xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%v : tensor<1x1x4x1048577xf32>) {scale = 1.0} -> tensor<1x1x4x1048577xf32>
  return %r : tensor<1x1x4x1048577xf32>
}
