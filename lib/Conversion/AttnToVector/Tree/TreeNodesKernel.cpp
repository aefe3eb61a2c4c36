//===- TreeNodesKernel.cpp - Loops of attn.tree_fetch and tree_update -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// Listed nodes of one task.
static constexpr int64_t kBlock = 64;

//===----------------------------------------------------------------------===//
// Fetch
//===----------------------------------------------------------------------===//

namespace {
class FetchKernel : TreeKernel {
public:
  FetchKernel(OpBuilder &builder, TreeFetchOp op, const TreeTarget &target)
      : TreeKernel(builder, op.getLoc(), op.getShape(), op.getTree(), target),
        op(op) {}

  void emit() {
    Value count = b.extent(op.getRows(), 1);
    forEachTask(b.ceilDiv(count, kBlock), [&](Value task) {
      makeTables();
      startPath(width, b.index(0), b.index(width));
      Value first = b.mul(task, kBlock);
      b.loop(first, b.min(b.add(first, kBlock), count), 1,
             [&](Value j) { emitNode(j); });
    });
  }

private:
  void emitNode(Value j) {
    Value level = loadIndex(op.getLevel(), {batch, j});
    Value index = loadIndex(op.getIndex(), {batch, j});
    b.ifThenElse(
        b.less(index, b.index(0)), [&] { emitAbsent(j); },
        [&] { emitNode(j, level, index); });
  }

  void emitAbsent(Value j) {
    forColumns([&](const Columns &c) {
      store(b.splat(0.0), op.getRows(), {batch, j}, c);
    });
    if (op.getLogWeight())
      b.storeScalar(b.scalar(-std::numeric_limits<double>::infinity()),
                    op.getLogWeight(), {batch, j});
  }

  void emitNode(Value j, Value level, Value index) {
    Value row = rowOf(level, index);
    Value rows = op.getRows();
    b.ifThenElse(
        b.equal(level, b.index(getLevels())),
        [&] {
          forColumns([&](const Columns &c) {
            store(load(tree, {batch, row}, c), rows, {batch, j}, c);
          });
        },
        [&] {
          walkTo(level, index);
          forColumns([&](const Columns &c) {
            Value difference = load(tree, {batch, row}, c);
            store(b.fsub(getParentRow(level, c), difference), rows, {batch, j},
                  c);
          });
        });
    if (op.getLogWeight())
      b.storeScalar(getLogWeight(level, row), op.getLogWeight(), {batch, j});
  }

  Value getLogWeight(Value level, Value row) {
    auto toNumber = [&](Value index) -> Value {
      Value integer = arith::IndexCastOp::create(b, b.getI64Type(), index);
      return arith::SIToFPOp::create(b, b.getF64Type(), integer);
    };
    Value weight;
    if (op.getCounts()) {
      Value count = loadIndex(op.getCounts(), {batch, row});
      weight = math::LogOp::create(b, toNumber(count));
    } else {
      double step = std::log(static_cast<double>(getRatio()));
      Value factor = arith::ConstantOp::create(b, b.getF64FloatAttr(step));
      weight = arith::MulFOp::create(b, toNumber(level), factor);
    }
    if (b.getStateType().isF64())
      return weight;
    return arith::TruncFOp::create(b, b.getStateType(), weight);
  }

  TreeFetchOp op;
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
  UpdateKernel(OpBuilder &builder, TreeUpdateOp op, const TreeTarget &target)
      : TreeKernel(builder, op.getLoc(), op.getShape(), op.getTree(), target),
        op(op) {}

