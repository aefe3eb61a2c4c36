//===- Passes.td - Passes of the attention dialect ---------*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_TD
#define FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def DifferentiatePass : Pass<"attn-differentiate", "::mlir::ModuleOp"> {
  let summary = "emit the vector-Jacobian product of a function";
  let description = [{
    Emits, next to a function, one that computes its gradients by reverse mode: it
    takes the function's arguments and a cotangent for each of its floating-point
    results, and returns the derivative of the sum of the results, weighted by the
    cotangents, with respect to the arguments.

    ```mlir
    func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    gets
    ```mlir
    func.func @f_vjp(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %d_out: tensor<4x8xf32>)
        -> (tensor<4x8xf32>, tensor<8x8xf32>)
    ```

    | operations | gradient |
    |---|---|
    | `linalg`, named or generic, in any layout: element by element, sums of anything, maxima and minima | the same loops with the maps exchanged; the derivative of a body is taken operation by operation (`arith`, `math`) |
    | `tensor`: slices, reshapes, casts, `pad`, `concat`, `extract` | their transposes |
    | patterns of this dialect | their `attn.*_backward` |

    Equal maxima share their adjoint evenly. Rounding, comparisons and integers pass
    nothing on, nor does an operation with the attribute `attn.stop_gradient`.
    `attn.quantize` passes the gradients of quantized keys, and those that
    `attn.vq` has for its codes, straight through. Anything else that a result depends on is named in one error.

    Adjoints are kept in `f32` (`f64` for `f64`) and rounded once, at the end; those
    of a value that is used several times are added in the order of the uses, so
    that gradients do not depend on the number of threads.

    With `recompute`, elementwise results that the gradient needs are computed a
    second time rather than kept, where everything that takes is kept anyway.
  }];
  let options = [
    Option<"function", "function", "std::string", /*default=*/"",
           "the function to differentiate; by default the first public one with "
           "a body">,
    ListOption<"arguments", "arguments", "int64_t",
               "numbers of the arguments to differentiate with respect to; by "
               "default all of a floating-point type">,
    Option<"name", "name", "std::string", /*default=*/"",
           "name of the emitted function; by default that of the function and "
           "_vjp">,
    Option<"primalResults", "primal-results", "bool", /*default=*/"false",
           "return the results of the function, too, before the gradients">,
    Option<"recompute", "recompute", "bool", /*default=*/"true",
           "compute cheap values again instead of keeping them">
  ];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def CheckShapesPass : Pass<"attn-check-shapes", "::mlir::ModuleOp"> {
  let summary = "check dynamic extents of attention ops at run time";
  let description = [{
    The verifier compares static extents. For every dynamic extent of an
    operation of the dialect that must equal another, or be a multiple of it, this
    pass adds a call of the runtime before the operation, unless both come from
    the same extent of an argument. A mismatch fails the invocation with a text
    such as

    ```
    attn.dense: extent 2 of value must be extent 2 of key, expected 7, but got 5
    ```
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def CheckCodesPass : Pass<"attn-check-codes", "::mlir::func::FuncOp"> {
  let summary = "check codes of keys, and parts of masks, at run time";
  let description = [{
    Adds `attn.check_codes` before every operation that uses codes as indices of
    a codebook or of summaries, unless `attn.quantize` made them, and
    `attn.check_codes` or `attn.check_intervals` before an `attn.low_rank` whose mask
    has groups, columns or intervals. What the operation expands to need not check
    again.

    ```mlir
    %m, %n = attn.codebook_accumulate ins(%codes, %v : ...) outs(%mean, %count : ...) -> ...
    ```
    becomes
    ```mlir
    attn.check_codes %codes below %num_codes {name = "attn.codebook_accumulate: codes"} : ...
    %m, %n = attn.codebook_accumulate ins(%codes, %v : ...) outs(%mean, %count : ...) -> ...
    ```
  }];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::arith::ArithDialect",
    "::mlir::memref::MemRefDialect", "::mlir::tensor::TensorDialect"
  ];
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

def ExpandPatternsPass : Pass<"attn-expand-patterns", "::mlir::func::FuncOp"> {
  let summary = "expand attention patterns to summaries and attn.stream";
  let description = [{
    Rewrites every pattern of the dialect to the streaming core: a pattern is its
    list of sources.

    | pattern | sources of query block `b` |
    |---|---|
    | `attn.dense` | all rows, with its mask |
    | `attn.fast_multipole` | rows of blocks `b-1, b, b+1`; per level, the interaction list among its summaries |
    | `attn.fast_multipole_linear` | the same lists, one `attn.stream` per level, outputs summed |
    | `attn.vq` | tokens of blocks `b-1, b` through their codes; the codebook with log counts and mean values as of block `b-2` |
    | `attn.vq_decode` | the same for one query |
    | `attn.tree_score` | all rows, for the `lse`: of the candidates, then of the VIP tokens |

    ```mlir
    %out = attn.dense ins(%q, %k, %v : ...) outs(%o : ...) {mask = #attn.mask<causal>} -> ...
    ```
    becomes
    ```mlir
    %out = attn.stream query(%q : ...)
        source(%k, %v : ...) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        outs(%o : ...) {scale = ...} -> ...
    ```
  }];
  let options = [
    Option<"reduction", "reduction", "std::string", /*default=*/"\"auto\"",
           "how summaries of blocks are accumulated in attn.vq: auto leaves it to "
           "the operation, otherwise serial, matmul, associative or input_scan">,
    Option<"autoReduction", "auto-reduction", "std::string",
           /*default=*/"\"input_scan\"",
           "how they are accumulated where the operation says auto, too">,
    Option<"narrowSummaries", "narrow-summaries", "bool", /*default=*/"false",
           "keep summaries in the element type of the tokens, for targets that "
           "multiply one type only, instead of f32">
  ];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::affine::AffineDialect",
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def ExpandTreeSelectPass
    : Pass<"attn-expand-tree-select", "::mlir::func::FuncOp"> {
  let summary = "expand attn.tree_select to one step for each level";
  let description = [{
    Algorithm 1, unrolled: at each level that has candidates, their rows (a view of
    the tree for the roots, an `attn.tree_fetch` below), a copy of the region that
    scores them, and an `attn.tree_split`. Levels at which all or no candidates are
    split need no scores.
  }];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"
  ];
}

def ExpandConvPass : Pass<"attn-expand-conv", "::mlir::func::FuncOp"> {
  let summary = "expand attn.conv to attn.conv_recover and attn.conv_apply";
  let description = [{
    ```mlir
    %out, %n, %c = attn.conv ins(%q, %k, %v : ...) outs(%o, %n0, %c0 : ...) {num_basis = 8 : i64, ...}
    ```
    becomes
    ```mlir
    %b, %m, %n = attn.conv_recover ins(%q, %k : ...) outs(%b0, %m0, %n0 : ...) {...}
    %out, %c = attn.conv_apply ins(%b, %m, %v : ...) outs(%o, %c0 : ...)
    ```

    With `group`, both run in a loop over pairs of neighbouring groups.
  }];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::affine::AffineDialect",
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
}

def SelectTilesPass : Pass<"attn-select-tiles", "::mlir::func::FuncOp"> {
  let summary = "choose tile sizes of attn.stream from the target CPU";
  let description = [{
    Annotates every `attn.stream` and `attn.stream_backward` that has no tiles yet
    with `#attn.tiles`. The
    cost model is in docs/Pipelines.md; every decision is a remark of category
    `attn-select-tiles` (`--remarks-filter='attn.*' --remark-policy=all`).
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">
  ];
  let dependentDialects = ["::fovea::attn::AttnDialect"];
}

def TileStreamPass : Pass<"attn-tile-stream", "::mlir::func::FuncOp"> {
  let summary = "tile attn.stream to one parallel loop over (batch, head, query block)";
  let description = [{
    Tiles every `attn.stream` with `scf.forall`, through its TilingInterface, by
    one batch entry, one head and the `query` tile of its `#attn.tiles`.
  }];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect", "::mlir::affine::AffineDialect"
  ];
}

