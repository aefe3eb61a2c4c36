// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize | FileCheck %s

// Intervals of 64 rows, shorter than the longest chunk: the 4 heads of 16
// intervals each are 16 instances of 4 neighbouring intervals, and no sums are
// carried from chunk to chunk. There are as many tasks as threads: up to 8, of
// two instances or more, and up to 16 of one.

// CHECK-LABEL: func.func @one_level(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<1x4x1024x16xf32>, %[[W:[a-z0-9]+]]: memref<1x2x64x16xf32>, %[[O:[a-z0-9]+]]: memref<1x4x32x16xf32>)
//       CHECK:   %[[THREADS:.*]] = llvm.call @fovea_rt_loop_threads()
//       CHECK:   %[[WANTED:.*]] = arith.index_cast %[[THREADS]]
//       CHECK:   %[[PAIRS:.*]] = arith.maxsi %[[WANTED]], %c1
//       CHECK:   %[[TASKS:.*]] = arith.minsi %[[PAIRS]], %c8
//       CHECK:   arith.maxsi %[[WANTED]], %[[TASKS]]
//       CHECK:   scf.forall (%{{.*}}) in (%{{.*}}) {
//       CHECK:     %[[ROWS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x64x4x16xf32>
//       CHECK:     %[[WEIGHTS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x64x2x16xf32>
// Copy the weights.
//       CHECK:     scf.for
//       CHECK:       vector.load %[[W]]
//       CHECK:       vector.store %{{.*}}, %[[WEIGHTS]]
//       CHECK:     scf.for
// Copy the rows of four intervals side by side.
//       CHECK:       scf.for %{{.*}} = %c0 to %c64 step %c1 {
//       CHECK:         vector.load %[[X]]
//       CHECK:         vector.store %{{.*}}, %[[ROWS]]
// The register tile: two sums of four intervals.
//       CHECK:       %[[SUMS:.*]]:8 = scf.for %[[T:.*]] = %c0 to %c64 step %c1 iter_args(
//       CHECK:         vector.load %[[ROWS]][%c0, %[[T]], %c0, %c0]
//       CHECK:         vector.load %[[ROWS]][%c0, %[[T]], %c1, %c0]
//       CHECK:         vector.load %[[ROWS]][%c0, %[[T]], %c2, %c0]
//       CHECK:         vector.load %[[ROWS]][%c0, %[[T]], %c3, %c0]
//       CHECK:         %[[FIRST:.*]] = vector.load %[[WEIGHTS]][%c0, %[[T]], %c0, %c0]
// CHECK-COUNT-4:         vector.fma %{{.*}}, %[[FIRST]], %{{.*}} : vector<16xf32>
//       CHECK:         %[[SECOND:.*]] = vector.load %[[WEIGHTS]][%c0, %[[T]], %c1, %c0]
// CHECK-COUNT-4:         vector.fma %{{.*}}, %[[SECOND]], %{{.*}} : vector<16xf32>
//       CHECK:         scf.yield
// CHECK-COUNT-8:       vector.store %[[SUMS]]#{{[0-7]}}, %[[O]]
//   CHECK-NOT:   attn.summarize
func.func @one_level(%x: memref<1x4x1024x16xf32>, %w: memref<1x2x64x16xf32>,
                     %o: memref<1x4x32x16xf32>) {
  attn.summarize ins(%x : memref<1x4x1024x16xf32>)
      weights(%w : memref<1x2x64x16xf32>) outs(%o : memref<1x4x32x16xf32>)
  return
}

// Intervals of 256 rows: sums wait in memory between chunks of 32 rows, whose
// own sums start from zero and are added to them. They start from the bias
// where an interval begins, and are stored where it ends.

// CHECK-LABEL: func.func @long_interval(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<1x2x1024x16xf32>, %[[W:[a-z0-9]+]]: memref<1x4x256x16xf32>, %[[B:[a-z0-9]+]]: memref<1x4x16xf32>, %[[O:[a-z0-9]+]]: memref<1x2x16x16xf32>)
//       CHECK:   scf.forall
//       CHECK:     %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x2x1x4x4x16xf32>
//       CHECK:     scf.if
//       CHECK:       %[[BIAS:.*]] = vector.load %[[B]]
//       CHECK:       vector.store %[[BIAS]], %[[SUMS]]
//       CHECK:     %[[TILE:.*]]:16 = scf.for
//       CHECK:     %[[OLD:.*]] = vector.load %[[SUMS]]
//       CHECK:     %[[NEW:.*]] = arith.addf %[[OLD]], %[[TILE]]#0
//       CHECK:     vector.store %[[NEW]], %[[SUMS]]
//       CHECK:     scf.if
//       CHECK:       %[[SUM:.*]] = vector.load %[[SUMS]]
//       CHECK:       vector.store %[[SUM]], %[[O]]
func.func @long_interval(%x: memref<1x2x1024x16xf32>, %w: memref<1x4x256x16xf32>,
                         %b: memref<1x4x16xf32>, %o: memref<1x2x16x16xf32>) {
  attn.summarize ins(%x : memref<1x2x1024x16xf32>)
      weights(%w : memref<1x4x256x16xf32>) bias(%b : memref<1x4x16xf32>)
      outs(%o : memref<1x2x16x16xf32>)
  return
}
