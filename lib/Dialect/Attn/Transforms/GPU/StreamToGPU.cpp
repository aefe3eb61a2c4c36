//===- StreamToGPU.cpp - GPU kernels of attn.stream
//------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULaunch.h"
#include "GPUStreamKernel.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {
#define GEN_PASS_DEF_STREAMTOGPUPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// The launch that has `op` in its body, made from the loop around it, and `op`
/// itself, which is a copy. An operation without a loop is one block.
static StreamOp launchAround(StreamOp op) {
  int64_t numThreads = GPUStreamKernel::getNumThreads(op);
  int64_t sharedBytes = GPUStreamLayout(op).bytes;
  gpu::LaunchOp launch;
  if (auto forall = op->getParentOfType<scf::ForallOp>()) {
    launch = launchForall(forall, numThreads, sharedBytes);
  } else {
    OpBuilder builder(op);
    Value one = arith::ConstantIndexOp::create(builder, op.getLoc(), 1);
    launch = createLaunch(builder, op.getLoc(), one, numThreads, sharedBytes);
    op->moveBefore(launch.getBody().front().getTerminator());
    return op;
  }
  StreamOp inside;
  launch.walk([&](StreamOp op) { inside = op; });
  return inside;
}

namespace {
struct StreamToGPUPass
    : fovea::attn::impl::StreamToGPUPassBase<StreamToGPUPass> {
  using StreamToGPUPassBase::StreamToGPUPassBase;

  void runOnOperation() override {
    std::optional<F32Math> math = parseF32Math(f32);
    if (!math) {
      getOperation().emitError("expects f32 to be tf32 or tf32x3, but got '")
          << f32 << "'";
      return signalPassFailure();
    }
    SmallVector<StreamOp> ops;
    getOperation().walk([&](StreamOp op) {
      if (isa<MemRefType>(op.getQuery().getType()))
        ops.push_back(op);
    });
    for (StreamOp op : ops) {
      if (failed(verifyGPUStream(op)))
        return signalPassFailure();
      if (!op.getTiles() || op.getTiles()->getLanes() != kWarpRows) {
        op.emitError("has no tiles for a GPU; run --attn-select-gpu-tiles "
                     "first");
        return signalPassFailure();
      }
      StreamOp inside = launchAround(op);
      OpBuilder builder(inside);
      GPUStreamKernel(inside, builder, *math).emit();
      inside.erase();
    }
  }
};
} // namespace
