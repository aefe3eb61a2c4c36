//===- GPUPasses.td - Passes of the GPU pipeline -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_GPUPASSES_TD
#define FOVEA_CONVERSION_GPUPASSES_TD

include "fovea/Conversion/PassOptions.td"

def NarrowSourcesPass : Pass<"attn-narrow-sources", "::mlir::func::FuncOp"> {
  let summary = "round sources of attn.stream to the type of its products";
  let description = [{
    Kernels multiply data of one type, and round keys and values that are kept in
    f32 beside narrow queries whenever they read them. Where many queries read the
    same rows, they are rounded once, ahead of the kernel, which then copies half
    as much, and by boxes. Results do not change.

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
  let dependentDialects = ["::mlir::arith::ArithDialect"];
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
    kernel supports. With `warpgroups`, `lanes` is the 64 queries of a
    warpgroup and `vectors` the number of them wherever the stream's products are
    narrow and its shapes allow it: see docs/GPU.md. Every decision is a remark of
    category `attn-select-gpu-tiles`.
  }];
  let options = [
    SharedBytesOption,
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
  let options = [F32MathOption];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::nvgpu::NVGPUDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def StreamBackwardToGPUPass
    : Pass<"attn-stream-backward-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower attn.stream_backward on memrefs to GPU kernels";
  let description = [{
    Replaces every `attn.stream_backward` on memrefs by a kernel for the gradient of the
    queries and one for those of keys and values, for each source, and one for each
    gradient of a log weight or bias. All compute tiles of 64 queries by 64 rows
    of weights and of gradients of scores again, on tensor cores; no two blocks of
    threads add to the same number. `f32` is that of `--attn-stream-to-gpu`; narrow
    data takes one product of tf32.
  }];
  let options = [F32MathOption];
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

def SummarizeBackwardToGPUPass
    : Pass<"attn-summarize-backward-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower attn.summarize_backward on memrefs to GPU loops";
  let description = [{
    Replaces every `attn.summarize_backward` on memrefs by parallel loops with a thread
    for each number of a gradient, which adds up its parts in order.
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
  let options = [F32MathOption, SharedBytesOption];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::nvgpu::NVGPUDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def VQBackwardToGPUPass : Pass<"attn-vq-backward-to-gpu", "::mlir::func::FuncOp"> {
  let summary = "lower attn.vq_backward on memrefs to GPU kernels";
  let description = [{
    Replaces every `attn.vq_backward` on memrefs by summaries of older tokens, as
    `attn.codebook_scan` or `attn.codebook_accumulate`, and kernels whose blocks of
    threads compute tiles of 64 queries by 64 tokens or codewords again: for each 64
    queries of a block, for each 64 tokens, for each 64 codewords and block of
    queries, and for each tile of a bias. Gradients of the values of older tokens are
    sums by code, which every token takes from all blocks that are after it; heads
    that share them are added up in order. The tokens that a state keeps come before
    those of the window, and its means are what the summaries begin with. `f32` is
    that of `--attn-stream-to-gpu`.
  }];
  let options = [F32MathOption];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::nvgpu::NVGPUDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
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

def LowRankToGPUPass : Pass<"attn-low-rank-to-gpu", "::mlir::ModuleOp"> {
  let summary = "lower low-rank attention on memrefs to GPU loops and kernels";
  let description = [{
    Replaces `attn.rope`, `attn.polynomial_features` and `attn.low_rank` on memrefs,
    and their gradients.
    Rope is a parallel loop with a thread for each pair of columns, which counts
    angles in units of 2^-64 turns: products of integers drop whole turns exactly.
    Features are one with a warp for each row, whose lanes share the innermost loop
    over columns.

    The sums of outer products that the masks of `attn.low_rank` need are products of
    matrices on tensor cores, of chunks of keys or of the keys of a group; `f32` is that
    of `--attn-stream-to-gpu`. Under a causal mask, sums of chunks are scanned, and
    rows are a product with what came before and with their own chunk at once. Under
    `row_change` a thread for each column goes through the rows. Gradients are such
    sums, some of them under the transposed mask, and one of them for each query head;
    heads that share a key head are added up. Results do not depend on the order of
    threads.
  }];
  let options = [F32MathOption];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::nvgpu::NVGPUDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def ConvToGPUPass : Pass<"attn-conv-to-gpu", "::mlir::ModuleOp"> {
  let summary = "lower sums of convolutions on memrefs to GPU loops and kernels";
  let description = [{
    Replaces `attn.conv_apply` and `attn.conv_recover` on memrefs, and their
    gradients, which are products whatever the algorithm. Sums of weights
    and profiles are parallel loops over the lags and rows of all heads. The
    product with the values is one of matrices on tensor cores, the elements of
    one of which are looked up in the profiles; rows whose weights are all but
    zero next to the greatest of their head are listed and computed again in the
    same way. By algorithms `partitioned` and `single`, blocks of values and windows of
    weights are transformed by a call of the runtime, which has cuFFT, and multiplied
    by a parallel loop; `auto` takes the product up to 4096 tokens and where the runtime
    has no transforms. A search for bases is one warp for each head. `f32` is that of
    `--attn-stream-to-gpu`; narrow values take one product of tf32.
  }];
  let options = [F32MathOption];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::nvgpu::NVGPUDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
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

    A linalg operation that reduces everything to one number takes three: of
    16384 parts of the elements, of 128 parts of these sums, and of one thread.
    An `scf.for` that loads or stores single elements, such as one over a list of
    rows, becomes a launch of one block. Its threads go through the loop together,
    share the iterations of parallel loops inside, and wait for each other after
    each.
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

#endif // FOVEA_CONVERSION_GPUPASSES_TD
