// RUN: fovea-opt %s --attn-select-gpu-tiles | FileCheck %s --check-prefixes=CHECK,SM80
// RUN: fovea-opt %s --attn-set-target="gpu shared-bytes=49152" --attn-select-gpu-tiles | FileCheck %s --check-prefixes=CHECK,SMALL
// RUN: not fovea-opt %s --attn-set-target="gpu shared-bytes=1024" --attn-select-gpu-tiles 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: fovea-opt %s --attn-select-gpu-tiles --remarks-filter='attn.*' --remark-policy=all --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// NONE: error: 'attn.stream' op needs more shared memory than the 1024 bytes of a block, even for 16 queries and 16 keys
// REMARK: remark: [Passed] TilesSelected
// REMARK-SAME: BlockQueries=128, Cluster=1, KeyTile=64, SharedBytes=98304, TaskQueries=128

// 8 warps of 16 queries; where memory is short, fewer queries.
// CHECK-LABEL: func @dense
// SM80: tiles = #attn.tiles<query = 128, key = 64, lanes = 16, vectors = 8, keys = 8, columns = 8>
// SMALL: tiles = #attn.tiles<query = 64, key = 32, lanes = 16, vectors = 4, keys = 8, columns = 8>
func.func @dense(%q: tensor<1x1x?x128xf16>) -> tensor<1x1x?x128xf16> {
  %out = attn.stream query(%q : tensor<1x1x?x128xf16>)
      source(%q, %q : tensor<1x1x?x128xf16>, tensor<1x1x?x128xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x?x128xf16>) {scale = 1.0 : f64} -> tensor<1x1x?x128xf16>
  return %out : tensor<1x1x?x128xf16>
}

// f32 takes twice the registers.
// CHECK-LABEL: func @single
// SM80: tiles = #attn.tiles<query = 64, key = 32, lanes = 16, vectors = 4, keys = 8, columns = 8>
func.func @single(%q: tensor<1x1x?x64xf32>) -> tensor<1x1x?x64xf32> {
  %out = attn.stream query(%q : tensor<1x1x?x64xf32>)
      source(%q, %q : tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x?x64xf32>) {scale = 1.0 : f64} -> tensor<1x1x?x64xf32>
  return %out : tensor<1x1x?x64xf32>
}

// A block of threads for each block of queries that ranges depend on.
// CHECK-LABEL: func @blocks
// CHECK: tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 8, columns = 8>
func.func @blocks(%q: tensor<1x1x512x16xf16>) -> tensor<1x1x512x16xf16> {
  %out = attn.stream query(%q : tensor<1x1x512x16xf16>)
      source(%q, %q : tensor<1x1x512x16xf16>, tensor<1x1x512x16xf16>) ranges [affine_map<(b)[rows, n] -> (b * 64, b * 64 + 64)>]
      outs(%q : tensor<1x1x512x16xf16>) {block = 64 : i64, scale = 1.0 : f64} -> tensor<1x1x512x16xf16>
  return %out : tensor<1x1x512x16xf16>
}

// 200 queries are worked through in two parts.
// CHECK-LABEL: func @large_blocks
// CHECK: tiles = #attn.tiles<query = 200, key = 64, lanes = 16, vectors = 8, keys = 8, columns = 8>
func.func @large_blocks(%q: tensor<1x1x600x16xf16>) -> tensor<1x1x600x16xf16> {
  %out = attn.stream query(%q : tensor<1x1x600x16xf16>)
      source(%q, %q : tensor<1x1x600x16xf16>, tensor<1x1x600x16xf16>) ranges [affine_map<(b)[rows, n] -> (b * 200, b * 200 + 200)>]
      outs(%q : tensor<1x1x600x16xf16>) {block = 200 : i64, scale = 1.0 : f64} -> tensor<1x1x600x16xf16>
  return %out : tensor<1x1x600x16xf16>
}

// Rows are the heads that share a key head, of one query, wherever it stands. Blocks of one warp have short tiles.
// CHECK-LABEL: func @one_query
// CHECK: tiles = #attn.tiles<query = 16, key = 32, lanes = 16, vectors = 1, keys = 8, columns = 8>
func.func @one_query(%q: tensor<3x8x1x16xf16>, %k: tensor<3x2x600x16xf16>, %first: index, %n: index) -> tensor<3x8x1x16xf16> {
  %out = attn.stream query(%q : tensor<3x8x1x16xf16>)
      source(%k, %k : tensor<3x2x600x16xf16>, tensor<3x2x600x16xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      tile(%first of %n) outs(%q : tensor<3x8x1x16xf16>) {scale = 1.0 : f64} -> tensor<3x8x1x16xf16>
  return %out : tensor<3x8x1x16xf16>
}

// 40 heads are three warps.
// CHECK-LABEL: func @many_heads
// CHECK: tiles = #attn.tiles<query = 48, key = 64, lanes = 16, vectors = 3, keys = 8, columns = 8>
func.func @many_heads(%q: tensor<3x40x1x16xf16>, %k: tensor<3x1x600x16xf16>) -> tensor<3x40x1x16xf16> {
  %out = attn.stream query(%q : tensor<3x40x1x16xf16>)
      source(%k, %k : tensor<3x1x600x16xf16>, tensor<3x1x600x16xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<3x40x1x16xf16>) {scale = 1.0 : f64} -> tensor<3x40x1x16xf16>
  return %out : tensor<3x40x1x16xf16>
}

// Eight heads of 17 queries are three tiles of three warps.
// CHECK-LABEL: func @several_queries
// CHECK: tiles = #attn.tiles<query = 48, key = 64, lanes = 16, vectors = 3, keys = 8, columns = 8>
func.func @several_queries(%q: tensor<3x8x17x16xf16>, %k: tensor<3x1x600x16xf16>) -> tensor<3x8x17x16xf16> {
  %out = attn.stream query(%q : tensor<3x8x17x16xf16>)
      source(%k, %k : tensor<3x1x600x16xf16>, tensor<3x1x600x16xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%q : tensor<3x8x17x16xf16>) {scale = 1.0 : f64} -> tensor<3x8x17x16xf16>
  return %out : tensor<3x8x17x16xf16>
}

// More queries have tiles of one head.
// CHECK-LABEL: func @many_queries
// CHECK: tiles = #attn.tiles<query = 48, key = 64, lanes = 16, vectors = 3, keys = 8, columns = 8>
func.func @many_queries(%q: tensor<3x8x33x16xf16>, %k: tensor<3x1x600x16xf16>) -> tensor<3x8x33x16xf16> {
  %out = attn.stream query(%q : tensor<3x8x33x16xf16>)
      source(%k, %k : tensor<3x1x600x16xf16>, tensor<3x1x600x16xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%q : tensor<3x8x33x16xf16>) {scale = 1.0 : f64} -> tensor<3x8x33x16xf16>
  return %out : tensor<3x8x33x16xf16>
}
