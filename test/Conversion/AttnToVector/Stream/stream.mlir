// RUN: fovea-opt %s --convert-attn-to-vector --canonicalize --cse --split-input-file | FileCheck %s
// RUN: fovea-opt %s --convert-attn-to-vector=manage-cache=false --split-input-file | FileCheck %s --check-prefix=PLAIN
// RUN: not fovea-opt %S/Inputs/no-tiles.mlir --convert-attn-to-vector 2>&1 | FileCheck %s --check-prefix=NOTILES

// PLAIN-NOT: memref.prefetch
// PLAIN-NOT: nontemporal
// NOTILES: error: 'attn.stream' op has no tiles; run --attn-select-tiles first

// Long ranges are streamed: tiles of keys with a running maximum and sum.
// Scores are products of broadcast keys and vectors of queries; both operands of
// the next tile are prefetched.

// CHECK-LABEL: func @streamed
// CHECK: %[[QT:.+]] = memref.alloc() {alignment = 64 : i64} : memref<16x32xf32>
// CHECK: vector.shuffle
// CHECK: vector.store %{{.+}}, %[[QT]]
// CHECK: scf.for %{{.+}} = %{{.+}} to %{{.+}} step %c64 iter_args(%{{.+}} = %{{.+}}, %{{.+}} = %{{.+}}, %{{.+}} = %{{.+}}, %{{.+}} = %{{.+}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK: memref.prefetch %{{.+}}, read, locality<3>, data
// CHECK: memref.prefetch %{{.+}}, read, locality<2>, data
// CHECK: vector.load %[[QT]]
// CHECK: vector.broadcast %{{.+}} : f32 to vector<16xf32>
// CHECK: vector.fma
// CHECK-NOT: nontemporal
// CHECK: return
func.func @streamed(%i: index, %q: memref<1x1x32x16xf32>, %k: memref<1x1x4096x16xf32>, %o: memref<1x1x32x16xf32>) {
  %n = arith.constant 64 : index
  attn.stream query(%q : memref<1x1x32x16xf32>)
      source(%k, %k : memref<1x1x4096x16xf32>, memref<1x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      tile(%i of %n) outs(%o : memref<1x1x32x16xf32>)
      {scale = 0.25 : f64, tiles = #attn.tiles<query = 32, key = 64, lanes = 16, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// Ranges of a few rows are listed in a table, with the log weight beside each
// row; the output of a linear-time pattern is stored past the caches.

// CHECK-LABEL: func @listed
// CHECK-DAG: %[[TABLE:.+]] = memref.alloc() {alignment = 64 : i64} : memref<{{[0-9]+}}xindex>
// CHECK: memref.store %{{.+}}, %[[TABLE]]
// CHECK: memref.load %[[TABLE]]
// CHECK: vector.store %{{.+}} {alignment = 64 : i64, nontemporal = true}
// PLAIN-LABEL: func @listed
// PLAIN-NOT: nontemporal
func.func @listed(%q: memref<1x1x512x16xf32>, %ks: memref<1x1x64x16xf32>, %w: memref<1x1x64xf32>, %o: memref<1x1x512x16xf32>) {
  attn.stream query(%q : memref<1x1x512x16xf32>)
      source(%ks, %ks : memref<1x1x64x16xf32>, memref<1x1x64x16xf32>) log_weight(%w : memref<1x1x64xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 2 - 4, b * 2)>, affine_map<(b)[rows, n] -> (b * 2 + 2, b * 2 + 6)>]
      outs(%o : memref<1x1x512x16xf32>)
      {block = 32 : i64, scale = 0.25 : f64, tiles = #attn.tiles<query = 512, key = 64, lanes = 16, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// Rows that are not all aligned like the first are never stored past the caches:
// such a store needs an aligned address. Nothing is hidden: no sum is looked at.

// CHECK-LABEL: func @unalignedRows
// CHECK-NOT: nontemporal
// CHECK-NOT: vector.reduction <and>
// CHECK: return
func.func @unalignedRows(%q: memref<1x1x512x16xf32>, %o: memref<1x1x512x16xf32, strided<[8704, 8704, 17, 1]>>) {
  attn.stream query(%q : memref<1x1x512x16xf32>)
      source(%q, %q : memref<1x1x512x16xf32>, memref<1x1x512x16xf32>) ranges [affine_map<(b)[rows, n] -> (b * 32 - 32, b * 32 + 32)>]
      outs(%o : memref<1x1x512x16xf32, strided<[8704, 8704, 17, 1]>>)
      {block = 32 : i64, scale = 0.25 : f64, tiles = #attn.tiles<query = 512, key = 64, lanes = 16, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// A causal diagonal is scored in triangles: the first vector of queries for its
// own rows, every later vector for all rows before. Only one vector per row is
// masked. A block whose outputs are not all finite is computed again, without
// the entries that the mask cuts.

// CHECK-LABEL: func @diagonal
// CHECK: scf.while (%[[REPEATED:.+]] = %false)
// CHECK: arith.cmpi sgt
// CHECK: arith.select
// CHECK: scf.if %[[REPEATED]]
// CHECK: %[[FIRST:.+]] = arith.xori %[[REPEATED]], %true
// CHECK: arith.cmpf uno
// CHECK: %[[SPECIAL:.+]] = vector.reduction <or>
// CHECK: %[[AGAIN:.+]] = arith.andi %[[FIRST]], %[[SPECIAL]]
// CHECK: scf.condition(%[[AGAIN]])
func.func @diagonal(%i: index, %q: memref<1x1x32x16xf32>, %k: memref<1x1x64x16xf32>, %o: memref<1x1x32x16xf32>) {
  %n = arith.constant 64 : index
  attn.stream query(%q : memref<1x1x32x16xf32>)
      source(%k, %k : memref<1x1x64x16xf32>, memref<1x1x64x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      tile(%i of %n) outs(%o : memref<1x1x32x16xf32>)
      {scale = 0.25 : f64, tiles = #attn.tiles<query = 32, key = 64, lanes = 16, vectors = 2, keys = 4, columns = 4>}
  return
}
