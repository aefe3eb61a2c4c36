//===- GPUPasses.td - Passes of the GPU pipeline -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_GPUPASSES_TD
#define FOVEA_CONVERSION_GPUPASSES_TD

include "mlir/Pass/PassBase.td"

def NarrowSourcesPass : Pass<"attn-narrow-sources", "::mlir::func::FuncOp"> {
  let summary = "round sources of attn.stream to the type of its products";
  let description = [{
    Kernels multiply data of one type, and round keys and values that are kept in
    f32 beside narrow queries whenever they read them. Where many queries read the
    same rows, they are rounded once, ahead of the kernel, which then copies half
    as much, and by boxes. Results do not change.

    Gradients of narrow operands that are rounded as soon as attn.stream_backward
    has summed them become its results: kernels round them on their way to memory.
    So do gradients of weights that attn.summarize_backward adds to zeros.

    ```mlir
    %r = attn.stream query(%q : tensor<1x8x512x64xbf16>)
        source(%k, %v : tensor<1x2x512x64xbf16>, tensor<1x2x512x64xf32>) ...
    ```
    becomes
    ```mlir
    %n = arith.truncf %v : tensor<1x2x512x64xf32> to tensor<1x2x512x64xbf16>
    %r = attn.stream query(%q : tensor<1x8x512x64xbf16>)
        source(%k, %n : tensor<1x2x512x64xbf16>, tensor<1x2x512x64xbf16>) ...
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def SelectGPUTilesPass
    : Pass<"attn-select-gpu-tiles", "::mlir::func::FuncOp"> {
  let summary = "choose tile sizes of attn.stream for a GPU";
  let description = [{
    Annotates every `attn.stream` that has no tiles yet with the largest
    `#attn.tiles` whose queries, keys and values fit the shared memory and the
    registers of a block: `lanes` is the 16 queries of a warp, `vectors` the
    number of warps, `key` the rows of one tile in shared memory. A stream that no
    tile supports is an error, as are tiles written by hand, which are kept, that no
    kernel supports. For `warpgroups` (`--attn-set-target`), `lanes` is the 64 queries of a
    warpgroup and `vectors` the number of them wherever the stream's products are
    narrow and its shapes allow it: see docs/GPU.md. Every decision is a remark of
    category `attn-select-gpu-tiles`.

    With `cluster=2`, blocks of warpgroups for two heads that share keys are a cluster wherever `H / G` is even and
    a stream has no more than keys and values, in ranges of rows: each copies half of every tile to both. Other
    streams keep single blocks. For 8 heads on 2, `#attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2,
    keys = 8, columns = 8>` gets `cluster = 2`.
  }];
  let options = [Option<"cluster", "cluster", "int64_t", /*default=*/"1",
                        "most blocks that share tiles of keys, 1 or 2">];
  let dependentDialects = ["::fovea::attn::AttnDialect"];
}

