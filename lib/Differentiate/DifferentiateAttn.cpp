//===- DifferentiateAttn.cpp - Gradients of attention patterns ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Collects the destinations of a backward operation, in the order of its
/// results, and hands the results out to the operands that they belong to.
class Gradients {
public:
  Gradients(OpBuilder &builder, Location loc, Adjoints &adjoints)
      : b(builder), loc(loc), adjoints(adjoints) {}

  /// A destination for the gradient of `operand`, in the type of adjoints.
  Value overwrite(Value operand) {
    return overwrite(operand,
                     createEmptyLike(b, loc, operand, typeOf(operand)));
  }
  Value overwrite(Value operand, Value init) {
    return remember(operand, init, /*accumulates=*/false);
  }
  SmallVector<Value> overwrite(ValueRange operands) {
    return llvm::map_to_vector(
        operands, [&](Value operand) { return overwrite(operand); });
  }
  /// One that is given what the adjoint is so far.
  Value accumulate(Value operand) {
    Value init = adjoints.find(operand);
    if (!init || !adjoints.isActive(operand))
      init = createZerosLike(b, loc, operand, typeOf(operand));
    return remember(operand, init, /*accumulates=*/true);
  }

  bool isActive(Value operand) { return operand && adjoints.isActive(operand); }
  /// None unless one of `operands` is active.
  SmallVector<Value> overwriteActive(ValueRange operands) {
    bool isAnyActive =
        llvm::any_of(operands, [&](Value value) { return isActive(value); });
    return isAnyActive ? overwrite(operands) : SmallVector<Value>();
  }
  Value overwriteActive(Value operand) {
    return isActive(operand) ? overwrite(operand) : Value();
  }

  SmallVector<Type> getTypes() {
    return llvm::map_to_vector(
        entries, [](const Entry &entry) { return entry.init.getType(); });
  }

  void assign(ValueRange results) {
    for (auto [entry, result] : llvm::zip_equal(entries, results)) {
      if (!entry.accumulates)
        adjoints.add(b, entry.operand, result);
      else if (adjoints.isActive(entry.operand))
        adjoints.set(entry.operand, result);
    }
  }

private:
  struct Entry {
    Value operand, init;
    bool accumulates;
  };

  static Type typeOf(Value operand) {
    return getStateType(getElementTypeOrSelf(operand));
  }
  Value remember(Value operand, Value init, bool accumulates) {
    entries.push_back({operand, init, accumulates});
    return init;
  }

  OpBuilder &b;
  Location loc;
  Adjoints &adjoints;
  SmallVector<Entry> entries;
};
} // namespace

/// `op` with an lse: the gradient starts from it. One that has none is
/// replaced.
template <typename OpTy> static OpTy withLse(OpTy op) {
  if (op.getLse())
    return op;
  OpBuilder b(op);
  Value query = op.getQuery();
  FloatType type = getStateType(getElementTypeOrSelf(query));
  SmallVector<OpFoldResult> rows = tensor::getMixedSizes(b, op.getLoc(), query);
  rows.pop_back();
  Value lse = tensor::EmptyOp::create(b, op.getLoc(), rows, type);
  auto copy = cast<OpTy>(b.clone(*op));
  copy.getLseMutable().assign(lse);
  SmallVector<Type> types(op->getResultTypes());
  types.insert(types.begin() + 1, lse.getType());
  OperationState state(op.getLoc(), op->getName(), copy->getOperands(), types,
                       copy->getAttrs());
  auto extended = cast<OpTy>(b.create(state));
  copy.erase();
  SmallVector<Value> results(extended->getResults());
  results.erase(results.begin() + 1);
  op->replaceAllUsesWith(results);
  op.erase();
  return extended;
}

/// What the results of the forward operation get.
namespace {
struct Cotangents {
  Value output, dOutput, dLse;

  template <typename OpTy>
  Cotangents(OpTy op, OpBuilder &b, const Adjoints &adjoints)
      : output(op->getResult(0)),
        dOutput(adjoints.getRounded(b, op.getLoc(), output)) {
    if (op->getNumResults() > 1)
      dLse = adjoints.find(op->getResult(1));
  }
};
} // namespace

