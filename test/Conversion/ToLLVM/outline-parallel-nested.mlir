// RUN: fovea-opt %s -attn-outline-parallel | FileCheck %s

// A parallel loop inside a parallel loop becomes sequential.

// CHECK-LABEL: func.func @nested(
//       CHECK:   llvm.mlir.constant(64 : i64)
//       CHECK:   llvm.call @fovea_rt_parallel_for
//   CHECK-NOT:   llvm.call @fovea_rt_parallel_for
// CHECK-LABEL: func.func private @nested_parallel_0(
//   CHECK-NOT:   scf.forall
//   CHECK-NOT:   llvm.call
//       CHECK:   scf.for
//       CHECK:     scf.for
//       CHECK:       scf.for
//       CHECK:         memref.store
//   CHECK-NOT:   scf.forall
//   CHECK-NOT:   func.func private
func.func @nested(%x: memref<4x8x6x2xf32>, %f: f32) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (4) {
    scf.forall (%j, %k) in (8, 6) {
      %a = memref.alloc() : memref<2xf32>
      scf.forall (%l) in (2) {
        memref.store %f, %a[%l] : memref<2xf32>
        %v = memref.load %a[%c0] : memref<2xf32>
        memref.store %v, %x[%i, %j, %k, %l] : memref<4x8x6x2xf32>
      }
    }
  }
  return
}
