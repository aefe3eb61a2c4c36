// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize -cse | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --remarks-filter='attn.*' --remark-policy=all 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: remark: [Passed] ConvPlanned | Category:attn.conv_apply_backward | Algorithm=toeplitz
// REMARK: remark: [Passed] ConvPlanned | Category:attn.conv_apply_backward | Algorithm=partitioned, Block=64, Lanes=16

// Rows of d_output are divided by their normalisers, d_output . output with them.
// CHECK-LABEL: func.func @toeplitz(
//  CHECK-SAME:   %[[DB:[a-z0-9]+]]: memref<1x2x3x200xf32>, %[[DV:[a-z0-9]+]]: memref<1x1x200x64xf32>)
//       CHECK:   %[[G:.*]] = memref.alloc() {alignment = 64 : i64} : memref<200x64xf32>
//       CHECK:   scf.forall {{.*}} in (4) {
//       CHECK:     vector.reduction <add>
// Keys of values, four at a time, read queries.
//       CHECK:   scf.forall {{.*}} in (4) {
//       CHECK:     scf.for {{.*}} iter_args
// CHECK-COUNT-4:     vector.load %[[G]]
// CHECK-COUNT-16:    vector.fma
// Queries along vectors, by block, for the diagonals of every distance.
//       CHECK:   scf.forall {{.*}} in (4) {
//       CHECK:     vector.shuffle
//       CHECK:   scf.forall {{.*}} in (5) {
// CHECK-COUNT-16:    vector.fma
// Rows that were marked: preparation, values, lags.
//       CHECK:   scf.if
//       CHECK:     scf.forall {{.*}} in (%{{.*}}) {
// CHECK-COUNT-2:     scf.forall {{.*}} in (4) {
//       CHECK:   vector.maskedstore %[[DB]]
//   CHECK-NOT:   attn.
func.func @toeplitz(%b: memref<1x2x3x200xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x200x64xf32>, %o: memref<1x2x200x64xf32>, %d: memref<1x2x200x64xf32>,
                    %db: memref<1x2x3x200xf32>, %dv: memref<1x1x200x64xf32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x2x3x200xf32>, memref<1x2x3xi32>, memref<1x1x200x64xf32>)
      forward(%o : memref<1x2x200x64xf32>) gradient(%d : memref<1x2x200x64xf32>)
      outs(%db, %dv : memref<1x2x3x200xf32>, memref<1x1x200x64xf32>) {algorithm = #attn.conv_algorithm<toeplitz>}
  return
}

// Spectra of values and of rows, and zeros behind these, two products of them for
// every frequency, and one inverse transform for two windows and for each piece.
// CHECK-LABEL: func.func @partitioned(
//       CHECK:   call @fovea_rt_fft_twiddles
//       CHECK:   memref.store {{.*}} : memref<7x4xindex>
//       CHECK:   scf.forall {{.*}} in (2, 4) {
//       CHECK:   scf.forall {{.*}} in (2) {
// Lags: eight windows at a frequency or its negative, summed over the pieces of a
// segment, both and lanes; the following one is prefetched meanwhile.
//       CHECK:   scf.forall {{.*}} in (16) {
// CHECK-COUNT-4:     memref.prefetch
// CHECK-COUNT-32:    vector.fma
// CHECK-COUNT-30:    vector.shuffle
// By a mask only where there are fewer.
//       CHECK:     scf.if
//       CHECK:       vector.maskedstore
//       CHECK:     } else {
//       CHECK:       vector.store {{.*}} vector<8xf32>
// Four, where there are no more.
// CHECK-COUNT-16:    vector.fma
// CHECK-COUNT-18:    vector.shuffle
// Values at the same frequencies: four pieces and two groups of columns.
//   CHECK-NOT:   scf.forall
// CHECK-COUNT-32:    vector.fma
//       CHECK:   scf.forall
//   CHECK-NOT:   attn.
func.func @partitioned(%b: memref<1x2x3x200xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x200x64xf32>, %o: memref<1x2x200x64xf32>, %d: memref<1x2x200x64xf32>,
                       %db: memref<1x2x3x200xf32>, %dv: memref<1x1x200x64xf32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x2x3x200xf32>, memref<1x2x3xi32>, memref<1x1x200x64xf32>)
      forward(%o : memref<1x2x200x64xf32>) gradient(%d : memref<1x2x200x64xf32>)
      outs(%db, %dv : memref<1x2x3x200xf32>, memref<1x1x200x64xf32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 64 : i64}
  return
}

// Spectra that the caches would lose are made in memory of the thread and stored
// past the caches. A head that has its values alone stores their gradients, past
// the caches if vectors of these are aligned, and zeros before its first segment.
// There are no rows of g, but a factor for each, and those of a block are
// transformed by the task that finds these.
// CHECK-LABEL: func.func @far(
//  CHECK-SAME:   %[[DB:[a-z0-9]+]]: memref<1x1x3x65536xf32>, %[[DV:[a-z0-9]+]]: memref<1x1x65536x64xf32>)
//   CHECK-NOT:   memref<65536x64xf32>
//   CHECK-NOT:   vector.store {{.*}}, %[[DV]]
//       CHECK:   memref.extract_aligned_pointer_as_index %[[DV]]
// CHECK-COUNT-4:   vector.store {{.*}} nontemporal = true} : memref<{{.*}}x32xf32>, vector<16xf32>
//       CHECK:   scf.forall (%[[BLOCK:.*]]) in (16) {
//       CHECK:     scf.for
//       CHECK:       vector.reduction <add>
//       CHECK:     scf.for %{{.*}} = %{{.*}} to %c2
// CHECK-COUNT-4:     vector.store {{.*}} nontemporal = true} : memref<{{.*}}x32xf32>, vector<16xf32>
//       CHECK:   scf.forall
//       CHECK:   vector.store %{{.*}}, %[[DV]]
//       CHECK:   scf.forall
//       CHECK:   vector.store {{.*}}, %[[DV]]{{.*}} nontemporal = true}
//       CHECK:   } else {
//       CHECK:   vector.store {{.*}}, %[[DV]]{{\[.*\]}} : memref
//   CHECK-NOT:   attn.
func.func @far(%b: memref<1x1x3x65536xf32>, %m: memref<1x1x3xi32>, %v: memref<1x1x65536x64xf32>, %o: memref<1x1x65536x64xf32>,
               %d: memref<1x1x65536x64xf32>, %db: memref<1x1x3x65536xf32>, %dv: memref<1x1x65536x64xf32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x1x3x65536xf32>, memref<1x1x3xi32>, memref<1x1x65536x64xf32>)
      forward(%o : memref<1x1x65536x64xf32>) gradient(%d : memref<1x1x65536x64xf32>)
      outs(%db, %dv : memref<1x1x3x65536xf32>, memref<1x1x65536x64xf32>)
  return
}