static LogicalResult differentiate(DenseOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  // Before the operation, and its results with it, may be replaced.
  Cotangents seeds(op, b, adjoints);
  op = withLse(op);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dQuery = gradients.overwrite(op.getQuery());
  Value dKey = gradients.overwrite(op.getKey());
  Value dValue = gradients.overwrite(op.getValue());
  Value dLogWeight = gradients.overwriteActive(op.getLogWeight());
  Value dBias = gradients.overwriteActive(op.getBias());
  auto backward = DenseBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getQuery(), op.getKey(),
      op.getValue(), op.getLogWeight(), op.getBias(), op->getResult(0),
      op->getResult(1), seeds.dOutput, seeds.dLse, dQuery, dKey, dValue,
      dLogWeight, dBias, op.getScaleAttr(), op.getMaskAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(StreamOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  if (op.getFirstRow())
    return op.emitOpError("has no gradient as a tile of another");
  if (op.getWeighting() != Weighting::Softmax)
    return op.emitOpError("has no gradient with weighting ")
           << stringifyWeighting(op.getWeighting());
  for (const StreamOp::Source &source : op.getSourceList())
    if (source.codes || source.hasValueBlocks() ||
        source.hasLogWeightBlocks() || source.attr.getHasLocalBias())
      return op.emitOpError("has no gradient for sources with codes, a local "
                            "bias or an axis of query blocks");
  Cotangents seeds(op, b, adjoints);
  op = withLse(op);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dQuery = gradients.overwrite(op.getQuery());
  SmallVector<Value> dKeys = gradients.overwrite(op.getKeys());
  SmallVector<Value> dValues = gradients.overwrite(op.getValues());
  SmallVector<Value> dLogWeights =
      gradients.overwriteActive(op.getLogWeights());
  SmallVector<Value> dBiases = gradients.overwriteActive(op.getBiases());
  auto backward = StreamBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getQuery(), op.getKeys(),
      op.getValues(), op.getLogWeights(), op.getBiases(), op->getResult(0),
      op->getResult(1), seeds.dOutput, seeds.dLse, dQuery, dKeys, dValues,
      dLogWeights, dBiases, op.getSourcesAttr(), op.getBlockAttr(),
      op.getScaleAttr(), /*tiles=*/TilesAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(SummarizeOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dInput = gradients.accumulate(op.getInput());
  Value dWeights = gradients.accumulate(op.getWeights());
  Value dBias = op.getBias() ? gradients.accumulate(op.getBias()) : Value();
  auto backward = SummarizeBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getInput(), op.getWeights(),
      seeds.dOutput, dInput, dWeights, dBias);
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(FastMultipoleOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  op = withLse(op);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dQuery = gradients.overwrite(op.getQuery());
  Value dKey = gradients.overwrite(op.getKey());
  Value dValue = gradients.overwrite(op.getValue());
  SmallVector<Value> dKeyWeights = gradients.overwrite(op.getKeyWeights());
  SmallVector<Value> dValueWeights = gradients.overwrite(op.getValueWeights());
  SmallVector<Value> dKeyBiases = gradients.overwrite(op.getKeyBiases());
  SmallVector<Value> dValueBiases = gradients.overwrite(op.getValueBiases());
  auto backward = FastMultipoleBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getQuery(), op.getKey(),
      op.getValue(), op.getKeyWeights(), op.getValueWeights(),
      op.getKeyBiases(), op.getValueBiases(), op->getResult(0),
      op->getResult(1), seeds.dOutput, seeds.dLse, dQuery, dKey, dValue,
      dKeyWeights, dValueWeights, dKeyBiases, dValueBiases, op.getGroupAttr(),
      op.getCausalAttr(), op.getScaleAttr(), op.getMultiplicityAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(FastMultipoleLinearOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dQuery = gradients.overwrite(op.getQuery());
  Value dKey = gradients.overwrite(op.getKey());
  Value dValue = gradients.overwrite(op.getValue());
  SmallVector<Value> dQueryWeights = gradients.overwrite(op.getQueryWeights());
  SmallVector<Value> dKeyWeights = gradients.overwrite(op.getKeyWeights());
  SmallVector<Value> dValueWeights = gradients.overwrite(op.getValueWeights());
  SmallVector<Value> dQueryBiases = gradients.overwrite(op.getQueryBiases());
  SmallVector<Value> dKeyBiases = gradients.overwrite(op.getKeyBiases());
  SmallVector<Value> dValueBiases = gradients.overwrite(op.getValueBiases());
  auto backward = FastMultipoleLinearBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getQuery(), op.getKey(),
      op.getValue(), op.getQueryWeights(), op.getKeyWeights(),
      op.getValueWeights(), op.getQueryBiases(), op.getKeyBiases(),
      op.getValueBiases(), seeds.dOutput, dQuery, dKey, dValue, dQueryWeights,
      dKeyWeights, dValueWeights, dQueryBiases, dKeyBiases, dValueBiases,
      op.getGroupAttr(), op.getCausalAttr(), op.getAllowQueryLookaheadAttr(),
      op.getScaleAttr());
  gradients.assign(backward.getResults());
  return success();
}

/// Sizes, where bases begin, are constants.
static LogicalResult differentiate(ConvApplyOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dBasis = gradients.overwrite(op.getBasis());
  Value dValue = gradients.overwrite(op.getValue());
  auto backward = ConvApplyBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getBasis(), op.getSizes(),
      op.getValue(), seeds.output, seeds.dOutput, dBasis, dValue,
      op.getAlgorithmAttr(), op.getBlockAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(ConvRecoverOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dQuery = gradients.overwrite(op.getQuery());
  Value dKey = gradients.overwrite(op.getKey());
  auto backward = ConvRecoverBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getQuery(), op.getKey(),
      op->getResult(1), seeds.dOutput, dQuery, dKey, op.getScaleAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(ConvOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dQuery = gradients.overwrite(op.getQuery());
  Value dKey = gradients.overwrite(op.getKey());
  Value dValue = gradients.overwrite(op.getValue());
  auto backward = ConvBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getQuery(), op.getKey(),
      op.getValue(), seeds.output, seeds.dOutput, dQuery, dKey, dValue,
      op.getNumBasisAttr(), op.getWindowAttr(), op.getDeltaAttr(),
      op.getEpsilonAttr(), op.getScaleAttr(), op.getGroupAttr(),
      op.getAlgorithmAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(RopeOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dInput = gradients.overwrite(op.getInput());
  auto backward = RopeBackwardOp::create(b, op.getLoc(), gradients.getTypes(),
                                         op.getPositions(), seeds.dOutput,
                                         dInput, op.getBaseAttr());
  gradients.assign(backward.getResults());
  return success();
}

/// A tensor of uninitialised gradients for the keys that `codes` stand for.
static Value createKeysLike(OpBuilder &b, VQOp op, Value codes) {
  Value query = op.getQuery();
  Location loc = op.getLoc();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, codes);
  sizes.push_back(tensor::getMixedSize(b, loc, query, 3));
  return tensor::EmptyOp::create(b, loc, sizes,
                                 getStateType(getElementTypeOrSelf(query)));
}

/// The results of attn.vq that have adjoints beside its output, by what they
/// are: mean, kept codes and kept values of the next state. None without any.
static SmallVector<Value> getNextStateAdjoints(VQOp op, OpBuilder &b,
                                               const Adjoints &adjoints) {
  SmallVector<Value> parts;
  if (op.getNextState().empty())
    return parts;
  ResultRange state = op->getResults().take_back(5);
  Value results[] = {state[0], state[2], state[3]};
  if (llvm::none_of(results, [&](Value part) { return adjoints.find(part); }))
    return parts;
  Location loc = op.getLoc();
  Type type = getStateType(getElementTypeOrSelf(op.getQuery()));
  for (Value part : results) {
    Value adjoint = adjoints.find(part);
    if (!adjoint && part == state[2])
      adjoint = createZerosLike(b, loc, createKeysLike(b, op, part), type);
    else if (!adjoint)
      adjoint = createZerosLike(b, loc, part, type);
    parts.push_back(adjoint);
  }
  return parts;
}

/// The adjoint of codes is that of the keys which they stand for: it goes
/// straight through attn.quantize.
static LogicalResult differentiate(VQOp op, OpBuilder &b, Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  if (!op.getLse())
    seeds.dLse = Value();
  SmallVector<Value> dNextState = getNextStateAdjoints(op, b, adjoints);
  bool isSoftmax = op.getWeighting() == Weighting::Softmax;
  if (isSoftmax)
    op = withLse(op);
  Location loc = op.getLoc();
  Gradients gradients(b, loc, adjoints);
  Value dQuery = gradients.overwrite(op.getQuery());
  Value dKey =
      gradients.overwrite(op.getCodes(), createKeysLike(b, op, op.getCodes()));
  Value dValue = gradients.overwrite(op.getValue());
  Value dBias = gradients.overwriteActive(op.getBias());
  SmallVector<Value> dState;
  OperandRange state = op.getState();
  if (llvm::any_of(state,
                   [&](Value part) { return gradients.isActive(part); })) {
    dState.push_back(gradients.overwrite(state[0]));
    dState.push_back(
        gradients.overwrite(state[2], createKeysLike(b, op, state[2])));
    dState.push_back(gradients.overwrite(state[3]));
  }
  auto backward = VQBackwardOp::create(
      b, loc, gradients.getTypes(), op.getQuery(), op.getCodes(), op.getValue(),
      op.getCodebook(), op.getBias(), op.getState(),
      isSoftmax ? op->getResult(0) : Value(),
      isSoftmax ? op->getResult(1) : Value(), seeds.dOutput, seeds.dLse,
      dNextState, dQuery, dKey, dValue, dBias, dState, op.getBlockAttr(),
      op.getCausalAttr(), op.getScaleAttr(), op.getWeightingAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(LowRankOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dU1 = gradients.overwrite(op.getU1());
  Value dU2 = gradients.overwrite(op.getU2());
  Value dValue = gradients.overwrite(op.getValue());
  auto backward = LowRankBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getU1(), op.getU2(),
      op.getValue(), op.getMaskParts(), seeds.output, seeds.dOutput, dU1, dU2,
      dValue, op.getMaskAttr());
  gradients.assign(backward.getResults());
  return success();
}

static LogicalResult differentiate(PolynomialFeaturesOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Cotangents seeds(op, b, adjoints);
  Gradients gradients(b, op.getLoc(), adjoints);
  Value dInput = gradients.overwrite(op.getInput());
  auto backward = PolynomialFeaturesBackwardOp::create(
      b, op.getLoc(), gradients.getTypes(), op.getInput(), seeds.dOutput,
      dInput, op.getDegreeAttr(), op.getScaleAttr());
  gradients.assign(backward.getResults());
  return success();
}

/// The straight-through estimator: keys get what their codewords get. Codewords
/// move by attn.codebook_update.
static LogicalResult differentiate(QuantizeOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  for (Value result : op->getResults())
    if (Value adjoint = adjoints.find(result))
      adjoints.add(b, op.getKey(), adjoint);
  return success();
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

namespace {
template <typename OpTy>
struct AttnModel
    : DifferentiableOpInterface::ExternalModel<AttnModel<OpTy>, OpTy> {
  LogicalResult emitVJP(Operation *op, OpBuilder &builder,
                        Adjoints &adjoints) const {
    return differentiate(cast<OpTy>(op), builder, adjoints);
  }
};

/// Codes have adjoints, too: those of the keys.
template <typename OpTy>
struct CodesModel
    : DifferentiableOpInterface::ExternalModel<CodesModel<OpTy>, OpTy> {
  LogicalResult emitVJP(Operation *op, OpBuilder &builder,
                        Adjoints &adjoints) const {
    return differentiate(cast<OpTy>(op), builder, adjoints);
  }
  bool hasAdjoint(Operation *op, OpResult result) const {
    Type type = getElementTypeOrSelf(result.getType());
    return isa<FloatType>(type) || isCodes(cast<OpTy>(op), result);
  }

private:
  static bool isCodes(QuantizeOp, OpResult) { return true; }
  static bool isCodes(VQOp op, OpResult result) {
    return !op.getNextState().empty() &&
           result == op->getResults().take_back(5)[2];
  }
};
} // namespace

template <typename... OpTys> static void attach(MLIRContext *context) {
  (OpTys::template attachInterface<AttnModel<OpTys>>(*context), ...);
}

void fovea::attn::registerAttnRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    attach<ConvApplyOp, ConvOp, ConvRecoverOp, DenseOp, FastMultipoleLinearOp,
           FastMultipoleOp, LowRankOp, PolynomialFeaturesOp, RopeOp, StreamOp,
           SummarizeOp>(context);
    QuantizeOp::attachInterface<CodesModel<QuantizeOp>>(*context);
    VQOp::attachInterface<CodesModel<VQOp>>(*context);
  });
}
