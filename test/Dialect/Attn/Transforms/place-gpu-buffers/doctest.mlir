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
// CHECK: %[[RESULT:.*]] = memref.alloc() : memref<8xf32>
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

func.func @host(%a: memref<8xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{accesses single elements on the host, but in a function for a GPU they lie on the device}}
  %x = memref.load %a[%c0] : memref<8xf32>
  return %x : f32
}

// -----

func.func @borrowed(%a: memref<8xf32>) -> memref<8xf32> {
  // expected-error@+1 {{returns a buffer that the function does not allocate}}
  return %a : memref<8xf32>
}
