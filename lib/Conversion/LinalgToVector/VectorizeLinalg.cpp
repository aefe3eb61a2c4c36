//===- VectorizeLinalg.cpp - Vector code of linalg ops --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "LinalgLoops.h"
#include "fovea/Conversion/Copies.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/ElementaryMath.h"
#include "fovea/Kernels/TargetFacts.h"
#include "fovea/Kernels/VectorMath.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZELINALGPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Parts of rows with fewer elements are no vectors.
static constexpr int64_t kLeastPart = 4;

/// Whether `copy` is of parts of rows, as concatenations along rows make it.
/// What loops copy is small, and not worth tasks.
static bool copiesPartsOfRows(memref::CopyOp copy) {
  auto isOfRows = [](Type type) {
    auto memref = dyn_cast<MemRefType>(type);
    return memref && memref.getRank() > 0 && memref.isLastDimUnitStride() &&
           (memref.isDynamicDim(memref.getRank() - 1) ||
            memref.getShape().back() >= kLeastPart);
  };
  return isOfRows(copy.getSource().getType()) &&
         isOfRows(copy.getTarget().getType()) && !isWholeCopy(copy) &&
         !copy->getParentOfType<LoopLikeOpInterface>();
}

namespace {
struct VectorizeLinalgPass
    : fovea::attn::impl::VectorizeLinalgPassBase<VectorizeLinalgPass> {
  void runOnOperation() override {
    FailureOr<CPUFacts> cpu = CPUFacts::of(getOperation());
    if (failed(cpu))
      return signalPassFailure();
    expandPowers();
    nameCopiesOfRows();
    // Products first, as they take what they start from with them, and what
    // reads them. What is neither stays for the conversion to plain loops.
    emitAll(emitContractionWithEpilogue, cpu->getRegisters());
    emitAll(emitLinalgContraction, cpu->getRegisters());
    SmallVector<Block *> blocks;
    getOperation().walk([&](Block *block) {
      if (!block->getParentOp()->getParentOfType<scf::ForallOp>() &&
          !isa<scf::ForallOp, linalg::LinalgOp>(block->getParentOp()))
        blocks.push_back(block);
    });
    for (Block *block : blocks)
      emitRowGroups(*block, cpu->getRegisters());
    emitAll(emitLinalgLoops, cpu->getRegisters());

    // Functions of vectors would become calls for one element after the other.
    SmallVector<Operation *> functions;
    getOperation().walk([&](Operation *op) {
      if (isa_and_nonnull<math::MathDialect>(op->getDialect()) &&
          isa<VectorType>(op->getResult(0).getType()))
        functions.push_back(op);
    });
    RewritePatternSet patterns(&getContext());
    populateVectorMathPatterns(patterns);
    (void)applyOpPatternsGreedily(functions, std::move(patterns));
    getOperation().walk([](scf::ForOp loop) {
      if (loop->hasAttr(kInterleaved))
        interleaveVectors(loop);
    });
  }

private:
  void emitAll(bool (*emit)(linalg::LinalgOp, RegisterFile),
               RegisterFile registers) {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    // Only `op` itself, and what precedes it, may be erased.
    for (linalg::LinalgOp op : ops)
      if (emit(op, registers))
        op.erase();
  }

  /// Copies of parts of rows become operations that have vectors, and that may
  /// join what computes other parts. Copies without gaps are calls.
  void nameCopiesOfRows() {
    SmallVector<memref::CopyOp> copies;
    getOperation().walk([&](memref::CopyOp op) { copies.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (memref::CopyOp op : copies) {
      if (!copiesPartsOfRows(op))
        continue;
      rewriter.setInsertionPoint(op);
      linalg::makeMemRefCopyOp(rewriter, op.getLoc(), op.getSource(),
                               op.getTarget());
      rewriter.eraseOp(op);
    }
  }

  /// Powers to constants become products, which there are of vectors.
  void expandPowers() {
    SmallVector<Operation *> powers;
    getOperation().walk([&](math::FPowIOp op) { powers.push_back(op); });
    RewritePatternSet patterns(&getContext());
    populateIntegerPowerPatterns(patterns);
    (void)applyOpPatternsGreedily(powers, std::move(patterns));
  }
};
} // namespace
