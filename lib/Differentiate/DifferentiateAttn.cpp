//===- DifferentiateAttn.cpp - Gradients of attention patterns ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "fovea/Dialect/Attn/IR/Contract.h"
#include "fovea/Dialect/Attn/Transforms/Presence.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

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
  /// One that is given what the adjoint is so far.
  Value accumulate(Value operand) {
    Value init = adjoints.find(operand);
    if (!init || !adjoints.isActive(operand))
      init = createZerosLike(b, loc, operand, typeOf(operand));
    return remember(operand, init, /*accumulates=*/true);
  }

  bool isActive(Value operand) { return operand && adjoints.isActive(operand); }
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
  for (Region &region : copy->getRegions())
    state.addRegion()->takeBody(region);
  auto extended = cast<OpTy>(b.create(state));
  copy.erase();
  SmallVector<Value> results(extended->getResults());
  results.erase(results.begin() + 1);
  op->replaceAllUsesWith(results);
  op.erase();
  return extended;
}

/// Operations whose gradients start from an lse have one.
static ContractOpInterface withLseIfNeeded(ContractOpInterface op) {
  return TypeSwitch<Operation *, ContractOpInterface>(op)
      .Case<DenseOp, FastMultipoleOp, StreamOp>(
          [](auto op) { return withLse(op); })
      .Default(op);
}

namespace {
/// Emits the backward operation of `op`, whose operands are told by their
/// names: `x` is that operand of `op`, or the result that takes its place;
/// `d_x` is the adjoint of that result, or takes the gradient of that operand.
class BackwardEmitter {
public:
  BackwardEmitter(ContractOpInterface op, OpBuilder &b, Adjoints &adjoints)
      : op(op), b(b), adjoints(adjoints),
        name((op->getName().getStringRef() + "_backward").str(),
             op->getContext()),
        contract(*findContract(name.getStringRef())) {}

  /// With `accumulates`, gradients start from what adjoints are so far.
  void emit(bool accumulates);

private:
  /// Where the operands of that name are, and how many.
  std::pair<unsigned, unsigned> findOperands(StringRef operand);
  /// The result that takes the place of an operand, or null.
  Value findResult(unsigned operand);
  void findSeeds();
  SmallVector<Value> getOperands(const OperandSpec &spec);
  SmallVector<Value> getGradients(const OperandSpec &spec, StringRef operand,
                                  Gradients &gradients, bool accumulates);
  SmallVector<NamedAttribute> getAttributes();

  ContractOpInterface op;
  OpBuilder &b;
  Adjoints &adjoints;
  OperationName name;
  const Contract &contract;
  /// Adjoints of results, by the names of the operands whose place they take.
  llvm::StringMap<Value> seeds;
};
} // namespace

std::pair<unsigned, unsigned> BackwardEmitter::findOperands(StringRef operand) {
  const Contract &forward = op.getContract();
  const OperandSpec *spec = forward.find(operand);
  if (!spec)
    return {0, 0};
  return op.getOperandGroup(spec - forward.getOperands().data());
}

Value BackwardEmitter::findResult(unsigned operand) {
  auto forward = cast<DestinationStyleOpInterface>(op.getOperation());
  OpOperand &use = op->getOpOperand(operand);
  return forward.isDpsInit(&use) ? forward.getTiedOpResult(&use) : Value();
}

void BackwardEmitter::findSeeds() {
  for (const OperandSpec &spec : contract.getOperands()) {
    StringRef operand = spec.name;
    if (!operand.consume_front("d_"))
      continue;
    auto [first, count] = findOperands(operand);
    if (Value result = count ? findResult(first) : Value())
      seeds[operand] = spec.isOptional
                           ? adjoints.find(result)
                           : adjoints.getRounded(b, op.getLoc(), result);
  }
}

SmallVector<Value> BackwardEmitter::getOperands(const OperandSpec &spec) {
  auto [first, count] = findOperands(spec.name);
  SmallVector<Value> operands;
  for (unsigned operand = first; operand < first + count; ++operand) {
    Value result = findResult(operand);
    operands.push_back(result ? result : op->getOperand(operand));
  }
  return operands;
}

/// Gradients that may be left out are, unless an operand of theirs is active.
/// Of what a region captures, tensors have one.
SmallVector<Value> BackwardEmitter::getGradients(const OperandSpec &spec,
                                                 StringRef operand,
                                                 Gradients &gradients,
                                                 bool accumulates) {
  auto [first, count] = findOperands(operand);
  auto operands = llvm::make_filter_range(
      op->getOperands().slice(first, count), [&](Value value) {
        return spec.isGradient || isDifferentiableCapture(value.getType());
      });
  bool isLeftOut = spec.isOptional || spec.mayBeEmpty || !spec.isGradient;
  if (isLeftOut && llvm::none_of(operands, [&](Value value) {
        return gradients.isActive(value);
      }))
    return {};
  return llvm::map_to_vector(operands, [&](Value value) {
    return accumulates ? gradients.accumulate(value)
                       : gradients.overwrite(value);
  });
}

/// Tiles are chosen for each operation.
SmallVector<NamedAttribute> BackwardEmitter::getAttributes() {
  SmallVector<NamedAttribute> attributes;
  for (StringAttr attribute : name.getAttributeNames())
    if (Attribute value = op->getAttr(attribute);
        value && attribute != "operandSegmentSizes" && attribute != "tiles")
      attributes.emplace_back(attribute, value);
  return attributes;
}

