//===- Passes.td - Conversions between dialects ------------*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_PASSES_TD
#define FOVEA_CONVERSION_PASSES_TD

include "fovea/Conversion/GPUPasses.td"
include "fovea/Conversion/RaisePasses.td"
include "fovea/Conversion/VectorPasses.td"

def LowerToReferencePass
    : Pass<"attn-lower-to-reference", "::mlir::func::FuncOp"> {
  let summary = "lower attention ops on memrefs to plain loops in f64";
  let description = [{
    Replaces every operation of the dialect on memrefs by the most direct loops
    that compute it, straight from its definition, with all arithmetic in `f64`.
    Slow and simple: the oracle that every other lowering is compared with.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"
  ];
}

def OutlineParallelPass : Pass<"attn-outline-parallel", "::mlir::ModuleOp"> {
  let summary = "outline parallel loops to functions that the runtime calls";
  let description = [{
    Turns every `scf.forall` on memrefs into a private function of one loop index
    and a call of the runtime's `fovea_rt_parallel_for`. Buffers of static shape
    allocated in the body become slices of the scratch memory that the runtime keeps
    for each thread; what the body uses from outside is passed in a struct on the caller's
    stack, except constants, which are repeated; of a buffer of static shape, that
    is its address. Parallel loops inside parallel loops become sequential.

    A loop around operations of `attn` or `linalg` stays as it is: they are yet to
    be lowered, to buffers that belong to the scratch memory of the loop. The CPU
    pipeline runs the pass before that and after.

    The runtime hands out indices from the highest down. The last dimension of
    the loop varies slowest, so that of a loop over (batch, head, block) all heads
    start with the last blocks, which have the most to do under a causal mask.

    ```mlir
    scf.forall (%b, %h, %t) in (2, 8, 16) {
      %tile = memref.alloc() : memref<64xf32>
      ...
    }
    ```
    becomes
    ```mlir
    llvm.call @fovea_rt_parallel_for(%c256, %c256_bytes, %body, %context)
    ```
    with
    ```mlir
    func.func private @f_parallel_0(%index: i64, %scratch: !llvm.ptr, %context: !llvm.ptr) {
      // %b = %index / 8 % 2, %h = %index % 8, %t = %index / 16
      %tile = memref.view %scratch_memory[%c0][] : memref<256xi8> to memref<64xf32>
      ...
    }
    ```
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"
  ];
}

def LowerCopiesPass : Pass<"attn-lower-copies", "::mlir::func::FuncOp"> {
  let summary = "lower copies of strided buffers to loops";
  let description = [{
    Replaces every `memref.copy` of which one side is not contiguous by loops.
    Left alone it would become a call into a support library that Fovea does not
    link. Copies between contiguous buffers become calls of `memcpy` later.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"
  ];
}

def LowerReshapesPass : Pass<"attn-lower-reshapes"> {
  let summary = "lower reshapes to several unknown extents";
  let description = [{
    Replaces every `memref.expand_shape` one of whose dimensions becomes several of
    which more than one is not known when compiling by a `memref.reinterpret_cast` with
    the extents that the operation is given. `expand-strided-metadata` lowers all
    others.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"
  ];
}

def ConvertToLLVMPass : Pass<"attn-convert-to-llvm", "::mlir::ModuleOp"> {
  let summary = "convert buffers, vectors and control flow to the LLVM dialect";
  let description = [{
    Does in one conversion what `convert-vector-to-llvm`,
    `finalize-memref-to-llvm`, `convert-func-to-llvm`, `convert-arith-to-llvm`,
    `convert-complex-to-llvm`, `convert-index-to-llvm`, `convert-cf-to-llvm` and `convert-ub-to-llvm` do
    one after the other. Memory is allocated by functions of the runtime.

    An element of a buffer whose strides are known is found by one
    `llvm.getelementptr`, into nested arrays:

    ```mlir
    %0 = memref.load %x[%i, %j] : memref<8x64xf32>
    ```

    ==>

    ```mlir
    %1 = llvm.getelementptr %base[%i, %j]
        : (!llvm.ptr, i64, i64) -> !llvm.ptr, !llvm.array<64 x f32>
    %0 = llvm.load %1 : !llvm.ptr -> f32
    ```
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::x86vector::X86VectorDialect"
  ];
}

def InsertInterruptChecksPass
    : Pass<"attn-insert-interrupt-checks", "::mlir::ModuleOp"> {
  let summary = "let long loops end early";
  let description = [{
    Puts a call of `fovea_rt_check_interrupt` into every loop whose iterations take
    some microseconds at least, and into one of some iterations of loops that repeat
    a loop of unknown length that is not tiny. The estimate counts operations, times
    the registers of their vectors.
    Parallel loops are calls of the runtime by then, which looks before every body.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect"];
}

def LowerChecksPass : Pass<"attn-lower-checks", "::mlir::ModuleOp"> {
  let summary = "lower attn.check_codes and attn.check_intervals on memrefs to calls of the runtime";
  let description = [{
    Replaces every `attn.check_codes` by a call of `fovea_rt_check_codes`, which
    fails the invocation if a code is not below the bound, and `attn.check_intervals`
    likewise:

    ```
    attn.codebook_accumulate: codes[0, 1, 17] must be at least 0 and below 512, but got 512
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

#endif // FOVEA_CONVERSION_PASSES_TD
