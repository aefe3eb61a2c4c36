// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --canonicalize --cse | FileCheck %s

// Of 32 registers 24 accumulate. 64 rows are four vectors of 512 bits, and an
// odd number of cache lines apart, 80 numbers: scores of six keys at a time, and
// outputs of six columns, the last of which are four; both with vectors of rows.
// The outputs are transposed behind the last key.
// CHECK-LABEL: func.func @columns(
// CHECK: memref.alloc() {{.*}}: memref<1280xf32>
// CHECK: scf.for %{{.+}} step %c96 {
// CHECK: scf.for %{{.+}} step %c6 {
// CHECK-COUNT-3: :24 = scf.for
// CHECK: :16 = scf.for
// CHECK: vector.shuffle
// CHECK: return
func.func @columns(%q: memref<1x4x16x16xf32>, %k: memref<1x1x?x16xf32>, %o: memref<1x4x16x16xf32>) {
  attn.stream query(%q : memref<1x4x16x16xf32>)
      source(%k, %k : memref<1x1x?x16xf32>, memref<1x1x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x16x16xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Of two vectors of rows eight keys at a time, and twelve columns.
// CHECK-LABEL: func.func @pairs(
// CHECK: scf.for %{{.+}} step %c8 {
// CHECK: :16 = scf.for
// CHECK: scf.for %{{.+}} = %c0 to %c120 step %c12 {
// CHECK: :24 = scf.for
// CHECK: return
func.func @pairs(%q: memref<1x4x8x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x4x8x128xf32>) {
  attn.stream query(%q : memref<1x4x8x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x8x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Lines of 1 KB rows are asked for 16 rows ahead, and a block of values has as
// many: its first panel of four comes to no row that nobody has asked for.
// CHECK-LABEL: func.func @blocks(
// CHECK: scf.for %{{.+}} step %c128 {
// CHECK: scf.for %{{.+}} = %c0 to %{{[0-9]+}} step %c16 {
// CHECK: scf.for %{{.+}} = %c0 to %c256 step %c64 {
// CHECK: :16 = scf.for
// CHECK: return
func.func @blocks(%q: memref<1x4x1x256xf32>, %k: memref<1x1x512x256xf32>, %o: memref<1x4x1x256xf32>) {
  attn.stream query(%q : memref<1x4x1x256xf32>)
      source(%k, %k : memref<1x1x512x256xf32>, memref<1x1x512x256xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x1x256xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Key heads of narrow pages are one task with 32 registers, too, where a head
// has no more than eight rows: it goes through a tile of 16 keys before the
// next head does, and lines are those of all heads of a row.
// CHECK-LABEL: func @pages(
// CHECK-DAG: memref.alloc() {{.*}}: memref<64x128xf32>
// CHECK: scf.for %{{.+}} step %c16 iter_args
// CHECK: scf.for %[[HEAD:.+]] = %c0 to %[[HEADS:.+]] step %c1 {
// CHECK-DAG: arith.remui %[[NUMBER:.+]], %[[HEADS]]
// CHECK-DAG: arith.divui %[[NUMBER]], %[[HEADS]]
// CHECK: memref.prefetch {{.+}}[%{{.+}}, %c0], read, locality<2>, data : memref<?x128xbf16
// CHECK-NEXT: memref.prefetch {{.+}}[%{{.+}}, %c32],
// CHECK-NEXT: memref.prefetch {{.+}}[%{{.+}}, %c64],
// CHECK-NEXT: memref.prefetch {{.+}}[%{{.+}}, %c96],
// CHECK: scf.for %{{.+}} step %c8 {
// CHECK: return
func.func @pages(%q: memref<2x32x1x128xbf16>, %k: memref<1x8x?x128xbf16>, %l: memref<2x1x1x?xi32>, %n: memref<2xi32>, %o: memref<2x32x1x128xbf16>) {
  attn.stream query(%q : memref<2x32x1x128xbf16>)
      source(%k, %k : memref<1x8x?x128xbf16>, memref<1x8x?x128xbf16>) lengths(%n : memref<2xi32>)
      rows(%l : memref<2x1x1x?xi32>) unit = 16 positions = listed
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : memref<2x32x1x128xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Pages of f32 are a task for each head there.
// CHECK-LABEL: func @widePages(
// CHECK-NOT: memref<64x128xf32>
// CHECK: return
func.func @widePages(%q: memref<2x32x1x128xf32>, %k: memref<1x8x?x128xf32>, %l: memref<2x1x1x?xi32>, %n: memref<2xi32>, %o: memref<2x32x1x128xf32>) {
  attn.stream query(%q : memref<2x32x1x128xf32>)
      source(%k, %k : memref<1x8x?x128xf32>, memref<1x8x?x128xf32>) lengths(%n : memref<2xi32>)
      rows(%l : memref<2x1x1x?xi32>) unit = 16 positions = listed
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : memref<2x32x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Narrow keys that are wider than values have tiles of 32, with which they stay
// in the first cache level until they are read as values, and of f32 of 128.
// Where values begin where keys do, either product asks for lines of the next
// tile's keys: a line in each turn of one, and the other eight in as many
// panels. Otherwise the first asks for the rest of its keys at once.
// CHECK-LABEL: func.func @latent(
// CHECK: scf.forall
// CHECK-DAG: %[[KEYS:.+]] = memref.extract_aligned_pointer_as_index {{.+}} memref<?x576xbf16
// CHECK-DAG: %[[VALUES:.+]] = memref.extract_aligned_pointer_as_index {{.+}} memref<?x512xbf16
// CHECK: %[[ARE_SHARED:.+]] = arith.cmpi eq, %[[KEYS]], %[[VALUES]]
// CHECK: scf.for %{{.+}} = %{{[0-9]+}} to %{{[0-9]+}} step %c32 {
// CHECK: memref.prefetch {{.+}}[%{{.+}}, %c288], {{.+}}x576xbf16
// CHECK-NEXT: scf.if %[[ARE_SHARED]] {
// CHECK-NEXT: } else {
// CHECK-COUNT-8: memref.prefetch {{.+}}x576xbf16
// CHECK: :8 = scf.for %{{.+}} = %c0 to %c576 step %c32
// CHECK: memref.prefetch {{.+}}x576xbf16
// CHECK-NOT: memref.prefetch
// CHECK: memref.prefetch {{.+}}[%{{.+}}, %c288], {{.+}}x576xbf16
// CHECK: scf.for %{{.+}} = %c0 to %c512 step %c64 {
// CHECK: scf.if %[[ARE_SHARED]] {
// CHECK-COUNT-1: memref.prefetch {{.+}}x576xbf16
// CHECK-NOT: memref.prefetch
// CHECK: } else {
// CHECK-COUNT-2: memref.prefetch {{.+}}x512xbf16
// CHECK: return
func.func @latent(%q: memref<1x4x1x576xbf16>, %k: memref<1x1x?x576xbf16>, %v: memref<1x1x?x512xbf16>, %o: memref<1x4x1x512xbf16>) {
  attn.stream query(%q : memref<1x4x1x576xbf16>)
      source(%k, %v : memref<1x1x?x576xbf16>, memref<1x1x?x512xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x1x512xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// CHECK-LABEL: func.func @wideLatent(
// CHECK: scf.for %{{.+}} = %{{[0-9]+}} to %{{[0-9]+}} step %c128 {
// CHECK: return
func.func @wideLatent(%q: memref<1x4x1x576xf32>, %k: memref<1x1x?x576xf32>, %v: memref<1x1x?x512xf32>, %o: memref<1x4x1x512xf32>) {
  attn.stream query(%q : memref<1x4x1x576xf32>)
      source(%k, %v : memref<1x1x?x576xf32>, memref<1x1x?x512xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x1x512xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}
