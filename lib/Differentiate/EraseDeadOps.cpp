//===- EraseDeadOps.cpp - Leave out what no gradient needs ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Upstream's passes do not do for this. --canonicalize and --cse keep a state
// that a loop carries for itself alone. --remove-dead-values takes it, but is a
// pass on modules: it empties private functions, whose gradients nobody calls
// yet, and takes arguments from them. It needs whole functions, too, while
// loops are trimmed here as they are built, with a part left out that is still
// to be rewritten.
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// The values of a block, and of its loops and branches, that its terminator or
/// an operation with side effects needs. What a loop carries only to make
/// itself, such as a tensor that nobody reads, is none of them.
class NeededValues {
public:
  explicit NeededValues(Block &block);

  bool contains(Operation *op) const {
    return !wouldOpBeTriviallyDead(op) ||
           llvm::any_of(op->getResults(),
                        [&](Value value) { return values.contains(value); });
  }
  llvm::BitVector getStates(scf::ForOp loop) const;

private:
  void add(Value value) {
    if (values.insert(value).second)
      open.push_back(value);
  }
  void addOperands(Operation *op) {
    for (Value operand : op->getOperands())
      add(operand);
  }
  void addBounds(scf::ForOp loop) {
    for (Value bound :
         {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()})
      add(bound);
  }
  void addState(scf::ForOp loop, unsigned state);
  void addBranch(scf::IfOp branch);
  void follow(Value value);

  llvm::DenseSet<Value> values;
  SmallVector<Value> open;
};
} // namespace

NeededValues::NeededValues(Block &block) {
  addOperands(block.getTerminator());
  for (Operation &op : block.without_terminator())
    op.walk([&](Operation *inner) {
      if (inner->hasTrait<OpTrait::IsTerminator>() ||
          wouldOpBeTriviallyDead(inner))
        return;
      if (auto loop = dyn_cast<scf::ForOp>(inner))
        addBounds(loop);
      else if (auto branch = dyn_cast<scf::IfOp>(inner))
        addBranch(branch);
      else
        addOperands(inner);
    });
  while (!open.empty())
    follow(open.pop_back_val());
}

void NeededValues::addState(scf::ForOp loop, unsigned state) {
  addBounds(loop);
  add(loop.getResult(state));
  add(loop.getInits()[state]);
  add(loop.getYieldedValues()[state]);
}

/// A branch keeps all of its results.
void NeededValues::addBranch(scf::IfOp branch) {
  add(branch.getCondition());
  for (Region &region : branch->getRegions())
    if (!region.empty())
      addOperands(region.front().getTerminator());
}

void NeededValues::follow(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (loop && argument != loop.getInductionVar())
      addState(loop, argument.getArgNumber() - 1);
    return;
  }
  auto result = cast<OpResult>(value);
  if (auto loop = dyn_cast<scf::ForOp>(result.getOwner()))
    return addState(loop, result.getResultNumber());
  if (auto branch = dyn_cast<scf::IfOp>(result.getOwner()))
    return addBranch(branch);
  result.getOwner()->walk([&](Operation *op) { addOperands(op); });
}

llvm::BitVector NeededValues::getStates(scf::ForOp loop) const {
  llvm::BitVector states(loop.getNumResults());
  for (OpResult result : loop.getResults())
    if (values.contains(result))
      states.set(result.getResultNumber());
  return states;
}

/// The loop, carrying nothing but the states `needed`.
static scf::ForOp keepStates(scf::ForOp loop, const llvm::BitVector &needed) {
  if (needed.all())
    return loop;
  IRRewriter rewriter(loop);
  SmallVector<Value> inits, yielded;
  for (unsigned state : needed.set_bits())
    inits.push_back(loop.getInits()[state]);
  auto smaller = scf::ForOp::create(
      rewriter, loop.getLoc(), loop.getLowerBound(), loop.getUpperBound(),
      loop.getStep(), inits, /*bodyBuilder=*/nullptr, loop.getUnsignedCmp());
  smaller->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  // What is not carried any more may be anything of its type.
  SmallVector<Value> arguments = {smaller.getInductionVar()};
  llvm::append_range(arguments, loop.getInits());
  for (auto [argument, state] :
       llvm::zip_equal(smaller.getRegionIterArgs(), needed.set_bits())) {
    arguments[state + 1] = argument;
    yielded.push_back(loop.getYieldedValues()[state]);
    rewriter.replaceAllUsesWith(loop.getResult(state),
                                smaller.getResult(argument.getArgNumber() - 1));
  }
  if (yielded.empty())
    smaller.getBody()->getTerminator()->erase();
  loop.getBody()->getTerminator()->setOperands(yielded);
  rewriter.mergeBlocks(loop.getBody(), smaller.getBody(), arguments);
  rewriter.eraseOp(loop);
  return smaller;
}

static void eraseOthers(Block &block, const NeededValues &needed,
                        Operation *except) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (&op == except)
      continue;
    if (!needed.contains(&op))
      op.erase();
    else if (auto loop = dyn_cast<scf::ForOp>(op))
      eraseOthers(*keepStates(loop, needed.getStates(loop)).getBody(), needed,
                  except);
    else if (auto branch = dyn_cast<scf::IfOp>(op))
      for (Region &region : branch->getRegions())
        for (Block &inner : region)
          eraseOthers(inner, needed, except);
  }
}

void fovea::attn::eraseDeadOps(Block &block, Operation *except) {
  eraseOthers(block, NeededValues(block), except);
}
