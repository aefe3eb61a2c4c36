// RUN: fovea-opt %s --attn-launch-to-runtime --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-DAG: llvm.mlir.global internal constant @kernels_ptx("text\00")
// CHECK-DAG: llvm.mlir.global internal constant @kernels_bitcode("code")
// CHECK-DAG: llvm.mlir.global internal @kernels_module(){{.*}} : !llvm.struct<(ptr, ptr, i64, ptr, i64, i32, i32, ptr)>
// CHECK-DAG: llvm.mlir.global internal @kernels_work(){{.*}} : !llvm.struct<(ptr, ptr, ptr)>
// CHECK-LABEL: func.func @f
// CHECK: llvm.alloca {{.*}} x !llvm.struct<(ptr, ptr, i64, i64, i64, f32)>
// CHECK: llvm.alloca {{.*}} x !llvm.array<6 x ptr>
// CHECK: llvm.mlir.addressof @kernels_work
// CHECK: llvm.call @fovea_rt_gpu_launch(
// CHECK: llvm.func @fovea_gpu_unload()
// CHECK: llvm.call @fovea_rt_gpu_unload
// CHECK-NOT: gpu.module
module attributes {gpu.container_module} {
  llvm.func @fovea_rt_gpu_begin(i32) -> !llvm.ptr
  func.func @f(%a: memref<8xf32>, %x: f32, %n: index, %kind: i32) {
    %queue = llvm.call @fovea_rt_gpu_begin(%kind) : (i32) -> !llvm.ptr
    gpu.launch_func @kernels::@work blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%a : memref<8xf32>, %x : f32)
    return
  }
  gpu.module @kernels attributes {attn.ptx = "text", attn.bitcode = "code", attn.capability = 80 : i32} {
    llvm.func @work(%0: !llvm.ptr, %1: !llvm.ptr, %2: i64, %3: i64, %4: i64, %5: f32) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

// The runtime gets the extents of clusters.
// CHECK-LABEL: func.func @clusters
// CHECK: %[[TWO:.*]] = arith.constant 2 : index
// CHECK: %[[SIZE:.*]] = arith.index_cast %[[TWO]] : index to i64
// CHECK: llvm.call @fovea_rt_gpu_launch(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[SIZE]],
module attributes {gpu.container_module} {
  llvm.func @fovea_rt_gpu_begin(i32) -> !llvm.ptr
  func.func @clusters(%n: index, %kind: i32) {
    %queue = llvm.call @fovea_rt_gpu_begin(%kind) : (i32) -> !llvm.ptr
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    gpu.launch_func @kernels::@work clusters in (%two, %one, %one) blocks in (%n, %one, %one) threads in (%n, %one, %one)
    return
  }
  gpu.module @kernels attributes {attn.ptx = "text", attn.bitcode = "code", attn.capability = 90 : i32} {
    llvm.func @work() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

// expected-error@+1 {{'gpu.module' op has no code; run --fovea-serialize-gpu-modules first}}
gpu.module @kernels {
  llvm.func @work() attributes {gpu.kernel, nvvm.kernel} {
    llvm.return
  }
}

// -----

module attributes {gpu.container_module} {
  func.func @f(%n: index) {
    // expected-error@+1 {{'gpu.launch_func' op is in a function without a queue; run --attn-place-gpu-buffers first}}
    gpu.launch_func @kernels::@work blocks in (%n, %n, %n) threads in (%n, %n, %n)
    return
  }
  gpu.module @kernels attributes {attn.ptx = "text", attn.bitcode = "code", attn.capability = 80 : i32} {
    llvm.func @work() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}
