//===- ReadLines.cpp - Entries that read the same number ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ReadLines.h"
#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// What a value of a region depends on.
struct Dependence {
  bool onScore = false, onQuery = false, onKey = false;
  /// By how much it grows where query and key move by one together; none where
  /// that is not the same everywhere.
  std::optional<int64_t> step = 0;

  static Dependence join(const Dependence &left, const Dependence &right) {
    return {left.onScore || right.onScore, left.onQuery || right.onQuery,
            left.onKey || right.onKey, std::nullopt};
  }
};

class Dependences {
public:
  Dependence find(Value value) {
    auto known = found.find(value);
    if (known != found.end())
      return known->second;
    Dependence dependence = compute(value);
    found[value] = dependence;
    return dependence;
  }

private:
  Dependence compute(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      unsigned number = argument.getArgNumber();
      bool moves =
          number == score_argument::Query || number == score_argument::Key;
      return {number == score_argument::Score, number == score_argument::Query,
              number == score_argument::Key, moves ? 1 : 0};
    }
    Operation *op = value.getDefiningOp();
    Dependence all;
    bool areFixed = true;
    for (Value operand : op->getOperands()) {
      Dependence own = find(operand);
      areFixed &= own.step == 0;
      all = Dependence::join(all, own);
    }
    all.step =
        areFixed && !all.onScore ? std::optional<int64_t>(0) : findStep(op);
    return all;
  }

  /// Of sums, and of products with constants.
  std::optional<int64_t> findStep(Operation *op) {
    SmallVector<std::optional<int64_t>, 2> steps;
    for (Value operand : op->getOperands())
      steps.push_back(find(operand).step);
    if (!llvm::all_of(steps, [](auto step) { return step.has_value(); }))
      return std::nullopt;
    APInt factor;
    if (isa<arith::AddIOp>(op))
      return *steps[0] + *steps[1];
    if (isa<arith::SubIOp>(op))
      return *steps[0] - *steps[1];
    if (isa<arith::MulIOp>(op) &&
        matchPattern(op->getOperand(1), m_ConstantInt(&factor)))
      return *steps[0] * factor.getSExtValue();
    if (isa<arith::IndexCastOp, arith::ExtSIOp>(op))
      return steps[0];
    return std::nullopt;
  }

  llvm::DenseMap<Value, Dependence> found;
};
} // namespace

LogicalResult fovea::attn::checkReads(Operation *op,
                                      ArrayRef<ScoreDerivatives> ofRegions) {
  Dependences dependences;
  for (const ScoreDerivatives &ofRegion : ofRegions)
    for (const ScoreDerivatives::OfRead &each : ofRegion.reads) {
      tensor::ExtractOp read = each.read;
      bool isByScore = llvm::any_of(read.getIndices(), [&](Value index) {
        return dependences.find(index).onScore;
      });
      if (each.value && isByScore)
        return op->emitOpError("has a gradient of a capture that is read at a "
                               "place which depends on the score; only the "
                               "reference computes it");
    }
  return success();
}

ReadLines fovea::attn::findReadLines(tensor::ExtractOp read) {
  Dependences dependences;
  Dependence all;
  bool areFixed = true;
  for (Value index : read.getIndices()) {
    Dependence own = dependences.find(index);
    areFixed &= own.step == 0;
    all = Dependence::join(all, own);
  }
  if (all.onScore)
    return ReadLines::None;
  if (all.onQuery && all.onKey)
    return areFixed ? ReadLines::Diagonal : ReadLines::None;
  return all.onQuery ? ReadLines::Query
         : all.onKey ? ReadLines::Key
                     : ReadLines::Head;
}

bool fovea::attn::isIndexedBy(tensor::ExtractOp read, unsigned argument) {
  return llvm::is_contained(read.getIndices(),
                            read->getBlock()->getArgument(argument));
}
