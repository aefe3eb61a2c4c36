// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-select-tiles --attn-tile-stream --canonicalize | FileCheck %s --check-prefix=TILES
// RUN: fovea-opt %s --attn-cpu-pipeline --mlir-print-ir-after=convert-attn-to-vector -o /dev/null 2>&1 | FileCheck %s --check-prefix=PACK

// Keys and values that the rows of others lie between are copied once for many
// blocks of queries: a task is at most a quarter of a head, and has at most 1024
// queries. Rows that are less than two of their width apart are read in place.

!rows = tensor<1x2x2000x24xf32>

// TILES-LABEL: func @strided
// TILES: scf.forall {{.+}} to (2, 2000) step (1, 512)
// TILES: tiles = #attn.tiles<query = 512,
// PACK-LABEL: func.func @strided
// PACK: %[[KEYS:.+]] = arith.cmpi sgt, %strides#2, %c47
// PACK: %[[VALUES:.+]] = arith.cmpi sgt, %{{.+}}#2, %c47
// PACK: %[[SPREAD:.+]] = arith.ori %[[KEYS]], %[[VALUES]]
// PACK: %[[ROWS:.+]] = arith.select %[[SPREAD]], %c2000{{[_0-9]*}}, %c0
// PACK: memref.alloc(%[[ROWS]]) {alignment = 64 : i64} : memref<?x24xf32>
// PACK: memref.alloc(%[[ROWS]]) {alignment = 64 : i64} : memref<?x24xf32>
// PACK: memref.alloc() {alignment = 64 : i64} : memref<1xindex>
func.func @strided(%q: !rows, %k: !rows {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}, %init: !rows) -> !rows {
  %out = attn.stream query(%q : !rows) source(%k, %k : !rows, !rows) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : !rows) {scale = 1.0 : f64} -> !rows
  return %out : !rows
}

// Copies of 512 keys at a time, or of up to 768, while eight blocks of queries are suspended.
!wide = tensor<1x2x2000x128xf32>
// PACK-LABEL: func.func @windows
// PACK: %[[ROWS:.+]] = arith.select %{{.+}}, %c768{{[_0-9]*}}, %c0
// PACK: %[[COPIES:.+]] = memref.alloc(%[[ROWS]]) {alignment = 64 : i64} : memref<?x128xf32>
// PACK: scf.for %[[WINDOW:.+]] = %c0{{.*}} to %c4{{.*}} step
// PACK: %[[BEGIN:.+]] = arith.muli %[[WINDOW]], %c512
// PACK: %[[SHIFT:.+]] = arith.select %{{.+}}, %[[BEGIN]], %c0
// PACK: scf.for
// PACK: memref.subview %{{.+}}[%{{.+}}, 0, 0] [1, 128, 64]
func.func @windows(%q: !wide, %k: !wide {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}, %init: !wide) -> !wide {
  %out = attn.stream query(%q : !wide) source(%k, %k : !wide, !wide) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : !wide) {scale = 1.0 : f64} -> !wide
  return %out : !wide
}

// Heads apart from each other, but no gaps within one.
// TILES-LABEL: func @rows_side_by_side
// TILES: scf.forall {{.+}} step (1, 64)
// PACK-LABEL: func.func @rows_side_by_side
// PACK-NOT: memref<2000x24xf32>{{$}}
func.func @rows_side_by_side(%q: !rows, %k: !rows {bufferization.buffer_layout = strided<[?, ?, 24, 1]>}, %init: !rows) -> !rows {
  %out = attn.stream query(%q : !rows) source(%k, %k : !rows, !rows) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : !rows) {scale = 1.0 : f64} -> !rows
  return %out : !rows
}

// Few queries read in place.
!few = tensor<1x2x256x24xf32>
// TILES-LABEL: func @few
// TILES: scf.forall {{.+}} step (1, 64)
// PACK-LABEL: func.func @few
// PACK-NOT: memref<2000x24xf32>{{$}}
func.func @few(%q: !few, %k: !rows {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}, %init: !few) -> !few {
  %out = attn.stream query(%q : !few) source(%k, %k : !rows, !rows) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : !few) {scale = 1.0 : f64} -> !few
  return %out : !few
}

// The number of queries is known to the call alone.
!open = tensor<1x2x?x24xf32>
// TILES-LABEL: func @open
// TILES: %[[QUERIES:.+]] = affine.min #{{.+}}()[%{{.+}}]
// TILES: scf.forall {{.+}} step (1, %[[QUERIES]])
// PACK-LABEL: func.func @open
// PACK: memref.alloc(%{{.+}}) {alignment = 64 : i64} : memref<?x24xf32>
func.func @open(%q: !open, %k: !open {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}, %init: !open) -> !open {
  %out = attn.stream query(%q : !open) source(%k, %k : !open, !open) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : !open) {scale = 1.0 : f64} -> !open
  return %out : !open
}

// Narrower rows are copied for each tile then.
!narrow = tensor<1x2x2000x24xf16>
// PACK-LABEL: func.func @narrow
// PACK: %[[ROWS:.+]] = arith.select %{{.+}}, %c2000{{[_0-9]*}}, %c128
// PACK: memref.alloc(%[[ROWS]]) {alignment = 64 : i64} : memref<?x24xf32>
func.func @narrow(%q: !narrow, %k: !narrow {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}, %init: !narrow) -> !narrow {
  %out = attn.stream query(%q : !narrow) source(%k, %k : !narrow, !narrow) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : !narrow) {scale = 1.0 : f64} -> !narrow
  return %out : !narrow
}
