//===- VectorPasses.td - Passes that emit vector code -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_VECTORPASSES_TD
#define FOVEA_CONVERSION_VECTORPASSES_TD

include "mlir/Pass/PassBase.td"

def SelectTilesPass : Pass<"attn-select-tiles", "::mlir::func::FuncOp"> {
  let summary = "choose tile sizes of attn.stream from the target CPU";
  let description = [{
    Annotates every `attn.stream` and `attn.stream_backward` that has no tiles yet
    with `#attn.tiles`. Rows of more than 2^20 columns are an error. The
    cost model is in docs/Pipelines.md; every decision is a remark of category
    `attn-select-tiles` (`--remarks-filter='attn.*' --remark-policy=all`).
  }];
  let dependentDialects = ["::fovea::attn::AttnDialect"];
}

def TileStreamPass : Pass<"attn-tile-stream", "::mlir::func::FuncOp"> {
  let summary = "tile attn.stream to one parallel loop over (batch, head, query block)";
  let description = [{
    Tiles every `attn.stream` with `scf.forall`, through its TilingInterface, by
    one batch entry, one head and the `query` tile of its `#attn.tiles`. Where a
    tile copies keys and values for several blocks of queries, it has at most
    about a quarter of a head.

    On a CPU few queries stay whole: their code goes through the keys once for all
    heads that share them, and has parallel loops of its own. Where only the call
    knows the number of queries, an `scf.if` chooses.
  }];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect", "::mlir::affine::AffineDialect"
  ];
}

def ConvertAttnToVectorPass : Pass<"convert-attn-to-vector", "::mlir::ModuleOp"> {
  let summary = "lower attention on memrefs to parallel vector code for a CPU";
  let description = [{
    Replaces every operation that implements `LowerToVectorOpInterface` by parallel
    loops of vector code, planned for the registers that `--attn-set-target` names.
    See docs/Lowering for the structure of the code.

    | operation | code |
    |---|---|
    | `attn.stream` | register tiles, vectorised over queries, in the loop that `--attn-tile-stream` made; few queries with all heads that share their keys |
    | `attn.stream_backward` | the same; blocks of queries that add to the same rows take turns, in one order whatever the number of threads |
    | `attn.summarize`, `attn.summarize_backward` | register tiles, vectorised over columns; one loop for all levels of an input |
    | `attn.quantize` | register tiles of codewords and keys; the best score of every key and its code are kept |
    | `attn.codebook_*`, `attn.log_count` | loops vectorised over columns, in the order of the tokens |
    | `attn.vq_backward` | a loop over the blocks of queries in reverse, with one sum for each codeword; an `attn.codebook_scan` before it |
    | `attn.conv_*` | loops over columns, by the algorithm that a model of the registers chooses; for bases, searches of every head, then scores of all queries with the keys found |
    | `attn.low_rank*` | running sums of outer products over chunks of rows; sums by group, or trees of sums, under other masks |
    | maps of rows, such as `attn.rope`, and gradients | loops vectorised over columns |
    | `attn.tree_*` | loops over nodes in the order of the sequence, vectorised over columns |

    How work is divided among threads has no effect on results. What was planned is a
    remark whose category is the name of the operation.
  }];
  let options = [
    ListOption<"ops", "ops", "std::string",
               "operations to lower, such as attn.rope; by default all">,
    Option<"manageCache", "manage-cache", "bool", /*default=*/"true",
           "manage the caches: prefetches, streaming stores">,
    Option<"minTasks", "min-tasks", "int64_t", /*default=*/"2",
           "tasks of a parallel loop to aim at; no effect on results">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::amx::AMXDialect",
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
    "::mlir::x86vector::X86VectorDialect"
  ];
}

