//===- ScoreRegion.cpp - Functions of scores ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

ParseResult fovea::attn::parseScoreRegion(
    OpAsmParser &parser,
    SmallVectorImpl<OpAsmParser::UnresolvedOperand> &captures,
    SmallVectorImpl<Type> &types,
    SmallVectorImpl<std::unique_ptr<Region>> &score) {
  if (failed(parser.parseOptionalKeyword("score")))
    return success();
  if (succeeded(parser.parseOptionalLParen()) &&
      (parser.parseOperandList(captures) || parser.parseColonTypeList(types) ||
       parser.parseRParen()))
    return failure();
  return parseScoreBody(parser, score);
}

/// Begins what a user does about a value that a region does not have.
static constexpr StringRef kCaptureRemedy =
    "; capture what is outside: list it in parentheses behind 'score' or "
    "'captures', and add an argument for it behind those of the entry";

ParseResult
fovea::attn::parseScoreBody(OpAsmParser &parser,
                            SmallVectorImpl<std::unique_ptr<Region>> &scores) {
  scores.push_back(std::make_unique<Region>());
  if (parser.parseRegion(*scores.back(), /*arguments=*/{},
                         /*enableNameShadowing=*/true))
    return failure();
  // The parser keeps an operation in no block for each name that it does not
  // know yet, at the place of its use.  Names from outside are never found, and
  // the parser's own error, at the end of the file, does not say what to do.
  WalkResult result = scores.back()->walk([](Operation *inner) {
    for (OpOperand &operand : inner->getOpOperands()) {
      Operation *defining = operand.get().getDefiningOp();
      if (!defining || defining->getBlock())
        continue;
      emitError(defining->getLoc())
          << "operand " << operand.getOperandNumber() << " of '"
          << inner->getName() << "' is not defined in the score region"
          << kCaptureRemedy;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

void fovea::attn::printScoreRegion(OpAsmPrinter &printer, Operation *,
                                   OperandRange captures, TypeRange types,
                                   ScoreRegions score) {
  if (score.empty())
    return;
  printer << "score";
  if (!captures.empty())
    printer << "(" << captures << " : " << types << ")";
  printer << " ";
  printer.printRegion(score.front());
}

void fovea::attn::cloneScoreRegions(ScoreRegions from, ScoreRegions to) {
  for (auto [source, target] : llvm::zip_equal(from, to)) {
    IRMapping mapping;
    source.cloneInto(&target, mapping);
  }
}

Value fovea::attn::getYieldedScore(Region &region) {
  return cast<YieldOp>(region.front().getTerminator()).getScores();
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

/// Whether an argument of a region may stand for an operand of type `captured`.
static bool isCaptureOf(Type captured, Type argument) {
  auto shaped = dyn_cast<ShapedType>(captured);
  if (!shaped)
    return captured == argument;
  auto tensor = dyn_cast<RankedTensorType>(argument);
  return tensor && tensor.getElementType() == shaped.getElementType() &&
         succeeded(verifyCompatibleShape(shaped.getShape(), tensor.getShape()));
}

static LogicalResult verifyCaptures(Operation *op, ValueRange captures) {
  for (auto [index, type] : llvm::enumerate(captures.getTypes()))
    if (getElementTypeOrSelf(type).isInteger(1))
      return op->emitOpError()
             << "expects capture " << index
             << " to have more than one bit, but got " << type;
  return success();
}

static LogicalResult verifyArguments(Operation *op, StringRef name,
                                     Block &block, ValueRange captures,
                                     Type sums) {
  unsigned numNeeded = score_argument::Captures + captures.size();
  if (block.getNumArguments() != numNeeded)
    return op->emitOpError()
           << "expects " << name << " to have " << numNeeded
           << " arguments: the score, batch entry, head, query and key, and "
           << captures.size() << " captures, but got "
           << block.getNumArguments();
  for (auto [index, found] : llvm::enumerate(block.getArgumentTypes())) {
    Type needed = sums;
    if (index >= score_argument::Captures)
      needed = captures[index - score_argument::Captures].getType();
    else if (index != score_argument::Score)
      needed = IndexType::get(op->getContext());
    if (!isCaptureOf(needed, found))
      return op->emitOpError()
             << "expects argument " << index << " of " << name
             << " to stand for " << needed << ", but got " << found;
  }
  return success();
}

/// Whether an operation computes one number from numbers, as well as a vector
/// from vectors.
static bool isElementwise(Operation &op) {
  auto isNumber = [](Type type) { return type.isIntOrIndexOrFloat(); };
  return llvm::is_contained({"arith", "math"},
                            op.getName().getDialectNamespace()) &&
         op.getNumResults() == 1 &&
         (op.hasTrait<OpTrait::ConstantLike>() ||
          OpTrait::hasElementwiseMappableTraits(&op)) &&
         llvm::all_of(op.getOperandTypes(), isNumber) &&
         isNumber(op.getResult(0).getType());
}

/// Whether an operation divides integers by what may be zero, as powers with
/// negative exponents do.
static bool mayDivideByZero(Operation &op) {
  APInt divisor;
  if (op.getName().getStringRef() == "math.ipowi")
    return !(matchPattern(op.getOperand(1), m_ConstantInt(&divisor)) &&
             divisor.isNonNegative());
  return isa<arith::DivSIOp, arith::DivUIOp, arith::CeilDivSIOp,
             arith::CeilDivUIOp, arith::FloorDivSIOp, arith::RemSIOp,
             arith::RemUIOp>(op) &&
         !(matchPattern(op.getOperand(1), m_ConstantInt(&divisor)) &&
           !divisor.isZero());
}

/// Checks that an operation of a body uses only what the body has.  That the
/// region is isolated is verified later, in words without a remedy.
static LogicalResult verifyOperandsInside(Operation *op, StringRef name,
                                          Operation &inner) {
  for (OpOperand &operand : inner.getOpOperands()) {
    Value value = operand.get();
    if (value.getParentBlock() == inner.getBlock())
      continue;
    InFlightDiagnostic error =
        op->emitOpError() << "expects " << name
                          << " to use its arguments and what it computes, but "
                             "operand "
                          << operand.getOperandNumber() << " of '"
                          << inner.getName() << "', " << value.getType()
                          << ", is of outside" << kCaptureRemedy;
    error.attachNote(inner.getLoc()) << "this operation";
    error.attachNote(value.getLoc()) << "this value";
    return error;
  }
  return success();
}

/// Checks one operation of a body.
static LogicalResult verifyBodyOp(Operation *op, StringRef name,
                                  Operation &inner) {
  auto fail = [&](const Twine &needed) {
    InFlightDiagnostic error = op->emitOpError()
                               << "expects " << name << " to " << needed
                               << ", but got '" << inner.getName() << "'";
    error.attachNote(inner.getLoc()) << "this operation";
    return error;
  };
  if (isa<tensor::ExtractOp>(inner)) {
    if (isa<BlockArgument>(inner.getOperand(0)))
      return success();
    return fail("extract from its arguments");
  }
  if (!isElementwise(inner))
    return fail("hold operations of arith and math on numbers, and "
                "tensor.extract");
  if (mayDivideByZero(inner))
    return fail("divide integers by constants other than zero");
  return success();
}

/// Checks that positions, batch entries and heads are as many as kernels count
/// in 32 bits.
static LogicalResult verifyPositions(Operation *op, ValueRange captures) {
  for (Value operand : op->getOperands()) {
    auto shaped = dyn_cast<ShapedType>(operand.getType());
    if (!shaped || !shaped.hasRank() || shaped.getRank() != 4 ||
        llvm::is_contained(captures, operand))
      continue;
    for (int64_t extent : shaped.getShape().drop_back())
      if (!ShapedType::isDynamic(extent) && extent >= kMaxScorePositions)
        return op->emitOpError()
               << "expects batch entries, heads, queries and keys to be fewer "
                  "than "
               << kMaxScorePositions << " with a score region, but got "
               << extent;
  }
  return success();
}

static LogicalResult verifyScoreRegion(Operation *op, StringRef name,
                                       Region &region, ValueRange captures,
                                       Type sums) {
  Block &block = region.front();
  if (failed(verifyArguments(op, name, block, captures, sums)))
    return failure();
  for (Operation &inner : block)
    if (failed(verifyOperandsInside(op, name, inner)))
      return failure();
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield)
    return op->emitOpError() << "expects " << name << " to end in attn.yield";
  if (Type found = yield.getScores().getType(); found != sums)
    return op->emitOpError() << "expects " << name << " to yield " << sums
                             << ", but got " << found;
  for (Operation &inner : block.without_terminator())
    if (failed(verifyBodyOp(op, name, inner)))
      return failure();
  return success();
}

/// What errors call the regions of an operation: those of sources, and that of
/// all entries.
static SmallVector<std::string> getNames(ArrayAttr sources) {
  SmallVector<std::string> names;
  if (sources)
    for (auto [index, source] :
         llvm::enumerate(sources.getAsRange<SourceAttr>()))
      if (source.getHasScore())
        names.push_back(llvm::formatv("the score region of source {0}", index));
  names.push_back("the score region");
  return names;
}

LogicalResult fovea::attn::detail::verifyScoreCount(Operation *op,
                                                    ScoreRegions scores,
                                                    ArrayAttr sources) {
  size_t most = getNames(sources).size();
  if (scores.size() + 1 >= most && scores.size() <= most)
    return success();
  InFlightDiagnostic error = op->emitOpError();
  if (most == 1)
    return error << "expects at most one score region, but got "
                 << scores.size();
  return error << "expects score regions of " << most - 1
               << " sources, as they say, and one of all at most, but got "
               << scores.size();
}

LogicalResult fovea::attn::detail::verifyScoreRegions(Operation *op,
                                                      ScoreRegions scores,
                                                      ArrayAttr sources,
                                                      ValueRange captures,
                                                      Type sums) {
  if (failed(verifyScoreCount(op, scores, sources)))
    return failure();
  if (scores.empty()) {
    if (captures.empty())
      return success();
    return op->emitOpError() << "expects no captures without a score region, "
                                "but got "
                             << captures.size();
  }
  if (failed(verifyCaptures(op, captures)) ||
      failed(verifyPositions(op, captures)))
    return failure();
  for (auto [name, region] : llvm::zip(getNames(sources), scores))
    if (failed(verifyScoreRegion(op, name, region, captures, sums)))
      return failure();
  return success();
}

bool fovea::attn::isDifferentiableCapture(Type captured) {
  auto shaped = dyn_cast<ShapedType>(captured);
  return shaped && isa<FloatType>(shaped.getElementType());
}

LogicalResult
fovea::attn::detail::verifyCaptureGradients(Operation *op, ValueRange captures,
                                            ValueRange gradients) {
  if (gradients.empty())
    return success();
  SmallVector<Value> differentiable;
  for (Value capture : captures)
    if (isDifferentiableCapture(capture.getType()))
      differentiable.push_back(capture);
  if (gradients.size() != differentiable.size())
    return op->emitOpError()
           << "expects d_captures to have a gradient for each of the "
           << differentiable.size()
           << " captured tensors of floating-point numbers, but got "
           << gradients.size();
  for (auto [index, capture, gradient] :
       llvm::enumerate(differentiable, gradients)) {
    std::string name = llvm::formatv("d_captures[{0}]", index);
    auto needed = cast<ShapedType>(capture.getType()),
         found = cast<ShapedType>(gradient.getType());
    if (failed(
            verifyElementsOrSums(op, name, gradient, needed.getElementType())))
      return failure();
    if (failed(verifyCompatibleShape(needed, found)))
      return op->emitOpError() << "expects " << name << " to have the shape of "
                               << needed << ", but got " << found;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

void fovea::attn::offsetScoreRegions(ScoreRegions scores,
                                     MutableOperandRange captures, Value batch,
                                     Value head) {
  if (scores.empty())
    return;
  for (auto [number, first] : {std::pair(score_argument::Batch, batch),
                               std::pair(score_argument::Head, head)}) {
    captures.append(first);
    for (Region &score : scores) {
      Block &block = score.front();
      OpBuilder b = OpBuilder::atBlockBegin(&block);
      Value begin = block.addArgument(first.getType(), first.getLoc());
      Value own = block.getArgument(number);
      auto sum = arith::AddIOp::create(b, first.getLoc(), own, begin);
      own.replaceAllUsesExcept(sum, sum);
    }
  }
}
