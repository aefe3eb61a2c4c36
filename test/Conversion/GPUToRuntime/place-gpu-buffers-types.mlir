// RUN: fovea-opt %s --split-input-file --attn-place-gpu-buffers --verify-diagnostics | FileCheck %s

// expected-error @below {{'func.func' op has a value of type 'memref<*xf32>', but buffers of GPUs have a rank and hold numbers}}
func.func @unranked(%x: memref<*xf32>) {
  return
}

// -----

func.func @elements() {
  // expected-error @below {{has a value of type 'memref<3xvector<4xf32>>', but buffers of GPUs}}
  %x = memref.alloc() : memref<3xvector<4xf32>>
  return
}

// -----

// A complex number has the bytes of its two parts.

// CHECK-LABEL: func.func @complex
// CHECK: %[[BYTES:.*]] = arith.constant 48 : index
// CHECK: %[[SIZE:.*]] = arith.index_cast %[[BYTES]] : index to i64
// CHECK: call @fovea_rt_gpu_alloc(%{{.*}}, %[[SIZE]])
func.func @complex() {
  %x = memref.alloc() : memref<3xcomplex<f64>>
  memref.dealloc %x : memref<3xcomplex<f64>>
  return
}
