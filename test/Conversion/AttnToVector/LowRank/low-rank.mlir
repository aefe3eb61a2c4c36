// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize | FileCheck %s

// Segments of 16 chunks of 16 rows. For each chunk weights on the diagonal, dot
// products of rows where they lie unless there are too few, and the sum of its
// keys; then the running sums, compensated; then rows of the output from the
// sums before each chunk and these weights.

// CHECK-LABEL: func.func @causal(
//  CHECK-SAME:   %[[U1:[a-z0-9]+]]: memref<3x4x100x16xf32>, %[[U2:[a-z0-9]+]]: memref<3x2x100x16xf32>, %[[V:[a-z0-9]+]]: memref<3x2x100x64xf32>, %[[O:[a-z0-9]+]]: memref<3x4x100x64xf32>
//       CHECK:   scf.forall (%[[B:.*]], %[[H:.*]]) in (3, 4)
//   CHECK-NOT:     fovea_rt
//       CHECK:     memref.alloc() {alignment = 64 : i64} : memref<16x16x16xf32>
//       CHECK:     %[[LOCALS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<17x1x16x64xf32>
//       CHECK:     %[[KH:.*]] = arith.divui %[[H]], %c2
//       CHECK:     %[[ROWS:.*]] = scf.if %{{.*}} -> (memref<16x16xf32, strided<[16, 1], offset: ?>>) {
//       CHECK:       memref.subview %[[U1]][%[[B]], %[[H]], %{{.*}}, 0] [1, 1, 16, 16]
//       CHECK:     } else {
//       CHECK:       vector.load %[[U1]][%[[B]], %[[H]],
//       CHECK:     %[[KEYS:.*]] = scf.if
//       CHECK:       memref.subview %[[U2]][%[[B]], %[[KH]], %{{.*}}, 0] [1, 1, 16, 16]
//       CHECK:       vector.load %[[U2]][%[[B]], %[[KH]],
//       CHECK:     vector.load %[[ROWS]][%c15,
//       CHECK:     vector.load %[[KEYS]][%c0,
//       CHECK:     vector.fma
//       CHECK:     vector.shuffle
//       CHECK:     vector.load %[[V]][%[[B]], %[[KH]],
//       CHECK:     memref.subview %[[LOCALS]]
//       CHECK:     scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
//       CHECK:     arith.divf {{.*}} : vector<16xf32>
//       CHECK:       vector.store %{{.*}}, %[[O]][%[[B]], %[[H]],
func.func @causal(%u1: memref<3x4x100x16xf32>, %u2: memref<3x2x100x16xf32>, %v: memref<3x2x100x64xf32>, %o: memref<3x4x100x64xf32>) {
  attn.low_rank ins(%u1, %u2, %v : memref<3x4x100x16xf32>, memref<3x2x100x16xf32>, memref<3x2x100x64xf32>)
      outs(%o : memref<3x4x100x64xf32>) {mask = #attn.row_mask<causal>}
  return
}

// With few heads for the threads there are, segments are the tasks, and take turns
// to add to the sums of their head; else a task has all segments of a head.

// CHECK-LABEL: func.func @segments(
//       CHECK:   %[[THREADS:.*]] = llvm.call @fovea_rt_loop_threads()
//       CHECK:   %[[FEW:.*]] = arith.cmpi sgt, %{{.*}}, %c1
//   CHECK-DAG:   %[[ITEMS:.*]] = arith.select %[[FEW]], %c4, %c1
//   CHECK-DAG:   %[[ROWS:.*]] = arith.select %[[FEW]], %c256, %c1000
//       CHECK:   scf.forall (%[[ITEM:.*]]) in (%[[ITEMS]])
//       CHECK:     arith.muli %{{.*}}, %[[ROWS]]
//       CHECK:     llvm.call @fovea_rt_wait_for_turn
//       CHECK:     llvm.call @fovea_rt_end_turn
//       CHECK:     vector.store %{{.*}}, %{{.*}} : memref<1x1x1000x64xf32>
//       CHECK:     llvm.call @fovea_rt_end_turn
func.func @segments(%u: memref<1x1x1000x16xf32>, %v: memref<1x1x1000x64xf32>, %o: memref<1x1x1000x64xf32>) {
  attn.low_rank ins(%u, %u, %v : memref<1x1x1000x16xf32>, memref<1x1x1000x16xf32>, memref<1x1x1000x64xf32>)
      outs(%o : memref<1x1x1000x64xf32>) {mask = #attn.row_mask<causal>}
  return
}

// One column more than four vectors is summed as the keys are for the totals.

// CHECK-LABEL: func.func @tail(
//       CHECK:   %[[LOCALS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<17x1x16x64xf32>
//       CHECK:   memref.alloc() {alignment = 64 : i64} : memref<16x1x16xf32>
//       CHECK:   memref.alloc() {alignment = 64 : i64} : memref<17x2x16xf32>
//       CHECK:   vector.store %{{.*}}, %{{.*}}[%c0, %c0, %{{.*}}, %c64] : memref<1x1x100x65xf32>, vector<1xf32>
func.func @tail(%u: memref<1x1x100x16xf32>, %v: memref<1x1x100x65xf32>, %o: memref<1x1x100x65xf32>) {
  attn.low_rank ins(%u, %u, %v : memref<1x1x100x16xf32>, memref<1x1x100x16xf32>, memref<1x1x100x65xf32>)
      outs(%o : memref<1x1x100x65xf32>) {mask = #attn.row_mask<causal>}
  return
}

// A tree of sums: runs of 32 columns, which are products of panels, then pairs,
// then rows.

// CHECK-LABEL: func.func @intervals(
//       CHECK:   %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x1x8x8x16xf32>
//       CHECK:   scf.forall (%{{.*}}) in (4)
//       CHECK:     vector.fma
//       CHECK:     vector.store %{{.*}}, %[[SUMS]]
//       CHECK:   scf.forall (%{{.*}}) in (8)
//       CHECK:     vector.load %[[SUMS]]
//       CHECK:     vector.load %[[SUMS]]
//       CHECK:     arith.addf
//       CHECK:     vector.store %{{.*}}, %[[SUMS]]
//       CHECK:   scf.forall (%{{.*}}) in (4)
//       CHECK:     vector.load %[[SUMS]]
//       CHECK:     vector.fma
//       CHECK:   memref.dealloc %[[SUMS]]
func.func @intervals(%u: memref<1x1x100x8xf32>, %i: memref<1x1x100xi32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x100x8xf32>, memref<1x1x100x8xf32>, memref<1x1x100x8xf32>)
      mask(%i, %i : memref<1x1x100xi32>, memref<1x1x100xi32>) outs(%u : memref<1x1x100x8xf32>) {mask = #attn.row_mask<row_interval>}
  return
}

// Changes of rows are summed in f64, unless they are no finite numbers: these
// columns stay apart.

// CHECK-LABEL: func.func @changes(
//       CHECK:   %[[PLACES:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x2x100xi8>
//       CHECK:   scf.forall
//       CHECK:     memref.alloc() {alignment = 64 : i64} : memref<8x16xf64>
//       CHECK:     memref.load %[[PLACES]]
//       CHECK:     arith.cmpf ord
//       CHECK:     memref.store %{{.*}}, %[[PLACES]]
//       CHECK:     memref.load %[[PLACES]]
//       CHECK:     scf.if
func.func @changes(%u: memref<1x2x100x8xf32>, %e: memref<1x1x100xi32>, %c: memref<1x1x?xi32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x2x100x8xf32>, memref<1x2x100x8xf32>, memref<1x2x100x8xf32>)
      mask(%e, %c : memref<1x1x100xi32>, memref<1x1x?xi32>) outs(%u : memref<1x2x100x8xf32>) {mask = #attn.row_mask<row_change>}
  return
}

// Cosines and sines once for all heads.

// CHECK-LABEL: func.func @rope(
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, 2)
//       CHECK:     arith.muli {{.*}} : vector<16xi64>
//       CHECK:     arith.sitofp %{{.*}} : vector<16xi32> to vector<16xf32>
//       CHECK:     scf.for %{{.*}} = %c0 to %c4
//       CHECK:       vector.deinterleave
//       CHECK:       vector.interleave
func.func @rope(%x: memref<2x4x100x64xf32>, %p: memref<1x1x100xi32>) {
  attn.rope ins(%x, %p : memref<2x4x100x64xf32>, memref<1x1x100xi32>) outs(%x : memref<2x4x100x64xf32>)
  return
}

// Two nested loops for the monomials of degree 2.

// CHECK-LABEL: func.func @features(
//       CHECK:   scf.for %[[I:.*]] = %c0 to %c16 step %c1 iter_args
//       CHECK:     scf.for %{{.*}} = %[[I]] to
//       CHECK:       vector.store %{{.*}} : memref<1x1x9x153xf32>, vector<16xf32>
func.func @features(%x: memref<1x1x9x16xf32>, %o: memref<1x1x9x153xf32>) {
  attn.polynomial_features ins(%x : memref<1x1x9x16xf32>) outs(%o : memref<1x1x9x153xf32>) {degree = 2 : i64, scale = 0.25 : f64}
  return
}

// Its gradient: products of d_output and the output, one over the totals, then
// three sums, the last two from the last row to the first.

// CHECK-LABEL: func.func @backward(
//  CHECK-SAME:   %[[U1:[a-z0-9]+]]: memref<3x4x100x16xf32>, %[[U2:[a-z0-9]+]]: memref<3x2x100x16xf32>, %[[V:[a-z0-9]+]]: memref<3x2x100x64xf32>, %[[O:[a-z0-9]+]]: memref<3x4x100x64xf32>, %[[D:[a-z0-9]+]]: memref<3x4x100x64xf32>, %[[DU1:[a-z0-9]+]]: memref<3x4x100x16xf32>, %[[DU2:[a-z0-9]+]]: memref<3x2x100x16xf32>, %[[DV:[a-z0-9]+]]: memref<3x2x100x64xf32>
//       CHECK:   %[[INVERSES:.*]] = memref.alloc() {alignment = 64 : i64} : memref<3x4x100xf32>
//       CHECK:   %[[DELTAS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<3x4x100xf32>
//       CHECK:   scf.forall
//       CHECK:     memref.store %{{.*}}, %[[DELTAS]]
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (3, 4)
//       CHECK:     memref.store %{{.*}}, %[[INVERSES]]
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (3, 4)
//       CHECK:     vector.load %[[D]]
//       CHECK:     memref.load %[[DELTAS]]
//       CHECK:     memref.load %[[INVERSES]]
//       CHECK:     vector.store %{{.*}}, %[[DU1]]
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (3, 2)
//       CHECK:     scf.for %{{.*}} = %c0 to %c2 step %c1
//       CHECK:       vector.store %{{.*}}, %[[DU2]]
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (3, 2)
//       CHECK:     vector.store %{{.*}}, %[[DV]]
//       CHECK:   memref.dealloc %[[INVERSES]]
func.func @backward(%u1: memref<3x4x100x16xf32>, %u2: memref<3x2x100x16xf32>, %v: memref<3x2x100x64xf32>, %o: memref<3x4x100x64xf32>, %d: memref<3x4x100x64xf32>,
                    %du1: memref<3x4x100x16xf32>, %du2: memref<3x2x100x16xf32>, %dv: memref<3x2x100x64xf32>) {
  attn.low_rank_backward ins(%u1, %u2, %v : memref<3x4x100x16xf32>, memref<3x2x100x16xf32>, memref<3x2x100x64xf32>)
      forward(%o : memref<3x4x100x64xf32>) gradient(%d : memref<3x4x100x64xf32>)
      outs(%du1, %du2, %dv : memref<3x4x100x16xf32>, memref<3x2x100x16xf32>, memref<3x2x100x64xf32>) {mask = #attn.row_mask<causal>}
  return
}

// The loops of the features, which carry a gradient.

// CHECK-LABEL: func.func @features_backward(
//       CHECK:   scf.for %{{.*}} = %c0 to %c16 step %c1 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) -> (index, f32)
//       CHECK:     vector.fma
//       CHECK:     vector.reduction <add>
func.func @features_backward(%x: memref<1x1x9x16xf32>, %d: memref<1x1x9x153xf32>, %o: memref<1x1x9x16xf32>) {
  attn.polynomial_features_backward ins(%x : memref<1x1x9x16xf32>) gradient(%d : memref<1x1x9x153xf32>) outs(%o : memref<1x1x9x16xf32>) {degree = 2 : i64, scale = 0.25 : f64}
  return
}
