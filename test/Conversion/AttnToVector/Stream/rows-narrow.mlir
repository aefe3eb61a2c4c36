// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --convert-attn-to-vector --canonicalize --cse | FileCheck %s

// A panel of outputs has 16 columns, half a line of a row of values in bf16:
// two panels ask for each line once, in blocks of 32 rows of four lines. Four
// keys ask together, for two lines.
// CHECK-LABEL: func.func @narrow(
// CHECK: scf.for %{{.+}} = %c0 to %{{.+}} step %c32 {
// CHECK: scf.for %{{.+}} = %c0 to %c128 step %c16 {
// CHECK: :8 = scf.for %{{.+}} step %c4 iter_args
// CHECK-COUNT-2: memref.prefetch
// CHECK-NOT: memref.prefetch
// CHECK: :8 = scf.for %{{.+}} step %c1 iter_args
// CHECK: return
func.func @narrow(%q: memref<1x4x1x128xbf16>, %k: memref<1x1x512x128xbf16>, %o: memref<1x4x1x128xbf16>) {
  attn.stream query(%q : memref<1x4x1x128xbf16>)
      source(%k, %k : memref<1x1x512x128xbf16>, memref<1x1x512x128xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x1x128xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 8, vectors = 1, keys = 8, columns = 8>}
  return
}

// Of listed rows the first four panels ask for the four lines of each, and the
// others for none.
// CHECK-LABEL: func.func @listed(
// CHECK: scf.for %{{.+}} = %c0 to %c128 step %c16 {
// CHECK: :8 = scf.for %{{.+}} step %c4 iter_args
// CHECK: %[[PANEL:.+]] = arith.divui %{{.+}}, %c16
// CHECK: %[[HAS_LINE:.+]] = arith.cmpi {{[us]lt}}, %[[PANEL]], %c4
// CHECK: scf.if
// CHECK-COUNT-4: memref.prefetch
// CHECK-NOT: memref.prefetch
// CHECK: :8 = scf.for %{{.+}} step %c1 iter_args
// CHECK: return
func.func @listed(%q: memref<1x4x1x128xbf16>, %k: memref<1x1x512x128xbf16>, %l: memref<1x1x1x?xi32>, %o: memref<1x4x1x128xbf16>) {
  attn.stream query(%q : memref<1x4x1x128xbf16>)
      source(%k, %k : memref<1x1x512x128xbf16>, memref<1x1x512x128xbf16>) rows(%l : memref<1x1x1x?xi32>)
      unit = 1 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : memref<1x4x1x128xbf16>)
      {block = 1 : i64, scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 8, vectors = 1, keys = 8, columns = 8>}
  return
}

// Key heads of pages are one task, whose tiles have 16 keys: every head scores
// a tile and adds its values before the next tile. Lines are those of all heads
// of a row, then of the next row.
// CHECK-LABEL: func.func @pages(
// CHECK-DAG: memref.alloc() {{.*}} : memref<64x128xf32>
// CHECK: scf.for %{{.+}} step %c16 iter_args
// CHECK: scf.for %[[HEAD:.+]] = %c0 to %[[HEADS:.+]] step %c1 {
// CHECK: memref.subview %{{.+}} : memref<64x128xf32> to memref<?x128xf32
// CHECK-DAG: arith.remui %[[NUMBER:.+]], %[[HEADS]]
// CHECK-DAG: arith.divui %[[NUMBER]], %[[HEADS]]
// CHECK-COUNT-8: memref.prefetch
// CHECK-NOT: memref.prefetch
// CHECK: scf.for %{{.+}} step %c8 {
// CHECK: return
func.func @pages(%q: memref<2x32x1x128xf32>, %k: memref<1x8x?x128xf32>, %l: memref<2x1x1x?xi32>, %n: memref<2xi32>, %o: memref<2x32x1x128xf32>) {
  attn.stream query(%q : memref<2x32x1x128xf32>)
      source(%k, %k : memref<1x8x?x128xf32>, memref<1x8x?x128xf32>) lengths(%n : memref<2xi32>)
      rows(%l : memref<2x1x1x?xi32>) unit = 16 positions = listed
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : memref<2x32x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 8, vectors = 1, keys = 8, columns = 8>}
  return
}

// A row of 512 bytes of bf16 is read in four pieces: with a single row of
// queries, too, lines are asked for, 2 KB ahead.
// CHECK-LABEL: func.func @pieces(
// CHECK: scf.for %[[KEY:.+]] = %c0 to %{{.+}} step %c8 {
// CHECK: arith.addi %[[KEY]], %c4 : index
// CHECK-COUNT-64: memref.prefetch
// CHECK-NOT: memref.prefetch
// CHECK: scf.for %{{.+}} = %c0 to %c256 step %c64 {
// CHECK: memref.prefetch
// CHECK: return
func.func @pieces(%q: memref<1x1x1x256xbf16>, %k: memref<1x1x512x256xbf16>, %o: memref<1x1x1x256xbf16>) {
  attn.stream query(%q : memref<1x1x1x256xbf16>)
      source(%k, %k : memref<1x1x512x256xbf16>, memref<1x1x512x256xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x1x1x256xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 8, vectors = 1, keys = 8, columns = 8>}
  return
}

// Register tiles of more rows go through all keys of a tile, and then through
// all columns, before the next rows.
// CHECK-LABEL: func.func @order(
// CHECK: scf.for %{{.+}} = %c0 to %c32 step %c16 {
// CHECK-NEXT: scf.for %{{.+}} = %c0 to %{{.+}} step %c6 {
// CHECK: scf.for %{{.+}} = %c0 to %c32 step %c16 {
// CHECK-NEXT: scf.for %{{.+}} = %c0 to %c120 step %c6 {
// CHECK: return
func.func @order(%q: memref<1x4x8x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x4x8x128xf32>) {
  attn.stream query(%q : memref<1x4x8x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x8x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 8, vectors = 1, keys = 8, columns = 8>}
  return
}
