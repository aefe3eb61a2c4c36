//===- CaptureSums.cpp - Gradients of what score regions read -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An element that many entries read gets a gradient from each. They are summed
// for a head first: where the index is the same for the whole head, in one
// vector; where it is the same along diagonals, by a vector for these, whose
// sums are added to elements at the end; for lanes that read next to each
// other, by a vector; for lanes that read the same, by their sum; and else lane
// by lane, in their order.
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ReadLines.h"
#include "fovea/Kernels/ScoreBody.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

/// Whether an index is within a dimension of `memref`.
static Value isWithin(KernelBuilder &b, Value index, Value memref,
                      unsigned dim) {
  // What is negative is large without its sign.
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index,
                               b.extent(memref, dim));
}

bool ScoreBody::differsInHead(Value value) const {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return llvm::is_contained(
        {score_argument::Score, score_argument::Query, score_argument::Key},
        argument.getArgNumber());
  return llvm::any_of(value.getDefiningOp()->getOperands(),
                      [&](Value operand) { return differsInHead(operand); });
}

std::pair<Value, Value> ScoreBody::placeRead(KernelBuilder &b, unsigned number,
                                             Value query, Value key) {
  tensor::ExtractOp read = derivatives.reads[number].read;
  Value memref = getMemRef(read), place = b.index(0),
        all = arith::ConstantOp::create(b, b.getBoolAttr(true));
  for (auto [dim, index] : llvm::enumerate(locate(b, read, {query}, {key}))) {
    place = b.add(b.mul(place, b.extent(memref, dim)), index.value);
    all = b.both(all, isWithin(b, index.value, memref, dim));
  }
  return {place, all};
}

void ScoreBody::allocateSums(KernelBuilder &b, Value numPositions,
                             Value numQueries) {
  Value numDiagonals;
  if (numPositions) {
    ownDiagonal = numPositions;
    // Whole vectors of them.
    numDiagonals = b.add(b.add(ownDiagonal, numPositions),
                         b.add(numQueries, b.getLanes()));
  }
  sums.clear();
  laneIndices.clear();
  size_t mostFree = 0;
  for (const ScoreDerivatives::OfRead &each : derivatives.reads) {
    Sums &own = sums.emplace_back();
    tensor::ExtractOp read = each.read;
    Value memref = getMemRef(read), size = b.index(1);
    for (auto [dim, index] : llvm::enumerate(read.getIndices()))
      if (differsInHead(index)) {
        own.free.push_back(dim);
        size = b.mul(size, b.extent(memref, dim));
      }
    mostFree = std::max(mostFree, own.free.size());
    if (numDiagonals && findReadLines(read) == ReadLines::Diagonal)
      own.diagonals =
          b.scratch(ArrayRef<Value>(numDiagonals), {}, b.getStateType());
    own.values = own.free.empty()
                     ? b.scratch({b.getLanes()}, b.getStateType())
                     : b.scratch(ArrayRef<Value>(size), {}, b.getStateType());
  }
  for (size_t i = 0; i < mostFree; ++i)
    laneIndices.push_back(b.scratch({b.getLanes()}, b.getI64Type()));
  if (!sums.empty())
    laneGradients = b.scratch({b.getLanes()}, b.getStateType());
}

void ScoreBody::clearSums(KernelBuilder &b) {
  for (const Sums &own : sums)
    for (Value values : {own.values, own.diagonals}) {
      if (!values)
        continue;
      Value size = b.extent(values, 0);
      Value whole = b.roundDown(size, b.getLanes());
      b.loop(b.index(0), whole, b.getLanes(),
             [&](Value at) { b.storeVector(b.splat(0.0), values, at); });
      b.loop(whole, size, 1,
             [&](Value at) { b.storeScalar(b.scalar(0.0), values, at); });
    }
}

/// Adds the lanes of `gradients` to numbers that follow each other from `first`
/// on, the last lane first if `isReversed`.
void ScoreBody::addRun(KernelBuilder &b, Value sums, Value first,
                       Value gradients, bool isReversed) {
  if (isReversed) {
    SmallVector<int64_t> order;
    for (int64_t lane = b.getLanes(); lane-- > 0;)
      order.push_back(lane);
    gradients = vector::ShuffleOp::create(b, gradients, gradients, order);
  }
  b.storeVector(b.fadd(b.loadVector(sums, first), gradients), sums, first);
}

void ScoreBody::addToSums(KernelBuilder &b, unsigned number, Value gradients,
                          Place query, Place key) {
  const Sums &own = sums[number];
  if (!own.diagonals)
    return addToElements(b, number, gradients, query, key);
  assert(query.step == 1 && key.step == 0 && "lanes are queries");
  Value last = b.add(query.getFirst(b), b.getLanes() - 1);
  addRun(b, own.diagonals, b.add(b.sub(key.getFirst(b), last), ownDiagonal),
         gradients, /*isReversed=*/true);
}

