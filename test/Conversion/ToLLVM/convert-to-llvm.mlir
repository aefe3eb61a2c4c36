// RUN: fovea-opt %s --attn-convert-to-llvm --reconcile-unrealized-casts --canonicalize --cse --split-input-file | FileCheck %s

// Elements of buffers whose strides are known are one step into nested arrays.

// CHECK-LABEL: llvm.func @static(
//  CHECK-SAME:   %[[I:[a-z0-9]+]]: i64, %[[J:[a-z0-9]+]]: i64, %{{[a-z0-9]+}}: !llvm.ptr, %[[X:[a-z0-9]+]]: !llvm.ptr
//       CHECK:   %[[A:.*]] = llvm.getelementptr %[[X]][%[[I]], 3, %[[J]]] : (!llvm.ptr, i64, i64) -> !llvm.ptr, !llvm.array<4 x array<64 x f32>>
//       CHECK:   %[[V:.*]] = llvm.load %[[A]] {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
//       CHECK:   llvm.intr.prefetch"(%[[A]]) <{cache = 1 : i32, hint = 2 : i32, rw = 0 : i32}>
//       CHECK:   llvm.store %[[V]], %{{.*}} {alignment = 64 : i64, nontemporal} : vector<16xf32>
func.func @static(%i: index, %j: index, %x: memref<8x4x64xf32>, %y: memref<16xf32>) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %0 = vector.load %x[%i, %c3, %j] : memref<8x4x64xf32>, vector<16xf32>
  memref.prefetch %x[%i, %c3, %j], read, locality<2>, data : memref<8x4x64xf32>
  vector.store %0, %y[%c0] {alignment = 64 : i64, nontemporal = true} : memref<16xf32>, vector<16xf32>
  return
}

// -----

// A part of a buffer: what lies before it is added last.

// CHECK-LABEL: llvm.func @part(
//  CHECK-SAME:   %[[I:[a-z0-9]+]]: i64, %{{[a-z0-9]+}}: !llvm.ptr, %[[X:[a-z0-9]+]]: !llvm.ptr
//       CHECK:   %[[A:.*]] = llvm.getelementptr %[[X]][%[[I]], %[[I]]] : {{.*}}, !llvm.array<32 x bf16>
//       CHECK:   %[[B:.*]] = llvm.getelementptr %[[A]][{{.*}}] : {{.*}}, bf16
//       CHECK:   %[[V:.*]] = llvm.load %[[B]] {{.*}} : !llvm.ptr -> bf16
//       CHECK:   llvm.store %[[V]], %[[B]] {{.*}} : bf16, !llvm.ptr
func.func @part(%i: index, %x: memref<4x8xbf16, strided<[32, 1], offset: 5>>) {
  %0 = memref.load %x[%i, %i] : memref<4x8xbf16, strided<[32, 1], offset: 5>>
  memref.store %0, %x[%i, %i] : memref<4x8xbf16, strided<[32, 1], offset: 5>>
  return
}

// -----

// A constant that is no part of the operation, which has 29 bits for it.

// CHECK-LABEL: llvm.func @far(
//       CHECK:   %[[FAR:.*]] = llvm.mlir.constant(300000000 : index) : i64
//       CHECK:   llvm.getelementptr %{{.*}}[%[[FAR]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
//       CHECK:   llvm.getelementptr %{{.*}}[200000000] : (!llvm.ptr) -> !llvm.ptr, f32
func.func @far(%x: memref<400000000xf32>) {
  %far = arith.constant 300000000 : index
  %near = arith.constant 200000000 : index
  %0 = memref.load %x[%far] : memref<400000000xf32>
  memref.store %0, %x[%near] : memref<400000000xf32>
  return
}

// -----

// Others are left to the patterns for all buffers.

// CHECK-LABEL: llvm.func @others(
//   CHECK-NOT:   llvm.array<{{[0-9]+}} x f32>
//       CHECK:   llvm.mul
//       CHECK:   llvm.load {{.*}} -> f32
//       CHECK:   llvm.load {{.*}} -> f32
//       CHECK:   llvm.load {{.*}} -> f32
func.func @others(%i: index, %x: memref<4x?xf32>, %y: memref<4x8xf32, strided<[12, 5]>>,
                  %z: memref<4x4x1xf32, strided<[12, 5, 1]>>) -> (f32, f32, f32) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %x[%i, %i] : memref<4x?xf32>
  %1 = memref.load %y[%i, %i] : memref<4x8xf32, strided<[12, 5]>>
  %2 = memref.load %z[%i, %i, %c0] : memref<4x4x1xf32, strided<[12, 5, 1]>>
  return %0, %1, %2 : f32, f32, f32
}

// -----

// Everything else by upstream's patterns; the runtime allocates.

// CHECK-LABEL: llvm.func @rest(
//       CHECK:   llvm.call @_mlir_memref_to_llvm_aligned_alloc
//       CHECK:   llvm.cond_br
//       CHECK:   llvm.shufflevector
//   CHECK-NOT:   unrealized_conversion_cast
func.func @rest(%c: i1, %a: vector<8xf32>, %b: vector<8xf32>) -> (memref<8xf32>, vector<16xf32>) {
  %x = memref.alloc() {alignment = 64 : i64} : memref<8xf32>
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  cf.br ^bb2
^bb2:
  %0 = vector.interleave %a, %b : vector<8xf32> -> vector<16xf32>
  return %x, %0 : memref<8xf32>, vector<16xf32>
}

// -----

// An assertion that fails ends the invocation, not the process. Its text is there once.

// CHECK: llvm.mlir.global internal constant @assertion_[[TEXT:[0-9A-F]+]]("index must be smaller than dim size\00")
// CHECK-NOT:     @assertion_[[TEXT]](
// CHECK-LABEL: llvm.func @asserts(
//       CHECK:   %[[CODE:.*]] = llvm.mlir.constant(1 : i32)
//       CHECK:   llvm.cond_br %{{.*}}, ^[[SECOND:bb[0-9]+]], ^[[FAIL:bb[0-9]+]]
//       CHECK: ^[[SECOND]]:
//       CHECK:   llvm.cond_br
//       CHECK: ^[[FAIL]]:
//       CHECK:   llvm.call @fovea_rt_fail(%[[CODE]], %{{.*}}) : (i32, !llvm.ptr) -> ()
//       CHECK:   llvm.unreachable
func.func @asserts(%a: i1, %b: i1) {
  cf.assert %a, "index must be smaller than dim size"
  cf.assert %b, "index must be smaller than dim size"
  return
}
