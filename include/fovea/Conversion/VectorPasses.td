//===- VectorPasses.td - Passes that emit vector code -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_VECTORPASSES_TD
#define FOVEA_CONVERSION_VECTORPASSES_TD

include "fovea/Conversion/PassOptions.td"

def SelectTilesPass : Pass<"attn-select-tiles", "::mlir::func::FuncOp"> {
  let summary = "choose tile sizes of attn.stream from the target CPU";
  let description = [{
    Annotates every `attn.stream` and `attn.stream_backward` that has no tiles yet
    with `#attn.tiles`. Rows of more than 2^20 columns are an error. The
    cost model is in docs/Pipelines.md; every decision is a remark of category
    `attn-select-tiles` (`--remarks-filter='attn.*' --remark-policy=all`).
  }];
  let options = [VectorBitsOption, NumRegistersOption];
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
    vectorised over queries. See docs/Lowering for the structure of the code.
    With `manage-cache`, prefetches of what is read next are spread over the inner
    loops, and patterns of linear time write their output past the caches. With
    `bf16-pairs`, bf16 data of even head width is multiplied by `vdpbf16ps`
    instead of being converted to f32.
  }];
  let options = [
    ManageCacheOption,
    Option<"bf16Pairs", "bf16-pairs", "bool", /*default=*/"false",
           "multiply bf16 data with AVX-512's dot product of pairs">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect", "::mlir::x86vector::X86VectorDialect"
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
    docs/Lowering.
  }];
  let options = [ManageCacheOption];
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
  let options = [VectorBitsOption, NumRegistersOption, ManageCacheOption];
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
  let options = [VectorBitsOption];
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
  let options = [VectorBitsOption, NumRegistersOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def VectorizeLowRankPass
    : Pass<"attn-vectorize-low-rank", "::mlir::ModuleOp"> {
  let summary = "lower low-rank attention on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.low_rank`, `attn.polynomial_features`, `attn.rope` and
    their gradients on memrefs by parallel loops of vector code.

    A causal `attn.low_rank` goes through chunks of rows with running sums of outer
    products: products of register tiles with the sums, with the triangle of
    weights on the diagonal, and of keys and values for the next sums. A task is a
    head or, with few heads for the threads there are, a segment of its rows, which
    waits for its turn to add to the sums. Other masks make sums by group, or a tree
    of sums, and apply them to rows. The gradient is three such sums, two of them
    under the transposed mask. See docs/Lowering.
  }];
  let options = [VectorBitsOption, NumRegistersOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect",
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
  let options = [VectorBitsOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VectorizeSummarizePass
    : Pass<"attn-vectorize-summarize", "::mlir::ModuleOp"> {
  let summary = "lower attn.summarize on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.summarize` on memrefs by a parallel loop of register
    tiles, vectorised over the columns. Weights are shared by several intervals
    and by all heads of a chunk of rows. How the work is divided is decided when it
    runs, by the number of threads, and has no effect on results.
  }];
  let options = [VectorBitsOption, NumRegistersOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect",
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
  let options = [VectorBitsOption, NumRegistersOption, MinTasksOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
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
  let options = [VectorBitsOption, NumRegistersOption];
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
    docs/Lowering.
  }];
  let options = [VectorBitsOption, MinTasksOption];
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
    of category `attn-vectorize-conv`. See docs/Lowering.
  }];
  let options = [VectorBitsOption, NumRegistersOption, SeparateAddsOption, SplitVectorsOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VectorizeConvBackwardPass
    : Pass<"attn-vectorize-conv-backward", "::mlir::ModuleOp"> {
  let summary = "lower gradients of sums of convolutions on memrefs to parallel vector code";
  let description = [{
    Replaces every `attn.conv_apply_backward` on memrefs by parallel loops vectorised
    along the width of values, which evaluate two correlations by the algorithm of the
    forward operation, and every `attn.conv_recover_backward` by products of register
    tiles. The choice of an algorithm is a remark of category
    `attn-vectorize-conv-backward`. See docs/Lowering.
  }];
  let options = [VectorBitsOption, NumRegistersOption, SeparateAddsOption, SplitVectorsOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

#endif // FOVEA_CONVERSION_VECTORPASSES_TD
