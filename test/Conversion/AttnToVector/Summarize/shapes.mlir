// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --convert-attn-to-vector -canonicalize | FileCheck %s --check-prefix=AVX2

// bf16 is summed in f32 and rounded when an interval is complete. Fewer
// registers hold fewer sums.

// CHECK-LABEL: func.func @bf16(
//       CHECK:   memref.alloc() {alignment = 64 : i64} : memref<1x64x4x16xf32>
//       CHECK:   %[[X:.*]] = vector.load %{{.*}} : memref<1x2x256x16xbf16>, vector<16xbf16>
//       CHECK:   arith.extf %[[X]] : vector<16xbf16> to vector<16xf32>
//       CHECK:   %{{.*}}:16 = scf.for
//       CHECK:     vector.fma %{{.*}} : vector<16xf32>
//       CHECK:   %[[SUM:.*]] = arith.truncf %{{.*}} : vector<16xf32> to vector<16xbf16>
//       CHECK:   vector.store %[[SUM]], %{{.*}} : memref<1x2x16x16xbf16>, vector<16xbf16>

// AVX2-LABEL: func.func @bf16(
//       AVX2:   %{{.*}}:8 = scf.for
//       AVX2:     vector.fma %{{.*}} : vector<8xf32>
func.func @bf16(%x: memref<1x2x256x16xbf16>, %w: memref<1x4x64x16xbf16>,
                %o: memref<1x2x16x16xbf16>) {
  attn.summarize ins(%x : memref<1x2x256x16xbf16>) weights(%w : memref<1x4x64x16xbf16>)
      outs(%o : memref<1x2x16x16xbf16>)
  return
}

// CHECK-LABEL: func.func @f64(
//       CHECK:   vector.fma %{{.*}} : vector<8xf64>
func.func @f64(%x: memref<1x2x256x16xf64>, %w: memref<1x4x64x16xf64>,
               %o: memref<1x2x16x16xf64>) {
  attn.summarize ins(%x : memref<1x2x256x16xf64>) weights(%w : memref<1x4x64x16xf64>)
      outs(%o : memref<1x2x16x16xf64>)
  return
}

// Width 21: the second vector ends at the last column.

// CHECK-LABEL: func.func @width_21(
//       CHECK:   scf.for %[[VECTOR:.*]] = %c0 to %c2 step %c1 {
//       CHECK:     %[[COLUMN:.*]] = arith.muli %[[VECTOR]], %c16
//       CHECK:     %[[CLAMPED:.*]] = arith.minsi %[[COLUMN]], %c5
//       CHECK:     vector.load %{{.*}}, %[[CLAMPED]]] : memref<1x1x256x21xf32>, vector<16xf32>
func.func @width_21(%x: memref<1x1x256x21xf32>, %w: memref<1x4x64x21xf32>,
                    %o: memref<1x1x16x21xf32>) {
  attn.summarize ins(%x : memref<1x1x256x21xf32>) weights(%w : memref<1x4x64x21xf32>)
      outs(%o : memref<1x1x16x21xf32>)
  return
}

// Width 5: vectors of the largest power of two that fits.

// CHECK-LABEL: func.func @width_5(
//       CHECK:   vector.fma %{{.*}} : vector<4xf32>
func.func @width_5(%x: memref<1x1x256x5xf32>, %w: memref<1x4x64x5xf32>,
                   %o: memref<1x1x16x5xf32>) {
  attn.summarize ins(%x : memref<1x1x256x5xf32>) weights(%w : memref<1x4x64x5xf32>)
      outs(%o : memref<1x1x16x5xf32>)
  return
}

// 100 rows: three intervals, so three streams; the last one is cut short.

// CHECK-LABEL: func.func @ragged(
//       CHECK:   memref.alloc() {alignment = 64 : i64} : memref<1x40x3x16xf32>
//       CHECK:   vector.load %{{.*}} : memref<1x1x100x16xf32>
//       CHECK:   scf.for %{{.*}} = %c20 to %c40
//       CHECK:     vector.store %cst
//       CHECK:   %{{.*}}:3 = scf.for
func.func @ragged(%x: memref<1x1x100x16xf32>, %w: memref<1x1x40x16xf32>,
                  %o: memref<1x1x3x16xf32>) {
  attn.summarize ins(%x : memref<1x1x100x16xf32>) weights(%w : memref<1x1x40x16xf32>)
      outs(%o : memref<1x1x3x16xf32>)
  return
}

// Tasks for every batch entry and group of heads, of which only the run time
// knows the number; intervals past the end are not stored.

// CHECK-LABEL: func.func @dynamic(
//   CHECK-DAG:   memref.dim %{{.*}}, %c0
//   CHECK-DAG:   memref.dim %{{.*}}, %c1
//   CHECK-DAG:   memref.dim %{{.*}}, %c2
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, %{{.*}}) {
//       CHECK:     %{{.*}}:16 = scf.for
//       CHECK:     %[[PRESENT:.*]] = arith.cmpi slt
//       CHECK:     scf.if %[[PRESENT]]
func.func @dynamic(%x: memref<?x?x?x16xf32>, %w: memref<2x4x64x16xf32>,
                   %o: memref<?x?x?x16xf32>) {
  attn.summarize ins(%x : memref<?x?x?x16xf32>) weights(%w : memref<2x4x64x16xf32>)
      outs(%o : memref<?x?x?x16xf32>)
  return
}

// Five sums are one block; nine are five and four, of three intervals each.

// CHECK-LABEL: func.func @ranks(
//       CHECK:   %{{.*}}:20 = scf.for
//       CHECK:   %{{.*}}:15 = scf.for
//       CHECK:   %{{.*}}:12 = scf.for
func.func @ranks(%x: memref<1x1x400x16xf32>, %w5: memref<1x5x40x16xf32>, %w9: memref<1x9x45x16xf32>,
                 %o5: memref<1x1x50x16xf32>, %o9: memref<1x1x81x16xf32>) {
  attn.summarize ins(%x : memref<1x1x400x16xf32>) weights(%w5 : memref<1x5x40x16xf32>)
      outs(%o5 : memref<1x1x50x16xf32>)
  attn.summarize ins(%x : memref<1x1x400x16xf32>) weights(%w9 : memref<1x9x45x16xf32>)
      outs(%o9 : memref<1x1x81x16xf32>)
  return
}
