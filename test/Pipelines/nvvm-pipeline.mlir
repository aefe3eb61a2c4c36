// RUN: fovea-opt %s --attn-nvvm-pipeline=chip=sm_90 --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=PASSES
// RUN: fovea-opt %s --attn-nvvm-pipeline=host=false | FileCheck %s --check-prefix=NVVM
// RUN: fovea-opt %s --attn-nvvm-pipeline | FileCheck %s
// RUN: not fovea-opt %s --attn-nvvm-pipeline=chip=sm_75 2>&1 | FileCheck %s --check-prefix=OLD

// OLD: GPU 'sm_75' is too old: kernels need 'sm_80' or later

// The order in which a pattern becomes kernels; a change of it has to be made
// here.

// PASSES: attn-set-target{amx=false bf16-pairs=false gpu=true {{.*}}shared-bytes=232448 {{.*}}warpgroups=false}
// PASSES: attn-expand-tree-select
// PASSES: attn-check-shapes
// PASSES: attn-check-codes
// PASSES: attn-expand-patterns
// PASSES: attn-expand-conv
// PASSES: attn-narrow-sources
// PASSES: attn-fuse-elementwise
// PASSES: attn-select-gpu-tiles
// PASSES: attn-tile-stream
// PASSES: one-shot-bufferize
// PASSES: attn-check-nodes
// PASSES: attn-check-sizes
// PASSES: convert-attn-to-gpu{f32=tf32x3
// PASSES: attn-loops-to-gpu
// PASSES: gpu-launch-sink-index-computations
// PASSES: gpu-kernel-outlining
// PASSES: attn-merge-gpu-modules
// PASSES: attn-lower-gpu-math
// PASSES: convert-nvgpu-to-nvvm
// PASSES: convert-gpu-to-nvvm
// PASSES: attn-mark-tensor-maps
// PASSES: fovea-serialize-gpu-modules{chip=sm_90
// PASSES: attn-place-gpu-buffers
// PASSES: attn-launch-to-runtime
// PASSES: reconcile-unrealized-casts

// Two kernels make summaries, one attends; what lies between them stays on the
// device.

// NVVM-COUNT-3: gpu.launch_func @attend_kernel
// NVVM: gpu.module @attend_kernel
// NVVM-NOT: gpu.module

// CHECK-DAG: llvm.mlir.global internal constant @attend_kernel_ptx("//
// CHECK-DAG: llvm.mlir.global internal constant @attend_kernel_bitcode("BC
// CHECK: llvm.call @fovea_rt_gpu_alloc
// CHECK: llvm.call @fovea_rt_gpu_launch
// CHECK: llvm.call @fovea_rt_gpu_alloc
// CHECK-COUNT-2: llvm.call @fovea_rt_gpu_launch
func.func @attend(%q: tensor<1x2x64x16xf16>, %k: tensor<1x2x64x16xf16>, %v: tensor<1x2x64x16xf16>, %w: tensor<1x4x16x16xf16>) -> tensor<1x2x64x16xf16> {
  %init = tensor.empty() : tensor<1x2x64x16xf16>
  %out = attn.fast_multipole ins(%q, %k, %v : tensor<1x2x64x16xf16>, tensor<1x2x64x16xf16>, tensor<1x2x64x16xf16>)
      key_weights(%w : tensor<1x4x16x16xf16>) value_weights(%w : tensor<1x4x16x16xf16>)
      outs(%init : tensor<1x2x64x16xf16>) {group = 16 : i64, causal} -> tensor<1x2x64x16xf16>
  return %out : tensor<1x2x64x16xf16>
}
