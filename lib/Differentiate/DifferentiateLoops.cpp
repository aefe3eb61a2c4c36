//===- DifferentiateLoops.cpp - Gradients of loops ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a loop, from a state x with weights w to a last state,
//
//   for i: x = f(i, x, w)
//
// is a loop over the same iterations, from the last to the first:
//
//   for i: d_x, d_w = (d_x, d_w) through f at (i, x as it was in iteration i,
//   w)
//
// What f computes on the way is computed again. Of what the loop carries, that
// is kept for all iterations which the gradient uses: a state that a product
// reads, but neither a sum nor a tensor that is filled slice by slice. Of a
// tensor that is read by slices, these are kept.
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/ValueBoundsOpInterface.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fovea::attn;

static bool isFloat(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

void fovea::attn::activateBody(scf::ForOp loop, Adjoints &adjoints) {
  auto activate = [&](ValueRange sources) {
    bool changed = false;
    for (auto [argument, source] :
         llvm::zip_equal(loop.getRegionIterArgs(), sources)) {
      if (!isFloat(argument) || adjoints.isActive(argument) ||
          !adjoints.isActive(source))
        continue;
      adjoints.activate(argument);
      changed = true;
    }
    return changed;
  };
  activate(loop.getInits());
  // An iteration hands on what it has got to the next.
  do {
    for (Operation &op : loop.getBody()->without_terminator())
      adjoints.activateResults(&op);
  } while (activate(loop.getYieldedValues()));
}

namespace {
/// How a loop counts, as numbers of type `index`.
class Counter {
public:
  Counter(scf::ForOp loop, OpBuilder &b);

  /// The number of the iteration in which the loop counts `counted`, and back.
  Value getNumber(OpBuilder &b, Value counted) const;
  Value getCounted(OpBuilder &b, Value number, Type type) const;
  /// The number of the iteration that comes after `done` others, from the last.
  Value countDown(OpBuilder &b, Value done) const;

  /// Of iterations.
  Value count;

private:
  Value toIndex(OpBuilder &b, Value value) const;

  Location loc;
  bool isUnsigned;
  Value lower, step, last;
};

/// A tensor with one entry for each iteration of a loop, a value of type
/// `type`.
struct Tape {
  Type type;
  SmallVector<OpFoldResult> sizes;

  Tape(OpBuilder &b, Location loc, Value count, Value value);
  Value write(OpBuilder &b, Location loc, Value entry, Value tape,
              Value number) const;
  Value read(OpBuilder &b, Location loc, Value tape, Value number) const;

private:
  bool hasNumbers() const { return !isa<RankedTensorType>(type); }
  SmallVector<OpFoldResult> getOffsets(OpBuilder &b, Value number) const;
  SmallVector<OpFoldResult> getExtents(OpBuilder &b) const;
  SmallVector<OpFoldResult> getStrides(OpBuilder &b) const;
};

class LoopGradient {
public:
  LoopGradient(scf::ForOp loop, OpBuilder &builder, Adjoints &adjoints)
      : loop(loop), b(builder), loc(loop.getLoc()), adjoints(adjoints) {}

  LogicalResult emit();

private:
  void collectActive();
  LogicalResult check();
  LogicalResult emitIteration(scf::ForOp backward, const Counter &counter);
  LogicalResult keepStates(scf::ForOp backward, const Counter &counter);
  bool hasFixedExtents(unsigned state);

  scf::ForOp loop;
  OpBuilder &b;
  Location loc;
  Adjoints &adjoints;
  /// Numbers of the states, and values from outside of the loop, that have
  /// adjoints. The loop that runs backwards carries these in this order.
  SmallVector<unsigned> states;
  llvm::SetVector<Value> captures;
  /// What stands for the states, one after the other, in the loop that runs
  /// backwards, until it is known which of them it uses.
  SmallVector<UnrealizedConversionCastOp> placeholders;
  /// Slices of states, by what computes them again in that loop.
  llvm::DenseMap<Operation *, tensor::ExtractSliceOp> slices;
  /// What is kept of an iteration.
  struct Kept {
    /// A state, or a slice of one.
    unsigned state;
    tensor::ExtractSliceOp slice;
    /// What stands for it in the loop that runs backwards.
    Value used;

    Value getForward(scf::ForOp loop) const;
  };
  SmallVector<Kept> chooseKept(unsigned state);
};
} // namespace

//===----------------------------------------------------------------------===//
// Counting
//===----------------------------------------------------------------------===//

Value Counter::toIndex(OpBuilder &b, Value value) const {
  if (value.getType().isIndex())
    return value;
  if (isUnsigned)
    return b.createOrFold<arith::IndexCastUIOp>(loc, b.getIndexType(), value);
  return b.createOrFold<arith::IndexCastOp>(loc, b.getIndexType(), value);
}

Counter::Counter(scf::ForOp loop, OpBuilder &b)
    : loc(loop.getLoc()), isUnsigned(loop.getUnsignedCmp()),
      lower(toIndex(b, loop.getLowerBound())),
      step(toIndex(b, loop.getStep())) {
  Value upper = toIndex(b, loop.getUpperBound());
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value extent = b.createOrFold<arith::MaxSIOp>(
      loc, b.createOrFold<arith::SubIOp>(loc, upper, lower), zero);
  Value rest = b.createOrFold<arith::SubIOp>(loc, step, one);
  count = b.createOrFold<arith::DivUIOp>(
      loc, b.createOrFold<arith::AddIOp>(loc, extent, rest), step);
  last = b.createOrFold<arith::SubIOp>(loc, count, one);
}

Value Counter::getNumber(OpBuilder &b, Value counted) const {
  Value distance =
      b.createOrFold<arith::SubIOp>(loc, toIndex(b, counted), lower);
  return b.createOrFold<arith::DivUIOp>(loc, distance, step);
}

Value Counter::countDown(OpBuilder &b, Value done) const {
  return b.createOrFold<arith::SubIOp>(loc, last, done);
}

Value Counter::getCounted(OpBuilder &b, Value number, Type type) const {
  Value distance = b.createOrFold<arith::MulIOp>(loc, number, step);
  Value counted = b.createOrFold<arith::AddIOp>(loc, distance, lower);
  return getValueOrCreateCastToIndexLike(b, loc, type, counted);
}

//===----------------------------------------------------------------------===//
// The loop that runs backwards
//===----------------------------------------------------------------------===//

void LoopGradient::collectActive() {
  visitUsedValuesDefinedAbove(loop->getRegions(), [&](OpOperand *operand) {
    if (adjoints.isActive(operand->get()))
      captures.insert(operand->get());
  });
  activateBody(loop, adjoints);
  for (auto [number, state] : llvm::enumerate(loop.getRegionIterArgs()))
    if (adjoints.isActive(state))
      states.push_back(number);
}

LogicalResult LoopGradient::check() {
  if (failed(checkRepeatable(loop)))
    return failure();
  for (Value init : loop.getInits())
    if (!isa<RankedTensorType>(init.getType()) &&
        !init.getType().isIntOrIndexOrFloat())
      return loop.emitOpError("has no gradient: expected it to carry tensors "
                              "and numbers, but got ")
             << init.getType();
  SmallVector<Value> values(captures.getArrayRef());
  llvm::append_range(values, loop.getInits());
  llvm::append_range(values, loop.getYieldedValues());
  for (Value value : values)
    if (adjoints.isActive(value) && !isFloat(value))
      return loop.emitOpError("has no gradient for the keys of its codes");
  return success();
}

LogicalResult LoopGradient::emit() {
  collectActive();
  if (failed(check()))
    return failure();
  OpBuilder before(loop);
  Counter counter(loop, before);
  SmallVector<Value> inits, targets;
  for (unsigned state : states) {
    inits.push_back(getAdjointOrZeros(b, loc, adjoints, loop.getResult(state)));
    targets.push_back(loop.getInits()[state]);
  }
  for (Value capture : captures)
    inits.push_back(getAdjointOrZeros(b, loc, adjoints, capture));
  for (Value init : loop.getInits())
    placeholders.push_back(UnrealizedConversionCastOp::create(
        b, loc, init.getType(), ValueRange()));
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  auto backward = scf::ForOp::create(b, loc, zero, counter.count, one, inits);
  if (failed(emitIteration(backward, counter)) ||
      failed(keepStates(backward, counter)))
    return failure();

  ValueRange results = backward.getResults();
  for (auto [capture, adjoint] :
       llvm::zip_equal(captures, results.drop_front(states.size())))
    adjoints.set(capture, adjoint);
  for (auto [target, adjoint] :
       llvm::zip_equal(targets, results.take_front(states.size())))
    adjoints.add(b, target, adjoint);
  return success();
}

/// The body of the loop, computed again, and what runs backwards through it.
LogicalResult LoopGradient::emitIteration(scf::ForOp backward,
                                          const Counter &counter) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(backward.getBody());
  Value number = counter.countDown(b, backward.getInductionVar());
  IRMapping values;
  Value counted = loop.getInductionVar();
  values.map(counted, counter.getCounted(b, number, counted.getType()));
  for (auto [state, placeholder] :
       llvm::zip_equal(loop.getRegionIterArgs(), placeholders))
    values.map(state, placeholder.getResult(0));

  Adjoints inner;
  auto getState = [&](unsigned state) {
    return placeholders[state].getResult(0);
  };
  for (unsigned state : states)
    inner.activate(getState(state));
  for (Value capture : captures)
    inner.activate(capture);
  SmallVector<Operation *> ops;
  for (Operation &op : loop.getBody()->without_terminator()) {
    ops.push_back(b.clone(op, values));
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
      slices[ops.back()] = slice;
    inner.activateResults(ops.back());
  }

  // Adjoints of captures go on from where the iteration that has run before,
  // which is the next one of the loop, has left them.
  ValueRange carried = backward.getRegionIterArgs();
  for (auto [capture, adjoint] :
       llvm::zip_equal(captures, carried.drop_front(states.size())))
    inner.set(capture, adjoint);
  for (auto [state, adjoint] :
       llvm::zip_equal(states, carried.take_front(states.size())))
    inner.add(b, values.lookupOrDefault(loop.getYieldedValues()[state]),
              adjoint);
  if (failed(inner.emitVJPs(b, ops)))
    return failure();

  SmallVector<Value> yielded;
  for (unsigned state : states)
    yielded.push_back(getAdjointOrZeros(b, loc, inner, getState(state)));
  for (Value capture : captures)
    yielded.push_back(getAdjointOrZeros(b, loc, inner, capture));
  scf::YieldOp::create(b, loc, yielded);
  eraseDeadOps(*backward.getBody());
  return success();
}

