// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 split-vectors bf16-pairs" --convert-attn-to-vector --canonicalize --cse | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 bf16-pairs" --convert-attn-to-vector --canonicalize --cse | FileCheck %s --check-prefix=NONE
// NONE-NOT: [0, 1, 2, 3, 4, 5, 6, 7, 0, 1,

// Eight columns of a key are multiplied by those of four rows in one vector,
// and by those of the four others: 16 sums for eight keys. Two stages add those
// of four keys in lanes.
// CHECK-LABEL: func.func @eight(
// CHECK: :16 = scf.for
// CHECK: vector.load %{{.+}} : memref<{{.+}}xbf16{{.*}}>, vector<8xbf16>
// CHECK: vector.shuffle %{{.+}} [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, {{.*}}] : vector<8xbf16>, vector<8xbf16>
// CHECK-COUNT-16: x86vector.avx512.dot
// CHECK: vector.shuffle %{{.+}} [0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29]
// CHECK: vector.extract_strided_slice %{{.+}} {offsets = [12], sizes = [4], strides = [1]}
// CHECK: return
func.func @eight(%q: memref<1x8x1x64xbf16>, %k: memref<1x1x512x64xbf16>, %o: memref<1x8x1x64xbf16>) {
  attn.stream query(%q : memref<1x8x1x64xbf16>)
      source(%k, %k : memref<1x1x512x64xbf16>, memref<1x1x512x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x64xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// 20 rows are three groups of eight: each multiplies eight keys before the next
// eight, and goes through a tile of values. Only the first asks for lines.
// CHECK-LABEL: func.func @twenty(
// CHECK: scf.for %{{.+}} step %c8 {
// CHECK: scf.for %[[GROUP:.+]] = %c0 to %c24 step %c8 {
// CHECK: %[[FIRST:.+]] = arith.cmpi eq, %[[GROUP]], %c0
// CHECK: scf.if %[[FIRST]] {
// CHECK: memref.prefetch
// CHECK: vector.shuffle %{{.+}} [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, {{.*}}] : vector<8xbf16>, vector<8xbf16>
// CHECK: scf.for %[[GROUP:.+]] = %c0 to %c24 step %c8 {
// CHECK: %[[FIRST:.+]] = arith.cmpi eq, %[[GROUP]], %c0
// CHECK: :16 = scf.for %{{.+}} step %c2 iter_args
// CHECK: scf.if %[[FIRST]] {
// CHECK: memref.prefetch
// CHECK-COUNT-16: x86vector.avx512.dot
// CHECK: return
func.func @twenty(%q: memref<1x20x1x64xbf16>, %k: memref<1x1x512x64xbf16>, %o: memref<1x20x1x64xbf16>) {
  attn.stream query(%q : memref<1x20x1x64xbf16>)
      source(%k, %k : memref<1x1x512x64xbf16>, memref<1x1x512x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x20x1x64xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// More rows are vectors of rows.
// CHECK-LABEL: func.func @many(
// CHECK-NOT: [0, 1, 2, 3, 4, 5, 6, 7, 0, 1,
// CHECK: return
func.func @many(%q: memref<1x32x1x64xbf16>, %k: memref<1x1x512x64xbf16>, %o: memref<1x32x1x64xbf16>) {
  attn.stream query(%q : memref<1x32x1x64xbf16>)
      source(%k, %k : memref<1x1x512x64xbf16>, memref<1x1x512x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x32x1x64xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Rows of elements that are not multiplied in pairs are one after the other.
// CHECK-LABEL: func.func @halves(
// CHECK-NOT: [0, 1, 2, 3, 4, 5, 6, 7, 0, 1,
// CHECK: return
func.func @halves(%q: memref<1x8x1x64xf16>, %k: memref<1x1x512x64xf16>, %o: memref<1x8x1x64xf16>) {
  attn.stream query(%q : memref<1x8x1x64xf16>)
      source(%k, %k : memref<1x1x512x64xf16>, memref<1x1x512x64xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x64xf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Two groups of four rows ask for one of the two keys each, a line in every turn
// over the columns. Blocks of values in f32 have 16 rows, others of these
// columns 64, and each key asks for its share.
// CHECK-LABEL: func.func @floats(
// CHECK: :8 = scf.for %{{.+}} = %c0 to %c128 step %c16
// CHECK-COUNT-1: memref.prefetch
// CHECK-NEXT: vector.load
// CHECK: scf.for %{{.+}} = %c0 to %{{.+}} step %c16 {
// CHECK: :16 = scf.for %{{.+}} step %c1 iter_args
// CHECK-COUNT-4: memref.prefetch
// CHECK-NOT: memref.prefetch
// CHECK: return
// NONE-LABEL: func.func @floats(
// NONE: scf.for %{{.+}} step %c4 {
// NONE-NOT: memref.prefetch
// NONE: :8 = scf.for %{{.+}} = %c0 to %c128 step %c16
// NONE-COUNT-1: memref.prefetch
// NONE-NEXT: vector.load
// NONE: scf.for %{{.+}} = %c0 to %{{.+}} step %c64 {
// NONE: :16 = scf.for %{{.+}} step %c1 iter_args
// NONE-COUNT-4: memref.prefetch
// NONE-NOT: memref.prefetch
// NONE: return
func.func @floats(%q: memref<1x8x1x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x8x1x128xf32>) {
  attn.stream query(%q : memref<1x8x1x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// A set of four rows in f32 reads long keys one after the other.
// CHECK-LABEL: func.func @four(
// CHECK: :4 = scf.for %{{.+}} = %c0 to %c128 step %c16
// CHECK: memref.prefetch
// CHECK: return
// NONE-LABEL: func.func @four(
// NONE: :8 = scf.for %{{.+}} = %c0 to %c128 step %c16
// NONE: return
func.func @four(%q: memref<1x4x1x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x4x1x128xf32>) {
  attn.stream query(%q : memref<1x4x1x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// A Zen 4 reads a single long row of keys by itself; others are told 16 KB ahead.
// CHECK-LABEL: func.func @single(
// CHECK-NOT: memref.prefetch
// CHECK: return
// NONE-LABEL: func.func @single(
// NONE: %[[AHEAD:.+]] = arith.addi %{{.+}}, %c32 : index
// NONE: memref.prefetch
// NONE: return
func.func @single(%q: memref<1x1x1x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x1x1x128xf32>) {
  attn.stream query(%q : memref<1x1x1x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x1x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}