def ConvertAttnToGPUPass : Pass<"convert-attn-to-gpu", "::mlir::ModuleOp"> {
  let summary = "lower attention on memrefs to GPU kernels and loops";
  let description = [{
    Replaces every operation that implements `LowerToGPUOpInterface` by a `gpu.launch`
    or parallel loops, which `--attn-loops-to-gpu` makes kernels of. No two threads
    add to the same number: results do not depend on their order. See docs/GPU.md for
    the structure of the code.

    | operation | code |
    |---|---|
    | `attn.stream` | one block of threads for each tile, the last ones first; tiles of warpgroups become kernels for `sm_90a` |
    | `attn.stream_backward` | a kernel for the gradient of queries, one for keys and values of each source, and one for each gradient of a bias, or of a log weight unless warpgroups have the rows, in tiles of 64 by 64 |
    | `attn.summarize` | one block for each batch entry, head, interval and 32 columns, whose warps share the rows |
    | `attn.summarize_backward` | a thread for each number of a gradient |
    | `attn.quantize` | half the squared norms of codewords, then one block for each 64 keys or fewer; scores are never stored |
    | `attn.codebook_*`, `attn.log_count` | a warp for each code, which finds its tokens by a vote on 32 codes at a time |
    | `attn.vq_backward` | summaries of older tokens, then kernels of tiles of 64 queries by 64 tokens or codewords |
    | `attn.conv_*` | loops over lags and rows, products of tiles whose elements are looked up, or transforms by the runtime |
    | `attn.low_rank*` | products of tiles, of chunks of keys or the keys of a group; scans of the sums of chunks |
    | maps of rows, such as `attn.rope`, and gradients | a warp for each row |
    | `attn.tree_*` | a warp for each run of nodes in the order of the sequence, or for each list of a batch entry |

    `f32` says how f32 data is multiplied: `tf32x3` cuts every number in two and
    is nearly as accurate as f32; `tf32` is three times as fast and accurate to 11
    bits; `exact` adds products of f32 one after the other, without tensor cores.
    Narrow data takes one product of tf32 in gradients and convolutions.
  }];
  let options = [
    ListOption<"ops", "ops", "std::string",
               "operations to lower, such as attn.rope; by default all">,
    Option<"f32", "f32", "::fovea::attn::F32Math",
           /*default=*/"::fovea::attn::F32Math::TF32x3",
           "products of f32 data: tf32x3, tf32 or exact",
           "::fovea::attn::getF32MathValues()">
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::nvgpu::NVGPUDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def AssertionsToChecksPass
    : Pass<"attn-assertions-to-checks", "::mlir::ModuleOp"> {
  let summary = "let the runtime tell assertions that fail in kernels";
  let description = [{
    The assertions of frontends, such as that an index is one of a table, become
    stores of the number of a rule, which the runtime tells as the failure of the
    call, with the text of the assertion: in linalg operations on memrefs, in
    parallel loops, and in loops that `--attn-loops-to-gpu` makes kernels of. What
    a block accesses behind an assertion, it accesses if it holds.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"
  ];
}

def LoopsToGPUPass : Pass<"attn-loops-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower parallel loops to GPU kernels";
  let description = [{
    Replaces linalg operations on memrefs, copies of strided buffers and every
    outermost `scf.parallel` by a `gpu.launch` of one thread for each iteration.

    Of a linalg operation without reductions, loops that all operands go through in
    the same order become one, and a thread has as many neighbours as 16 bytes of
    the widest operand have, if addresses are known to allow it. Where the innermost
    loop reduces, up to 32 lanes of a warp share a row, and exchange their sums:

    ```mlir
    linalg.reduce { arith.addf } ins(%x : memref<48x512xf32>) outs(%sums : memref<48xf32>) dimensions = [1]
    ```
    becomes a launch of 6 blocks of 256 threads, in which a lane loads 4 numbers at once.

    A linalg operation that reduces everything to one number takes three: of
    16384 parts of the elements, of 128 parts of these sums, and of one thread.
    An `scf.for` that loads or stores single elements, such as one over a list of
    rows, becomes a launch of one block. Its threads go through the loop together,
    share the iterations of parallel loops inside, and wait for each other after
    each.

    Of a nest of such loops, those whose iterations touch elements of their own of
    all that is written are brought around the others, and have a thread for each:
    sums of what came before have one for each line.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::memref::MemRefDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def MergeGPUModulesPass : Pass<"attn-merge-gpu-modules", "::mlir::ModuleOp"> {
  let summary = "move all kernels to one GPU module";
  let description = [{
    Outlining makes a `gpu.module` for every kernel. One for all is one text of PTX
    and is loaded once. Kernels that are launched in clusters demand them:
    `known_cluster_size`.
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
    Replaces operations of the math dialect on f32 and f64 numbers in GPU modules
    by the instructions that compute them, so that kernels call no functions of a
    device library. Those of 16 bits are those of f32, rounded. Others of the
    dialect are an error, and so is `remf` of f64. Divisions that round up or down
    become divisions of NVIDIA GPUs, too.

    | operation | becomes |
    |---|---|
    | `exp2`, `log2`, `rsqrt` of f32 | `ex2.approx`, `lg2.approx`, `rsqrt.approx` |
    | `sqrt`, `fma`, `absf`, `absi`, `copysign` | `sqrt.rn`, `fma.rn`, `abs`, `copysign` |
    | `floor`, `ceil`, `trunc`, `round`, `roundeven` | `cvt` |
    | `isnan`, `isinf`, `isfinite` | comparisons, of any type |
    | `exp`, `expm1`, `log`, `log10`, `tanh`, `erf`, `erfc`, `atan` | polynomials and their quotients |
    | `sin`, `cos`, `tan` | polynomials, after the quadrant is found in f64; of f64 NaN beyond 2^50 |
    | `powf` of f32 | a power of f64 |
    | `log1p`, `cbrt`, `atan2`, `asin`, `acos`, `sinh`, `cosh`, `asinh`, `acosh`, `atanh` | others of these |
    | `fpowi` by a constant | products |
    | `remf` | exact, by f64; NaN where the quotient exceeds 2^52 |

    Zeros, infinities and NaN have the results that IEEE says. Errors are relative ones, of 1e-6 in `sinh`, `cosh` and of 6e-7 elsewhere;
    those of f64 are 4e-15, but 4e-13 in `powf` near the ends of its range. `sin` and `cos` have absolute errors of 1.8e-7 and 4e-16.
    Results below the least normal number may be zero.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::scf::SCFDialect"
  ];
}

#endif // FOVEA_CONVERSION_GPUPASSES_TD
