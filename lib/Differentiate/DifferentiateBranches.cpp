//===- DifferentiateBranches.cpp - Gradients of if and while --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a branch takes the same branch, computes again what that does
// on the way, and runs backwards through it.
//
// A loop that runs as long as a condition holds
//
//   while c(x): x = f(x)
//
// is run twice: once to count its iterations, with what its condition depends
// on, and then as a loop of that many, whose gradient is known. So nothing
// grows while it runs.
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fovea::attn;

LogicalResult fovea::attn::checkRepeatable(Operation *op) {
  WalkResult effects = op->walk([&](Operation *inner) {
    // An assertion holds the second time as well.
    bool isRepeatable = isa<cf::AssertOp>(inner) ||
                        inner->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
                        isMemoryEffectFree(inner);
    if (isRepeatable)
      return WalkResult::advance();
    inner->emitOpError("is in ")
        << (isa<scf::IfOp>(op) ? "a branch" : "a loop")
        << " that has no gradient, because of its side effects";
    return WalkResult::interrupt();
  });
  return failure(effects.wasInterrupted());
}

Value fovea::attn::getAdjointOrZeros(OpBuilder &b, Location loc,
                                     const Adjoints &adjoints, Value value) {
  if (Value adjoint = adjoints.find(value))
    return adjoint;
  return createZerosLike(b, loc, value,
                         getStateType(getElementTypeOrSelf(value)));
}

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

namespace {
struct BranchModel
    : DifferentiableOpInterface::ExternalModel<BranchModel, scf::IfOp> {
  LogicalResult emitVJP(Operation *op, OpBuilder &b, Adjoints &adjoints) const;
};
} // namespace

/// Fills a branch of the gradient: what `taken` computes, and what runs
/// backwards through it. It yields the adjoints of `captures`.
static LogicalResult emitBranch(OpBuilder &b, scf::IfOp branch, Block &taken,
                                Block &backward, ArrayRef<Value> captures,
                                const Adjoints &adjoints) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&backward);
  Location loc = branch.getLoc();
  Adjoints inner;
  for (Value capture : captures) {
    inner.activate(capture);
    if (Value adjoint = adjoints.find(capture))
      inner.set(capture, adjoint);
  }
  IRMapping values;
  SmallVector<Operation *> ops;
  for (Operation &op : taken.without_terminator()) {
    ops.push_back(b.clone(op, values));
    inner.activateResults(ops.back());
  }
  for (auto [result, yielded] : llvm::zip_equal(
           branch.getResults(), taken.getTerminator()->getOperands()))
    if (Value adjoint = adjoints.find(result))
      inner.add(b, values.lookupOrDefault(yielded), adjoint);
  if (failed(inner.emitVJPs(b, ops)))
    return failure();
  SmallVector<Value> yielded;
  for (Value capture : captures)
    yielded.push_back(getAdjointOrZeros(b, loc, inner, capture));
  scf::YieldOp::create(b, loc, yielded);
  return success();
}

LogicalResult BranchModel::emitVJP(Operation *op, OpBuilder &b,
                                   Adjoints &adjoints) const {
  auto branch = cast<scf::IfOp>(op);
  if (failed(checkRepeatable(branch)))
    return failure();
  llvm::SetVector<Value> captures;
  visitUsedValuesDefinedAbove(branch->getRegions(), [&](OpOperand *operand) {
    if (adjoints.isActive(operand->get()))
      captures.insert(operand->get());
  });
  SmallVector<Type> types;
  for (Value capture : captures) {
    if (!isa<FloatType>(getElementTypeOrSelf(capture)))
      return branch.emitOpError("has no gradient for the keys of its codes");
    Type type = getStateType(getElementTypeOrSelf(capture));
    if (auto shaped = dyn_cast<ShapedType>(capture.getType()))
      type = shaped.clone(type);
    types.push_back(type);
  }
  auto backward = scf::IfOp::create(
      b, op->getLoc(), types, branch.getCondition(), /*addThenBlock=*/true,
      /*addElseBlock=*/true);
  for (auto [taken, gradient] :
       {std::pair(branch.thenBlock(), backward.thenBlock()),
        std::pair(branch.elseBlock(), backward.elseBlock())})
    if (failed(emitBranch(b, branch, *taken, *gradient, captures.getArrayRef(),
                          adjoints)))
      return failure();
  for (auto [capture, adjoint] :
       llvm::zip_equal(captures, backward.getResults()))
    adjoints.set(capture, adjoint);
  return success();
}

//===----------------------------------------------------------------------===//
// Loops of unknown length
//===----------------------------------------------------------------------===//

namespace {
/// What decides how often a loop runs: numbers of the states that it carries,
/// and of the values that its condition hands to its body.
class DecidingStates {
public:
  explicit DecidingStates(scf::WhileOp loop);

  llvm::BitVector carried, handed;

private:
  void addOperands(Operation *op);
  void follow(Value value);

  scf::WhileOp loop;
  llvm::SetVector<Value> values;
};
} // namespace

