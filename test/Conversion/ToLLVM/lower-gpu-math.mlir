// RUN: fovea-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-gpu-math))' --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: gpu.func @numbers
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
// CHECK: llvm.call_intrinsic "llvm.nvvm.lg2.approx.f"
// CHECK: llvm.call_intrinsic "llvm.nvvm.rsqrt.approx.f"
// CHECK: llvm.call_intrinsic "llvm.nvvm.sqrt.rn.f"
// CHECK: llvm.intr.fma
// CHECK: llvm.intr.maxnum
// A quotient of polynomials, whose last digit does not matter.
// CHECK: llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"
// CHECK-NOT: arith.divf
// CHECK-NOT: math.
gpu.module @kernels {
  gpu.func @numbers(%x: f32, %m: memref<7xf32>) kernel {
    %0 = math.exp2 %x : f32
    %1 = math.log2 %0 : f32
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

// What rounds, and what is made of instructions.

gpu.module @kernels {
  // CHECK-LABEL: @composed
  // CHECK: "llvm.floor.f32"
  // CHECK: "llvm.ceil.f32"
  // CHECK: "llvm.trunc.f32"
  // CHECK: "llvm.round.f32"
  // CHECK: "llvm.roundeven.f32"
  // CHECK: "llvm.copysign.f32"
  // CHECK-NOT: math.
  // CHECK-NOT: floordivsi
  // CHECK: gpu.return
  gpu.func @composed(%x: f32, %i: i32, %m: memref<1xf32>, %n: memref<1xi32>) kernel {
    %0 = math.floor %x : f32
    %1 = math.ceil %0 : f32
    %2 = math.trunc %1 : f32
    %3 = math.round %2 : f32
    %4 = math.roundeven %3 : f32
    %5 = math.copysign %4, %x : f32
    %6 = math.erf %5 : f32
    %7 = math.sin %6 : f32
    %8 = math.cos %7 : f32
    %9 = math.powf %8, %x : f32
    %10 = math.log1p %9 : f32
    %11 = math.expm1 %10 : f32
    %12 = math.atan2 %11, %x : f32
    %13 = math.sinh %12 : f32
    %14 = math.log10 %13 : f32
    %15 = math.tan %14 : f32
    %16 = math.acosh %15 : f32
    %17 = math.cbrt %16 : f32
    %18 = math.fpowi %17, %i : f32, i32
    %c3 = arith.constant 3 : i32
    %j = arith.floordivsi %i, %c3 : i32
    %k = math.absi %j : i32
    %c0 = arith.constant 0 : index
    memref.store %18, %m[%c0] : memref<1xf32>
    memref.store %k, %n[%c0] : memref<1xi32>
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

// Quadrants of sines are found in f64, powers to constants are products.

gpu.module @kernels {
  // CHECK-LABEL: @angle
  // CHECK-COUNT-3: llvm.intr.fma({{.*}}) : (f64, f64, f64) -> f64
  // CHECK: arith.truncf {{.*}} : f64 to f32
  // CHECK-NOT: "llvm.nvvm.ex2
  // CHECK: gpu.return
  gpu.func @angle(%x: f32, %m: memref<1xf32>) kernel {
    %0 = math.sin %x : f32
    %c = arith.constant -4.0 : f32
    %1 = math.powf %0, %c : f32
    %c0 = arith.constant 0 : index
    memref.store %1, %m[%c0] : memref<1xf32>
    gpu.return
  }
}

// -----

// Numbers of 16 bits are widened and rounded.

gpu.module @kernels {
  // CHECK-LABEL: @narrow
  // CHECK-SAME: (%[[X:.*]]: bf16, %[[Y:.*]]: f16
  // CHECK: %[[WIDE:.*]] = arith.extf %[[X]] : bf16 to f32
  // CHECK: arith.cmpf olt, %{{.*}}, %[[WIDE]] : f32
  // CHECK: arith.truncf %{{.*}} : f32 to bf16
  // CHECK: %[[MORE:.*]] = llvm.intr.maxnum
  // CHECK: arith.truncf %[[MORE]] : f32 to f16
  gpu.func @narrow(%x: bf16, %y: f16, %m: memref<1xbf16>, %n: memref<1xf16>) kernel {
    %0 = math.exp %x : bf16
    %1 = arith.maxnumf %y, %y : f16
    %c0 = arith.constant 0 : index
    memref.store %0, %m[%c0] : memref<1xbf16>
    memref.store %1, %n[%c0] : memref<1xf16>
    gpu.return
  }

  // CHECK-LABEL: @classes
  // CHECK: arith.cmpf uno
  // CHECK: arith.cmpf oeq
  // CHECK: arith.cmpf olt
  // CHECK-NOT: math.
  // CHECK: gpu.return
  gpu.func @classes(%x: f16, %m: memref<3xi1>) kernel {
    %0 = math.isnan %x : f16
    %1 = math.isinf %x : f16
    %2 = math.isfinite %x : f16
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    memref.store %0, %m[%c0] : memref<3xi1>
    memref.store %1, %m[%c1] : memref<3xi1>
    memref.store %2, %m[%c2] : memref<3xi1>
    gpu.return
  }
}

// -----

// What f64 has: it rounds, compares and takes signs.
gpu.module @kernels {
  // CHECK-LABEL: @wide
  // CHECK: llvm.call_intrinsic "llvm.floor.f64"
  // CHECK: llvm.call_intrinsic "llvm.ceil.f64"
  // CHECK: llvm.call_intrinsic "llvm.trunc.f64"
  // CHECK: llvm.call_intrinsic "llvm.round.f64"
  // CHECK: llvm.call_intrinsic "llvm.roundeven.f64"
  // CHECK: llvm.call_intrinsic "llvm.fabs.f64"
  // CHECK: llvm.call_intrinsic "llvm.copysign.f64"
  // CHECK: llvm.intr.maxnum{{.*}} f64
  // CHECK: llvm.intr.minnum{{.*}} f64
  gpu.func @wide(%x: f64, %m: memref<1xf64>) kernel {
    %0 = math.floor %x : f64
    %1 = math.ceil %0 : f64
    %2 = math.trunc %1 : f64
    %3 = math.round %2 : f64
    %4 = math.roundeven %3 : f64
    %5 = math.absf %4 : f64
    %6 = math.copysign %5, %x : f64
    %7 = arith.maxnumf %6, %x : f64
    %8 = arith.minnumf %7, %x : f64
    %c0 = arith.constant 0 : index
    memref.store %8, %m[%c0] : memref<1xf64>
    gpu.return
  }
}

// -----

// Functions of f64 are made of its instructions; a far angle of f32 is reduced where there is one.
gpu.module @kernels {
  // CHECK-LABEL: @double
  // CHECK-NOT: math.
  // CHECK-NOT: approx
  // CHECK: gpu.return
  gpu.func @double(%x: f64, %m: memref<1xf64>) kernel {
    %0 = math.exp %x : f64
    %1 = math.log %0 : f64
    %2 = math.sin %1 : f64
    %3 = math.powf %2, %x : f64
    %4 = math.tanh %3 : f64
    %5 = math.erf %4 : f64
    %6 = math.rsqrt %5 : f64
    %7 = math.acos %6 : f64
    %8 = math.log1p %7 : f64
    %9 = math.tan %8 : f64
    %10 = math.sinh %9 : f64
    %c0 = arith.constant 0 : index
    memref.store %10, %m[%c0] : memref<1xf64>
    gpu.return
  }

  // CHECK-LABEL: @far
  // CHECK: %[[IS_FAR:.*]] = arith.cmpf uge, {{.*}} : f64
  // CHECK: scf.if %[[IS_FAR]]
  // CHECK-COUNT-7: "llvm.roundeven.f64"
  // CHECK: gpu.return
  gpu.func @far(%x: f32, %m: memref<1xf32>) kernel {
    %0 = math.cos %x : f32
    %c0 = arith.constant 0 : index
    memref.store %0, %m[%c0] : memref<1xf32>
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @remainder(%x: f64) kernel {
    // expected-error@+1 {{'arith.remf' op on 'f64' has no instruction on NVIDIA GPUs}}
    %0 = arith.remf %x, %x : f64
    gpu.return
  }
}
