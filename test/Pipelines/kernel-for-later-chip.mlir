// Operations of kernels that the chip does not have are one error.
// RUN: not fovea-opt %s --split-input-file --attn-nvvm-pipeline -o /dev/null 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --split-input-file --attn-nvvm-pipeline=emulate=true -o /dev/null 2>&1 | FileCheck %s

// CHECK:     error: 'nvvm.cp.async.bulk.tensor.shared.cluster.global' op in GPU module 'copy' needs 'sm_90' or later, but found 'sm_80'
// CHECK-NOT: error:
gpu.module @copy {
  llvm.func @kernel(%shared: !llvm.ptr<3>, %map: !llvm.ptr, %other: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: 384, 1, 1>} {
    %zero = llvm.mlir.constant(0 : i32) : i32
    %to = llvm.addrspacecast %shared : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %shared, box[%zero, %zero] : !llvm.ptr<7>, !llvm.ptr
    llvm.return
  }
}

// -----

// CHECK:     error: 'nvvm.cluster.wait' op in GPU module 'wait' needs 'sm_90' or later, but found 'sm_80'
// CHECK-NOT: error:
gpu.module @wait {
  llvm.func @kernel() attributes {gpu.kernel, nvvm.kernel} {
    nvvm.cluster.wait
    llvm.return
  }
}

// -----

// CHECK:     error: 'nvvm.wgmma.fence.aligned' op in GPU module 'exact' needs 'sm_90a', but found 'sm_80'
// CHECK-NOT: error:
gpu.module @exact {
  llvm.func @kernel() attributes {gpu.kernel, nvvm.kernel} {
    nvvm.wgmma.fence.aligned
    llvm.return
  }
}

// -----

// What the code generator finds out by itself.
// CHECK:     error: cannot generate code for 'sm_80': the compiler gave up: Cannot select: {{.*}}setmaxnreg
// CHECK-NOT: error:
gpu.module @registers {
  llvm.func @kernel() attributes {gpu.kernel, nvvm.kernel} {
    nvvm.setmaxregister increase 240
    llvm.return
  }
}