//===----------------------------------------------------------------------===//
// States that are kept
//===----------------------------------------------------------------------===//

Tape::Tape(OpBuilder &b, Location loc, Value count, Value value)
    : type(value.getType()), sizes({getAsOpFoldResult(count)}) {
  if (!hasNumbers())
    llvm::append_range(sizes, tensor::getMixedSizes(b, loc, value));
}

SmallVector<OpFoldResult> Tape::getOffsets(OpBuilder &b, Value number) const {
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  offsets.front() = number;
  return offsets;
}

SmallVector<OpFoldResult> Tape::getExtents(OpBuilder &b) const {
  SmallVector<OpFoldResult> extents(sizes);
  extents.front() = b.getIndexAttr(1);
  return extents;
}

SmallVector<OpFoldResult> Tape::getStrides(OpBuilder &b) const {
  return SmallVector<OpFoldResult>(sizes.size(), b.getIndexAttr(1));
}

Value Tape::write(OpBuilder &b, Location loc, Value entry, Value tape,
                  Value number) const {
  if (hasNumbers())
    return tensor::InsertOp::create(b, loc, entry, tape, number);
  return tensor::InsertSliceOp::create(
      b, loc, entry, tape, getOffsets(b, number), getExtents(b), getStrides(b));
}

Value Tape::read(OpBuilder &b, Location loc, Value tape, Value number) const {
  if (hasNumbers())
    return tensor::ExtractOp::create(b, loc, tape, number);
  return tensor::ExtractSliceOp::create(b, loc, cast<RankedTensorType>(type),
                                        tape, getOffsets(b, number),
                                        getExtents(b), getStrides(b));
}

