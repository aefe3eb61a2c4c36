// RUN: fovea-opt %s -attn-outline-parallel | FileCheck %s

// 5 floats take 20 bytes; the next buffer starts at the next multiple of 64.

// CHECK-LABEL: func.func @scratch(
//       CHECK:   %[[BYTES:.*]] = llvm.mlir.constant(320 : i64)
//       CHECK:   llvm.call @fovea_rt_parallel_for(%{{.*}}, %[[BYTES]],
// CHECK-LABEL: func.func private @scratch_parallel_0(
// CHECK-SAME:    %{{[a-z0-9]+}}: i64, %[[SCRATCH:[a-z0-9]+]]: !llvm.ptr {llvm.noalias}
//       CHECK:   llvm.insertvalue %[[SCRATCH]]
//       CHECK:   %[[BASE:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<320xi8>
//       CHECK:   %[[C0:.*]] = arith.constant 0 : index
//       CHECK:   %[[FIRST:.*]] = memref.view %[[BASE]][%[[C0]]][] : memref<320xi8> to memref<5xf32>
//       CHECK:   %[[C64:.*]] = arith.constant 64 : index
//       CHECK:   %[[SECOND:.*]] = memref.view %[[BASE]][%[[C64]]][] : memref<320xi8> to memref<2x16xf64>
//       CHECK:   memref.store %{{.*}}, %[[FIRST]]
//       CHECK:   memref.store %{{.*}}, %[[SECOND]]
//   CHECK-NOT:   memref.alloc
//   CHECK-NOT:   memref.dealloc
//       CHECK:   return
func.func @scratch(%f: f32, %d: f64) {
  scf.forall (%i) in (4) {
    %c0 = arith.constant 0 : index
    %a = memref.alloc() : memref<5xf32>
    %b = memref.alloca() {alignment = 64 : i64} : memref<2x16xf64>
    memref.store %f, %a[%i] : memref<5xf32>
    memref.store %d, %b[%c0, %i] : memref<2x16xf64>
    memref.dealloc %a : memref<5xf32>
  }
  return
}

// A buffer of an inner loop: every iteration uses the same memory. It is freed
// through a cast.

// CHECK-LABEL: func.func @inner(
//       CHECK:   llvm.mlir.constant(64 : i64)
// CHECK-LABEL: func.func private @inner_parallel_0(
//       CHECK:   memref.view
//       CHECK:   scf.for
//   CHECK-NOT:     memref.alloc
//   CHECK-NOT:     memref.dealloc
//       CHECK:   return
func.func @inner(%f: f32, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%i) in (4) {
    scf.for %k = %c0 to %n step %c1 {
      %a = memref.alloc() : memref<16xf32>
      %cast = memref.cast %a : memref<16xf32> to memref<?xf32>
      memref.store %f, %cast[%k] : memref<?xf32>
      memref.dealloc %cast : memref<?xf32>
    }
  }
  return
}

// What has no static shape is allocated for every index.

// CHECK-LABEL: func.func private @dynamic_parallel_0(
//       CHECK:   %[[BUFFER:.*]] = memref.alloc(%{{.*}}) : memref<?xf32>
//       CHECK:   memref.store %{{.*}}, %[[BUFFER]]
//       CHECK:   memref.dealloc %[[BUFFER]]
func.func @dynamic(%f: f32, %n: index) {
  scf.forall (%i) in (4) {
    %a = memref.alloc(%n) : memref<?xf32>
    memref.store %f, %a[%i] : memref<?xf32>
    memref.dealloc %a : memref<?xf32>
  }
  return
}