def DecomposeLinalgPass : Pass<"attn-decompose-linalg", "::mlir::func::FuncOp"> {
  let summary = "take linalg operations apart that are no loops themselves";
  let description = [{
    Upstream's decompositions of `linalg.softmax`, `linalg.pack`, `linalg.unpack` and
    the transforms of Winograd's convolutions into `linalg` and `tensor` operations that
    are. A soft-max of `f16` or `bf16` is computed in `f32`.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
}

def WidenSumsPass : Pass<"attn-widen-sums", "::mlir::func::FuncOp"> {
  let summary = "add and multiply many elements of f16 and bf16 in f32";
  let description = [{
    A sum of `bf16` stops to grow when it is 256 times its elements. PyTorch and XLA
    keep sums in `f32`, and so do kernels of products and convolutions, which stay. Other
    reductions of tensors that add or multiply start, run and end in `f32`, and are
    rounded once:

    ```mlir
    %s = linalg.reduce ins(%x : tensor<900x40xbf16>) outs(%zero : tensor<40xbf16>) dimensions = [0]
           (%a: bf16, %b: bf16) {
             %c = arith.addf %a, %b : bf16
             linalg.yield %c : bf16
           }
    ```

    ==>

    ```mlir
    %0 = linalg.generic ... ins(%x : tensor<900x40xbf16>) outs(%zeros : tensor<40xf32>) {
         ^bb0(%a: bf16, %b: f32):
           %1 = arith.extf %a : bf16 to f32
           %c = arith.addf %1, %b : f32
           linalg.yield %c : f32
         } -> tensor<40xf32>
    %s = arith.truncf %0 : tensor<40xf32> to tensor<40xbf16>
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def PrepareProductsPass : Pass<"attn-prepare-products", "::mlir::func::FuncOp"> {
  let summary = "have products on tensors read factors as stored, and convolutions be products";
  let description = [{
    Products of matrices pack their factors from any layout. So transpositions of
    factors, such as those that PyTorch's weights come with, become part of their
    indexing maps. A batch of products, each of whose factors is one of some that an
    index chooses, as of experts, becomes a loop that reads these where they are.

    Products that share the zeros they start from get their own, which kernels then
    never write to memory.

    Convolutions of floating-point numbers, in any layout, become a copy of the
    patches that the filter meets and a product of it with the filter; where every
    channel has a filter of its own they stay.

    On CPUs, stacks of two tensors along a new last dimension, and insertions that fill
    every other element each, become elementwise operations.

    ```mlir
    %r = linalg.conv_1d_ncw_fcw
        ins(%x, %w : tensor<1x80x1026xf32>, tensor<256x80x3xf32>) outs(%o : tensor<1x256x1024xf32>)
    ```

    ==>

    ```mlir
    %taps = linalg.generic ... // taps[n, c, k, i] = x[n, c, i + k]
        ins(%x : tensor<1x80x1026xf32>) outs(%e : tensor<1x80x3x1024xf32>)
    %a = tensor.collapse_shape %taps ... into tensor<1x240x1024xf32>
    %b = tensor.collapse_shape %w ... into tensor<256x240xf32>
    %r = linalg.generic ... // o[n, f, i] += a[n, k, i] * b[f, k]
    ```
  }];
  let dependentDialects = [
    "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
}

def FuseElementwisePass : Pass<"attn-fuse-elementwise", "::mlir::func::FuncOp"> {
  let summary = "fuse chains of elementwise operations on tensors";
  let description = [{
    Upstream's fusion of `linalg.generic` operations on tensors into their only
    user, except into products of matrices: those read every element many times,
    and what computes it would be repeated each time. So do copies of patches that
    overlap. Numbers are widened by every user.

    On CPUs, elementwise operations on a concatenation are done part by part, so
    that it is never written; others become slices of their result. Slices of every
    other element are read as one of each pair, the last dimension of an operand, and
    so are complex numbers that an operation reads more than once.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::complex::ComplexDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::memref::MemRefDialect", "::mlir::tensor::TensorDialect"
  ];
}

def VectorizeLinalgPass : Pass<"attn-vectorize-linalg", "::mlir::func::FuncOp"> {
  let summary = "lower linalg operations on memrefs to parallel vector code";
  let description = [{
    Replaces linalg operations on memrefs by parallel loops of vector code, so
    that the layers around attention need no other compiler:

    - sums of products (`linalg.matmul`, `batch_matmul`, `contract`, or a `generic`
      that says the same) by register tiles of a packed panel, or, for up to eight
      rows, of the other factor where it lies; accumulated in `f32` (`f64` for `f64`)
      and rounded once, whatever the layout;
    - everything else whose body is made of elementwise operations by loops over
      vectors of the output's last dimension, or over those of a row that is
      reduced. Where the last dimension is a pair, as of what rotary embedding turns,
      vectors of first and of second elements are interleaved. Functions of the `math` dialect on vectors become polynomials and
      quotients, and a row is divided by a number as a product with its inverse,
      unless the quotients become whole numbers, or are compared, in the same loop.

    What is neither is left for upstream's conversion to loops.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

#endif // FOVEA_CONVERSION_VECTORPASSES_TD
