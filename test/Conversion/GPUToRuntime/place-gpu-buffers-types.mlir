// RUN: fovea-opt %s --split-input-file --attn-place-gpu-buffers --verify-diagnostics

// expected-error @below {{'func.func' op has a value of type 'memref<*xf32>', but buffers of GPUs have a rank and hold numbers}}
func.func @unranked(%x: memref<*xf32>) {
  return
}

// -----

func.func @elements() {
  // expected-error @below {{has a value of type 'memref<3xcomplex<f32>>', but buffers of GPUs}}
  %x = memref.alloc() : memref<3xcomplex<f32>>
  return
}
