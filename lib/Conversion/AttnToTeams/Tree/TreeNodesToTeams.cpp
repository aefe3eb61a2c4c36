//===- TreeNodesToTeams.cpp - Loops of tree_fetch and tree_update ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// Listed nodes of a task of a thread.
static constexpr int64_t kBlock = 64;

//===----------------------------------------------------------------------===//
// Fetch
//===----------------------------------------------------------------------===//

namespace {
class FetchKernel : TreeKernel {
public:
  FetchKernel(TeamBuilder &builder, TreeFetchOp op)
      : TreeKernel(builder, op.getShape(), op.getTree()), op(op),
        rows(op.getRows()) {}

  void emit() {
    Value count = b.extent(rows, 1);
    int64_t perTask = b.getRowsPerTeam(kBlock);
    // Paths of a few columns fit the memory of a warp.
    int64_t columns = b.hasManyTeams() ? std::min<int64_t>(width, 128) : width;
    forEachPath(b.ceilDiv(count, perTask), columns, [&](Value task) {
      Value first = b.mul(task, perTask);
      b.loop(first, b.min(b.add(first, perTask), count), 1,
             [&](Value j) { emitNode(j); });
    });
  }

private:
  void emitNode(Value j) {
    Value level = b.loadIndex(op.getLevel(), {batch, j});
    Value index = b.loadIndex(op.getIndex(), {batch, j});
    b.ifThenElse(
        b.less(index, b.index(0)), [&] { emitAbsent(j); },
        [&] { emitNode(j, level, index); });
  }

  void emitAbsent(Value j) {
    forPathColumns([&](KernelBuilder &k, Value column, Value) {
      k.storeVector(k.splat(0.0), rows, {batch, j, column});
    });
    storeLogWeight(
        j, [&] { return b.scalar(-std::numeric_limits<double>::infinity()); });
  }

  void emitNode(Value j, Value level, Value index) {
    Value row = rowOf(level, index);
    b.ifThenElse(
        b.equal(level, b.index(getLevels())),
        [&] {
          forPathColumns([&](KernelBuilder &k, Value column, Value) {
            k.storeVector(k.loadVector(tree, {batch, row, column}), rows,
                          {batch, j, column});
          });
        },
        [&] {
          walkTo(level, index);
          forPathColumns([&](KernelBuilder &k, Value column, Value pathColumn) {
            Value difference = k.loadVector(tree, {batch, row, column});
            Value parent = getParentRow(k, level, pathColumn);
            k.storeVector(k.fsub(parent, difference), rows, {batch, j, column});
          });
        });
    storeLogWeight(j, [&] { return getLogWeight(level, row); });
  }

  void storeLogWeight(Value j, function_ref<Value()> getWeight) {
    if (op.getLogWeight())
      b.single(
          [&] { b.storeScalar(getWeight(), op.getLogWeight(), {batch, j}); });
  }

  Value getLogWeight(Value level, Value row) {
    KernelBuilder k(b.getLoc(), b, b.getStateType(), /*lanes=*/0);
    auto getWhole = [&] {
      return k.fmul(k.toNumber(level),
                    k.scalar(std::log(static_cast<double>(getRatio()))));
    };
    if (!op.getCounts())
      return getWhole();
    Value count =
        memref::LoadOp::create(k, op.getCounts(), ValueRange{batch, row});
    Value present = softmax::logCount(k, count);
    if (!op.getWholeSegments())
      return present;
    Value zero = arith::ConstantIntOp::create(k, count.getType(), 0);
    return k.select(k.less(zero, count), getWhole(), present);
  }

  TreeFetchOp op;
  Value rows;
};
} // namespace

//===----------------------------------------------------------------------===//
// Update
//===----------------------------------------------------------------------===//

namespace {
/// Goes through the listed nodes in order. A node's change waits until those of
/// all its siblings are known; then the parent's is their mean, and every
/// sibling moves against it by the rest. What lies below a listed node stays.
class UpdateKernel : TreeKernel {
public:
  UpdateKernel(TeamBuilder &builder, TreeUpdateOp op)
      : TreeKernel(builder, op.getShape(), op.getTree()), op(op) {}

