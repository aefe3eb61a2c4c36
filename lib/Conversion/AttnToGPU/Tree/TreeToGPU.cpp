//===- TreeToGPU.cpp - Choosing nodes of trees on a GPU
//--------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread for each candidate counts how many others are better; those with
// fewer than `split` better ones are chosen. Then a block for each batch entry
// lists the new frontier: every thread has a piece of the old one, and learns
// from the counts of the threads before where to write. What nobody writes to
// is absent.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Threads that list the frontier of one batch entry.
static constexpr int64_t kNumThreads = 256;

namespace {
class SplitLoops {
public:
  SplitLoops(OpBuilder &builder, TreeSplitOp op)
      : op(op), b(op.getLoc(), builder, kNumThreads),
        batches(b.extent(op.getNewLevel(), 0)),
        numCandidates(op.getNumCandidates()) {}

  void emit() {
    auto type = cast<MemRefType>(op.getNewLevel().getType());
    SmallVector<Value> dynamicExtents;
    if (type.isDynamicDim(0))
      dynamicExtents.push_back(batches);
    chosen = memref::AllocOp::create(
        b, MemRefType::get({type.getDimSize(0), numCandidates}, b.getI32Type()),
        dynamicExtents);
    choose();
    {
      OpBuilder::InsertionGuard guard(b);
      list();
    }
    memref::DeallocOp::create(b, chosen);
  }

private:
  Value load(Value memref, Value batch, Value at) {
    return memref::LoadOp::create(b, memref, ValueRange{batch, at});
  }

  /// Whether a candidate is there and has tokens; null if all are.
  Value isPresent(Value batch, Value candidate) {
    Value node = candidate, isThere;
    if (op.getCandidates()) {
      Value index = load(op.getCandidates(), batch, candidate);
      isThere = b.less(b.i32(-1), index);
      node = b.toIndex(b.max(index, b.i32(0)));
    }
    if (!op.getCounts())
      return isThere;
    int64_t firstRow = op.getShape().getFirstRow(op.getAt(), op.getNumRoots());
    Value count = load(op.getCounts(), batch, b.add(node, firstRow));
    Value hasTokens = b.less(b.i32(0), count);
    return isThere ? b.both(isThere, hasTokens) : hasTokens;
  }

