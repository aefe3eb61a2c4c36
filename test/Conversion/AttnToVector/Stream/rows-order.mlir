// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --canonicalize --cse | FileCheck %s

// The runtime hands out the last index first: heads, and parts of their keys,
// count backwards, so that one thread reads memory from its beginning to its
// end. Parts are stored and added in the order of keys.
// CHECK-LABEL: func.func @parts(
// CHECK: scf.forall (%[[I:.+]], %[[J:.+]]) in (8, 2) {
// CHECK-NEXT: %[[HEAD:.+]] = arith.subi %c7, %[[I]] : index
// CHECK-NEXT: %[[PART:.+]] = arith.subi %c1, %[[J]] : index
// CHECK: %[[SHARE:.+]] = arith.muli %[[PART]], %c4096
// CHECK: %[[FIRST:.+]] = arith.muli %[[HEAD]], %c2
// CHECK: arith.addi %[[FIRST]], %[[PART]]
// CHECK: scf.forall (%[[I:.+]]) in (8) {
// CHECK-NEXT: %[[HEAD:.+]] = arith.subi %c7, %[[I]] : index
// CHECK: %[[FIRST:.+]] = arith.muli %[[HEAD]], %c2
// CHECK: scf.for %[[PART:.+]] = %c0 to %c2 step %c1
// CHECK-NEXT: arith.addi %[[FIRST]], %[[PART]]
func.func @parts(%q: memref<1x8x1x64xf32>, %k: memref<1x8x8192x64xf32>, %o: memref<1x8x1x64xf32>) {
  attn.stream query(%q : memref<1x8x1x64xf32>)
      source(%k, %k : memref<1x8x8192x64xf32>, memref<1x8x8192x64xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x64xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Of several chunks of queries, heads count backwards and chunks do not: the
// last queries of a head come first, then those before, then the next head.
// CHECK-LABEL: func.func @chunks(
// CHECK: scf.forall (%[[I:.+]], %[[J:.+]]) in (12, 2) {
// CHECK-NEXT: %[[BACK:.+]] = arith.divui %[[I]], %c3 : index
// CHECK-NEXT: %[[HEAD:.+]] = arith.subi %c3, %[[BACK]] : index
// CHECK-NEXT: %[[BEGIN:.+]] = arith.muli %[[HEAD]], %c3 : index
// CHECK-NEXT: %[[CHUNK:.+]] = arith.remui %[[I]], %c3 : index
// CHECK-NEXT: %[[SET:.+]] = arith.addi %[[BEGIN]], %[[CHUNK]] : index
// CHECK-NEXT: %[[PART:.+]] = arith.subi %c1, %[[J]] : index
// CHECK: %[[OWN:.+]] = arith.remui %[[SET]], %c3 : index
// CHECK-NEXT: arith.muli %[[OWN]], %c16
// CHECK: %[[FIRST:.+]] = arith.muli %[[SET]], %c2
// CHECK: arith.addi %[[FIRST]], %[[PART]]
// CHECK: scf.forall (%[[I:.+]]) in (12) {
// CHECK-NEXT: %[[BACK:.+]] = arith.divui %[[I]], %c3 : index
// CHECK-NEXT: %[[HEAD:.+]] = arith.subi %c3, %[[BACK]] : index
// CHECK-NEXT: %[[BEGIN:.+]] = arith.muli %[[HEAD]], %c3 : index
// CHECK-NEXT: %[[CHUNK:.+]] = arith.remui %[[I]], %c3 : index
// CHECK-NEXT: %[[SET:.+]] = arith.addi %[[BEGIN]], %[[CHUNK]] : index
// CHECK: %[[FIRST:.+]] = arith.muli %[[SET]], %c32
// CHECK: scf.for %[[ROW:.+]] = %c0
// CHECK: scf.for %[[PART:.+]] = %c0 to %c2 step %c1
// CHECK-NEXT: %[[ROWS:.+]] = arith.muli %[[PART]], %c16
// CHECK-NEXT: %[[AT:.+]] = arith.addi %[[ROWS]], %[[ROW]]
// CHECK-NEXT: arith.addi %[[FIRST]], %[[AT]]
func.func @chunks(%q: memref<1x4x36x64xf32>, %k: memref<1x4x8192x64xf32>, %list: memref<1x1x3x1024xi32>, %o: memref<1x4x36x64xf32>) {
  attn.stream query(%q : memref<1x4x36x64xf32>)
      source(%k, %k : memref<1x4x8192x64xf32>, memref<1x4x8192x64xf32>) rows(%list : memref<1x1x3x1024xi32>) unit = 1 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x36x64xf32>)
      {scale = 1.0, block = 16 : i64, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}
