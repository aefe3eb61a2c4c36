//===- LowerCopies.cpp - Copies of strided buffers to loops ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Copies.h"
#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERCOPIESPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

namespace {
struct LowerCopiesPass
    : fovea::attn::impl::LowerCopiesPassBase<LowerCopiesPass> {
  using LowerCopiesPassBase::LowerCopiesPassBase;

  void runOnOperation() override {
    auto walk = getOperation().walk([](memref::CopyOp copy) {
      Value source = copy.getSource(), target = copy.getTarget();
      if (!isa<MemRefType>(source.getType()) ||
          !isa<MemRefType>(target.getType()) || fovea::attn::isWholeCopy(copy))
        return WalkResult::advance();
      IRRewriter rewriter(copy);
      linalg::GenericOp generic =
          linalg::makeMemRefCopyOp(rewriter, copy.getLoc(), source, target);
      if (failed(linalg::linalgOpToLoops(rewriter, generic)))
        return WalkResult::interrupt();
      rewriter.eraseOp(generic);
      rewriter.eraseOp(copy);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