  /// NaN counts as the lowest score.
  Value loadScore(Value batch, Value candidate) {
    Value score = load(op.getScores(), batch, candidate);
    auto type = cast<FloatType>(score.getType());
    Value isNumber =
        arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, score, score);
    Value lowest = arith::ConstantOp::create(
        b,
        b.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics(), true)));
    return b.select(isNumber, score, lowest);
  }

  void choose() {
    Value zero = b.i32(0), one = b.i32(1);
    parallelLoop(b, {batches, b.index(numCandidates)}, [&](ValueRange at) {
      // Without scores, no candidate is better than another.
      Value batch = at[0], own = at[1], better = zero;
      if (op.getScores()) {
        Value score = loadScore(batch, own);
        auto countBetter = [&](Value other, ValueRange sum) -> Values {
          Value otherScore = loadScore(batch, other);
          Value isGreater = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                                  otherScore, score);
          Value ties = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                             otherScore, score);
          Value isBetter =
              b.either(isGreater, b.both(ties, b.less(other, own)));
          if (Value present = isPresent(batch, other))
            isBetter = b.both(isBetter, present);
          return {b.add(sum[0], b.select(isBetter, one, zero))};
        };
        better = b.loop(b.index(0), b.index(numCandidates), 1, {zero},
                        countBetter)[0];
      }
      Value isChosen = b.less(better, b.i32(op.getSplit()));
      if (Value present = isPresent(batch, own))
        isChosen = b.both(isChosen, present);
      memref::StoreOp::create(b, b.select(isChosen, one, zero), chosen, at);
    });
  }

  Value isCandidate(Value batch, Value j) {
    if (!op.getLevel())
      return arith::ConstantIntOp::create(b, 1, /*width=*/1);
    return b.equal(load(op.getLevel(), batch, j), b.i32(op.getAt()));
  }

  /// 1 if entry `j` of the frontier, candidate `number` if it is one, is split.
  Value isSplit(Value batch, Value j, Value number) {
    Value exists =
        b.both(isCandidate(batch, j), b.less(number, b.i32(numCandidates)));
    return b.select(
        exists, b.getI32Type(),
        [&] { return load(chosen, batch, b.toIndex(number)); },
        [&] { return b.i32(0); });
  }

  /// The sum of the numbers that the threads before this one give.
  Value sumBefore(Value number, Value shared) {
    memref::StoreOp::create(b, number, shared, b.toIndex(b.thread()));
    b.barrier();
    return b.loop(b.i32(0), b.thread(), 1, {b.i32(0)},
                  [&](Value other, ValueRange sum) -> Values {
                    Value part =
                        memref::LoadOp::create(b, shared, b.toIndex(other));
                    return {b.add(sum[0], part)};
                  })[0];
  }

  /// The threads of a block make all entries absent; a barrier has to follow.
  void clear(Value batch, Value list) {
    b.loop(b.toIndex(b.thread()), b.extent(list, 1), kNumThreads,
           [&](Value at) {
             memref::StoreOp::create(b, b.i32(-1), list, ValueRange{batch, at});
           });
  }

  void list() {
    int64_t count = op.getNumFrontier();
    int64_t piece = llvm::divideCeil(count, kNumThreads);
    int64_t bytes = kNumThreads * sizeof(int32_t);
    Value batch = beginBlocks(b, batches, 2 * bytes)[0];
    Value candidatesOf = b.sharedBuffer(0, {kNumThreads}, b.getI32Type());
    Value splitsOf = b.sharedBuffer(bytes, {kNumThreads}, b.getI32Type());
    clear(batch, op.getNewLevel());
    clear(batch, op.getNewIndex());
    clear(batch, op.getChildren());
    Value low = b.mul(b.toIndex(b.thread()), piece);
    Value high = b.min(b.add(low, piece), count);
    Value zero = b.i32(0), one = b.i32(1);
    auto next = [&](Value j, Value number) {
      return b.add(number, b.select(isCandidate(batch, j), one, zero));
    };

    Value own =
        b.loop(low, high, 1, {zero}, [&](Value j, ValueRange number) -> Values {
          return {next(j, number[0])};
        })[0];
    Value number = sumBefore(own, candidatesOf);
    Value splits = b.loop(low, high, 1, {number, zero},
                          [&](Value j, ValueRange state) -> Values {
                            Value split = isSplit(batch, j, state[0]);
                            return {next(j, state[0]), b.add(state[1], split)};
                          })[1];
    Value before = sumBefore(splits, splitsOf);
    b.loop(low, high, 1, {number, before},
           [&](Value j, ValueRange state) -> Values {
             Value split = isSplit(batch, j, state[0]);
             write(batch, j, b.equal(split, one), b.toIndex(state[1]));
             return {next(j, state[0]), b.add(state[1], split)};
           });
  }

  /// Entry `j`, or its children, with `before` entries split before it.
  void write(Value batch, Value j, Value split, Value before) {
    int64_t ratio = op.getShape().getRatio();
    Value level =
        op.getLevel() ? load(op.getLevel(), batch, j) : b.i32(op.getAt());
    Value index = op.getIndex() ? load(op.getIndex(), batch, j) : b.toI32(j);
    Value target = b.add(j, b.mul(before, ratio - 1));
    auto put = [&](Value level, Value index, Value target) {
      memref::StoreOp::create(b, level, op.getNewLevel(),
                              ValueRange{batch, target});
      memref::StoreOp::create(b, index, op.getNewIndex(),
                              ValueRange{batch, target});
    };
    b.ifThenElse(
        split,
        [&] {
          Value first = b.mul(index, ratio);
          b.loop(b.index(0), b.index(ratio), 1, [&](Value child) {
            Value childIndex = b.add(first, b.toI32(child));
            put(b.i32(op.getAt() - 1), childIndex, b.add(target, child));
            memref::StoreOp::create(
                b, childIndex, op.getChildren(),
                ValueRange{batch, b.add(b.mul(before, ratio), child)});
          });
        },
        [&] {
          b.ifThen(b.less(b.i32(-1), index),
                   [&] { put(level, index, target); });
        });
  }

  TreeSplitOp op;
  GPUKernelBuilder b;
  Value batches, chosen;
  int64_t numCandidates;
};
} // namespace

// Scores are only compared, in any type.
static LogicalResult lowerSplit(TreeSplitOp op, OpBuilder &builder,
                                GPULowering &) {
  SplitLoops(builder, op).emit();
  return success();
}

void fovea::attn::attachTreeToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerSplit>(context);
}