  void emit() {
    count = b.extent(op.getRows(), 1);
    // Roots are independent. Where there are few, tasks are blocks of columns.
    int64_t batches = cast<MemRefType>(tree.getType()).getDimSize(0);
    if (ShapedType::isDynamic(batches) || batches < 1)
      batches = 1;
    bool byRoots = roots * batches >= 4 * target.minTasks;
    int64_t rows = getLevels() * getRatio() + 1;
    // Changes that wait should stay in the second-level cache.
    int64_t columns = roundColumns((1 << 18) / (rows * 4));
    if (!byRoots)
      columns = std::min(columns, roundColumns(width / (2 * target.minTasks)));
    columns = std::min(columns, width);
    int64_t slices = (width + columns - 1) / columns;
    Value blocks = byRoots ? b.ceilDiv(count, kBlock) : b.index(1);

    forEachTask(b.mul(blocks, slices), [&](Value task) {
      Value slice = b.rem(task, slices), block = b.div(task, slices);
      makeTables();
      Value begin = b.mul(slice, columns);
      startPath(columns, begin,
                slices == 1 ? b.index(width)
                            : b.min(b.add(begin, columns), width));
      changes = b.scratch({rows, columns}, b.getStateType());
      if (!byRoots) {
        b.loop(b.index(0), count, 1, [&](Value j) { emitNode(j); });
        return;
      }
      emitRoots(b.mul(block, kBlock), b.mul(b.add(block, 1), kBlock));
    });
  }

private:
  /// Whole vectors, and whole cache lines of 16 floats.
  int64_t roundColumns(int64_t columns) const {
    int64_t unit = std::max<int64_t>(lanes, 64);
    return std::max<int64_t>(columns / unit * unit, unit);
  }

  /// The nodes of all roots that begin from list position `first` on and before
  /// `end`.
  void emitRoots(Value first, Value end) {
    auto isInside = [&](Value j) -> Value { return b.less(j, count); };
    auto beginsRoot = [&](Value j) -> Value {
      Value at = b.min(j, b.sub(count, b.index(1)));
      // Absent nodes, which come last, end the last root.
      Value level = b.max(loadIndex(op.getLevel(), {batch, at}), 0);
      Value index = b.max(loadIndex(op.getIndex(), {batch, at}), 0);
      Value token = b.mul(index, segmentOf(level));
      return b.equal(b.rem(token, shape.getRootSegment()), b.index(0));
    };
    auto negate = [&](Value condition) -> Value {
      return arith::XOrIOp::create(
          b, condition, arith::ConstantIntOp::create(b, 1, /*width=*/1));
    };
    Values start = loopWhile(
        first,
        [&](ValueRange state) {
          return b.both(isInside(state[0]), negate(beginsRoot(state[0])));
        },
        [&](ValueRange state) { return Values{b.add(state[0], 1)}; });
    loopWhile(
        start[0],
        [&](ValueRange state) {
          Value more =
              b.either(b.less(state[0], end), negate(beginsRoot(state[0])));
          return b.both(isInside(state[0]), more);
        },
        [&](ValueRange state) {
          emitNode(state[0]);
          return Values{b.add(state[0], 1)};
        });
  }

  Value countOf(Value row) { return loadIndex(op.getCounts(), {batch, row}); }

  void emitNode(Value j) {
    Value level = loadIndex(op.getLevel(), {batch, j});
    Value index = loadIndex(op.getIndex(), {batch, j});
    b.ifThen(b.less(b.index(-1), index), [&] { emitNode(j, level, index); });
  }