DecidingStates::DecidingStates(scf::WhileOp loop)
    : carried(loop.getInits().size()), handed(loop.getNumResults()),
      loop(loop) {
  values.insert(loop.getConditionOp().getCondition());
  // Assertions hold while iterations are counted, too.
  loop->walk([&](Operation *op) {
    if (op != loop.getOperation() && !op->hasTrait<OpTrait::IsTerminator>() &&
        !wouldOpBeTriviallyDead(op))
      addOperands(op);
  });
  for (size_t next = 0; next < values.size(); ++next)
    follow(values[next]);
}

void DecidingStates::addOperands(Operation *op) {
  op->walk(
      [&](Operation *inner) { values.insert_range(inner->getOperands()); });
}

void DecidingStates::follow(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument) {
    // Values from outside of the loop stay there.
    if (loop->isProperAncestor(value.getDefiningOp()))
      addOperands(value.getDefiningOp());
    return;
  }
  unsigned number = argument.getArgNumber();
  if (argument.getOwner() == loop.getBeforeBody()) {
    carried.set(number);
    values.insert(loop.getYieldOp().getResults()[number]);
  } else if (argument.getOwner() == loop.getAfterBody()) {
    handed.set(number);
    values.insert(loop.getConditionOp().getArgs()[number]);
  }
}

static SmallVector<Value> choose(ValueRange values,
                                 const llvm::BitVector &chosen) {
  return llvm::map_to_vector(chosen.set_bits(),
                             [&](unsigned number) { return values[number]; });
}

/// Takes from a block the arguments but those to `keep`, and what is computed
/// for nothing then.
static void keepArguments(Block &block, const llvm::BitVector &keep) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
  llvm::BitVector others = keep;
  block.eraseArguments(others.flip());
}

/// A copy of a loop that counts its iterations, as its last result, and carries
/// what decides how many these are.
static scf::WhileOp createCounting(OpBuilder &b, scf::WhileOp loop) {
  Location loc = loop.getLoc();
  DecidingStates deciding(loop);
  SmallVector<Value> inits = choose(loop.getInits(), deciding.carried);
  inits.push_back(arith::ConstantIndexOp::create(b, loc, 0));
  SmallVector<Type> types(
      ValueRange(choose(loop.getResults(), deciding.handed)).getTypes());
  types.push_back(b.getIndexType());
  auto counting = scf::WhileOp::create(b, loc, types, inits);
  IRMapping mapping;
  loop.getBefore().cloneInto(&counting.getBefore(), mapping);
  loop.getAfter().cloneInto(&counting.getAfter(), mapping);
  scf::ConditionOp condition = counting.getConditionOp();
  condition.getArgsMutable().assign(
      choose(condition.getArgs(), deciding.handed));
  scf::YieldOp yield = counting.getYieldOp();
  yield.getResultsMutable().assign(
      choose(yield.getResults(), deciding.carried));
  keepArguments(*counting.getBeforeBody(), deciding.carried);
  keepArguments(*counting.getAfterBody(), deciding.handed);
  Value asked = counting.getBeforeBody()->addArgument(b.getIndexType(), loc);
  condition.getArgsMutable().append(asked);
  Value number = counting.getAfterBody()->addArgument(b.getIndexType(), loc);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(yield);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value next = arith::AddIOp::create(b, loc, number, one);
  yield.getResultsMutable().append(next);
  return counting;
}

/// Computes what a block does with `arguments`, and returns what `yielded`,
/// values of it, are.
static SmallVector<Value> inlineBlock(OpBuilder &b, Block &block,
                                      ValueRange arguments,
                                      ValueRange yielded) {
  IRMapping values;
  values.map(block.getArguments(), arguments);
  for (Operation &op : block.without_terminator())
    b.clone(op, values);
  return llvm::map_to_vector(
      yielded, [&](Value value) { return values.lookupOrDefault(value); });
}

LogicalResult fovea::attn::countIterations(scf::WhileOp loop) {
  if (failed(checkRepeatable(loop)))
    return failure();
  OpBuilder b(loop);
  Location loc = loop.getLoc();
  ValueRange passed = loop.getConditionOp().getArgs();
  scf::WhileOp counting = createCounting(b, loop);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  auto counted = scf::ForOp::create(
      b, loc, zero, counting.getResults().back(), one, loop.getInits(),
      [&](OpBuilder &b, Location loc, Value, ValueRange states) {
        SmallVector<Value> handed =
            inlineBlock(b, *loop.getBeforeBody(), states, passed);
        scf::YieldOp::create(b, loc,
                             inlineBlock(b, *loop.getAfterBody(), handed,
                                         loop.getYieldOp().getResults()));
      });
  // The condition that ends the loop hands results out.
  loop.replaceAllUsesWith(
      inlineBlock(b, *loop.getBeforeBody(), counted.getResults(), passed));
  loop.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

void fovea::attn::registerBranchRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, scf::SCFDialect *) {
    scf::IfOp::attachInterface<BranchModel>(*context);
  });
}
