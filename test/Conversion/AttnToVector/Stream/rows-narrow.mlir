// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --convert-attn-to-vector --canonicalize --cse | FileCheck %s

// A panel of outputs has 16 columns, half a line of a row of values in bf16:
// two panels ask for each line once, in blocks of 32 rows of four lines.
// CHECK-LABEL: func.func @narrow(
// CHECK: scf.for %{{.+}} = %c0 to %{{.+}} step %c32 {
// CHECK: scf.for %{{.+}} = %c0 to %c128 step %c16 {
// CHECK: :8 = scf.for %{{.+}} step %c2 iter_args
// CHECK: memref.prefetch
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
// CHECK: :8 = scf.for %{{.+}} step %c2 iter_args
// CHECK: %[[PANEL:.+]] = arith.divui %{{.+}}, %c16
// CHECK: %[[HAS_LINE:.+]] = arith.cmpi {{[us]lt}}, %[[PANEL]], %c4
// CHECK: scf.if
// CHECK-COUNT-2: memref.prefetch
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