/// Adds the sums of diagonals, a vector of them at a time, to those of what
/// they read.
void ScoreBody::foldDiagonals(KernelBuilder &b, unsigned number) {
  Value diagonals = sums[number].diagonals;
  Value whole = b.roundDown(b.extent(diagonals, 0), b.getLanes());
  auto fold = [&](Value first, Value gradients) {
    Value isAny = vector::ReductionOp::create(
        b, vector::CombiningKind::OR,
        arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, gradients,
                              b.splat(0.0)));
    b.ifThen(isAny, [&] {
      // At positions that are not negative.
      addToElements(b, number, gradients, {ownDiagonal}, {first, /*step=*/1});
    });
  };
  b.loop(b.index(0), whole, b.getLanes(),
         [&](Value first) { fold(first, b.loadVector(diagonals, first)); });
}

void ScoreBody::addToElements(KernelBuilder &b, unsigned number,
                              Value gradients, Place query, Place key) {
  const Sums &own = sums[number];
  if (own.free.empty()) {
    Value old = b.loadVector(own.values, b.index(0));
    return b.storeVector(b.fadd(old, gradients), own.values, b.index(0));
  }
  tensor::ExtractOp read = derivatives.reads[number].read;
  Value memref = getMemRef(read);
  SmallVector<Lanes> at = locate(b, read, query, key);
  auto addAt = [&](Value offset, Value gradient) {
    b.storeScalar(b.fadd(b.loadScalar(own.values, offset), gradient),
                  own.values, offset);
  };
  /// Where an element is among the sums, and whether there is one.
  auto place = [&](ArrayRef<Value> indices) {
    Value offset, all;
    for (auto [dim, index] : llvm::zip(own.free, indices)) {
      offset =
          offset ? b.add(b.mul(offset, b.extent(memref, dim)), index) : index;
      Value inside = isWithin(b, index, memref, dim);
      all = all ? b.both(all, inside) : inside;
    }
    return std::pair(offset, all);
  };
  auto addLanes = [&] {
    for (auto [scratch, dim] : llvm::zip(laneIndices, own.free))
      vector::StoreOp::create(b, toVector(b, at[dim], /*bits=*/64), scratch,
                              ValueRange{b.index(0)});
    b.storeVector(gradients, laneGradients, b.index(0));
    b.loop(b.index(0), b.index(b.getLanes()), 1, [&](Value lane) {
      SmallVector<Value> indices;
      for (size_t i = 0; i < own.free.size(); ++i)
        indices.push_back(b.loadIndex(laneIndices[i], lane));
      auto [offset, inside] = place(indices);
      b.ifThen(inside, [&, offset = offset] {
        addAt(offset, b.loadScalar(laneGradients, lane));
      });
    });
  };
  SmallVector<Value> first;
  bool isUniform = true, isRun = true;
  for (unsigned dim : own.free) {
    first.push_back(at[dim].value);
    bool isSame = at[dim].kind == Lanes::Uniform;
    isUniform &= isSame;
    isRun &= isSame || (dim == own.free.back() && at[dim].kind == Lanes::Ramp &&
                        std::abs(at[dim].step) == 1);
  }
  if (isUniform) {
    auto [offset, inside] = place(first);
    Value sum = sumLanes(b, gradients);
    return b.ifThen(inside, [&, offset = offset] { addAt(offset, sum); });
  }
  if (!isRun)
    return addLanes();
  bool isReversed = at[own.free.back()].step < 0;
  SmallVector<Value> last = first;
  last.back() = isReversed ? b.sub(first.back(), b.index(b.getLanes() - 1))
                           : b.add(first.back(), b.getLanes() - 1);
  Value lowest = place(isReversed ? last : first).first;
  Value isWhole = b.both(place(first).second, place(last).second);
  b.ifThenElse(
      isWhole, [&] { addRun(b, own.values, lowest, gradients, isReversed); },
      addLanes);
}

void ScoreBody::storeSums(KernelBuilder &b, ValueRange destinations) {
  for (auto [number, own] : llvm::enumerate(sums)) {
    if (own.diagonals)
      foldDiagonals(b, number);
    tensor::ExtractOp read = derivatives.reads[number].read;
    Value memref = getMemRef(read);
    Value destination =
        destinations[derivatives.reads[number].getTensorNumber()];
    SmallVector<Value> at;
    Value inside = arith::ConstantOp::create(b, b.getBoolAttr(true));
    for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
      bool isFree = llvm::is_contained(own.free, dim);
      at.push_back(isFree ? Value() : ofHead.lanes.at(index).value);
      if (!isFree)
        inside = b.both(inside, isWithin(b, at.back(), memref, dim));
    }
    auto add = [&](Value sum) {
      Value old = memref::LoadOp::create(b, destination, at);
      if (old.getType() != sum.getType())
        sum = arith::ExtFOp::create(b, old.getType(), sum);
      memref::StoreOp::create(b, arith::AddFOp::create(b, old, sum),
                              destination, at);
    };
    const Sums &sum = own;
    std::function<void(size_t, Value)> addFrom = [&](size_t level,
                                                     Value offset) {
      if (level == sum.free.size())
        return add(b.loadScalar(sum.values, offset));
      unsigned dim = sum.free[level];
      Value extent = b.extent(memref, dim);
      b.loop(b.index(0), extent, 1, [&](Value index) {
        at[dim] = index;
        addFrom(level + 1, b.add(b.mul(offset, extent), index));
      });
    };
    b.ifThen(inside, [&] {
      if (sum.free.empty())
        return add(sumLanes(b, b.loadVector(sum.values, b.index(0))));
      addFrom(0, b.index(0));
    });
  }
}
