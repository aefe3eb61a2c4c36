// RUN: fovea-opt %s --attn-set-target=vector-bits=512 --convert-attn-to-vector -canonicalize | FileCheck %s

// A token moves the mean of its code; the first one becomes it.

// CHECK-LABEL: func.func @accumulate(
//  CHECK-SAME:   %[[Z:[a-z0-9]+]]: memref<2x3x?xi32>, %[[V:[a-z0-9]+]]: memref<2x3x?x35xbf16>, %[[M:[a-z0-9]+]]: memref<2x3x9x35xf32>, %[[N:[a-z0-9]+]]: memref<2x3x9xi32>
//       CHECK:   scf.forall (%[[B:[a-z0-9]+]], %[[G:[a-z0-9]+]]) in (2, 3) {
//       CHECK:     scf.for %[[T:[a-z0-9]+]] =
//       CHECK:       %[[CODE:.*]] = memref.load %[[Z]][%[[B]], %[[G]], %[[T]]]
//       CHECK:       %[[S:.*]] = arith.index_cast %[[CODE]] : i32 to index
//       CHECK:       memref.load %[[N]][%[[B]], %[[G]], %[[S]]]
//       CHECK:       memref.store %{{.*}}, %[[N]][%[[B]], %[[G]], %[[S]]]
//       CHECK:       scf.if
// Two vectors and three columns.
//       CHECK:         scf.for {{.*}} to %c32 step %c16 {
//       CHECK:           vector.load %[[V]]{{.*}}, vector<16xbf16>
//       CHECK:           vector.store %{{.*}}, %[[M]]{{.*}}, vector<16xf32>
//       CHECK:         vector.store %{{.*}}, %[[M]]{{.*}}, vector<2xf32>
//       CHECK:         vector.store %{{.*}}, %[[M]]{{.*}}, vector<1xf32>
//       CHECK:       } else {
//       CHECK:         arith.divf
//       CHECK:         vector.load %[[M]]
//       CHECK:         vector.fma
//       CHECK:         vector.store %{{.*}}, %[[M]]
func.func @accumulate(%z: memref<2x3x?xi32>, %v: memref<2x3x?x35xbf16>, %m: memref<2x3x9x35xf32>, %n: memref<2x3x9xi32>) {
  attn.codebook_accumulate ins(%z, %v : memref<2x3x?xi32>, memref<2x3x?x35xbf16>) outs(%m, %n : memref<2x3x9x35xf32>, memref<2x3x9xi32>)
  return
}

// One running state for each head; blocks on their own and a tree of merges;
// blocks on their own and a product.

// CHECK-LABEL: func.func @scans(
//  CHECK-SAME:   %[[Z:[a-z0-9]+]]: memref<1x2x50xi32>, %[[V:[a-z0-9]+]]: memref<1x2x50x16xf32>, %{{.*}}: memref<1x2x9x16xf32>, %{{.*}}: memref<1x2x9xi32>, %[[M:[a-z0-9]+]]: memref<1x2x6x9x16xf32>
//       CHECK:   scf.forall (%{{.*}}) in (2) {
//       CHECK:     vector.store %{{.*}}, %[[M]]
//       CHECK:     scf.for %{{.*}} = %c1 to %c6 step %c1 {
//       CHECK:       vector.load %[[V]]
// Six entries: three levels up and three down.
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, 6) {
//       CHECK:   scf.for %{{.*}} = %c0 to %c3 step %c1 {
//       CHECK:     scf.forall
//       CHECK:   scf.for %{{.*}} = %c0 to %c3 step %c1 {
//       CHECK:     scf.forall
//       CHECK:   %[[BLOCKS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x2x6x9x16xf32>
//       CHECK:   %[[COUNTS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x2x6x9xi32>
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, 6) {
//       CHECK:     vector.store %{{.*}}, %[[BLOCKS]]
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, 6) {
//       CHECK:     vector.load %[[BLOCKS]]
//       CHECK:   memref.dealloc %[[BLOCKS]]
//       CHECK:   memref.dealloc %[[COUNTS]]
//   CHECK-NOT:   attn.
func.func @scans(%z: memref<1x2x50xi32>, %v: memref<1x2x50x16xf32>, %m0: memref<1x2x9x16xf32>, %n0: memref<1x2x9xi32>,
                 %m: memref<1x2x6x9x16xf32>, %n: memref<1x2x6x9xi32>) {
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<1x2x50xi32>, memref<1x2x50x16xf32>, memref<1x2x9x16xf32>, memref<1x2x9xi32>)
      outs(%m, %n : memref<1x2x6x9x16xf32>, memref<1x2x6x9xi32>) {block = 10 : i64}
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<1x2x50xi32>, memref<1x2x50x16xf32>, memref<1x2x9x16xf32>, memref<1x2x9xi32>)
      outs(%m, %n : memref<1x2x6x9x16xf32>, memref<1x2x6x9xi32>) {block = 10 : i64, reduction = #attn.reduction<associative>}
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<1x2x50xi32>, memref<1x2x50x16xf32>, memref<1x2x9x16xf32>, memref<1x2x9xi32>)
      outs(%m, %n : memref<1x2x6x9x16xf32>, memref<1x2x6x9xi32>) {block = 10 : i64, reduction = #attn.reduction<matmul>}
  return
}