/// Whether a state has the extents that it starts with in all iterations.
bool LoopGradient::hasFixedExtents(unsigned state) {
  Value argument = loop.getRegionIterArg(state);
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  if (!type)
    return true;
  auto isFixed = [&](int64_t dim) {
    FailureOr<bool> areEqual = ValueBoundsConstraintSet::areEqual(
        {loop.getYieldedValues()[state], dim}, {argument, dim});
    return succeeded(areEqual) && *areEqual;
  };
  return llvm::all_of(llvm::seq<int64_t>(0, type.getRank()), [&](int64_t dim) {
    return !type.isDynamicDim(dim) || isFixed(dim);
  });
}

/// The value in an iteration of the loop.
Value LoopGradient::Kept::getForward(scf::ForOp loop) const {
  if (slice)
    return slice->getResult(0);
  return loop.getRegionIterArg(state);
}

/// What the loop that runs backwards uses of a state: slices, if these are all
/// and smaller.
SmallVector<LoopGradient::Kept> LoopGradient::chooseKept(unsigned state) {
  Value whole = placeholders[state].getResult(0);
  SmallVector<Kept> parts;
  int64_t numElements = 0;
  for (Operation *user : whole.getUsers()) {
    auto slice = slices.lookup(user);
    if (!slice || !slice.getType().hasStaticShape())
      return {{state, nullptr, whole}};
    numElements += slice.getType().getNumElements();
    parts.push_back({state, slice, user->getResult(0)});
  }
  auto type = dyn_cast<RankedTensorType>(whole.getType());
  if (type && type.hasStaticShape() && type.getNumElements() <= numElements)
    return {{state, nullptr, whole}};
  return parts;
}