  void emitNode(Value j, Value level, Value index) {
    Value row = rowOf(level, index);
    Value isPresent;
    if (op.getCounts())
      isPresent = b.less(b.index(0), countOf(row));
    b.ifThenElse(
        b.equal(level, b.index(getLevels())),
        [&] {
          auto replace = [&] {
            forColumns(firstColumn, endColumn, [&](const Columns &c) {
              store(load(op.getRows(), {batch, j}, c), tree, {batch, row}, c);
            });
          };
          if (isPresent)
            b.ifThen(isPresent, replace);
          else
            replace();
        },
        [&] {
          walkTo(level, index);
          Value slot = getSlot(level, index);
          forColumns(firstColumn, endColumn, [&](const Columns &c) {
            Value difference = load(tree, {batch, row}, c);
            // What a fetch would have returned: then there is no change.
            Value old = round(b.fsub(getParentRow(level, c), difference));
            Value change = b.fsub(load(op.getRows(), {batch, j}, c), old);
            if (isPresent)
              change = b.select(isPresent, change, b.splat(0.0));
            storeLocal(change, changes, slot, c);
          });
          loopWhile(
              {level, index},
              [&](ValueRange state) {
                Value isLast = b.equal(b.rem(state[1], getRatio()),
                                       b.index(getRatio() - 1));
                return b.both(b.less(state[0], b.index(getLevels())), isLast);
              },
              [&](ValueRange state) {
                Value parent = b.div(state[1], getRatio());
                emitParent(state[0], parent);
                return Values{b.add(state[0], 1), parent};
              });
        });
  }

  Value getSlot(Value level, Value index) {
    return b.add(b.mul(level, getRatio()), b.rem(index, getRatio()));
  }

  /// All children, on level `level`, of `parent` have their changes.
  void emitParent(Value level, Value parent) {
    Value firstSlot = b.mul(level, getRatio());
    Value firstRow = rowOf(level, b.mul(parent, getRatio()));
    Value above = b.add(level, 1);
    Value parentRow = rowOf(above, parent);
    Value isRoot = b.equal(above, b.index(getLevels()));
    Value slot = getSlot(above, parent);
    Value zero = b.index(0), ratio = b.index(getRatio());
    Value share = b.scalar(1.0 / static_cast<double>(getRatio()));
    Value total;
    if (op.getCounts()) {
      total = countOf(parentRow);
      Value parts = toNumber(b.max(total, 1));
      share = arith::DivFOp::create(b, b.scalar(1.0), parts);
    }
    forColumns(firstColumn, endColumn, [&](const Columns &c) {
      Value sum = b.loop(zero, ratio, 1, b.splat(0.0),
                         [&](Value child, ValueRange carried) {
                           Value change =
                               loadLocal(changes, b.add(firstSlot, child), c);
                           if (!total)
                             return Values{b.fadd(carried[0], change)};
                           // Absent children have a change of zero.
                           Value tokens =
                               toNumber(countOf(b.add(firstRow, child)));
                           Value term = b.fmul(change, b.broadcast(tokens));
                           return Values{b.fadd(carried[0], term)};
                         })
                      .front();
      Value mean = b.fmul(sum, b.broadcast(share));
      b.loop(zero, ratio, 1, [&](Value child) {
        Value row = b.add(firstRow, child);
        Value change = loadLocal(changes, b.add(firstSlot, child), c);
        // Written so that no change leaves every bit, the sign of zero too.
        Value moved = b.fsub(load(tree, {batch, row}, c), b.fsub(change, mean));
        store(moved, tree, {batch, row}, c);
      });
      b.ifThenElse(
          isRoot,
          [&] {
            Value old = load(tree, {batch, parentRow}, c);
            Value back = b.fsub(b.splat(0.0), mean);
            store(b.fsub(old, back), tree, {batch, parentRow}, c);
          },
          [&] { storeLocal(mean, changes, slot, c); });
    });
  }

  Value toNumber(Value index) {
    Value integer = arith::IndexCastOp::create(b, b.getI64Type(), index);
    return arith::SIToFPOp::create(b, b.getStateType(), integer);
  }

  TreeUpdateOp op;
  Value count, changes;
};
} // namespace

void fovea::attn::emitTreeKernel(OpBuilder &builder, TreeFetchOp op,
                                 const TreeTarget &target) {
  FetchKernel(builder, op, target).emit();
}

void fovea::attn::emitTreeKernel(OpBuilder &builder, TreeUpdateOp op,
                                 const TreeTarget &target) {
  UpdateKernel(builder, op, target).emit();
}
