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

// Where only the call knows how many queries there are, it is asked when it
// runs: of the whole sequence, whose last tile may have one query, too. There
// are kernels for one, for those that fill one vector, and for more.
// CHECK-LABEL: func @open(
// CHECK-SAME: %[[NUMBER:[a-z0-9]+]]: index
// CHECK: %[[IS_ROW:.+]] = arith.cmpi eq, %[[NUMBER]], %
// CHECK: scf.if %[[IS_ROW]] {
// CHECK: vector.reduction
// CHECK: } else {
// CHECK: %[[ARE_MANY:.+]] = arith.cmpi sgt, %[[NUMBER]], %
// CHECK: scf.if %[[ARE_MANY]] {
// CHECK: memref.alloc() {{.*}} : memref<128x64xf32>
// CHECK: } else {
// CHECK: memref.alloc() {{.*}} : memref<128x16xf32>
// CHECK-NOT: vector.reduction
// CHECK: return
func.func @open(%n: index, %i: index, %q: memref<1x1x?x16xf32>, %k: memref<1x1x?x16xf32>, %o: memref<1x1x?x16xf32>) {
  attn.stream query(%q : memref<1x1x?x16xf32>)
      source(%k, %k : memref<1x1x?x16xf32>, memref<1x1x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      tile(%i of %n) outs(%o : memref<1x1x?x16xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// A tile of one query of a sequence that is known to be longer.
// CHECK-LABEL: func @ragged(
// CHECK-NOT: scf.if
// CHECK-NOT: vector.reduction
// CHECK: return
func.func @ragged(%i: index, %q: memref<1x1x?x20xf32>, %k: memref<1x1x?x20xf32>, %o: memref<1x1x?x20xf32>) {
  %n = arith.constant 65 : index
  attn.stream query(%q : memref<1x1x?x20xf32>)
      source(%k, %k : memref<1x1x?x20xf32>, memref<1x1x?x20xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      tile(%i of %n) outs(%o : memref<1x1x?x20xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}
