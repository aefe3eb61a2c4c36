// RUN: fovea-opt %s --convert-attn-to-vector | FileCheck %s

// One query for each head: the table's 20 rows are scored 16 at a time, added up
// by transposing, and then one by one; weights along the rows; values along their
// columns.
// CHECK-LABEL: func @row(
// CHECK-NOT: attn.stream
// CHECK: scf.for
// CHECK: vector.fma
// CHECK: vector.shuffle
// CHECK: vector.reduction <add>, %{{.*}} fastmath<reassoc> : vector<16xf32> into f32
// CHECK: vector.reduction <maxnumf>
// CHECK: vector.broadcast %{{.*}} : f32 to vector<16xf32>
// CHECK: vector.fma
func.func @row(%q: memref<1x2x1x16xf32>, %c: memref<1x1x20x16xf32>, %z: memref<1x2x64xi32>, %v: memref<1x2x64x32xf32>, %o: memref<1x2x1x32xf32>, %i: index) {
  %n = arith.constant 64 : index
  attn.stream query(%q : memref<1x2x1x16xf32>)
      source(%c, %v : memref<1x1x20x16xf32>, memref<1x2x64x32xf32>) codes(%z : memref<1x2x64xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      tile(%i of %n) outs(%o : memref<1x2x1x32xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 16>}
  return
}
