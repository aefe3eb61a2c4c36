// On GPUs, strides of arguments are those that the runtime finds.
// RUN: fovea-opt %s --attn-nvvm-pipeline --split-input-file --verify-diagnostics -o /dev/null

// expected-error @below {{has argument 1 of type 'memref<2x4xf32, strided<[5, 1]>>', but kernels of GPUs need strides and offsets that are `?`, or no layout}}
func.func @strides(%x: memref<2x4xf32>, %y: memref<2x4xf32, strided<[5, 1]>>) {
  return
}

// -----

// expected-error @below {{has argument 0 of type 'memref<2x4xf32, strided<[?, 1], offset: 3>>', but kernels of GPUs need strides and offsets that are `?`, or no layout}}
func.func @offset(%x: memref<2x4xf32, strided<[?, 1], offset: 3>>) {
  return
}

// -----

// expected-error @below {{has argument 0 of type 'memref<f32, strided<[], offset: ?>>', but kernels of GPUs need strides and offsets that are `?`, or no layout}}
func.func @number(%x: memref<f32, strided<[], offset: ?>>) {
  return
}

// -----

// expected-error @below {{has argument 0 of type 'memref<2x4xf32, strided<[?, 2]>>', but kernels need a last stride of 1}}
func.func @columns(%x: tensor<2x4xf32> {bufferization.buffer_layout = strided<[?, 2]>}) {
  return
}
