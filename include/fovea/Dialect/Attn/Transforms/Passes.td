//===- Passes.td - Passes of the attention dialect ---------*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_TD
#define FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_TD

include "fovea/Dialect/Attn/Transforms/PassOptions.td"

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
    "::mlir::bufferization::BufferizationDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
}

def PrepareInputPass : Pass<"attn-prepare-input", "::mlir::ModuleOp"> {
  let summary = "refuse what upstream's passes cannot take, and name its place";
  let description = [{
    The bodies of named `linalg` operations get the location of their operation,
    so that errors about them have one. Slices that drop some of their extents of 1
    and keep others do so by a reshape of their own:

    ```mlir
    %s = tensor.extract_slice %x[0, %i, 0] [1, 1, 4] [1, 1, 1] : tensor<1x8x4xf32> to tensor<1x4xf32>
    ```

    ==>

    ```mlir
    %0 = tensor.extract_slice %x[0, %i, 0] [1, 1, 4] [1, 1, 1] : tensor<1x8x4xf32> to tensor<1x1x4xf32>
    %s = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<1x1x4xf32> into tensor<1x4xf32>
    ```

    These are errors: dimensions that a value does not have, scalable vectors,
    constants whose elements are elsewhere, and such slices of buffers with strides.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def CheckLoweredPass : Pass<"attn-check-lowered", "::mlir::ModuleOp"> {
  let summary = "refuse operations that nothing lowered to LLVM";
  let description = [{
    Runs after everything else, and names the first operation that is left.

    ```
    error: 'arith.addf' op on 'f8E4M3FN' cannot be compiled: nothing lowers it to LLVM
    ```
  }];
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

    So does a position of a state that no sequence has.

    Whether ranges of one source share rows depends on extents, too. Where it is
    open, a loop over the blocks of queries checks it:

    ```
    attn.stream: ranges 0 and 1 of source 0 must not overlap, but for block 2 found rows 16 .. 47 and 40 .. 63
    ```
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
}

def CheckMemoryPass : Pass<"attn-check-memory", "::mlir::func::FuncOp"> {
  let summary = "refuse tensors and memrefs that no memory can hold";
  let description = [{
    Static extents of which a value would take 2^47 bytes or more are an error here:
    the sizes of buffers, computed from them in 64 bits, could wrap, and code for
    them could take forever to make. Smaller values that do not fit fail when they
    are allocated.

    So are buffers in a memory space, as of a GPU's workgroup, outside of a kernel:
    callers and the host have none.
  }];
}

def CheckCodesPass : Pass<"attn-check-codes", "::mlir::func::FuncOp"> {
  let summary = "check codes of keys, and parts of masks, at run time";
  let description = [{
    Adds `attn.check_codes` before every operation that uses codes as indices of
    a codebook or of summaries, unless `attn.quantize` made them, and
    `attn.check_codes` or `attn.check_intervals` before an `attn.low_rank` whose mask
    has groups, columns or intervals. Counts of a state are checked the same way: none
    is negative. What the operation expands to need not check again.

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

// What an option that chooses a reduction can be.
defvar reductionValues = [{
  clEnumValN(::fovea::attn::Reduction::Serial, "serial",
             "one block after the other"),
  clEnumValN(::fovea::attn::Reduction::Matmul, "matmul",
             "by a product with a triangle of weights"),
  clEnumValN(::fovea::attn::Reduction::Associative, "associative",
             "along a tree"),
  clEnumValN(::fovea::attn::Reduction::InputScan, "input_scan",
             "block by block, with the queries of the block")
}];

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
    Option<"reduction", "reduction", "::fovea::attn::Reduction",
           /*default=*/"::fovea::attn::Reduction::Auto",
           "how summaries of blocks are accumulated in attn.vq: serial, matmul, "
           "associative or input_scan, or auto, which leaves it to the operation",
           !strconcat("::llvm::cl::values(clEnumValN(::fovea::attn::Reduction::"
                      "Auto, \"auto\", \"as the operation says\"), ",
                      reductionValues, ")")>,
    Option<"autoReduction", "auto-reduction", "::fovea::attn::Reduction",
           /*default=*/"::fovea::attn::Reduction::InputScan",
           "how they are accumulated where the operation says auto, too",
           !strconcat("::llvm::cl::values(", reductionValues, ")")>,
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
    "::mlir::bufferization::BufferizationDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"
  ];
}

def ExpandConvPass : Pass<"attn-expand-conv", "::mlir::func::FuncOp"> {
  let summary = "expand attn.conv to attn.conv_recover and attn.conv_apply, and its gradient";
  let description = [{
    ```mlir
    %out, %n, %c = attn.conv ins(%q, %k, %v : ...) outs(%o, %n0, %c0 : ...) {num_basis = 8 : i64, ...}
    ```
    becomes
    ```mlir
    %b, %m, %n = attn.conv_recover ins(%q, %k : ...) outs(%b0, %m0, %n0 : ...) {...}
    %out, %c = attn.conv_apply ins(%b, %m, %v : ...) outs(%o, %c0 : ...)
    ```

    and `attn.conv_backward` becomes the gradients of the two, after the same search:
    ```mlir
    %b, %m, %n = attn.conv_recover ins(%q, %k : ...) outs(%b0, %m0, %n0 : ...) {...}
    %db, %dv = attn.conv_apply_backward ins(%b, %m, %v : ...) forward(%out : ...) gradient(%dout : ...) outs(%db0, %dv0 : ...)
    %dq, %dk = attn.conv_recover_backward ins(%q, %k, %m : ...) gradient(%db : ...) outs(%dq0, %dk0 : ...)
    ```

    With `group`, all of them run in a loop over pairs of neighbouring groups.
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

include "fovea/Dialect/Attn/Transforms/VectorizePasses.td"

def CheckSizesPass : Pass<"attn-check-sizes", "::mlir::ModuleOp"> {
  let summary = "check sizes of convolutions at run time";
  let description = [{
    Adds a call of the runtime before every `attn.conv_apply`, and the gradients of
    it and of `attn.conv_recover`, on memrefs. Sizes above the number of tokens,
    negative ones, and sizes that do not decrease down to zeros fail the invocation
    before anything is written, as does a head without any basis. Sizes that an
    `attn.conv_recover` of the same function has written need no check.
  }];
  let options = [CopyListsOption];
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
    before anything is written. Absent nodes, -1 in both lists, are allowed.

    With `copy-lists`, lists lie on a device: they, and the codes of
    `attn.check_codes`, are copied to memory of the host and checked there.
  }];
  let options = [CopyListsOption];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect"
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

include "fovea/Dialect/Attn/Transforms/GPUPasses.td"

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
