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

// A loop around what is yet to be lowered waits: buffers of that belong to the scratch memory of its loop.

// CHECK-LABEL: func.func @waits(
//       CHECK:   llvm.call @fovea_rt_parallel_for
//       CHECK:   scf.forall
//       CHECK:     linalg.fill
func.func @waits(%x: memref<4x8xf32>, %f: f32) {
  scf.forall (%i, %j) in (4, 8) {
    memref.store %f, %x[%i, %j] : memref<4x8xf32>
  }
  scf.forall (%i) in (4) {
    %row = memref.subview %x[%i, 0] [1, 8] [1, 1] : memref<4x8xf32> to memref<8xf32, strided<[1], offset: ?>>
    linalg.fill ins(%f : f32) outs(%row : memref<8xf32, strided<[1], offset: ?>>)
  }
  return
}