  void emit() {
    count = b.extent(op.getRows(), 1);
    b.ifThenElse(
        hasManyRoots(), [&] { emit(/*byRoots=*/true); },
        [&] { emit(/*byRoots=*/false); });
  }

private:
  /// Roots are independent. Where there are few, tasks are blocks of columns.
  Value hasManyRoots() {
    if (!b.hasManyTeams())
      return b.less(b.index(4 * b.getMinTeams() - 1),
                    b.mul(roots, b.extent(tree, 0)));
    // One launch for any number.
    return b.less(b.index(1), b.index(getConstantIntValue(roots).value_or(2)));
  }

  void emit(bool byRoots) {
    int64_t perTask = b.hasManyTeams() ? 8 : kBlock;
    int64_t changeRows = getLevels() * getRatio() + 1;
    int64_t columns = getColumnsPerTask(changeRows, byRoots);
    Value blocks = byRoots ? b.ceilDiv(count, perTask) : b.index(1);

    forEachPath(blocks, columns, [&](Value block) {
      changes = b.teamBuffer({changeRows, columns}, b.getStateType());
      if (!byRoots) {
        b.loop(b.index(0), count, 1, [&](Value j) { emitNode(j); });
        return;
      }
      Value first = b.mul(block, perTask);
      emitRoots(first, b.min(b.add(first, perTask), count));
    });
  }

  int64_t getColumnsPerTask(int64_t changeRows, bool byRoots) const {
    // Changes that wait should stay in the second-level cache.
    int64_t columns = roundColumns((1 << 18) / (changeRows * 4));
    if (!byRoots || b.hasManyTeams())
      columns = std::min(columns, roundColumns(width / (2 * b.getMinTeams())));
    return std::min(columns, width);
  }

  /// Whole vectors, and whole cache lines of 16 floats; or whole warps.
  int64_t roundColumns(int64_t columns) const {
    int64_t unit = b.hasManyTeams() ? 32 : std::max<int64_t>(b.getLanes(), 64);
    return std::max<int64_t>(columns / unit * unit, unit);
  }

  /// The nodes of all roots that begin from list position `first` on and before
  /// `end`.
  void emitRoots(Value first, Value end) {
    auto goesOn = [&](Value j) -> Value {
      Value at = b.min(j, b.sub(count, b.index(1)));
      // Absent nodes, which come last, end the last root.
      Value level = b.max(b.loadIndex(op.getLevel(), {batch, at}), 0);
      Value index = b.max(b.loadIndex(op.getIndex(), {batch, at}), 0);
      Value token = b.mul(index, segmentOf(level));
      Value within = b.rem(token, shape.getRootSegment());
      return b.less(b.index(0), within);
    };
    Value start =
        b.loopWhile(
             first,
             [&](ValueRange state) {
               return b.both(b.less(state[0], end), goesOn(state[0]));
             },
             [&](ValueRange state) -> Values { return {b.add(state[0], 1)}; })
            .front();
    b.loopWhile(
        b.select(b.less(start, end), start, count),
        [&](ValueRange state) {
          Value more = b.either(b.less(state[0], end), goesOn(state[0]));
          return b.both(b.less(state[0], count), more);
        },
        [&](ValueRange state) -> Values {
          emitNode(state[0]);
          return {b.add(state[0], 1)};
        });
  }

  Value countOf(Value row) { return b.loadIndex(op.getCounts(), {batch, row}); }

  void emitNode(Value j) {
    Value level = b.loadIndex(op.getLevel(), {batch, j});
    Value index = b.loadIndex(op.getIndex(), {batch, j});
    b.ifThen(b.less(b.index(-1), index), [&] { emitNode(j, level, index); });
  }

  void emitNode(Value j, Value level, Value index) {
    Value row = rowOf(level, index);
    Value isPresent = arith::ConstantIntOp::create(b, 1, /*width=*/1);
    if (op.getCounts())
      isPresent = b.less(b.index(0), countOf(row));
    b.ifThenElse(
        b.equal(level, b.index(getLevels())),
        [&] { b.ifThen(isPresent, [&] { replaceRoot(j, row); }); },
        [&] {
          walkTo(level, index);
          emitChange(j, level, row, getSlot(level, index), isPresent);
          b.loopWhile(
              {level, index},
              [&](ValueRange state) {
                return b.both(b.less(state[0], b.index(getLevels())),
                              isLastSibling(state[1]));
              },
              [&](ValueRange state) -> Values {
                Value parent = b.div(state[1], getRatio());
                emitParent(state[0], parent);
                return {b.add(state[0], 1), parent};
              });
        });
  }

