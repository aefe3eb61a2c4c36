// Target gpu on a machine without one says so in one sentence.
// REQUIRES: !cuda-device
// RUN: not fovea-run %s --target=gpu --random 2>&1 | FileCheck %s
// CHECK: fovea-run: error: cannot use target 'gpu': there is no CUDA

func.func @f(%q: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %o = tensor.empty() : tensor<1x1x4x8xf32>
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%o : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %r : tensor<1x1x4x8xf32>
}
