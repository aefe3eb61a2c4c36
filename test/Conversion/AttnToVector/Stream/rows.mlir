// RUN: fovea-opt %s --convert-attn-to-vector --canonicalize --cse | FileCheck %s

// One query of each of two heads that share their keys, in a tile of a longer
// sequence: both are multiplied with each of the table's 20 rows, 8 at a time,
// and the sums of 16 products added up across lanes; weights along the keys;
// values along their columns for both rows.
// CHECK-LABEL: func @row(
// CHECK-NOT: attn.stream
// CHECK: scf.forall
// CHECK: vector.fma
// CHECK: vector.shuffle
// CHECK: vector.extract_strided_slice %{{.*}} {offsets = [8], sizes = [8], strides = [1]}
// CHECK: vector.reduction <or>, %{{.*}} : vector<16xi1> into i1
// CHECK: vector.reduction <maxnumf>
// CHECK: vector.fma
// CHECK: vector.reduction <add>, %{{.*}} fastmath<reassoc> : vector<16xf32> into f32
// CHECK: return
func.func @row(%q: memref<1x2x1x16xf32>, %c: memref<1x1x20x16xf32>, %z: memref<1x1x64xi32>, %v: memref<1x1x64x32xf32>, %o: memref<1x2x1x32xf32>, %i: index) {
  %n = arith.constant 64 : index
  attn.stream query(%q : memref<1x2x1x16xf32>)
      source(%c, %v : memref<1x1x20x16xf32>, memref<1x1x64x32xf32>) codes(%z : memref<1x1x64xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      tile(%i of %n) outs(%o : memref<1x2x1x32xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 16>}
  return
}

// Where only the call knows how many queries there are, and so rows and keys,
// it asks when it runs: more than eight rows are lanes of vectors. The keys are
// cut into parts, as many as extents say, and merged where there are several.
// CHECK-LABEL: func @open(
// CHECK: %[[IS_WHOLE:.+]] = arith.cmpi eq, %[[PARTS:.+]], %c1
// CHECK: scf.forall ({{.+}}, {{.+}}) in ({{.+}}, %[[PARTS]])
// CHECK: %[[ARE_MANY:.+]] = arith.cmpi sgt, %{{.+}}, %c8
// CHECK: scf.if %[[ARE_MANY]] {
// CHECK: memref.prefetch %{{.+}}, read, locality<2>, data
// CHECK: } else {
// CHECK: vector.shuffle
// CHECK: scf.if %[[IS_WHOLE]] {
// CHECK: scf.forall
// CHECK: return
func.func @open(%q: memref<1x4x?x16xf32>, %k: memref<1x2x?x16xf32>, %o: memref<1x4x?x16xf32>) {
  attn.stream query(%q : memref<1x4x?x16xf32>)
      source(%k, %k : memref<1x2x?x16xf32>, memref<1x2x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%o : memref<1x4x?x16xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// A set of rows has at most 128, and what is in a parallel loop is one task.
// CHECK-LABEL: func @nested(
// CHECK: scf.forall
// CHECK-NOT: scf.forall
// CHECK: memref.alloc() {{.*}} : memref<128x16xf32>
// CHECK: return
func.func @nested(%q: memref<1x200x1x16xf32>, %k: memref<1x1x32x16xf32>, %o: memref<1x200x1x16xf32>) {
  scf.forall (%i) in (4) {
    attn.stream query(%q : memref<1x200x1x16xf32>)
        source(%k, %k : memref<1x1x32x16xf32>, memref<1x1x32x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        outs(%o : memref<1x200x1x16xf32>)
        {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  }
  return
}

// A tile of a sequence that is known to be longer may have one query, but has
// the kernel of the others.
// CHECK-LABEL: func @ragged(
// CHECK-NOT: scf.forall
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

// Rows that a list names become numbers, those of the next tile behind those of
// this one, so that their lines are asked for: each row's from its number. Of
// values, each panel of columns asks for its own.
// CHECK-LABEL: func @listed(
// CHECK: %[[ROWS:.+]] = memref.alloc() {{.*}}: memref<256xindex>
// CHECK: memref.store %{{.+}}, %[[ROWS]][%{{.+}}] : memref<256xindex>
// CHECK: scf.for
// CHECK: memref.store %{{.+}}, %[[ROWS]][%{{.+}}] : memref<256xindex>
// CHECK: %[[NEXT:.+]] = memref.load %[[ROWS]]
// CHECK-NEXT: memref.prefetch %{{.+}}[%[[NEXT]], %c0], read, locality<2>, data
// CHECK-NEXT: memref.prefetch %{{.+}}[%[[NEXT]], %c16], read, locality<2>, data
// CHECK: vector.shuffle
// CHECK: %[[VALUES:.+]] = memref.load %[[ROWS]]
// CHECK: memref.prefetch %{{.+}}[%[[VALUES]], %{{.+}}], read, locality<2>, data
// CHECK: vector.store %{{.+}}, %[[ROWS]][%{{.+}}] : memref<256xindex>, vector<16xindex>
// CHECK: return
func.func @listed(%q: memref<1x1x1x32xf32>, %k: memref<1x1x?x32xf32>, %v: memref<1x1x?x256xf32>, %l: memref<1x1x1x?xi32>, %o: memref<1x1x1x256xf32>) {
  attn.stream query(%q : memref<1x1x1x32xf32>)
      source(%k, %v : memref<1x1x?x32xf32>, memref<1x1x?x256xf32>)
      rows(%l : memref<1x1x1x?xi32>) unit = 16 positions = listed
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : memref<1x1x1x256xf32>)
      {block = 1 : i64, scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Of 16 registers twelve accumulate. 16 rows are two vectors: scores of six
// keys at a time, and outputs of six columns, the last of which are four; both
// with vectors of rows. The outputs are transposed behind the last key.
// CHECK-LABEL: func @columns(
// CHECK: memref.alloc() {{.*}}: memref<1536xf32>
// CHECK: scf.for %{{.+}} step %c6 {
// CHECK-COUNT-3: :12 = scf.for
// CHECK: :8 = scf.for
// CHECK: vector.shuffle
// CHECK: return
func.func @columns(%q: memref<1x4x4x16xf32>, %k: memref<1x1x?x16xf32>, %o: memref<1x4x4x16xf32>) {
  attn.stream query(%q : memref<1x4x4x16xf32>)
      source(%k, %k : memref<1x1x?x16xf32>, memref<1x1x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x4x16xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  return
}

// Vectors of two lanes have two rows in a group: eight rows are four groups.
// CHECK-LABEL: func @two_lanes(
// CHECK: scf.for %{{.+}} = %c0 to %c8 step %c2 {
// CHECK: :2 = scf.for %{{.+}} = %c0 to %c4 step %c2
// CHECK: return
func.func @two_lanes(%q: memref<1x8x1x4xf64>, %k: memref<1x1x512x4xf64>, %o: memref<1x8x1x4xf64>) {
  attn.stream query(%q : memref<1x8x1x4xf64>)
      source(%k, %k : memref<1x1x512x4xf64>, memref<1x1x512x4xf64>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x4xf64>)
      {scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 2, vectors = 1, keys = 8, columns = 8>}
  return
}
