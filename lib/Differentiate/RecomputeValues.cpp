//===- RecomputeValues.cpp - Keep less from forward to backward -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A value is cheap when an elementwise operation, or a view, computes it from
// values that are kept anyway: arguments of the function, and what other
// operations of the backward part use. Sums are not cheap, and what only sums
// could give again is kept.
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fovea::attn;

/// On an operation that is computed a second time; keeps it apart from the
/// first.
static constexpr llvm::StringLiteral kRecomputedAttrName = "attn.recomputed";

static bool isElementwiseOrView(Operation *op) {
  if (auto structured = dyn_cast<linalg::LinalgOp>(op))
    return structured.getNumReductionLoops() == 0;
  return isa<tensor::CastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp,
             tensor::ExtractSliceOp>(op);
}

/// Whether an operation costs nothing: it may be repeated along.
static bool isFree(Operation *op) {
  return isa<tensor::EmptyOp, tensor::DimOp, linalg::FillOp>(op) ||
         op->hasTrait<OpTrait::ConstantLike>();
}

namespace {
class Recomputation {
public:
  explicit Recomputation(Operation *boundary) : boundary(boundary) {}

  void run();

private:
  bool isForward(Operation *op) {
    return op && op->getBlock() == boundary->getBlock() &&
           op->isBeforeInBlock(boundary);
  }
  bool isAvailable(Value value);
  void chooseValues();
  void moveUses(Operation *op);
  Operation *repeat(Operation *op, Operation *user);

  Operation *boundary;
  /// Operations of the forward part that the backward part uses.
  llvm::DenseSet<Operation *> used, cheap;
  llvm::DenseMap<Operation *, Operation *> copies;
};
} // namespace

bool Recomputation::isAvailable(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !isa<RankedTensorType>(value.getType()))
    return true;
  return isFree(op) || used.contains(op);
}

void Recomputation::chooseValues() {
  Block *block = boundary->getBlock();
  for (Operation &op : *block) {
    if (isForward(&op) || &op == boundary)
      continue;
    op.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (isForward(operand.getDefiningOp()))
          used.insert(operand.getDefiningOp());
    });
  }
  for (Operation &op : *block)
    if (isForward(&op) && used.contains(&op) && isElementwiseOrView(&op) &&
        llvm::all_of(op.getOperands(),
                     [&](Value operand) { return isAvailable(operand); }))
      cheap.insert(&op);
}

/// A copy of `op` right before its first use.
Operation *Recomputation::repeat(Operation *op, Operation *user) {
  Operation *&known = copies[op];
  if (known)
    return known;
  OpBuilder builder(user);
  Operation *copy = builder.clone(*op);
  if (!isFree(op))
    copy->setDiscardableAttr(kRecomputedAttrName, builder.getUnitAttr());
  copies[op] = copy;
  moveUses(copy);
  return copy;
}

/// Lets `op` read copies instead of what has been computed forwards.
void Recomputation::moveUses(Operation *op) {
  for (OpOperand &operand : op->getOpOperands()) {
    Operation *source = operand.get().getDefiningOp();
    if (!isForward(source) || !(cheap.contains(source) || isFree(source)))
      continue;
    auto result = cast<OpResult>(operand.get());
    operand.set(repeat(source, op)->getResult(result.getResultNumber()));
  }
}

void Recomputation::run() {
  chooseValues();
  SmallVector<Operation *> backward;
  for (Operation &op : *boundary->getBlock())
    if (!isForward(&op) && &op != boundary &&
        !op.hasTrait<OpTrait::IsTerminator>())
      backward.push_back(&op);
  for (Operation *op : backward)
    moveUses(op);
}

void fovea::attn::recomputeCheapValues(Operation *boundary) {
  Recomputation(boundary).run();
}
