//===- Passes.td - Products and loops on a GPU -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_LOOPSTOGPU_PASSES_TD
#define FOVEA_CONVERSION_LOOPSTOGPU_PASSES_TD

include "mlir/Pass/PassBase.td"

def KeepLoopStatesPass
    : Pass<"attn-keep-loop-states", "::mlir::func::FuncOp"> {
  let summary = "have loops of the host change buffers in place";
  let description = [{
    Gives each buffer that `scf.for` or `scf.while` carries from one iteration to the
    next a place of its own before the loop, to which the end of an iteration copies,
    and each buffer of known shape that a branch gives one before the branch:

    ```mlir
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> memref<8xf32> {
      %t = memref.alloc() : memref<8xf32>
      linalg.add ins(%s, %y : ...) outs(%t : ...)
      scf.yield %t : memref<8xf32>
    }
    ```
    becomes
    ```mlir
    %s = memref.alloc() : memref<8xf32>
    memref.copy %x, %s : ...
    scf.for %i = %c0 to %n step %c1 {
      %t = memref.alloc() : memref<8xf32>
      linalg.add ins(%s, %y : ...) outs(%t : ...)
      memref.copy %t, %s : ...
    }
    ```

    An extent that is not known is checked to stay. Deallocation then needs no
    addresses of the time when a function runs.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::cf::ControlFlowDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

def ProductsToRuntimePass
    : Pass<"attn-products-to-runtime", "::mlir::ModuleOp"> {
  let summary = "lower products of matrices on memrefs to calls of the GPU runtime";
  let description = [{
    Replaces sums of products of f16, bf16 or f32 numbers (`linalg.matmul`,
    `batch_matmul`, `matvec`, `contract`, or a `generic` that says the same) by calls
    of `fovea_rt_gpu_multiply`, which a library computes. Axes may be in any order and
    number, as long as adjacent elements of each array lie along rows, columns or the
    depth. Sums are f32 and rounded once. What adds a bias for each column, or rounds
    the sums, becomes a part of the call:

    ```mlir
    linalg.fill ins(%zero : f32) outs(%s : memref<512x768xf32>)
    linalg.matmul ins(%x, %w : memref<512x384xbf16>, memref<384x768xbf16>) outs(%s : memref<512x768xf32>)
    linalg.generic ... ins(%s, %b : memref<512x768xf32>, memref<768xbf16>) outs(%r : memref<512x768xbf16>)
    ```
    becomes
    ```mlir
    llvm.call @fovea_rt_gpu_multiply(%bf16, %bf16, %flags, %x, %w, %r, %b, %three, %axes)
    ```

    Products in parallel loops, and in loops over single elements, which are kernels,
    are left alone, as are those of mixed types, of f64, and of sums of everything.
  }];
  let options = [
    Option<"f32", "f32", "::fovea::attn::F32Math",
           /*default=*/"::fovea::attn::F32Math::TF32x3",
           "products of f32 data: rounded to tf32, or not at all",
           "::fovea::attn::getF32MathValues()">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

#endif // FOVEA_CONVERSION_LOOPSTOGPU_PASSES_TD
