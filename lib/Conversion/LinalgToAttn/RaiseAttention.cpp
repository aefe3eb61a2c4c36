//===- RaiseAttention.cpp - Soft-max attention in linalg to attn.dense ------
//===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attention.h"
#include "AttentionOfOthers.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/FormatVariadic.h"

namespace fovea::attn {
#define GEN_PASS_DEF_RAISEATTENTIONPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;

static void remarkMissed(Operation *op, StringRef reason) {
  remark::missed(
      op->getLoc(),
      remark::RemarkOpts::name("SoftmaxNotRaised").category("attn-raise"))
      << llvm::formatv("{0}, at '{1}'", reason, op->getName().getStringRef())
             .str();
}

static void remarkRaised(const Attention &attention, Operation *op) {
  remark::passed(
      op->getLoc(),
      remark::RemarkOpts::name("AttentionRaised").category("attn-raise"))
      << remark::metric("Scale", attention.scale)
      << remark::metric("Terms", attention.terms.size());
}

namespace {
struct RaiseAttentionPass
    : fovea::attn::impl::RaiseAttentionPassBase<RaiseAttentionPass> {
  using RaiseAttentionPassBase::RaiseAttentionPassBase;

  void runOnOperation() override {
    readOthers();
    SmallVector<linalg::LinalgOp> products;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isProduct(op))
        products.push_back(op);
    });
    // Nothing is erased before the end: what is known of values lasts.
    ConstantCones cones(maxMaskElements);
    SymbolicExtents extents(getOperation());
    SmallVector<linalg::LinalgOp> raised;
    for (linalg::LinalgOp op : products)
      if (raise(op, cones, extents))
        raised.push_back(op);
    remarkOthers(cones, extents);
    for (linalg::LinalgOp op : raised)
      op.erase();
  }

private:
  /// Operations that are an attention of other projects become what is found.
  void readOthers() {
    SmallVector<Operation *> others;
    getOperation().walk([&](Operation *op) {
      if (isAttentionOfOthers(op))
        others.push_back(op);
    });
    for (Operation *op : others)
      if (std::optional<std::string> reason = writeAsLinalg(op, getOperation()))
        remarkMissed(op, *reason);
  }

  bool raise(linalg::LinalgOp op, ConstantCones &cones,
             SymbolicExtents &extents) {
    AccessTrace trace(&extents);
    Progress progress;
    std::optional<Attention> attention =
        matchAttention({trace, cones, progress, isForGPU(op)}, op, fullyMasked);
    if (progress.softmax)
      softmaxes.insert(progress.softmax);
    if (!attention) {
      if (progress.op)
        remarkMissed(progress.op, progress.reason);
      return false;
    }
    OpBuilder builder(op);
    op->getResult(0).replaceAllUsesWith(
        writeAttention(builder, trace, *attention));
    remarkRaised(*attention, op);
    return true;
  }

  /// Every soft-max that is in no product.
  void remarkOthers(ConstantCones &cones, SymbolicExtents &extents) {
    getOperation().walk([&](Operation *op) {
      for (Value result : op->getResults()) {
        auto type = dyn_cast<RankedTensorType>(result.getType());
        if (!type || !isa<FloatType>(type.getElementType()))
          continue;
        AccessTrace trace(&extents);
        Progress progress;
        std::optional<Softmax> softmax =
            matchSoftmax({trace, cones, progress, /*isForGPU=*/false},
                         trace.addAccess(result));
        if (softmax && softmaxes.insert(softmax->quotient).second)
          remarkMissed(softmax->quotient, "no product reads the weights as "
                                          "they are");
      }
    });
  }

  /// Those that a product has, raised or not.
  DenseSet<Operation *> softmaxes;
};
} // namespace
