// RUN: fovea-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-gpu-math))' --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: gpu.func @numbers
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
// CHECK: %[[LOG:.*]] = llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"
// CHECK: arith.mulf %[[LOG]]
// CHECK: llvm.call_intrinsic "llvm.nvvm.rsqrt.approx.ftz.f"
// CHECK: llvm.call_intrinsic "llvm.nvvm.sqrt.rn.f"
// CHECK: llvm.intr.fma
// CHECK: llvm.intr.maxnum
// CHECK: arith.divf
// CHECK-NOT: math.
gpu.module @kernels {
  gpu.func @numbers(%x: f32, %m: memref<7xf32>) kernel {
    %0 = math.exp2 %x : f32
    %1 = math.log %0 : f32
    %2 = math.rsqrt %1 : f32
    %3 = math.sqrt %2 : f32
    %4 = math.fma %3, %x, %x : f32
    %5 = arith.maxnumf %4, %x : f32
    %6 = math.tanh %5 : f32
    %c0 = arith.constant 0 : index
    memref.store %6, %m[%c0] : memref<7xf32>
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // CHECK-LABEL: @root
  // CHECK: llvm.call_intrinsic "llvm.nvvm.sqrt.rn.d"
  // CHECK: llvm.intr.fma({{.*}}) : (f64, f64, f64) -> f64
  gpu.func @root(%x: f64, %m: memref<1xf64>) kernel {
    %0 = math.sqrt %x : f64
    %1 = math.fma %0, %x, %x : f64
    %c0 = arith.constant 0 : index
    memref.store %1, %m[%c0] : memref<1xf64>
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @double(%x: f64) kernel {
    // expected-error@+1 {{'math.exp' op on 'f64' has no instruction on NVIDIA GPUs}}
    %0 = math.exp %x : f64
    gpu.return
  }
}
