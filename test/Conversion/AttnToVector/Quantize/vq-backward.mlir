// RUN: fovea-opt %s --attn-set-target=vector-bits=512 --convert-attn-to-vector=ops=attn.vq_backward -canonicalize -cse | FileCheck %s

// Means before every block come first. Then blocks, and tiles of 64 queries in
// them, in reverse.

// CHECK-LABEL: func.func @backward(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: memref<2x6x?x16xf32>, %[[Z:[a-z0-9]+]]: memref<2x3x?xi32>
//       CHECK:   attn.codebook_scan ins(%[[Z]]
//  CHECK-SAME:     {block = 128 : i64, reduction = #attn.reduction<serial>}
// Chunks have sums of their own, and rows for the tokens of the block before.
//       CHECK:   %[[SUMS:.*]] = memref.alloc(%[[CHUNKS:.*]]) {alignment = 64 : i64} : memref<2x3x?x48x32xf32>
// The first chunk has none before it.
//       CHECK:   %[[LATER:.*]] = arith.subi %[[CHUNKS]], %c1
//       CHECK:   memref.alloc(%[[LATER]]) {alignment = 64 : i64} : memref<2x3x?x128x16xf32>
//       CHECK:   scf.forall (%[[B:[a-z0-9]+]], %[[G:[a-z0-9]+]], %[[C:[a-z0-9]+]]) in (2, 3, %[[CHUNKS]]) {
// What later queries owe the values of every code.
//       CHECK:     %[[OWED:.*]] = memref.subview %[[SUMS]][%[[B]], %[[G]], %[[C]], 0, 0]
//       CHECK:     scf.for
//       CHECK:       vector.store %{{.*}}, %[[OWED]]
// Values of the tile's tokens start from it.
//       CHECK:     %[[CODE:.*]] = memref.load %[[Z]][%[[B]], %[[G]],
//       CHECK:     vector.load %[[OWED]]
// Two query heads for each key head.
//       CHECK:     scf.for %{{.*}} = %c0 to %c2 step %c1 {
// Scores in base 2, and the exponential once for each codeword.
//       CHECK:       vector.fma
//       CHECK:       vector.store %{{.*}}, %[[F:[a-z0-9_]+]][%{{.*}}] : memref<48x64xf32>
// Sums of later chunks, for those before and then for their tokens.
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, 3) {
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (2, 3, %[[CHUNKS]]) {
func.func @backward(%q: memref<2x6x?x16xf32>, %z: memref<2x3x?xi32>, %v: memref<2x3x?x32xf32>, %c: memref<1x48x16xf32>,
    %o: memref<2x6x?x32xf32>, %l: memref<2x6x?xf32>, %d: memref<2x6x?x32xf32>,
    %dq: memref<2x6x?x16xf32>, %dk: memref<2x3x?x16xf32>, %dv: memref<2x3x?x32xf32>) {
  attn.vq_backward ins(%q, %z, %v, %c : memref<2x6x?x16xf32>, memref<2x3x?xi32>, memref<2x3x?x32xf32>, memref<1x48x16xf32>)
      forward(%o, %l : memref<2x6x?x32xf32>, memref<2x6x?xf32>) gradient(%d : memref<2x6x?x32xf32>)
      outs(%dq, %dk, %dv : memref<2x6x?x16xf32>, memref<2x3x?x16xf32>, memref<2x3x?x32xf32>)
      {block = 128 : i64, causal}
  return
}