void BackwardEmitter::emit(bool accumulates) {
  // Before the operation, and its results with it, may be replaced.
  findSeeds();
  op = withLseIfNeeded(op);
  Gradients gradients(b, op.getLoc(), adjoints);
  OperationState state(op.getLoc(), name);
  SmallVector<int32_t> segments;
  for (const OperandSpec &spec : contract.getOperands()) {
    StringRef operand = spec.name;
    bool isGradient = operand.consume_front("d_");
    auto seed = seeds.find(operand);
    SmallVector<Value> group;
    if (!isGradient)
      group = getOperands(spec);
    else if (seed == seeds.end())
      group = getGradients(spec, operand, gradients, accumulates);
    else if (seed->second)
      group = {seed->second};
    state.addOperands(group);
    segments.push_back(group.size());
  }
  state.addTypes(gradients.getTypes());
  state.addAttributes(getAttributes());
  if (name.hasTrait<OpTrait::AttrSizedOperandSegments>())
    state.addAttribute("operandSegmentSizes", b.getDenseI32ArrayAttr(segments));
  for (Region &region : op->getRegions()) {
    IRMapping mapping;
    region.cloneInto(state.addRegion(), mapping);
  }
  gradients.assign(b.create(state)->getResults());
}

static LogicalResult verifyHasGradient(Operation *, const Adjoints &) {
  return success();
}

/// Of what a score region captures tensors have a gradient.
template <typename OpTy>
static LogicalResult verifyCaptures(OpTy op, const Adjoints &adjoints) {
  for (auto [index, capture] : llvm::enumerate(op.getCaptures()))
    if (adjoints.isActive(capture) &&
        !isDifferentiableCapture(capture.getType()))
      return op.emitOpError()
             << "has no gradient for capture " << index
             << " of its score region, a number: a tensor of rank 0 has one";
  return success();
}

static LogicalResult verifyHasGradient(DenseOp op, const Adjoints &adjoints) {
  return verifyCaptures(op, adjoints);
}

static LogicalResult verifyHasGradient(StreamOp op, const Adjoints &adjoints) {
  if (op.getFirstRow())
    return op.emitOpError("has no gradient as a tile of another");
  if (op.getWeighting() != Weighting::Softmax)
    return op.emitOpError("has no gradient with weighting ")
           << stringifyWeighting(op.getWeighting());
  for (const StreamOp::Source &source : op.getSourceList())
    if (source.codes || source.hasValueBlocks() ||
        source.hasLogWeightBlocks() || source.attr.getHasLocalBias() ||
        source.attr.hasDistances())
      return op.emitOpError("has no gradient for sources with codes, a local "
                            "bias, terms by distance or an axis of query "
                            "blocks");
  return verifyCaptures(op, adjoints);
}

//===----------------------------------------------------------------------===//
// Vector quantization
//===----------------------------------------------------------------------===//

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
  Value dOutput = adjoints.getRounded(b, op.getLoc(), op->getResult(0));
  Value dLse = op.getLse() ? adjoints.find(op->getResult(1)) : Value();
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
  Value dRelativeKeys, dRelativeBias;
  if (gradients.isActive(op.getRelativeKeys()) ||
      gradients.isActive(op.getRelativeBias())) {
    dRelativeKeys = gradients.overwrite(op.getRelativeKeys());
    dRelativeBias = gradients.overwrite(op.getRelativeBias());
  }
  Value dDistanceBias = gradients.overwriteActive(op.getDistanceBias());
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
      op.getCodebook(), op.getBias(), op.getRelativeKeys(),
      op.getRelativeBias(), op.getDistanceBias(), op.getState(),
      isSoftmax ? op->getResult(0) : Value(),
      isSoftmax ? op->getResult(1) : Value(), dOutput, dLse, dNextState, dQuery,
      dKey, dValue, dBias, dRelativeKeys, dRelativeBias, dDistanceBias, dState,
      op.getBlockAttr(), op.getMemoryAttr(), op.getCausalAttr(),
      op.getPaddedAttr(), op.getScaleAttr(), op.getWeightingAttr());
  gradients.assign(backward.getResults());
  return success();
}

/// The straight-through estimator: keys get what their codewords get. Codewords
/// move by attn.codebook_update.
static LogicalResult differentiate(QuantizeOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  for (Value result : op->getResults())
    if (Value adjoint = adjoints.find(result))
      adjoints.add(
          b, op.getKey(),
          fovea::attn::detail::keepRows(b, op.getLoc(), adjoint, op.getMask()));
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
    if (failed(verifyHasGradient(cast<OpTy>(op), adjoints)))
      return failure();
    BackwardEmitter(cast<ContractOpInterface>(op), builder, adjoints)
        .emit(/*accumulates=*/isa<SummarizeOp>(op));
    return success();
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
           FastMultipoleOp, LowRankOp, PolynomialFeaturesOp, PoolOp, RopeOp,
           StreamOp, SummarizeOp>(context);
    QuantizeOp::attachInterface<CodesModel<QuantizeOp>>(*context);
    VQOp::attachInterface<CodesModel<VQOp>>(*context);
  });
}