// The levels of a tree over entries that only run time knows.

// CHECK-LABEL: func.func @entries(
//       CHECK:   %[[LAST:.*]] = arith.index_cast %{{.*}} : index to i64
//       CHECK:   %[[ZEROS:.*]] = math.ctlz %[[LAST]] : i64
//       CHECK:   %[[INDEX:.*]] = arith.index_cast %[[ZEROS]] : i64 to index
//       CHECK:   %[[LEVELS:.*]] = arith.subi %c64, %[[INDEX]] : index
//       CHECK:   scf.for %{{.*}} = %c0 to %[[LEVELS]] step %c1 {
//       CHECK:   scf.for %{{.*}} = %c0 to %[[LEVELS]] step %c1 {
func.func @entries(%z: memref<1x2x50xi32>, %v: memref<1x2x50x16xf32>, %m0: memref<1x2x9x16xf32>, %n0: memref<1x2x9xi32>,
                   %m: memref<1x2x?x9x16xf32>, %n: memref<1x2x?x9xi32>) {
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<1x2x50xi32>, memref<1x2x50x16xf32>, memref<1x2x9x16xf32>, memref<1x2x9xi32>)
      outs(%m, %n : memref<1x2x?x9x16xf32>, memref<1x2x?x9xi32>) {block = 10 : i64, reduction = #attn.reduction<associative>}
  return
}

// Entries that are to be narrow go on from each other in f32, and are rounded behind it.

// CHECK-LABEL: func.func @rounded(
//       CHECK:   %[[MEANS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x2x6x9x16xf32>
//       CHECK:   scf.forall
//   CHECK-NOT:   truncf
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, 6) {
//       CHECK:     arith.truncf
//       CHECK:     vector.store %{{.*}} : memref<1x2x6x9x16xbf16>
//       CHECK:   memref.dealloc %[[MEANS]]
func.func @rounded(%z: memref<1x2x50xi32>, %v: memref<1x2x50x16xbf16>, %m0: memref<1x2x9x16xf32>, %n0: memref<1x2x9xi32>,
                   %m: memref<1x2x6x9x16xbf16>, %n: memref<1x2x6x9xi32>) {
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<1x2x50xi32>, memref<1x2x50x16xbf16>, memref<1x2x9x16xf32>, memref<1x2x9xi32>)
      outs(%m, %n : memref<1x2x6x9x16xbf16>, memref<1x2x6x9xi32>) {block = 10 : i64}
  return
}

// A sum for every slice of columns, then a quotient for every codeword.

// CHECK-LABEL: func.func @update(
//       CHECK:   %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x100x130xf32>
//       CHECK:   %[[COUNTS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x100xi32>
//       CHECK:   scf.forall (%{{.*}}) in (2) {
//       CHECK:   scf.forall (%{{.*}}) in (2) {
//       CHECK:     arith.divf
//       CHECK:   memref.dealloc %[[SUMS]]
//       CHECK:   memref.dealloc %[[COUNTS]]
func.func @update(%k: memref<1x3x50x130xf32>, %z: memref<1x3x50xi32>, %c: memref<1x100x130xf32>, %s: memref<1x100x130xf32>, %n: memref<1x100xf32>) {
  attn.codebook_update ins(%k, %z : memref<1x3x50x130xf32>, memref<1x3x50xi32>) outs(%c, %s, %n : memref<1x100x130xf32>, memref<1x100x130xf32>, memref<1x100xf32>)
  return
}

// A logarithm without a call.

// CHECK-LABEL: func.func @log_count(
//       CHECK:   scf.for {{.*}} = %c0 to %c32 step %c16 {
//   CHECK-NOT:     math.log
//       CHECK:     vector.store %{{.*}} : memref<2x35xf32>, vector<16xf32>
//   CHECK-NOT:     math.log
//       CHECK:     vector.store %{{.*}} : memref<2x35xf32>, vector<2xf32>
//   CHECK-NOT:     math.log
//       CHECK:     vector.store %{{.*}} : memref<2x35xf32>, vector<1xf32>
func.func @log_count(%n: memref<2x35xi32>, %w: memref<2x35xf32>) {
  attn.log_count ins(%n : memref<2x35xi32>) outs(%w : memref<2x35xf32>)
  return
}

// A count alone is a row of one.

// CHECK-LABEL: func.func @log_count_of_one(
//       CHECK:   memref.expand_shape %{{.*}} [] output_shape [1] : memref<i32> into memref<1xi32>
//       CHECK:   vector.store %{{.*}} : memref<1xf32>, vector<1xf32>
func.func @log_count_of_one(%n: memref<i32>, %w: memref<f32>) {
  attn.log_count ins(%n : memref<i32>) outs(%w : memref<f32>)
  return
}
