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
using attn::detail::verifyExtent;

//===----------------------------------------------------------------------===//
// What both operations share
//===----------------------------------------------------------------------===//

/// Checks the parts of a state against values `[B, G, N, E]` and `S` codewords.
static LogicalResult verifyState(Operation *op, StringRef name,
                                 OperandRange state, Value value,
                                 int64_t numCodes, int64_t block) {
  if (state.size() != 5)
    return op->emitOpError()
           << "expects 5 operands of " << name
           << " (mean, count, kept codes, kept values, position), but got "
           << state.size();
  ShapedType v = shaped(value);
  int64_t batch = v.getDimSize(0), heads = v.getDimSize(1);
  struct Part {
    StringRef name;
    Type elementType;
    SmallVector<int64_t> shape;
  };
  MLIRContext *context = op->getContext();
  auto i32 = IntegerType::get(context, 32);
  Part parts[] = {{"mean",
                   getStateType(v.getElementType()),
                   {batch, heads, numCodes, v.getDimSize(3)}},
                  {"count", i32, {batch, heads, numCodes}},
                  {"kept codes", i32, {batch, heads, 2 * block}},
                  {"kept values",
                   v.getElementType(),
                   {batch, heads, 2 * block, v.getDimSize(3)}},
                  {"position", IntegerType::get(context, 64), {}}};
  for (auto [part, operand] : llvm::zip_equal(parts, state)) {
    ShapedType found = shaped(operand);
    std::string full = (part.name + " of " + name).str();
    if (found.getElementType() != part.elementType ||
        found.getRank() != static_cast<int64_t>(part.shape.size()))
      return op->emitOpError()
             << "expects " << full << " to have rank " << part.shape.size()
             << " and hold " << part.elementType << ", but got " << found;
    for (auto [dim, extent] : llvm::enumerate(part.shape))
      if (failed(verifyExtent(op, full, operand, dim, extent,
                              "from value, codebook and block")))
        return failure();
  }
  if (shaped(state[2]).isDynamicDim(2) || shaped(state[3]).isDynamicDim(2))
    return op->emitOpError()
           << "expects kept codes and kept values of " << name << " to have "
           << 2 * block << " rows, but got a dynamic extent";
  return success();
}

/// Checks query, codes, value, codebook and bias.
template <typename OpTy> static LogicalResult verifyInputs(OpTy op) {
  ShapedType q = shaped(op.getQuery()), v = shaped(op.getValue()),
             c = shaped(op.getCodebook());
  Type elementType = q.getElementType();
  for (auto [name, operand] : {std::pair{StringRef("value"), op.getValue()},
                               {"codebook", op.getCodebook()},
                               {"output", op.getOutput()}})
    if (operand && shaped(operand).getElementType() != elementType)
      return op.emitOpError()
             << "expects " << name << " to have the element type of query, "
             << elementType << ", but got " << shaped(operand).getElementType();
  if (q.isDynamicDim(3) || v.isDynamicDim(3) || c.isDynamicDim(2))
    return op.emitOpError("expects static head and value widths");
  if (q.getDimSize(3) == 0 || v.getDimSize(3) == 0)
    return op.emitOpError("expects head and value widths of at least 1");
  if (c.isDynamicDim(1) || c.getDimSize(1) == 0)
    return op.emitOpError("expects a static number of codewords of at least 1");
  int64_t block = op.getBlock();
  if (block < 1)
    return op.emitOpError()
           << "expects a block of at least 1 token, but got " << block;
  if (block > (1 << 30))
    return op.emitOpError()
           << "expects a block of at most 1073741824 tokens, but got " << block;
  Operation *operation = op.getOperation();
  if (failed(verifyExtent(operation, "value", op.getValue(), 0, q.getDimSize(0),
                          "batch")) ||
      failed(verifyExtent(operation, "value", op.getValue(), 2, q.getDimSize(2),
                          "rows of query")))
    return failure();
  for (int64_t dim : {0, 1, 2})
    if (failed(verifyExtent(operation, "codes", op.getCodes(), dim,
                            v.getDimSize(dim), "from value")))
      return failure();
  if (failed(verifyExtent(operation, "codebook", op.getCodebook(), 0,
                          v.getDimSize(1), "heads of value",
                          /*mayBroadcast=*/true)) ||
      failed(verifyExtent(operation, "codebook", op.getCodebook(), 2,
                          q.getDimSize(3), "head width of query")))
    return failure();
  int64_t heads = q.getDimSize(1);
  if (failed(attn::detail::verifyHeads(operation, heads, v.getDimSize(1))))
    return failure();
  if (op.getBias()) {
    ShapedType bias = shaped(op.getBias());
    if (bias.getDimSize(3) != 2 * block)
      return op.emitOpError()
             << "expects extent 3 of bias to be " << 2 * block
             << " (two blocks), but got "
             << (bias.isDynamicDim(3) ? std::string("a dynamic extent")
                                      : std::to_string(bias.getDimSize(3)));
    if (failed(attn::detail::verifyScoreTerm(
            operation, "bias", op.getBias(),
            {q.getDimSize(0), heads, q.getDimSize(2), bias.getDimSize(3)},
            elementType)))
      return failure();
  }
  return success();
}

