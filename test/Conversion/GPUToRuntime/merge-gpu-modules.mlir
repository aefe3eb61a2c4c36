// RUN: fovea-opt %s --attn-merge-gpu-modules | FileCheck %s

// CHECK: gpu.launch_func @first::@kernel blocks
// CHECK: gpu.launch_func @first::@kernel_0 blocks
// CHECK: gpu.module @first
// CHECK: gpu.func @kernel()
// CHECK: gpu.func @kernel_0()
// CHECK-NOT: gpu.module
module attributes {gpu.container_module} {
  func.func @f(%n: index) {
    gpu.launch_func @first::@kernel blocks in (%n, %n, %n) threads in (%n, %n, %n)
    gpu.launch_func @second::@kernel blocks in (%n, %n, %n) threads in (%n, %n, %n)
    return
  }
  gpu.module @first {
    gpu.func @kernel() kernel {
      gpu.return
    }
  }
  gpu.module @second {
    gpu.func @kernel() kernel {
      gpu.barrier
      gpu.return
    }
  }
}