/// Has the loop fill a tape with all that the loop that runs backwards uses of
/// states, and that one read it.
LogicalResult LoopGradient::keepStates(scf::ForOp backward,
                                       const Counter &counter) {
  IRRewriter rewriter(b);
  rewriter.setInsertionPoint(loop);
  SmallVector<Kept> kept;
  for (auto [state, placeholder] : llvm::enumerate(placeholders)) {
    Value init = loop.getInits()[state];
    bool isFixed = placeholder.use_empty() || hasFixedExtents(state);
    for (Operation *user : llvm::make_early_inc_range(placeholder->getUsers()))
      if (auto dim = dyn_cast<tensor::DimOp>(user); dim && isFixed)
        dim.getSourceMutable().assign(init);
    for (const Kept &part : chooseKept(state)) {
      if (!part.slice && !isFixed)
        return loop.emitOpError("has no gradient: expected what it carries to "
                                "have one shape, but the extents of value ")
               << state << " of type " << placeholder.getResult(0).getType()
               << " may change";
      if (!part.used.use_empty())
        kept.push_back(part);
    }
  }
  SmallVector<Tape> tapes;
  SmallVector<Value> empty;
  for (const Kept &part : kept) {
    Value like =
        part.slice ? part.getForward(loop) : loop.getInits()[part.state];
    tapes.emplace_back(rewriter, loc, counter.count, like);
    empty.push_back(tensor::EmptyOp::create(rewriter, loc, tapes.back().sizes,
                                            getElementTypeOrSelf(like)));
  }
  if (!kept.empty()) {
    FailureOr<LoopLikeOpInterface> keeping = loop.replaceWithAdditionalYields(
        rewriter, empty, /*replaceInitOperandUsesInLoop=*/false,
        [&](OpBuilder &b, Location loc, ArrayRef<BlockArgument> unfilled) {
          // Before the iteration makes something else of its state.
          OpBuilder::InsertionGuard guard(b);
          Block *body = unfilled.front().getOwner();
          b.setInsertionPointToStart(body);
          Value number = counter.getNumber(b, body->getArgument(0));
          SmallVector<Value> filled;
          for (auto [part, tape, value] :
               llvm::zip_equal(kept, tapes, unfilled)) {
            OpBuilder::InsertionGuard guard(b);
            if (part.slice)
              b.setInsertionPointAfter(part.slice);
            Value entry =
                part.getForward(cast<scf::ForOp>(body->getParentOp()));
            filled.push_back(tape.write(b, loc, entry, value, number));
          }
          return filled;
        });
    rewriter.setInsertionPointToStart(backward.getBody());
    Value number = counter.countDown(rewriter, backward.getInductionVar());
    ResultRange filled = (*keeping)->getResults().take_back(kept.size());
    for (auto [part, tape, value] : llvm::zip_equal(kept, tapes, filled))
      rewriter.replaceAllUsesWith(part.used,
                                  tape.read(rewriter, loc, value, number));
  }
  for (UnrealizedConversionCastOp placeholder : placeholders) {
    // Slices that are read from tapes now.
    for (Operation *user : llvm::make_early_inc_range(placeholder->getUsers()))
      user->erase();
    placeholder.erase();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

namespace {
struct LoopModel
    : DifferentiableOpInterface::ExternalModel<LoopModel, scf::ForOp> {
  LogicalResult emitVJP(Operation *op, OpBuilder &builder,
                        Adjoints &adjoints) const {
    return LoopGradient(cast<scf::ForOp>(op), builder, adjoints).emit();
  }
};
} // namespace

void fovea::attn::registerLoopRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, scf::SCFDialect *) {
    scf::ForOp::attachInterface<LoopModel>(*context);
  });
}
