// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize -attn-outline-parallel | FileCheck %s --check-prefix=OUTLINED

// 8192 keys of two heads in tasks of 256; 510 codewords are 127 tiles of four
// and a rest of two.

// CHECK-LABEL: func.func @quantize(
//  CHECK-SAME:   %[[K:[a-z0-9]+]]: memref<1x2x4096x64xf32>, %[[C:[a-z0-9]+]]: memref<2x510x64xf32>, %[[Z:[a-z0-9]+]]: memref<1x2x4096xi32>, %[[O:[a-z0-9]+]]: memref<1x2x4096x64xf32>
//   CHECK-DAG:   %[[ZERO:.*]] = arith.constant dense<0> : vector<16xi32>
//   CHECK-DAG:   %[[NONE:.*]] = arith.constant dense<0xFF800000> : vector<16xf32>
//   CHECK-DAG:   %[[INFINITY:.*]] = arith.constant dense<0x7F800000> : vector<16xf32>
// Half the squared norms of 16 codewords side by side.
//       CHECK:   %[[NORMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<2x512xf32>
//       CHECK:   scf.forall (%{{.*}}) in (2) {
//       CHECK:     vector.load %[[C]]
// CHECK-COUNT-16:  vector.fma
//       CHECK:     vector.store %{{.*}}, %[[NORMS]]
//       CHECK:   scf.forall (%[[G:[a-z0-9]+]], %{{.*}}) in (2, 16) {
//       CHECK:     %[[KT:.*]] = memref.alloc() {alignment = 64 : i64} : memref<64x64xf32>
//       CHECK:     vector.load %[[K]]
//       CHECK:     vector.store %{{.*}}, %[[KT]]
// Four codewords by four vectors of keys, and the next block's keys.
//       CHECK:     scf.for %[[S:[a-z0-9]+]] = %c0 to %c508 step %c4 iter_args(%{{.*}} = %[[NONE]], %{{.*}} = %[[NONE]], %{{.*}} = %[[NONE]], %{{.*}} = %[[NONE]], %{{.*}} = %[[ZERO]],
// CHECK-COUNT-3:     memref.prefetch %[[K]]
//       CHECK:       %[[NORM:.*]] = memref.load %[[NORMS]][%[[G]], %[[S]]]
//       CHECK:       %[[START:.*]] = vector.broadcast %[[NORM]]
//       CHECK:       %[[SCORES:.*]]:16 = scf.for %{{.*}} = %c0 to %c64 step %c4 iter_args(%{{.*}} = %[[START]], %{{.*}} = %[[START]], %{{.*}} = %[[START]], %{{.*}} = %[[START]],
// CHECK-COUNT-64:      vector.fma
//       CHECK:       %[[BETTER:.*]] = arith.cmpf ogt, %[[SCORES]]#0, %[[BEST:[a-z0-9]+]] : vector<16xf32>
//       CHECK:       arith.select %[[BETTER]], %[[SCORES]]#0, %[[BEST]]
//       CHECK:       arith.select %[[BETTER]], %{{.*}} : vector<16xi1>, vector<16xi32>
// The rest, the codes and the codewords.
//       CHECK:     %{{.*}}:8 = scf.for
//       CHECK:     arith.cmpf olt, %{{.*}}, %[[INFINITY]]
//       CHECK:     memref.store %{{.*}}, %[[Z]]
//       CHECK:     vector.load %[[C]]
//       CHECK:     vector.store %{{.*}}, %[[O]]
//       CHECK:   memref.dealloc %[[NORMS]]
//   CHECK-NOT:   attn.quantize

// The working memory of a task becomes scratch of its thread.
// OUTLINED-LABEL: func.func private @quantize_parallel_1(
//   OUTLINED-NOT:   memref.alloc
//   OUTLINED-NOT:   memref.dealloc
//       OUTLINED:   return
func.func @quantize(%k: memref<1x2x4096x64xf32>, %c: memref<2x510x64xf32>, %z: memref<1x2x4096xi32>, %o: memref<1x2x4096x64xf32>) {
  attn.quantize ins(%k, %c : memref<1x2x4096x64xf32>, memref<2x510x64xf32>) outs(%z, %o : memref<1x2x4096xi32>, memref<1x2x4096x64xf32>)
  return
}