/// Checks these and the destinations.
template <typename OpTy>
static LogicalResult verifyQuantized(OpTy op, Value lse) {
  if (failed(verifyInputs(op)))
    return failure();
  return attn::detail::verifyDestinations(op, op.getQuery(),
                                          shaped(op.getValue()).getDimSize(3),
                                          op.getOutput(), lse, op.getScale());
}

static LogicalResult emitBiasError(Operation *op) {
  return op->emitOpError("expects no bias without causal: no query has a "
                         "present block then");
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
  if (failed(attn::detail::verifySingleOperands(*this, {0, 1, 2, 3, 6})) ||
      failed(verifyQuantized(*this, getLse())))
    return failure();
  if (!getCausal()) {
    if (getBias())
      return emitBiasError(*this);
    if (!getState().empty() || !getNextState().empty())
      return emitStateError(*this);
  }
  if (getLse() && getWeighting() != Weighting::Softmax)
    return emitOpError() << "expects no lse with weighting "
                         << stringifyWeighting(getWeighting())
                         << ", which has no normaliser";
  int64_t numCodes = shaped(getCodebook()).getDimSize(1);
  if (!getState().empty() &&
      failed(verifyState(*this, "state", getState(), getValue(), numCodes,
                         getBlock())))
    return failure();
  if (!getNextState().empty() &&
      failed(verifyState(*this, "next_state", getNextState(), getValue(),
                         numCodes, getBlock())))
    return failure();
  return success();
}

namespace {
/// Adding zero to every score changes nothing.
struct DropZeroBias : OpRewritePattern<VQOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(VQOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.getBias() || !matchPattern(op.getBias(), m_AnyZeroFloat()))
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op.getBiasMutable().clear(); });
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
    if (ShapedType::isDynamic(rows) || op.getBias() || !op.getState().empty() ||
        !op.getNextState().empty())
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
  patterns.add<DropZeroBias, ShrinkBlock>(context);
}

//===----------------------------------------------------------------------===//
// VQDecodeOp
//===----------------------------------------------------------------------===//

MutableOperandRange VQDecodeOp::getDpsInitsMutable() {
  unsigned numInits = 1 + getState().size();
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

LogicalResult VQDecodeOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this, {0, 1, 2, 3, 5})) ||
      failed(verifyQuantized(*this, /*lse=*/Value())))
    return failure();
  if (shaped(getQuery()).getDimSize(2) != 1 ||
      shaped(getValue()).getDimSize(2) != 1)
    return emitOpError() << "expects one row of query and value, but got "
                         << shaped(getQuery()) << " and " << shaped(getValue());
  return verifyState(*this, "state", getState(), getValue(),
                     shaped(getCodebook()).getDimSize(1), getBlock());
}

//===----------------------------------------------------------------------===//
// VQBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange VQBackwardOp::getDpsInitsMutable() {
  unsigned numInits = 3 + (getDBias() ? 1 : 0) + getDState().size();
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

/// Checks a gradient `[B, G, rows, width]` for what is no operand.
static LogicalResult verifyRowGradient(VQBackwardOp op, StringRef name,
                                       Value gradient, int64_t rows,
                                       int64_t width, StringRef widthOrigin) {
  ShapedType v = shaped(op.getValue());
  if (failed(attn::detail::verifyElementsOrSums(op, name, gradient,
                                                v.getElementType())))
    return failure();
  int64_t shape[] = {v.getDimSize(0), v.getDimSize(1), rows};
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (failed(verifyExtent(op, name, gradient, dim, extent, "from value")))
      return failure();
  return verifyExtent(op, name, gradient, 3, width, widthOrigin);
}

