// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-select-tiles | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: fovea-opt %s --attn-select-tiles | FileCheck %s --check-prefixes=CHECK,AVX2
// RUN: fovea-opt %s --attn-set-target=vector-bits=128 --attn-select-tiles | FileCheck %s --check-prefixes=CHECK,SSE
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-select-tiles --remarks-filter='attn.*' --remark-policy=all --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: not fovea-opt %s --attn-set-target=vector-bits=96 --attn-select-tiles 2>&1 | FileCheck %s --check-prefix=BITS

// BITS: error: expects vector-bits to be a power of two of at least 64, but got 96

// REMARK: remark: [Passed] TilesSelected
// REMARK-SAME: Columns=4, KeyTile=128, Keys=4, Lanes=16, TaskQueries=64, Vectors=4

// As many lanes as a register holds; fewer vectors with fewer registers.
// CHECK-LABEL: func @dense
// WIDE: tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>
// AVX2: tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>
// SSE: tiles = #attn.tiles<query = 8, key = 128, lanes = 4, vectors = 2, keys = 4, columns = 4>
func.func @dense(%q: tensor<1x1x256x16xf32>) -> tensor<1x1x256x16xf32> {
  %out = attn.stream query(%q : tensor<1x1x256x16xf32>)
      source(%q, %q : tensor<1x1x256x16xf32>, tensor<1x1x256x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x256x16xf32>) {scale = 1.0 : f64} -> tensor<1x1x256x16xf32>
  return %out : tensor<1x1x256x16xf32>
}

// f64 has half the lanes.
// CHECK-LABEL: func @double
// WIDE: tiles = #attn.tiles<query = 32, key = 128, lanes = 8, vectors = 4, keys = 4, columns = 4>
func.func @double(%q: tensor<1x1x256x16xf64>) -> tensor<1x1x256x16xf64> {
  %out = attn.stream query(%q : tensor<1x1x256x16xf64>)
      source(%q, %q : tensor<1x1x256x16xf64>, tensor<1x1x256x16xf64>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x256x16xf64>) {scale = 1.0 : f64} -> tensor<1x1x256x16xf64>
  return %out : tensor<1x1x256x16xf64>
}

// No lanes for queries that do not exist: 33 queries are three vectors, and the
// key tile stays a multiple of the five keys of a register tile.
// CHECK-LABEL: func @few
// WIDE: tiles = #attn.tiles<query = 48, key = 125, lanes = 16, vectors = 3, keys = 5, columns = 5>
func.func @few(%q: tensor<1x1x33x16xf32>, %k: tensor<1x1x64x16xf32>) -> tensor<1x1x33x16xf32> {
  %out = attn.stream query(%q : tensor<1x1x33x16xf32>)
      source(%k, %k : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x33x16xf32>) {scale = 1.0 : f64} -> tensor<1x1x33x16xf32>
  return %out : tensor<1x1x33x16xf32>
}

// With ranges that follow the queries, a task is a run of blocks.
// CHECK-LABEL: func @blocks
// WIDE: tiles = #attn.tiles<query = 528, key = 125, lanes = 16, vectors = 3, keys = 5, columns = 5>
func.func @blocks(%q: tensor<1x1x4096x16xf32>) -> tensor<1x1x4096x16xf32> {
  %out = attn.stream query(%q : tensor<1x1x4096x16xf32>)
      source(%q, %q : tensor<1x1x4096x16xf32>, tensor<1x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (b * 48 - 48, b * 48 + 48)>]
      outs(%q : tensor<1x1x4096x16xf32>) {block = 48 : i64, scale = 1.0 : f64} -> tensor<1x1x4096x16xf32>
  return %out : tensor<1x1x4096x16xf32>
}

// Tiles written by hand stay.
// CHECK-LABEL: func @byHand
// CHECK: tiles = #attn.tiles<query = 16, key = 16, lanes = 8, vectors = 2, keys = 2, columns = 2>
func.func @byHand(%q: tensor<1x1x256x16xf32>) -> tensor<1x1x256x16xf32> {
  %out = attn.stream query(%q : tensor<1x1x256x16xf32>)
      source(%q, %q : tensor<1x1x256x16xf32>, tensor<1x1x256x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x256x16xf32>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 16, key = 16, lanes = 8, vectors = 2, keys = 2, columns = 2>} -> tensor<1x1x256x16xf32>
  return %out : tensor<1x1x256x16xf32>
}
