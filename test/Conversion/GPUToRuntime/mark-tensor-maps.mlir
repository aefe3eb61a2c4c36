// RUN: fovea-opt %s --attn-mark-tensor-maps | FileCheck %s

gpu.module @kernels {
  // CHECK: llvm.func @kernel(%{{.*}}: !llvm.ptr<3>, %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<16 x i64>, nvvm.grid_constant}, %{{.*}}: !llvm.ptr)
  // CHECK-SAME: nvvm.minctasm = 1 : i32
  // CHECK-SAME: nvvm.reqntid = array<i32: 384, 1, 1>
  llvm.func @kernel(%shared: !llvm.ptr<3>, %map: !llvm.ptr, %other: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: 384, 1, 1>} {
    %zero = llvm.mlir.constant(0 : i32) : i32
    %to = llvm.addrspacecast %shared : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.setmaxregister increase 240
    nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %shared, box[%zero, %zero] : !llvm.ptr<7>, !llvm.ptr
    llvm.return
  }
}
