// RUN: fovea-opt %s --attn-set-target="gpu warpgroups shared-bytes=232448" --attn-select-gpu-tiles | FileCheck %s

// Two warpgroups of 64 queries share tiles of 128 keys.
// CHECK-LABEL: func @dense
// CHECK: tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>
func.func @dense(%q: tensor<1x1x?x128xf16>) -> tensor<1x1x?x128xf16> {
  %out = attn.stream query(%q : tensor<1x1x?x128xf16>)
      source(%q, %q : tensor<1x1x?x128xf16>, tensor<1x1x?x128xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x?x128xf16>) {scale = 1.0 : f64} -> tensor<1x1x?x128xf16>
  return %out : tensor<1x1x?x128xf16>
}

// Heads of 64 columns leave registers for more keys, unless there are weights.
// CHECK-LABEL: func @narrow
// CHECK: tiles = #attn.tiles<query = 128, key = 160, lanes = 64, vectors = 2, keys = 8, columns = 8>
// CHECK: log_weight
// CHECK: tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>
func.func @narrow(%q: tensor<1x1x?x64xf16>, %w: tensor<1x1x?xf32>) -> tensor<1x1x?x64xf16> {
  %out = attn.stream query(%q : tensor<1x1x?x64xf16>)
      source(%q, %q : tensor<1x1x?x64xf16>, tensor<1x1x?x64xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x?x64xf16>) {scale = 1.0 : f64} -> tensor<1x1x?x64xf16>
  %next = attn.stream query(%out : tensor<1x1x?x64xf16>)
      source(%q, %q : tensor<1x1x?x64xf16>, tensor<1x1x?x64xf16>) log_weight(%w : tensor<1x1x?xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x?x64xf16>) {scale = 1.0 : f64} -> tensor<1x1x?x64xf16>
  return %next : tensor<1x1x?x64xf16>
}

// Ranges change with every 64 queries; wide heads.
// CHECK-LABEL: func @blocks
// CHECK: tiles = #attn.tiles<query = 64, key = 64, lanes = 64, vectors = 1, keys = 8, columns = 8>
func.func @blocks(%q: tensor<1x1x512x256xbf16>) -> tensor<1x1x512x256xbf16> {
  %out = attn.stream query(%q : tensor<1x1x512x256xbf16>)
      source(%q, %q : tensor<1x1x512x256xbf16>, tensor<1x1x512x256xbf16>) ranges [affine_map<(b)[rows, n] -> (b * 64, b * 64 + 64)>]
      outs(%q : tensor<1x1x512x256xbf16>) {block = 64 : i64, scale = 1.0 : f64} -> tensor<1x1x512x256xbf16>
  return %out : tensor<1x1x512x256xbf16>
}

// 256 rows near a block and 32 listed ones are three tiles of 128, or five of 64,
// which would cost more.
// CHECK-LABEL: func @lists
// CHECK: tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>
func.func @lists(%q: tensor<1x1x2048x128xf16>, %s: tensor<1x1x256x128xf16>, %w: tensor<1x1x256xf32>) -> tensor<1x1x2048x128xf16> {
  %out = attn.stream query(%q : tensor<1x1x2048x128xf16>)
      source(%q, %q : tensor<1x1x2048x128xf16>, tensor<1x1x2048x128xf16>) ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x1x256x128xf16>, tensor<1x1x256x128xf16>) log_weight(%w : tensor<1x1x256xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 8 - 16, b * 8 - 8)>, affine_map<(b)[rows, n] -> (128, 152)>]
      outs(%q : tensor<1x1x2048x128xf16>) {block = 128 : i64, scale = 1.0 : f64} -> tensor<1x1x2048x128xf16>
  return %out : tensor<1x1x2048x128xf16>
}

// Log weights of wide heads leave registers for fewer keys.
// CHECK-LABEL: func @weights
// CHECK: tiles = #attn.tiles<query = 128, key = 64, lanes = 64, vectors = 2, keys = 8, columns = 8>
func.func @weights(%q: tensor<1x1x512x256xbf16>, %w: tensor<1x1x512xf32>) -> tensor<1x1x512x256xbf16> {
  %out = attn.stream query(%q : tensor<1x1x512x256xbf16>)
      source(%q, %q : tensor<1x1x512x256xbf16>, tensor<1x1x512x256xbf16>) log_weight(%w : tensor<1x1x512xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x512x256xbf16>) {scale = 1.0 : f64} -> tensor<1x1x512x256xbf16>
  return %out : tensor<1x1x512x256xbf16>
}

// Rows that are not 16 bytes apart, f32, few queries, values beyond 256 columns,
// blocks that tiles do not divide: warps.
// CHECK-LABEL: func @others
// CHECK-COUNT-5: lanes = 16
func.func @others(%a: tensor<1x1x64x20xf16>, %b: tensor<1x1x64x64xf32>, %c: tensor<1x1x16x64xf16>, %d: tensor<1x1x512x64xf16>, %e: tensor<1x1x512x264xf16>)
    -> (tensor<1x1x64x20xf16>, tensor<1x1x64x64xf32>, tensor<1x1x16x64xf16>, tensor<1x1x512x64xf16>, tensor<1x1x512x264xf16>) {
  %0 = attn.stream query(%a : tensor<1x1x64x20xf16>)
      source(%a, %a : tensor<1x1x64x20xf16>, tensor<1x1x64x20xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%a : tensor<1x1x64x20xf16>) {scale = 1.0 : f64} -> tensor<1x1x64x20xf16>
  %1 = attn.stream query(%b : tensor<1x1x64x64xf32>)
      source(%b, %b : tensor<1x1x64x64xf32>, tensor<1x1x64x64xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%b : tensor<1x1x64x64xf32>) {scale = 1.0 : f64} -> tensor<1x1x64x64xf32>
  %2 = attn.stream query(%c : tensor<1x1x16x64xf16>)
      source(%d, %d : tensor<1x1x512x64xf16>, tensor<1x1x512x64xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%c : tensor<1x1x16x64xf16>) {scale = 1.0 : f64} -> tensor<1x1x16x64xf16>
  %3 = attn.stream query(%d : tensor<1x1x512x64xf16>)
      source(%d, %d : tensor<1x1x512x64xf16>, tensor<1x1x512x64xf16>) ranges [affine_map<(b)[rows, n] -> (b * 4, b * 4 + 4)>]
      outs(%d : tensor<1x1x512x64xf16>) {block = 96 : i64, scale = 1.0 : f64} -> tensor<1x1x512x64xf16>
  %4 = attn.stream query(%d : tensor<1x1x512x64xf16>)
      source(%d, %e : tensor<1x1x512x64xf16>, tensor<1x1x512x264xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%e : tensor<1x1x512x264xf16>) {scale = 1.0 : f64} -> tensor<1x1x512x264xf16>
  return %0, %1, %2, %3, %4 : tensor<1x1x64x20xf16>, tensor<1x1x64x64xf32>, tensor<1x1x16x64xf16>, tensor<1x1x512x64xf16>, tensor<1x1x512x264xf16>
}
