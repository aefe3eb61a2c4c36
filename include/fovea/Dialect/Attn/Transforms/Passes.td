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

def SetTargetPass : Pass<"attn-set-target", "::mlir::ModuleOp"> {
  let summary = "describe the target in the module";
  let description = [{
    Writes what kernels ask of their target to the module's
    `dlti.target_system_spec`, where every later pass reads it:

    ```mlir
    module attributes {dlti.target_system_spec = #dlti.target_system_spec<
      "CPU" = #dlti.target_device_spec<"vector_bits" = 512, "num_registers" = 32, ...>>} {
    ```

    Without such an entry, passes take the defaults of the options. A module whose
    spec has a `GPU` is compiled for that.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "number of vector registers">,
    Option<"separateAdds", "separate-adds", "bool", /*default=*/"false",
           "whether additions have ports of their own beside multiply-adds">,
    Option<"splitVectors", "split-vectors", "bool", /*default=*/"false",
           "whether vectors of half the width get as much done">,
    Option<"bf16Pairs", "bf16-pairs", "bool", /*default=*/"false",
           "whether AVX-512's dot product of bf16 pairs is the fastest">,
    Option<"amx", "amx", "bool", /*default=*/"false",
           "whether there are AMX's tiles of bf16">,
    Option<"gpu", "gpu", "bool", /*default=*/"false", "describe a GPU instead">,
    Option<"sharedBytes", "shared-bytes", "int64_t", /*default=*/"166912",
           "shared memory that a block can have, in bytes">,
    Option<"warpgroups", "warpgroups", "bool", /*default=*/"false",
           "whether kernels may have tiles of warpgroups, for sm_90a">
  ];
  let dependentDialects = ["::mlir::DLTIDialect"];
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

    Switches that give tensors are branches for each case, since bufferization may
    write over results of a switch before they are read.

    These are errors: dimensions that a value does not have, scalable vectors,
    constants whose elements are elsewhere, and such slices of buffers with strides.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
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

def GuardDivisionsPass : Pass<"attn-guard-divisions", "::mlir::func::FuncOp"> {
  let summary = "give divisions of integers by zero a result";
  let description = [{
    A CPU ends the process where an integer is divided by zero, or the least one by
    -1. Shapes of models are computed so for empty arrays, if only for what nobody
    reads. Where the divisor is no such constant, quotients by zero become -1,
    remainders the dividend, and the least number over -1 itself, as XLA has it.
    Divisions of whole tensors are left: `convert-elementwise-to-linalg` comes before.

    ```mlir
    %q = arith.divui %a, %b : i64
    ```

    ==>

    ```mlir
    %0 = arith.cmpi eq, %b, %c0 : i64
    %1 = arith.select %0, %c1, %b : i64
    %2 = arith.divui %a, %1 : i64
    %q = arith.select %0, %c-1, %2 : i64
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect"
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
    callers and the host have none. And arguments with strides whose last one is not
    1, and any on a GPU, whose kernels read whole rows at known places.
  }];
}

def CheckCodesPass : Pass<"attn-check-codes", "::mlir::func::FuncOp"> {
  let summary = "check codes of keys, and parts of masks, at run time";
  let description = [{
    Adds `attn.check_codes` before every operation that takes lengths, or uses codes as indices of
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

def CopyStridedOperandsPass
    : Pass<"attn-copy-strided-operands", "::mlir::func::FuncOp"> {
  let summary = "copy operands whose rows have gaps";
  let description = [{
    Kernels of the dialect read rows whose elements lie next to each other. A slice
    that takes every second column, or one column as an array of its own, is a view
    without such rows. Operations read a copy of it:

    ```mlir
    %w = tensor.extract_slice %k[0, 0, 0, 0] [1, 8, 512, 1] [1, 1, 1, 1]
        : tensor<1x8x512x64xf32> to tensor<1x8x512xf32>
    %out = attn.dense ins(...) log_weight(%w : tensor<1x8x512xf32>) ...
    ```
    becomes
    ```mlir
    %c = bufferization.alloc_tensor() copy(%w) : tensor<1x8x512xf32>
    %out = attn.dense ins(...) log_weight(%c : tensor<1x8x512xf32>) ...
    ```

    Slices of rows stay views, and so do arguments, whatever their layout.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect"];
}

def FindMasksPass : Pass<"attn-find-masks", "::mlir::func::FuncOp"> {
  let summary = "make conditions of score regions masks, where an attribute says the same";
  let description = [{
    A region of `attn.dense`, `attn.stream` and their gradients removes an entry by
    minus infinity. Where conditions for that compare positions, and `causal`, `window` or
    `prefix`, with the mask that there is, admit the same entries, they become that mask:

    ```mlir
    %out = attn.dense ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x8x512x64xf32>, tensor<1x8x512x64xf32>)
        score {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
          %admits = arith.cmpi sle, %j, %i : index
          %removed = arith.constant 0xFF800000 : f32
          %t = arith.select %admits, %s, %removed : f32
          attn.yield %t : f32
        }
        outs(%init : tensor<1x8x512x64xf32>) -> tensor<1x8x512x64xf32>
    ```
    becomes
    ```mlir
    %out = attn.dense ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x8x512x64xf32>, tensor<1x8x512x64xf32>)
        outs(%init : tensor<1x8x512x64xf32>) {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
    ```

    Conditions are evaluated: signed comparisons of sums of positions and constants, maxima and
    minima of these, and conjunctions and disjunctions, however they are written. Of a
    conjunction the other parts stay in the region; what holds for every entry goes. A region of all
    sources keeps what is not a mask of each. Regions that may read a tensor out of bounds, by the
    static extents, stay as they are, since such a score is NaN wherever it stands, and so do
    those of sources with a stride. The remark `ConditionsAreMasks` says how many became masks.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def CheckSizesPass : Pass<"attn-check-sizes", "::mlir::ModuleOp"> {
  let summary = "check sizes of convolutions at run time";
  let description = [{
    Adds a call of the runtime before every `attn.conv_apply`, and the gradients of
    it and of `attn.conv_recover`, on memrefs. Sizes above the number of tokens,
    negative ones, and sizes that do not decrease down to zeros fail the invocation
    before anything is written, as does a head without any basis. Sizes that an
    `attn.conv_recover` of the same function has written need no check. For a GPU,
    sizes are copied to memory of the host.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"
  ];
}

def CheckNodesPass : Pass<"attn-check-nodes", "::mlir::ModuleOp"> {
  let summary = "check lists of tree nodes at run time";
  let description = [{
    Adds a call of the runtime before every `attn.tree_fetch` and
    `attn.tree_update` on memrefs: nodes that the tree does not have, and for an
    update lists that do not cover the sequence in order, fail the invocation
    before anything is written. Absent nodes, -1 in both lists, are allowed.

    For a GPU, lists lie on the device: they, and what `attn.check_codes` and
    `attn.check_intervals` check, are checked by parallel loops, and the runtime tells
    a failure later.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
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
    views of one buffer, all but the first are copied. For a GPU, where a result
    is memory of the host as well, so is one that may be a part of a buffer.
  }];
  let dependentDialects = [
    "::mlir::bufferization::BufferizationDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

#endif // FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_TD