  void replaceRoot(Value j, Value row) {
    forPathColumns([&](KernelBuilder &k, Value column, Value) {
      k.storeVector(k.loadVector(op.getRows(), {batch, j, column}), tree,
                    {batch, row, column});
    });
  }

  void emitChange(Value j, Value level, Value row, Value slot,
                  Value isPresent) {
    forPathColumns([&](KernelBuilder &k, Value column, Value pathColumn) {
      Value difference = k.loadVector(tree, {batch, row, column});
      // What a fetch would have returned: then there is no change.
      Value old =
          round(k, k.fsub(getParentRow(k, level, pathColumn), difference));
      Value wanted = k.loadVector(op.getRows(), {batch, j, column});
      Value change = k.select(isPresent, k.fsub(wanted, old), k.splat(0.0));
      k.storeVector(change, changes, {slot, pathColumn});
    });
  }

  /// All children, on level `level`, of `parent` have their changes.
  void emitParent(Value level, Value parent) {
    Value firstSlot = b.mul(level, getRatio());
    Value firstRow = rowOf(level, b.mul(parent, getRatio()));
    Value above = b.add(level, 1);
    Value parentRow = rowOf(above, parent);
    Value isRoot = b.equal(above, b.index(getLevels()));
    Value slot = getSlot(above, parent);
    Value share = b.scalar(1.0 / static_cast<double>(getRatio()));
    if (op.getCounts()) {
      Value parts = b.toNumber(b.max(countOf(parentRow), 1));
      share = arith::DivFOp::create(b, b.scalar(1.0), parts);
    }
    forPathColumns([&](KernelBuilder &k, Value column, Value pathColumn) {
      Value mean = emitMean(k, firstSlot, firstRow, pathColumn, share);
      // Written so that no change leaves every bit, the sign of zero too.
      auto move = [&](Value row, Value back) {
        Value old = k.loadVector(tree, {batch, row, column});
        k.storeVector(k.fsub(old, back), tree, {batch, row, column});
      };
      k.loop(k.index(0), k.index(getRatio()), 1, [&](Value child) {
        Value change =
            k.loadVector(changes, {k.add(firstSlot, child), pathColumn});
        move(k.add(firstRow, child), k.fsub(change, mean));
      });
      k.ifThenElse(
          isRoot, [&] { move(parentRow, k.fsub(k.splat(0.0), mean)); },
          [&] { k.storeVector(mean, changes, {slot, pathColumn}); });
    });
  }

  /// The mean change of the tokens of siblings.
  Value emitMean(KernelBuilder &k, Value firstSlot, Value firstRow,
                 Value pathColumn, Value share) {
    auto addChild = [&](Value child, ValueRange carried) -> Values {
      Value change =
          k.loadVector(changes, {k.add(firstSlot, child), pathColumn});
      if (!op.getCounts())
        return {k.fadd(carried[0], change)};
      // Absent children have a change of zero.
      Value tokens = k.toNumber(
          k.loadIndex(op.getCounts(), {batch, k.add(firstRow, child)}));
      return {k.fadd(carried[0], k.fmul(change, k.broadcast(tokens)))};
    };
    Value sum =
        k.loop(k.index(0), k.index(getRatio()), 1, k.splat(0.0), addChild)
            .front();
    return k.fmul(sum, k.broadcast(share));
  }

  TreeUpdateOp op;
  Value count, changes;
};
} // namespace

LogicalResult fovea::attn::lowerToTeams(TreeFetchOp op, TeamBuilder &builder) {
  FetchKernel(builder, op).emit();
  return success();
}

LogicalResult fovea::attn::lowerToTeams(TreeUpdateOp op, TeamBuilder &builder) {
  UpdateKernel(builder, op).emit();
  return success();
}
