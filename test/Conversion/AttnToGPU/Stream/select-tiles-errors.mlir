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

func.func @wide(%q: tensor<1x1x4x1032xf32>) -> tensor<1x1x4x1032xf32> {
  // expected-error@+1 {{'attn.stream' op has heads of width 1032, but GPU kernels take at most 1024}}
  %r = attn.stream query(%q : tensor<1x1x4x1032xf32>) source(%q, %q : tensor<1x1x4x1032xf32>, tensor<1x1x4x1032xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x1x4x1032xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x1032xf32>
  return %r : tensor<1x1x4x1032xf32>
}

// -----

// Tiles for a CPU, and for a GPU with warpgroups.
func.func @cpu(%q: tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16> {
  // expected-error@+1 {{'attn.stream' op has #attn.tiles<query = 64, key = 32, lanes = 8, vectors = 2, keys = 4, columns = 4>, but this GPU takes lanes of 16 for this stream}}
  %r = attn.stream query(%q : tensor<1x1x128x64xbf16>)
      source(%q, %q : tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x128x64xbf16>) {scale = 1.0, tiles = #attn.tiles<query = 64, key = 32, lanes = 8, vectors = 2, keys = 4, columns = 4>} -> tensor<1x1x128x64xbf16>
  return %r : tensor<1x1x128x64xbf16>
}

// -----

func.func @warpgroups(%q: tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16> {
  // expected-error@+1 {{but this GPU takes lanes of 16 for this stream}}
  %r = attn.stream query(%q : tensor<1x1x128x64xbf16>)
      source(%q, %q : tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x128x64xbf16>) {scale = 1.0, tiles = #attn.tiles<query = 64, key = 64, lanes = 64, vectors = 1, keys = 8, columns = 8>} -> tensor<1x1x128x64xbf16>
  return %r : tensor<1x1x128x64xbf16>
}

// -----

func.func @fragments(%q: tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16> {
  // expected-error@+1 {{but GPU kernels take keys = 8, columns = 8 and a multiple of 16 as key}}
  %r = attn.stream query(%q : tensor<1x1x128x64xbf16>)
      source(%q, %q : tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x128x64xbf16>) {scale = 1.0, tiles = #attn.tiles<query = 16, key = 8, lanes = 16, vectors = 1, keys = 8, columns = 8>} -> tensor<1x1x128x64xbf16>
  return %r : tensor<1x1x128x64xbf16>
}

// -----

func.func @memory(%q: tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16> {
  // expected-error@+1 {{which need 1056768 bytes of shared memory, but a block has 166912}}
  %r = attn.stream query(%q : tensor<1x1x128x64xbf16>)
      source(%q, %q : tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x128x64xbf16>) {scale = 1.0, tiles = #attn.tiles<query = 64, key = 2048, lanes = 16, vectors = 4, keys = 8, columns = 8>} -> tensor<1x1x128x64xbf16>
  return %r : tensor<1x1x128x64xbf16>
}
