// RUN: fovea-opt %s -attn-vectorize-quantize="vector-bits=512 num-registers=32" -canonicalize | FileCheck %s
// RUN: fovea-opt %s -attn-vectorize-quantize="vector-bits=256 num-registers=16 manage-cache=false" -canonicalize | FileCheck %s --check-prefix=AVX2

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

// CHECK-LABEL: func.func @few_keys(
//       CHECK:   %{{.*}}:8 = scf.for %{{.*}} = %c0 to %c8 step %c4
func.func @few_keys(%k: memref<1x1x3x8xf64>, %c: memref<1x64x8xf64>, %z: memref<1x1x3xi32>) {
  attn.quantize ins(%k, %c : memref<1x1x3x8xf64>, memref<1x64x8xf64>) outs(%z : memref<1x1x3xi32>)
  return
}
