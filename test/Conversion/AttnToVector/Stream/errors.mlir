// RUN: fovea-opt %s --convert-attn-to-vector --split-input-file --verify-diagnostics

func.func @no_tiles(%q: memref<1x1x8x4xf32>, %l: memref<1x1x8xf32>, %dq: memref<1x1x8x4xf32>, %dk: memref<1x1x8x4xf32>, %dv: memref<1x1x8x4xf32>) {
  // expected-error @below {{'attn.stream_backward' op has no tiles; run --attn-select-tiles first}}
  attn.stream_backward query(%q : memref<1x1x8x4xf32>)
      source(%q, %q : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : memref<1x1x8x4xf32>, memref<1x1x8xf32>) gradient(%q : memref<1x1x8x4xf32>)
      outs(%dq, %dk, %dv : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>, memref<1x1x8x4xf32>) {scale = 1.0 : f64}
  return
}

// -----

func.func @narrow(%q: memref<1x1x8x4xf16>, %l: memref<1x1x8xf32>, %dq: memref<1x1x8x4xf16>, %dk: memref<1x1x8x4xf16>, %dv: memref<1x1x8x4xf16>) {
  // expected-error @below {{'attn.stream_backward' op expects destinations that hold 'f32', but got 'f16'; run --attn-expand-patterns first}}
  attn.stream_backward query(%q : memref<1x1x8x4xf16>)
      source(%q, %q : memref<1x1x8x4xf16>, memref<1x1x8x4xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : memref<1x1x8x4xf16>, memref<1x1x8xf32>) gradient(%q : memref<1x1x8x4xf16>)
      outs(%dq, %dk, %dv : memref<1x1x8x4xf16>, memref<1x1x8x4xf16>, memref<1x1x8x4xf16>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 16, key = 16, lanes = 16, vectors = 1, keys = 4, columns = 4>}
  return
}

// -----

func.func @tensors(%q: tensor<1x1x8x4xf32>, %l: tensor<1x1x8xf32>) {
  // expected-error @below {{expects operands to be memrefs, but got tensors}}
  %r:3 = attn.stream_backward query(%q : tensor<1x1x8x4xf32>)
      source(%q, %q : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : tensor<1x1x8x4xf32>, tensor<1x1x8xf32>) gradient(%q : tensor<1x1x8x4xf32>)
      outs(%q, %q, %q : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>) {scale = 1.0 : f64}
      -> tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>
  return
}
