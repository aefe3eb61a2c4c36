// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 split-vectors" --convert-attn-to-vector --canonicalize --cse | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --canonicalize --cse | FileCheck %s --check-prefix=NONE
// NONE-NOT: memref<64x128xf32>

// Rows of eight heads lie between each other: the heads are one task for each
// of four parts of the keys. Each scores 16 keys before the next 16, then all exponentiate, then each adds
// values of 16 keys. Lines are those of all heads of a row.
// CHECK-LABEL: func.func @tokensFirst(
// CHECK: scf.forall {{.*}} in (4)
// CHECK-DAG: memref.alloc() {{.*}}: memref<64x128xf32>
// CHECK-DAG: memref.alloc() {{.*}}: memref<8192xf32>
// CHECK: scf.for %{{.+}} step %c128 {
// CHECK: scf.for %{{.+}} step %c16 {
// CHECK: scf.for %{{.+}} = %c0 to %c8 step %c1 {
// CHECK: arith.remui %{{.+}}, %c8
// CHECK: memref.prefetch
// CHECK: scf.for %{{.+}} = %c0 to %c8 step %c1 {
// CHECK: vector.reduction <maxnumf>
// CHECK: scf.for %{{.+}} step %c16 {
// CHECK: scf.for %{{.+}} = %c0 to %c8 step %c1 {
// CHECK: memref.prefetch
// CHECK: return
!rows = memref<1x8x8192x128xf32, strided<[8388608, 128, 1024, 1]>>
func.func @tokensFirst(%q: memref<1x8x1x128xf32>, %k: !rows, %o: memref<1x8x1x128xf32>) {
  attn.stream query(%q : memref<1x8x1x128xf32>)
      source(%k, %k : !rows, !rows) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// What the strides do not say is asked as the function runs.
// CHECK-LABEL: func.func @unknown(
// CHECK: %[[STRIDES:strides]]:4 = memref.extract_strided_metadata
// CHECK: %[[ARE_BETWEEN:.+]] = arith.cmpi slt, %[[STRIDES]]#1, %[[STRIDES]]#2
// CHECK: %[[ALL:.+]] = arith.andi %[[ARE_BETWEEN]], %[[ARE_BETWEEN]]
// CHECK: arith.select %[[ALL]], %c8, %c1
// CHECK: return
!any = memref<1x8x8192x128xf32, strided<[?, ?, ?, 1]>>
func.func @unknown(%q: memref<1x8x1x128xf32>, %k: !any, %o: memref<1x8x1x128xf32>) {
  attn.stream query(%q : memref<1x8x1x128xf32>)
      source(%k, %k : !any, !any) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Of heads that lie one behind the other each is alone, and keys have as many
// parts as those above: four.
// CHECK-LABEL: func.func @headsFirst(
// CHECK-NOT: memref<64x128xf32>
// CHECK: scf.forall {{.*}} in (8, 4)
// CHECK: return
func.func @headsFirst(%q: memref<1x8x1x128xf32>, %k: memref<1x8x8192x128xf32>, %o: memref<1x8x1x128xf32>) {
  attn.stream query(%q : memref<1x8x1x128xf32>)
      source(%k, %k : memref<1x8x8192x128xf32>, memref<1x8x8192x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Pages of f32 are read together there, too.
// CHECK-LABEL: func.func @pages(
// CHECK: memref<64x128xf32>
// CHECK: scf.for %{{.+}} step %c16 iter_args
// CHECK: return
func.func @pages(%q: memref<2x32x1x128xf32>, %k: memref<1x8x?x128xf32>, %l: memref<2x1x1x?xi32>, %n: memref<2xi32>, %o: memref<2x32x1x128xf32>) {
  attn.stream query(%q : memref<2x32x1x128xf32>)
      source(%k, %k : memref<1x8x?x128xf32>, memref<1x8x?x128xf32>) lengths(%n : memref<2xi32>)
      rows(%l : memref<2x1x1x?xi32>) unit = 16 positions = listed
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : memref<2x32x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}
