//===- AttnVQOps.cpp - Attention over quantized keys ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::shaped;

//===----------------------------------------------------------------------===//
// What both operations share
//===----------------------------------------------------------------------===//

/// Checks the length of a block, and how many are read token by token.
template <typename OpTy> static LogicalResult verifyBlocks(OpTy op) {
  constexpr int64_t maxTokens = 1 << 30;
  auto block = static_cast<int64_t>(op.getBlock());
  auto memory = static_cast<int64_t>(op.getMemory());
  if (block < 1)
    return op.emitOpError()
           << "expects a block of at least 1 token, but got " << block;
  if (block > maxTokens)
    return op.emitOpError() << "expects a block of at most " << maxTokens
                            << " tokens, but got " << block;
  if (memory < 0)
    return op.emitOpError()
           << "expects a memory of at least 0 blocks, but got " << memory;
  if (memory > maxTokens / block)
    return op.emitOpError()
           << "expects a memory of at most " << maxTokens / block
           << " blocks of " << block << " tokens, but got " << memory;
  return success();
}

static LogicalResult emitBiasError(Operation *op, StringRef name = "bias") {
  return op->emitOpError() << "expects no " << name
                           << " without causal: no query has a present block "
                              "then";
}

/// Checks the terms by distance, which tokens read one by one have.
template <typename OpTy> static LogicalResult verifyDistanceTerms(OpTy op) {
  Value keys = op.getRelativeKeys(), bias = op.getDistanceBias();
  if (!keys != !op.getRelativeBias())
    return op.emitOpError("expects relative_keys and relative_bias together");
  for (auto [name, terms] :
       {std::pair(StringRef("relative"), keys), {"distance_bias", bias}}) {
    if (!terms)
      continue;
    if constexpr (!std::is_same_v<OpTy, VQDecodeOp>)
      if (!op.getCausal())
        return emitBiasError(op, name);
    int64_t needed = (op.getMemory() + 1) * op.getBlock(),
            found = shaped(terms).getDimSize(1);
    if (found < needed)
      return op.emitOpError()
             << "expects " << name << " to have a row for each of the "
             << needed << " distances of tokens read one by one, but got "
             << found;
  }
  return success();
}

static LogicalResult emitStateError(Operation *op) {
  return op->emitOpError("expects no state without causal: every query reads "
                         "the whole sequence then");
}

//===----------------------------------------------------------------------===//
// VQOp
//===----------------------------------------------------------------------===//

MutableOperandRange VQOp::getDpsInitsMutable() {
  unsigned numInits = 1 + (getLse() ? 1 : 0) + getNextState().size();
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

LogicalResult VQOp::verify() {
  if (failed(verifyBlocks(*this)))
    return failure();
  if (!getCausal()) {
    if (getBias())
      return emitBiasError(*this);
    if (!getState().empty() || !getNextState().empty())
      return emitStateError(*this);
  }
  if (failed(verifyDistanceTerms(*this)))
    return failure();
  if (getLse() && getWeighting() != Weighting::Softmax)
    return emitOpError() << "expects no lse with weighting "
                         << stringifyWeighting(getWeighting())
                         << ", which has no normaliser";
  return success();
}

namespace {
/// Adding zero to every score changes nothing.
struct DropZeroTerms : OpRewritePattern<VQOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(VQOp op,
                                PatternRewriter &rewriter) const override {
    auto isZero = [](Value term) {
      return term && matchPattern(term, m_AnyZeroFloat());
    };
    bool dropsBias = isZero(op.getBias()),
         dropsDistanceBias = isZero(op.getDistanceBias());
    if (!dropsBias && !dropsDistanceBias)
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      if (dropsBias)
        op.getBiasMutable().clear();
      if (dropsDistanceBias)
        op.getDistanceBiasMutable().clear();
    });
    return success();
  }
};

/// Where nothing depends on where blocks begin, no block is longer than the
/// sequence.
struct ShrinkBlock : OpRewritePattern<VQOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(VQOp op,
                                PatternRewriter &rewriter) const override {
    int64_t rows = shaped(op.getQuery()).getDimSize(2);
    if (ShapedType::isDynamic(rows) || op.hasLocalTerms() ||
        !op.getState().empty() || !op.getNextState().empty())
      return failure();
    int64_t block = std::max<int64_t>(rows, 1);
    if (static_cast<int64_t>(op.getBlock()) <= block)
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op.setBlock(block); });
    return success();
  }
};
} // namespace

void VQOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                       MLIRContext *context) {
  patterns.add<DropZeroTerms, ShrinkBlock>(context);
}

//===----------------------------------------------------------------------===//
// VQDecodeOp
//===----------------------------------------------------------------------===//

MutableOperandRange VQDecodeOp::getDpsInitsMutable() {
  unsigned numInits = 1 + getState().size();
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

LogicalResult VQDecodeOp::verify() {
  if (getState().empty())
    return emitOpError("expects 5 operands of state (mean, count, kept codes, "
                       "kept values, position), but got 0");
  if (failed(verifyBlocks(*this)))
    return failure();
  return verifyDistanceTerms(*this);
}

//===----------------------------------------------------------------------===//
// VQBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange VQBackwardOp::getDpsInitsMutable() {
  unsigned numInits = 3 + getDState().size();
  for (Value gradient : {Value(getDBias()), Value(getDRelativeKeys()),
                         Value(getDRelativeBias()), Value(getDDistanceBias())})
    numInits += gradient ? 1 : 0;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

LogicalResult VQBackwardOp::verify() {
  if (failed(verifyBlocks(*this)))
    return failure();
  bool hasState = !getState().empty();
  if (!getCausal() && getBias())
    return emitBiasError(*this);
  if (!getCausal() && (hasState || !getDNextState().empty()))
    return emitStateError(*this);
  if (failed(verifyDistanceTerms(*this)))
    return failure();
  if (!getDRelativeKeys() != !getDRelativeBias())
    return emitOpError("expects d_relative_keys and d_relative_bias together");
  if (!hasState && !getDState().empty())
    return emitOpError("expects no d_state without a state");
  bool isSoftmax = getWeighting() == Weighting::Softmax;
  if (!getOutput() != !getLse() || isSoftmax != bool(getLse()))
    return emitOpError() << "expects " << (isSoftmax ? "" : "no ")
                         << "output and lse with weighting "
                         << stringifyWeighting(getWeighting());
  if (!isSoftmax && getDLse())
    return emitOpError("expects no d_lse without lse");
  return success();
}
