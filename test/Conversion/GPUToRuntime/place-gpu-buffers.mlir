// RUN: fovea-opt %s --attn-place-gpu-buffers --canonicalize --split-input-file --verify-diagnostics | FileCheck %s --check-prefixes=CHECK,CUDA
// RUN: fovea-opt %s --attn-place-gpu-buffers=emulate --canonicalize --split-input-file --verify-diagnostics | FileCheck %s --check-prefixes=CHECK,EMULATE

// CHECK-LABEL: func.func @f
// CUDA-DAG: %[[KIND:.*]] = arith.constant 0 : i32
// EMULATE-DAG: %[[KIND:.*]] = arith.constant 1 : i32
// CHECK-DAG: %[[WRITE:.*]] = arith.constant 2 : i32
// CHECK-DAG: %[[BYTES:.*]] = arith.constant 32 : i64
// CHECK: %[[QUEUE:.*]] = llvm.call @fovea_rt_gpu_begin(%[[KIND]])
// CHECK: llvm.call @fovea_rt_gpu_map(%[[QUEUE]], %{{.*}}, %[[BYTES]], %{{.*}})
// CHECK: %[[SCRATCH:.*]] = llvm.call @fovea_rt_gpu_alloc(%[[QUEUE]], %[[BYTES]])
// CHECK: llvm.call @fovea_rt_gpu_copy(%[[QUEUE]]
// CHECK: llvm.call @fovea_rt_gpu_alloc_result(%[[QUEUE]], %[[BYTES]])
// CHECK: %[[RESULT:.*]] = builtin.unrealized_conversion_cast {{.*}} to memref<8xf32>
// CHECK: llvm.call @fovea_rt_gpu_map(%[[QUEUE]], %{{.*}}, %[[BYTES]], %[[WRITE]])
// CHECK: llvm.call @fovea_rt_gpu_copy(%[[QUEUE]]
// CHECK: llvm.call @fovea_rt_gpu_free(%[[QUEUE]]
// CHECK: llvm.call @fovea_rt_gpu_end(%[[QUEUE]])
// CHECK: return %[[RESULT]]
func.func @f(%a: memref<8xf32>) -> memref<8xf32> {
  %scratch = memref.alloc() : memref<8xf32>
  memref.copy %a, %scratch : memref<8xf32> to memref<8xf32>
  %result = memref.alloc() : memref<8xf32>
  memref.copy %scratch, %result : memref<8xf32> to memref<8xf32>
  memref.dealloc %scratch : memref<8xf32>
  return %result : memref<8xf32>
}

// -----

// One element of a buffer comes through memory of the host, and goes back.
// CHECK-LABEL: func.func @element
// CHECK: %[[SLOT:.*]] = llvm.alloca {{.*}} x i64
// CHECK: %[[TWO:.*]] = llvm.alloca {{.*}} x i64
// CHECK: llvm.call @fovea_rt_gpu_copy(
// CHECK: %[[X:.*]] = memref.load
// CHECK: memref.store %[[X]]
// CHECK: llvm.call @fovea_rt_gpu_copy(
func.func @element(%a: memref<8xi64>) -> memref<i64> {
  %c3 = arith.constant 3 : index
  %x = memref.load %a[%c3] : memref<8xi64>
  %r = memref.alloc() : memref<i64>
  memref.store %x, %r[] : memref<i64>
  return %r : memref<i64>
}

// -----

// A result that is reshaped for others, too, is reshaped on the device for these.
// CHECK-LABEL: func.func @read
// CHECK: llvm.call @fovea_rt_gpu_alloc_result(
// CHECK: %[[RESULT:.*]] = builtin.unrealized_conversion_cast {{.*}} to memref<8xf32>
// CHECK: %[[MAPPED:.*]] = builtin.unrealized_conversion_cast {{.*}} to memref<8xf32>
// CHECK: memref.expand_shape %[[MAPPED]]
// CHECK: %[[RESHAPED:.*]] = memref.expand_shape %[[RESULT]]
// CHECK: return %[[RESHAPED]]
func.func @read(%a: memref<8xf32>) -> (memref<2x4xf32>, memref<2x4xf32>) {
  %first = memref.alloc() : memref<8xf32>
  memref.copy %a, %first : memref<8xf32> to memref<8xf32>
  %reshaped = memref.expand_shape %first [[0, 1]] output_shape [2, 4] : memref<8xf32> into memref<2x4xf32>
  %second = memref.alloc() : memref<2x4xf32>
  memref.copy %reshaped, %second : memref<2x4xf32> to memref<2x4xf32>
  return %reshaped, %second : memref<2x4xf32>, memref<2x4xf32>
}

// -----

// A result may be a buffer in another shape.
// CHECK-LABEL: func.func @reshaped
// CHECK: llvm.call @fovea_rt_gpu_alloc_result(
// CHECK: %[[RESULT:.*]] = memref.collapse_shape
// CHECK: return %[[RESULT]]
func.func @reshaped(%a: memref<2x4xf32>) -> memref<8xf32> {
  %r = memref.alloc() : memref<2x4xf32>
  memref.copy %a, %r : memref<2x4xf32> to memref<2x4xf32>
  %flat = memref.collapse_shape %r [[0, 1]] : memref<2x4xf32> into memref<8xf32>
  return %flat : memref<8xf32>
}

// -----

func.func @host(%a: memref<8xf32>, %sum: f32) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %total = scf.for %i = %c0 to %c8 step %c1 iter_args(%s = %sum) -> f32 {
    // expected-error@+1 {{'memref.load' op accesses single elements in a loop on the host, but in a function for a GPU they lie on the device}}
    %x = memref.load %a[%i] : memref<8xf32>
    %next = arith.addf %s, %x : f32
    scf.yield %next : f32
  }
  return %total : f32
}

// -----

func.func @borrowed(%a: memref<8xf32>) -> memref<8xf32> {
  // expected-error@+1 {{'func.return' op returns a buffer that the function does not allocate}}
  return %a : memref<8xf32>
}

// -----

func.func private @other()
func.func @calls() {
  // expected-error@+1 {{'func.call' op calls a function, which a function for a GPU cannot}}
  func.call @other() : () -> ()
  return
}

// -----

func.func @parallel(%a: memref<8xf32>) {
  // expected-error@+1 {{'scf.forall' op is a parallel loop without a GPU kernel}}
  scf.forall (%i) in (8) {
  }
  return
}

// -----

// A number that lies anywhere.
// CHECK-LABEL: func.func @scalar
// CHECK: llvm.call @fovea_rt_gpu_map_rows
func.func @scalar(%x: memref<f32, strided<[], offset: ?>>, %y: memref<f32>) {
  memref.copy %x, %y : memref<f32, strided<[], offset: ?>> to memref<f32>
  return
}