def VectorizeStreamPass
    : Pass<"attn-vectorize-stream", "::mlir::func::FuncOp"> {
  let summary = "lower tiles of attn.stream on memrefs to vector code";
  let description = [{
    Replaces every `attn.stream` on memrefs by loops over register tiles,
    vectorised over queries. See docs/Lowering.md for the structure of the code.
    With `manage-cache`, prefetches of what is read next are spread over the inner
    loops, and patterns of linear time write their output past the caches. With
    `bf16-pairs`, bf16 data of even head width is multiplied by `vdpbf16ps`
    instead of being converted to f32.
  }];
  let options = [
    Option<"manageCache", "manage-cache", "bool", /*default=*/"true",
           "add prefetches and streaming stores">,
    Option<"bf16Pairs", "bf16-pairs", "bool", /*default=*/"false",
           "multiply bf16 data with AVX-512's dot product of pairs">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
    "::mlir::x86vector::X86VectorDialect"
  ];
}

def VectorizeStreamBackwardPass
    : Pass<"attn-vectorize-stream-backward", "::mlir::ModuleOp"> {
  let summary = "lower attn.stream_backward on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.stream_backward` on memrefs by a parallel loop over
    register tiles, vectorised over queries. Blocks of queries that add to the
    same rows take turns: calls of the runtime keep them in one order, whatever
    the number of threads. Destinations hold the type that sums are kept in. See
    docs/Lowering.md.
  }];
  let options = [
    Option<"manageCache", "manage-cache", "bool", /*default=*/"true",
           "add prefetches and streaming stores">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VectorizeQuantizePass
    : Pass<"attn-vectorize-quantize", "::mlir::func::FuncOp"> {
  let summary = "lower attn.quantize on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.quantize` on memrefs by a parallel loop over batch, head
    and runs of keys. Blocks of keys are transposed; register tiles of codewords
    and keys start from half the squared norms of the codewords, and only the
    best score of every key and its code are kept. With `manage-cache`, a block
    prefetches the keys of the next one.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">,
    Option<"manageCache", "manage-cache", "bool", /*default=*/"true",
           "add prefetches">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VectorizeCodebookPass
    : Pass<"attn-vectorize-codebook", "::mlir::func::FuncOp"> {
  let summary = "lower summaries and updates of codebooks on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.codebook_accumulate`, `attn.codebook_scan`,
    `attn.codebook_update` and `attn.log_count` on memrefs by loops vectorised
    along the width of values and keys, parallel over batch and heads; blocks of a
    scan by `associative` or `matmul`, and slices of the width of an update, are
    parallel, too. Tokens are taken in in order, so results do not depend on the
    number of threads.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def VectorizeConvRecoverPass
    : Pass<"attn-vectorize-conv-recover", "::mlir::func::FuncOp"> {
  let summary = "lower attn.conv_recover on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.conv_recover` on memrefs by three parallel loops: the binary
    searches of every head, then the scores of all queries with the keys that were
    found, which reads the queries once, then differences along the bases.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def VectorizeLowRankPass
    : Pass<"attn-vectorize-low-rank", "::mlir::func::FuncOp"> {
  let summary = "lower low-rank attention on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.low_rank`, `attn.polynomial_features` and `attn.rope` on
    memrefs by parallel loops of vector code.

    A causal `attn.low_rank` goes through chunks of rows with running sums of outer
    products: products of register tiles with the sums, with the triangle of
    weights on the diagonal, and of keys and values for the next sums. Other masks
    make sums by group, or a tree of sums, and apply them to rows. See
    docs/Lowering.md.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def VectorizeVQBackwardPass
    : Pass<"attn-vectorize-vq-backward", "::mlir::func::FuncOp"> {
  let summary = "lower attn.vq_backward on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.vq_backward` on memrefs by a loop over the blocks of
    queries in reverse, parallel over batch and key heads, in which one sum for
    each codeword carries what older values are owed. Means and counts of the
    values before every block come from an `attn.codebook_scan`, which
    `--attn-vectorize-codebook` lowers.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def VectorizeSummarizePass
    : Pass<"attn-vectorize-summarize", "::mlir::func::FuncOp"> {
  let summary = "lower attn.summarize on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.summarize` on memrefs by a parallel loop of register
    tiles, vectorised over the columns. Weights are shared by several intervals
    and by all heads of a chunk of rows.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">,
    Option<"minTasks", "min-tasks", "int64_t", /*default=*/"2",
           "tasks of a parallel loop to aim at; no effect on results">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VectorizeSummarizeBackwardPass
    : Pass<"attn-vectorize-summarize-backward", "::mlir::func::FuncOp"> {
  let summary = "lower attn.summarize_backward on memrefs to parallel vector code";
  let description = [{
    Replaces the `attn.summarize_backward` of all levels of an input by one
    parallel loop of register tiles, vectorised over the columns: a chunk of rows
    and its gradient stay in the caches for all levels.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">,
    Option<"minTasks", "min-tasks", "int64_t", /*default=*/"2",
           "tasks of a parallel loop to aim at; no effect on results">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def FuseElementwisePass : Pass<"attn-fuse-elementwise", "::mlir::func::FuncOp"> {
  let summary = "fuse chains of elementwise operations on tensors";
  let description = [{
    Upstream's fusion of `linalg.generic` operations on tensors into their only
    user, except into products of matrices: those read every element many times,
    and what computes it would be repeated each time.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

def VectorizeLinalgPass : Pass<"attn-vectorize-linalg", "::mlir::func::FuncOp"> {
  let summary = "lower linalg operations on memrefs to parallel vector code";
  let description = [{
    Replaces linalg operations on memrefs by parallel loops of vector code, so
    that the layers around attention need no other compiler:

    - sums of products (`linalg.matmul`, `batch_matmul`, `contract`, or a `generic`
      that says the same) by register tiles of a packed panel, accumulated in
      `f32` (`f64` for `f64`) and rounded once, whatever the layout;
    - everything else whose body is made of elementwise operations by loops over
      vectors of the output's last dimension, or over those of a row that is
      reduced. Functions of the `math` dialect on vectors become polynomials.

    What is neither is left for upstream's conversion to loops.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def VectorizeTreePass : Pass<"attn-vectorize-tree", "::mlir::ModuleOp"> {
  let summary = "lower trees of averages on memrefs to parallel vector code";
  let description = [{
    Replaces `attn.tree_build`, `tree_fetch`, `tree_update` and `tree_materialize`
    on memrefs by parallel loops, vectorised over the columns, that touch the data
    once, and `attn.tree_split` by a call of the runtime for each batch entry. See
    docs/Lowering.md.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"minTasks", "min-tasks", "int64_t", /*default=*/"2",
           "tasks of a parallel loop to aim at; no effect on results">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VectorizeConvPass : Pass<"attn-vectorize-conv", "::mlir::ModuleOp"> {
  let summary = "lower sums of convolutions on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.conv_apply` on memrefs by parallel loops vectorised along
    the width of values. The algorithm, where it is `auto`, and the sizes of the
    loops are chosen by a model of the target's registers; the choice is a remark
    of category `attn-vectorize-conv`. See docs/Lowering.md.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VectorizeFFTPass : Pass<"attn-vectorize-fft", "::mlir::ModuleOp"> {
  let summary = "lower Fourier transforms on memrefs to parallel vector code";
  let description = [{
    Replaces `attn.fft_forward`, `fft_inverse`, `fft_multiply` and `fft_accumulate` on
    memrefs by loops of butterflies in registers, parallel over batch entries and
    groups of columns. The form of the spectra says what a vector holds and what
    stages there are; factors are tables of the runtime.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def CheckSizesPass : Pass<"attn-check-sizes", "::mlir::ModuleOp"> {
  let summary = "check sizes of convolutions at run time";
  let description = [{
    Adds a call of the runtime before every `attn.conv_apply` on memrefs. Sizes
    above the number of tokens, negative ones, and sizes that do not decrease down
    to zeros fail the invocation before anything is written, as does a head without
    any basis.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

def CheckNodesPass : Pass<"attn-check-nodes", "::mlir::ModuleOp"> {
  let summary = "check lists of tree nodes at run time";
  let description = [{
    Adds a call of the runtime before every `attn.tree_fetch` and
    `attn.tree_update` on memrefs: nodes that the tree does not have, and for an
    update lists that do not cover the sequence in order, fail the invocation
    before anything is written. Likewise before an `attn.tree_split` with counts,
    whose budget may be above what exists.

    With `copy-lists`, lists lie on a device: they, and the codes of
    `attn.check_codes`, are copied to memory of the host and checked there.
  }];
  let options = [
    Option<"copyLists", "copy-lists", "bool", /*default=*/"false",
           "copy lists from a device to the host to check them">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

def OutlineParallelPass : Pass<"attn-outline-parallel", "::mlir::ModuleOp"> {
  let summary = "outline parallel loops to functions that the runtime calls";
  let description = [{
    Turns every `scf.forall` on memrefs into a private function of one loop index
    and a call of the runtime's `fovea_rt_parallel_for`. Buffers allocated in the
    body become slices of the scratch memory that the runtime keeps for each
    thread; what the body uses from outside is passed in a struct on the caller's
    stack, except constants, which are repeated. Parallel loops inside parallel
    loops become sequential.

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

def PrepareEntryPointsPass
    : Pass<"attn-prepare-entry-points", "::mlir::func::FuncOp"> {
  let summary = "fix how public functions look to the host";
  let description = [{
    Gives every public function a C interface (`llvm.emit_c_interface`) and marks
    its tensor arguments as not writable, so that a kernel never changes what the
    host passes to it. An argument that says `bufferization.writable` already
    keeps it.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect"];
}

def SeparateResultsPass
    : Pass<"attn-separate-results", "::mlir::func::FuncOp"> {
  let summary = "give every buffer that a public function returns its own memory";
  let description = [{
    The host frees the results of a kernel one by one. Where two of them may be
    views of one buffer, all but the first are copied.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect"];
}

def SelectGPUTilesPass
    : Pass<"attn-select-gpu-tiles", "::mlir::func::FuncOp"> {
  let summary = "choose tile sizes of attn.stream for a GPU";
  let description = [{
    Annotates every `attn.stream` that has no tiles yet with the largest
    `#attn.tiles` whose queries, keys and values fit the shared memory and the
    registers of a block: `lanes` is the 16 queries of a warp, `vectors` the
    number of warps, `key` the rows of one tile in shared memory. A stream that no
    tile supports is an error. With `warpgroups`, `lanes` is the 64 queries of a
    warpgroup and `vectors` the number of them wherever the stream has one source
    of narrow data without terms. Every decision is a remark of category
    `attn-select-gpu-tiles`.
  }];
  let options = [
    Option<"sharedBytes", "shared-bytes", "int64_t", /*default=*/"166912",
           "shared memory that a block can have, in bytes">,
    Option<"warpgroups", "warpgroups", "bool", /*default=*/"false",
           "choose tiles of warpgroups, for sm_90a, where the stream allows them">
  ];
  let dependentDialects = ["::fovea::attn::AttnDialect"];
}

def StreamToGPUPass : Pass<"attn-stream-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower tiles of attn.stream on memrefs to GPU kernels";
  let description = [{
    Replaces every parallel loop over tiles of an `attn.stream` by a `gpu.launch`
    of one block of threads for each tile. See docs/GPU.md for the structure of
    the code. Blocks of the last tiles start first, which have the most to do
    under a causal mask. Tiles of warpgroups become kernels for `sm_90a`, which
    read queries, keys and values by tensor maps that the host makes.

    `f32` says how f32 data is multiplied: `tf32x3` cuts every number in two and
    is nearly as accurate as f32; `tf32` is three times as fast and accurate to 11
    bits; `exact` adds products of f32 one after the other, without tensor cores.
  }];
  let options = [
    Option<"f32", "f32", "std::string", /*default=*/"\"tf32x3\"",
           "products of f32 data: tf32x3, tf32 or exact">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::nvgpu::NVGPUDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def SummarizeToGPUPass
    : Pass<"attn-summarize-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower attn.summarize on memrefs to GPU kernels";
  let description = [{
    Replaces every `attn.summarize` on memrefs by a `gpu.launch` of one block of
    threads for each batch entry, head, interval and 32 columns. The warps of a
    block share the rows of the interval; their sums are added in order.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"
  ];
}

def QuantizeToGPUPass : Pass<"attn-quantize-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower attn.quantize on memrefs to GPU kernels";
  let description = [{
    Replaces every `attn.quantize` on memrefs by a kernel with the halves of the
    squared norms of all codewords, and one with a block of threads for each 64
    keys, or fewer where shared memory or the width asks for it. Products run on
    tensor cores, and every thread keeps the best score of its columns: scores are
    never stored. `f32` is that of `--attn-stream-to-gpu`.
  }];
  let options = [
    Option<"f32", "f32", "std::string", /*default=*/"\"tf32x3\"",
           "products of f32 data: tf32x3, tf32 or exact">,
    Option<"sharedBytes", "shared-bytes", "int64_t", /*default=*/"166912",
           "shared memory that a block can have, in bytes">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::nvgpu::NVGPUDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def CodebookToGPUPass : Pass<"attn-codebook-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower summaries and updates of codebooks to GPU kernels";
  let description = [{
    Replaces `attn.codebook_accumulate`, `attn.codebook_scan` and
    `attn.codebook_update` on memrefs by kernels with a warp for each code, which
    keeps the columns of its mean in registers and finds its tokens by a vote on the
    codes of 32 at a time; results do not depend on any order. A scan with
    `reduction = serial` is a running state; every other one summarises all blocks
    at once and then merges them in order. `attn.log_count` becomes a parallel loop.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect"
  ];
}

def TreeToGPUPass : Pass<"attn-tree-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower trees of averages on memrefs to GPU loops and kernels";
  let description = [{
    Replaces operations on trees by parallel loops with a thread for each column of
    a node, one after the other for each level, which `--attn-loops-to-gpu` makes
    kernels of. `attn.tree_split` is a loop in which every candidate counts the
    better ones, and a kernel with a block for each batch entry that lists the new
    frontier.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"
  ];
}

def LoopsToGPUPass : Pass<"attn-loops-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower parallel loops to GPU kernels";
  let description = [{
    Replaces linalg operations on memrefs, copies of strided buffers and every
    outermost `scf.parallel` by a `gpu.launch` of one thread for each iteration.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"
  ];
}

def MergeGPUModulesPass : Pass<"attn-merge-gpu-modules", "::mlir::ModuleOp"> {
  let summary = "move all kernels to one GPU module";
  let description = [{
    Outlining makes a `gpu.module` for every kernel. One for all is one text of PTX
    and is loaded once.
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect"];
}

def MarkTensorMapsPass : Pass<"attn-mark-tensor-maps"> {
  let summary = "pass tensor maps to kernels by value";
  let description = [{
    Pointers through which a kernel's `nvvm.cp.async.bulk.tensor` operations find
    their tensors become parameters of 128 bytes, which `--attn-launch-to-runtime`
    fills from what the pointer of the launch points to. Kernels that move registers
    between warpgroups get a fixed number of threads, without which they cannot.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"
  ];
}

def PlaceGPUBuffersPass
    : Pass<"attn-place-gpu-buffers", "::mlir::ModuleOp"> {
  let summary = "place the buffers of functions on the GPU";
  let description = [{
    Makes functions with kernels open a queue of the runtime, and decides where
    every buffer lies:

    | buffer | place |
    |---|---|
    | argument, constant | the caller's, as the device sees it: a copy if it is host memory |
    | result | the device's if an argument lies there, else the host's, written by the device at the end |
    | any other | the device's |

    Single elements that code outside of kernels loads or stores are copied between
    host and device, each on its own; in a loop that is an error.
  }];
  let options = [
    Option<"emulate", "emulate", "bool", /*default=*/"false",
           "run kernels in the emulator">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

def LaunchToRuntimePass : Pass<"attn-launch-to-runtime", "::mlir::ModuleOp"> {
  let summary = "lower launches of kernels to calls of the runtime";
  let description = [{
    Replaces every `gpu.launch_func` by a call of `fovea_rt_gpu_launch`, and every
    `gpu.module`, whose code `--fovea-serialize-gpu-modules` has generated, by the
    constants and descriptors that the runtime loads it from.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect"
  ];
}

def LowerGPUMathPass : Pass<"attn-lower-gpu-math"> {
  let summary = "lower math operations to instructions of NVIDIA GPUs";
  let description = [{
    Replaces operations of the math dialect on f32 numbers in GPU modules by the
    instructions that compute them, so that kernels call no functions of a device
    library. Others of the dialect, and f64, are an error.

    | operation | becomes |
    |---|---|
    | `exp2`, `exp`, `log2`, `log`, `rsqrt` | `ex2.approx`, `lg2.approx`, `rsqrt.approx` |
    | `sqrt`, `fma`, `absf` | `sqrt.rn`, `fma.rn`, `abs` |
    | `tanh` | `1 - 2 / (1 + exp(2 x))` |
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect"
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
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"
  ];
}

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

#endif // FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_TD
