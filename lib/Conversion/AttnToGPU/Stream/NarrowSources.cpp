//===- NarrowSources.cpp - Round sources of attn.stream once --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace fovea::attn {
#define GEN_PASS_DEF_NARROWSOURCESPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Rows of queries beyond which one more pass over a source is worth it.
static constexpr int64_t kManyQueries = 128;

/// Whether many queries read each row of sources with `numHeads` heads.
static bool hasManyQueries(StreamOp op, int64_t numHeads) {
  auto query = cast<ShapedType>(op.getQuery().getType());
  if (query.isDynamicDim(1) || query.isDynamicDim(2) ||
      ShapedType::isDynamic(numHeads))
    return true;
  int64_t rows = query.getDimSize(2);
  if (int64_t block = op.getBlock())
    rows = std::min(rows, block);
  return rows * (query.getDimSize(1) / numHeads) > kManyQueries;
}

/// Rounds gradients in the operation, not behind it: kernels of GPUs have their
/// sums in registers.
static void roundGradients(StreamBackwardOp op) {
  // Of the first results, which take no other types than sums have.
  SmallVector<Value> operands = {op.getQuery()};
  llvm::append_range(operands, op.getKeys());
  llvm::append_range(operands, op.getValues());
  for (auto [operand, init, result] :
       llvm::zip(operands, op.getDpsInitsMutable(), op->getResults())) {
    if (!result.hasOneUse())
      continue;
    auto rounded = dyn_cast<arith::TruncFOp>(*result.getUsers().begin());
    auto empty = init.get().getDefiningOp<tensor::EmptyOp>();
    if (!rounded || !empty)
      continue;
    auto type = cast<RankedTensorType>(rounded.getType());
    if (type.getElementType() != getElementTypeOrSelf(operand))
      continue;
    OpBuilder builder(op);
    init.set(tensor::EmptyOp::create(
        builder, op.getLoc(), empty.getMixedSizes(), type.getElementType()));
    result.setType(init.get().getType());
    rounded.replaceAllUsesWith(result);
    rounded.erase();
  }
}

/// The same of weights of summaries, whose gradients are added to zeros.
static void roundGradients(SummarizeBackwardOp op) {
  OpOperand &init = op.getDWeightsMutable();
  OpResult result = op.getTiedOpResult(&init);
  auto fill = init.get().getDefiningOp<linalg::FillOp>();
  if (!result.hasOneUse() || !fill ||
      !matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
    return;
  auto rounded = dyn_cast<arith::TruncFOp>(*result.getUsers().begin());
  auto empty = fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>();
  if (!rounded || !empty ||
      getElementTypeOrSelf(rounded) != getElementTypeOrSelf(op.getWeights()))
    return;
  Type type = getElementTypeOrSelf(rounded);
  ImplicitLocOpBuilder b(op.getLoc(), op);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  Value zeros = tensor::EmptyOp::create(b, empty.getMixedSizes(), type);
  init.set(linalg::FillOp::create(b, zero, zeros).getResult(0));
  result.setType(init.get().getType());
  rounded.replaceAllUsesWith(result);
  rounded.erase();
}

namespace {
struct NarrowSourcesPass
    : fovea::attn::impl::NarrowSourcesPassBase<NarrowSourcesPass> {
  void runOnOperation() override {
    // Erases operations behind them.
    SmallVector<StreamBackwardOp> streams;
    SmallVector<SummarizeBackwardOp> summaries;
    getOperation().walk([&](Operation *op) {
      if (auto stream = dyn_cast<StreamBackwardOp>(op))
        streams.push_back(stream);
      if (auto summary = dyn_cast<SummarizeBackwardOp>(op))
        summaries.push_back(summary);
    });
    for (StreamBackwardOp op : streams)
      if (op.hasPureTensorSemantics())
        roundGradients(op);
    for (SummarizeBackwardOp op : summaries)
      if (op.hasPureTensorSemantics())
        roundGradients(op);
    getOperation().walk([](StreamOp op) {
      FloatType type = getProductType(op);
      if (type.isF32() || !isa<RankedTensorType>(op.getQuery().getType()))
        return;
      OpBuilder builder(op);
      for (MutableOperandRange range :
           {op.getKeysMutable(), op.getValuesMutable()})
        for (OpOperand &operand : range) {
          auto shaped = cast<RankedTensorType>(operand.get().getType());
          if (shaped.getElementType() == type ||
              !hasManyQueries(op, shaped.getDimSize(1)))
            continue;
          operand.set(arith::TruncFOp::create(
              builder, op.getLoc(), shaped.clone(type), operand.get()));
        }
    });
  }
};
} // namespace
