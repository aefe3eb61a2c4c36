// Arguments with strides are read and written where they lie.
// RUN: fovea-opt %s --attn-cpu-pipeline -o %t && FileCheck %s --input-file=%t
// RUN: fovea-opt %s --attn-reference-pipeline -o %t && FileCheck %s --input-file=%t
// RUN: fovea-opt %s --attn-nvvm-pipeline -o %t && FileCheck %s --input-file=%t --check-prefix=GPU

!rows = memref<2x4x37x17xf32, strided<[?, ?, ?, 1]>>
!keys = memref<2x2x37x17xf32, strided<[?, ?, ?, 1]>>

// On GPUs, a kernel reads all four arrays and writes the last one.
// CHECK-LABEL: llvm.func @buffers(
//   CHECK-NOT: memrefCopy
//   CHECK-NOT: llvm.intr.memcpy
//   GPU-LABEL: llvm.func @buffers(
//     GPU-NOT: fovea_rt_gpu_alloc
//     GPU-NOT: fovea_rt_gpu_copy
// GPU-COUNT-4: llvm.call @fovea_rt_gpu_map_rows(
//     GPU-NOT: fovea_rt_gpu_map(
//         GPU: llvm.call @fovea_rt_gpu_launch(
//     GPU-NOT: fovea_rt_gpu_launch(
//     GPU-NOT: fovea_rt_gpu_alloc
//     GPU-NOT: fovea_rt_gpu_copy
//         GPU: llvm.call @fovea_rt_gpu_end(
func.func @buffers(%q: !rows, %k: !keys, %v: !keys, %out: !rows) {
  attn.dense ins(%q, %k, %v : !rows, !keys, !keys) outs(%out : !rows) {scale = 0.25 : f64}
  return
}

// CHECK-LABEL: llvm.func @tensors(
//   CHECK-NOT: memrefCopy
//   CHECK-NOT: llvm.intr.memcpy
//   GPU-LABEL: llvm.func @tensors(
//     GPU-NOT: fovea_rt_gpu_alloc
//     GPU-NOT: fovea_rt_gpu_copy
// GPU-COUNT-3: llvm.call @fovea_rt_gpu_map_rows(
//         GPU: llvm.call @fovea_rt_gpu_launch(
//     GPU-NOT: fovea_rt_gpu_launch(
//     GPU-NOT: fovea_rt_gpu_alloc
//     GPU-NOT: fovea_rt_gpu_copy
//         GPU: llvm.call @fovea_rt_gpu_end(
func.func @tensors(%q: tensor<2x4x37x17xf32> {bufferization.buffer_layout = strided<[?, ?, ?, 1]>},
                   %k: tensor<2x2x37x17xf32> {bufferization.buffer_layout = strided<[?, ?, ?, 1]>},
                   %out: !rows) {
  %init = bufferization.to_tensor %out restrict writable : !rows to tensor<2x4x37x17xf32>
  %0 = attn.dense ins(%q, %k, %k : tensor<2x4x37x17xf32>, tensor<2x2x37x17xf32>, tensor<2x2x37x17xf32>)
      outs(%init : tensor<2x4x37x17xf32>) {scale = 0.25 : f64} -> tensor<2x4x37x17xf32>
  bufferization.materialize_in_destination %0 in restrict writable %out : (tensor<2x4x37x17xf32>, !rows) -> ()
  return
}
