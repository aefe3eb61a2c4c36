// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --convert-attn-to-vector=manage-cache=false -canonicalize | FileCheck %s --check-prefix=AVX2

// Narrow types are converted once, to rows of whole vectors.

// CHECK-LABEL: func.func @bf16(
//       CHECK:   %[[COPY:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x32x32xf32>
//       CHECK:   arith.extf %{{.*}} : vector<16xbf16> to vector<16xf32>
//       CHECK:   vector.store %{{.*}}, %[[COPY]]
//       CHECK:   scf.forall (%{{.*}}) in (8) {
//       CHECK:     memref.prefetch
//       CHECK:     memref.load %[[COPY]]
//       CHECK:   memref.dealloc
//       CHECK:   memref.dealloc %[[COPY]]

// Eight accumulators: four codewords by two vectors of eight keys.
//  AVX2-LABEL: func.func @bf16(
//    AVX2-NOT:   memref.prefetch
//        AVX2:   %{{.*}}:8 = scf.for %{{.*}} = %c0 to %c20 step %c4
func.func @bf16(%k: memref<1x1x512x20xbf16>, %c: memref<1x32x20xbf16>, %z: memref<1x1x512xi32>) {
  attn.quantize ins(%k, %c : memref<1x1x512x20xbf16>, memref<1x32x20xbf16>) outs(%z : memref<1x1x512xi32>)
  return
}

// Keys that fill one vector leave room for more codewords.

// CHECK-LABEL: func.func @one_vector(
//       CHECK:   %{{.*}}:8 = scf.for %{{.*}} = %c0 to %c8 step %c4
func.func @one_vector(%k: memref<1x1x5x8xf64>, %c: memref<1x64x8xf64>, %z: memref<1x1x5xi32>) {
  attn.quantize ins(%k, %c : memref<1x1x5x8xf64>, memref<1x64x8xf64>) outs(%z : memref<1x1x5xi32>)
  return
}

// Keys that do not: products along the width, and again, one after the other,
// for the codewords that may be the nearest.

// CHECK-LABEL: func.func @few_keys(
//  CHECK-SAME:   %[[K:[a-z0-9]+]]: memref<1x8x1x32xf32>, %[[C:[a-z0-9]+]]: memref<8x50x32xf32>, %[[Z:[a-z0-9]+]]: memref<1x8x1xi32>
//   CHECK-NOT:   scf.forall (%{{.*}}, %{{.*}})
//       CHECK:   scf.forall (%[[G:.*]]) in (8) {
//       CHECK:     %[[SCORES:.*]] = memref.alloc() {alignment = 64 : i64} : memref<64xf32>
//       CHECK:     scf.for %{{.*}} = %c0 to %c50 step %c16
//       CHECK:       vector.load %[[K]][%c0, %[[G]], %c0, %{{.*}}] : memref<1x8x1x32xf32>, vector<16xf32>
//       CHECK:       vector.load %[[C]]
//       CHECK:       vector.shuffle
//       CHECK:       vector.store %{{.*}}, %[[SCORES]]
//       CHECK:     %[[LEAST:.*]] = arith.subf
//       CHECK:     scf.for %[[S:.*]] = %c0 to %c50 step %c1
//       CHECK:       %[[SCORE:.*]] = memref.load %[[SCORES]][%[[S]]]
//       CHECK:       %[[MAY_WIN:.*]] = arith.cmpf uge, %[[SCORE]], %[[LEAST]]
//       CHECK:       scf.if %[[MAY_WIN]]
//       CHECK:         vector.load %[[C]][%[[G]], %[[S]], %{{.*}}] : memref<8x50x32xf32>, vector<1xf32>
//       CHECK:     memref.store %{{.*}}, %[[Z]]
func.func @few_keys(%k: memref<1x8x1x32xf32>, %c: memref<8x50x32xf32>, %z: memref<1x8x1xi32>) {
  attn.quantize ins(%k, %c : memref<1x8x1x32xf32>, memref<8x50x32xf32>) outs(%z : memref<1x8x1xi32>)
  return
}