/// Checks gradients of the mean, the kept keys and the kept values of a state.
static LogicalResult verifyStateGradient(VQBackwardOp op, StringRef name,
                                         OperandRange gradients) {
  if (gradients.empty())
    return success();
  if (gradients.size() != 3)
    return op.emitOpError()
           << "expects 3 operands of " << name
           << " (mean, kept keys, kept values), but got " << gradients.size();
  int64_t kept = 2 * op.getBlock();
  int64_t width = shaped(op.getQuery()).getDimSize(3);
  int64_t valueWidth = shaped(op.getValue()).getDimSize(3);
  struct Part {
    StringRef name;
    int64_t rows, width;
  };
  Part parts[] = {{"mean", shaped(op.getCodebook()).getDimSize(1), valueWidth},
                  {"kept keys", kept, width},
                  {"kept values", kept, valueWidth}};
  for (auto [part, gradient] : llvm::zip_equal(parts, gradients)) {
    std::string full = (part.name + " of " + name).str();
    if (shaped(gradient).isDynamicDim(2))
      return op.emitOpError() << "expects " << full << " to have " << part.rows
                              << " rows, but got a dynamic extent";
    if (failed(verifyRowGradient(op, full, gradient, part.rows, part.width,
                                 "from query, value, codebook and block")))
      return failure();
  }
  return success();
}

/// Checks the state and its gradients.
static LogicalResult verifyStateOperands(VQBackwardOp op) {
  bool hasState = !op.getState().empty();
  if (!op.getCausal() && (hasState || !op.getDNextState().empty()))
    return emitStateError(op);
  if (!hasState && !op.getDState().empty())
    return op.emitOpError("expects no d_state without a state");
  if (hasState && failed(verifyState(op, "state", op.getState(), op.getValue(),
                                     shaped(op.getCodebook()).getDimSize(1),
                                     op.getBlock())))
    return failure();
  if (failed(verifyStateGradient(op, "d_next_state", op.getDNextState())))
    return failure();
  return verifyStateGradient(op, "d_state", op.getDState());
}

LogicalResult VQBackwardOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this,
                                                {0, 1, 2, 3, 8, 11, 12, 13})) ||
      failed(verifyInputs(*this)))
    return failure();
  if (!getCausal() && getBias())
    return emitBiasError(*this);
  bool isSoftmax = getWeighting() == Weighting::Softmax;
  if (!getOutput() != !getLse() || isSoftmax != bool(getLse()))
    return emitOpError() << "expects " << (isSoftmax ? "" : "no ")
                         << "output and lse with weighting "
                         << stringifyWeighting(getWeighting());
  if (!isSoftmax && getDLse())
    return emitOpError("expects no d_lse without lse");
  if (!getScale().isFinite())
    return emitOpError("expects a finite scale");
  ShapedType q = shaped(getQuery());
  ShapedType d = shaped(getDOutput());
  int64_t shape[] = {q.getDimSize(0), q.getDimSize(1), q.getDimSize(2),
                     shaped(getValue()).getDimSize(3)};
  for (auto [name, operand] : {std::pair{StringRef("d_output"), getDOutput()},
                               {"output", getOutput()}})
    for (int64_t dim = 0; operand && dim < 4; ++dim)
      if (failed(verifyExtent(*this, name, operand, dim, shape[dim],
                              "from query and value")))
        return failure();
  if (d.getElementType() != q.getElementType())
    return emitOpError() << "expects d_output to have the element type of "
                            "query, "
                         << q.getElementType() << ", but got "
                         << d.getElementType();
  if (getLse()) {
    Type state = getStateType(q.getElementType());
    if (shaped(getLse()).getElementType() != state)
      return emitOpError() << "expects lse to hold " << state << ", but got "
                           << shaped(getLse()).getElementType();
    for (int64_t dim : {0, 1, 2})
      if (failed(verifyExtent(*this, "lse", getLse(), dim, shape[dim],
                              "from query")))
        return failure();
    if (failed(attn::detail::verifyResultGradients(*this, getOutput(), getLse(),
                                                   getDOutput(), getDLse())))
      return failure();
  }
  if (getDBias() && !getBias())
    return emitOpError("expects no d_bias without a bias");
  using attn::detail::verifyGradient;
  if (failed(verifyGradient(*this, "query", getDQuery(), getQuery())) ||
      failed(verifyGradient(*this, "value", getDValue(), getValue())) ||
      failed(verifyRowGradient(*this, "d_key", getDKey(),
                               shaped(getValue()).getDimSize(2),
                               q.getDimSize(3), "head width of query")) ||
      (getDBias() &&
       failed(verifyGradient(*this, "bias", getDBias(), getBias()))) ||
      failed(verifyStateOperands(*this)))
    return failure();
  return attn::detail::verifyDestinationStyle(*this);
}
