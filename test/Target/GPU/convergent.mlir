// Inline assembly is for all threads of a warp: it stays where threads that take
// different ways have met again, and is not copied to each of the ways.
// RUN: fovea-opt %s --attn-nvvm-pipeline -o - | FileCheck %s

// CHECK: kernel_param_0
// CHECK: bar.warp.sync
// CHECK-NOT: bar.warp.sync
gpu.module @both {
  llvm.func @kernel(%where: !llvm.ptr<1>, %n: i32) attributes {gpu.kernel, nvvm.kernel} {
    %zero = llvm.mlir.constant(0 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %yes = llvm.mlir.constant(true) : i1
    %no = llvm.mlir.constant(false) : i1
    %lane = nvvm.read.ptx.sreg.tid.x : i32
    %c = llvm.icmp "slt" %lane, %n : i32
    llvm.cond_br %c, ^a, ^b
  ^a:
    llvm.store volatile %one, %where : i32, !llvm.ptr<1>
    llvm.br ^m(%yes : i1)
  ^b:
    llvm.store volatile %zero, %where : i32, !llvm.ptr<1>
    llvm.br ^m(%no : i1)
  ^m(%p: i1):
    llvm.inline_asm has_side_effects "bar.warp.sync 0xffffffff;", "" : () -> ()
    llvm.cond_br %p, ^x, ^y
  ^x:
    llvm.store volatile %n, %where : i32, !llvm.ptr<1>
    llvm.return
  ^y:
    llvm.store volatile %lane, %where : i32, !llvm.ptr<1>
    llvm.return
  }
}
