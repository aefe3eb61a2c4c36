//===- TreeBuildToTeams.cpp - Loops of tree_build and tree_materialize ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <tuple>

using namespace mlir;
using namespace fovea::attn;

/// Rows that a task goes through, about.
static constexpr int64_t kRowsPerTask = 256;

//===----------------------------------------------------------------------===//
// Build
//===----------------------------------------------------------------------===//

namespace {
/// Goes through the tokens once, a group of siblings at a time. Their mean
/// waits in `means` until those of all its siblings are there; then that group
/// is next. A tree with few roots is cut into subtrees, whose tops are the
/// leaves of another, small run.
class BuildKernel : TreeKernel {
public:
  BuildKernel(TeamBuilder &builder, TreeBuildOp op)
      : TreeKernel(builder, op.getShape(), op.getTree()), op(op) {}

  void emit() {
    std::optional<int64_t> known = getConstantIntValue(roots);
    if (known || b.hasManyTeams() || getLevels() == 1)
      // Of a GPU, as many runs as one root would need.
      emitRuns(known.value_or(1));
    else
      b.ifThenElse(
          b.less(roots, b.index(getWanted())), [&] { emitTwoRuns(); },
          [&] { emitRuns(getWanted()); });
    for (Value buffer : buffers)
      memref::DeallocOp::create(b, buffer);
  }

private:
  /// Subtrees from level `base` to level `top`, of which there are `subtrees`,
  /// each with `groups` groups of siblings on its lowest level.
  struct Run {
    /// Rows of level `base`, and their numbers of tokens if they are not those
    /// of the mask.
    Value rows, counts, base, top, subtrees, groups;
    /// Where the tops go, if not to the tree.
    Value topRows = {}, topCounts = {};
  };

  /// Subtrees that keep all teams busy.
  int64_t getWanted() const {
    return b.getMinTeams() * (b.hasManyTeams() ? 1 : 8);
  }

  /// The highest level with enough nodes to keep all teams busy, if there were
  /// `count` roots. A thread does what is above on its own.
  int64_t getTop(int64_t base, int64_t count) const {
    int64_t top = getLevels();
    if (!b.hasManyTeams() && base > 0)
      return top;
    while (top > base + 1 && shape.getNumNodes(top, count) < getWanted())
      --top;
    return top;
  }

  Run makeRun(Value rows, Value counts, int64_t base, int64_t top) {
    return {rows,
            counts,
            b.index(base),
            b.index(top),
            numNodesOf(top),
            b.index(shape.getSegment(top - base - 1))};
  }

  /// Runs for `count` roots, or any number.
  void emitRuns(int64_t count) {
    Value rows = op.getInput(), counts;
    for (int64_t base = 0; base < getLevels();) {
      int64_t top = getTop(base, count);
      Run run = makeRun(rows, counts, base, top);
      if (top < getLevels())
        allocateTops(run);
      emitSubtrees(run, base == 0);
      std::tie(rows, counts, base) =
          std::tuple(run.topRows, run.topCounts, top);
    }
  }

  /// Two runs, cut at the highest level with enough nodes, where the number of
  /// roots, which are too few, is not known.
  void emitTwoRuns() {
    int64_t start = getLevels() - 1;
    Values found = b.loopWhile(
        {b.index(start), numNodesOf(start),
         b.index(shape.getSegment(start - 1))},
        [&](ValueRange state) {
          return b.both(b.less(b.index(1), state[0]),
                        b.less(state[1], b.index(getWanted())));
        },
        [&](ValueRange state) -> Values {
          return {b.sub(state[0], b.index(1)), b.mul(state[1], getRatio()),
                  b.div(state[2], getRatio())};
        });
    Value levels = b.index(getLevels()), subtrees = found[1];
    Run lower = {op.getInput(), Value(),  b.index(0),
                 found[0],      subtrees, found[2]};
    allocateTops(lower);
    emitSubtrees(lower, /*isLowest=*/true);
    Run upper = {
        lower.topRows, lower.topCounts,
        found[0],      levels,
        roots,         b.div(subtrees, b.mul(b.max(roots, 1), getRatio()))};
    emitSubtrees(upper, /*isLowest=*/false);
    for (Value buffer : buffers)
      memref::DeallocOp::create(b, buffer);
    buffers.clear();
  }

  /// Sums of upper levels are not rounded to the type of the tree.
  void allocateTops(Run &run) {
    auto allocate = [&](ArrayRef<int64_t> trailing, Type type) {
      return buffers.emplace_back(
          b.allocate({b.extent(tree, 0), run.subtrees}, trailing, type));
    };
    run.topRows = allocate({width}, b.getStateType());
    if (op.getMask())
      run.topCounts = allocate({}, b.getI32Type());
  }

  /// Levels from the base of `run` to its top; only an upper bound of those
  /// may be known.
  Value getHeight(const Run &run) { return b.sub(run.top, run.base); }

  void emitSubtrees(const Run &run, bool isLowest) {
    Value perTask =
        getTaskSize(run.subtrees, b.div(b.index(kRowsPerTask),
                                        b.mul(run.groups, getRatio())));
    int64_t most = getConstantIntValue(getHeight(run)).value_or(getLevels());
    forEachTask(getNumTasks(run.subtrees, perTask), tree, [&](Value task) {
      makeTables();
      // Children of the open nodes by level, and then the top.
      int64_t slots = (most - 1) * getRatio() + 1;
      means = b.teamBuffer({slots, width}, b.getStateType());
      if (op.getMask()) {
        counts = b.teamBuffer({slots}, b.getI32Type());
        weights = b.teamBuffer({getRatio()}, b.getStateType());
      }
      Value first = b.mul(task, perTask);
      b.loop(first, b.min(b.add(first, perTask), run.subtrees), 1,
             [&](Value subtree) { emitSubtree(run, subtree, isLowest); });
    });
  }

  void emitSubtree(const Run &run, Value subtree, bool isLowest) {
    Value height = getHeight(run);
    b.loop(b.index(0), run.groups, 1, [&](Value g) {
      Value group = b.add(b.mul(subtree, run.groups), g);
      emitLowestGroup(run, group, isLowest);
      if (isConstantIntValue(height, 1))
        return;
      // Then as many more as are complete. `step` counts levels above base + 1.
      b.loopWhile(
          {b.index(0), group},
          [&](ValueRange state) {
            return b.both(b.less(state[0], b.sub(height, b.index(1))),
                          isLastSibling(state[1]));
          },
          [&](ValueRange state) {
            return emitNextGroup(run, state[0], state[1]);
          });
    });
    emitTop(run, subtree, b.mul(b.sub(height, b.index(1)), getRatio()));
  }

  /// The first group of rows is read from outside.
  void emitLowestGroup(const Run &run, Value group, bool isLowest) {
    Value firstChild = b.mul(group, getRatio());
    Value zero = b.index(0), isTop = b.equal(getHeight(run), b.index(1));
    emitGroup(
        [&](KernelBuilder &k, Value child, Value column) {
          return k.loadVector(run.rows,
                              {batch, k.add(firstChild, child), column});
        },
        [&](Value child) { return countOfRow(run, b.add(firstChild, child)); },
        rowIn(run.base, firstChild),
        b.select(isTop, zero, getSlot(zero, group)), isLowest);
  }

  /// The group that ends with `node`, `step` levels above the lowest means.
  /// Returns the next step, and the parent.
  Values emitNextGroup(const Run &run, Value step, Value node) {
    Value parent = b.div(node, getRatio());
    Value next = b.add(step, 1);
    Value firstSlot = b.mul(step, getRatio());
    Value isTop = b.equal(next, b.sub(getHeight(run), b.index(1)));
    Value slot =
        b.select(isTop, b.mul(next, getRatio()), getSlot(next, parent));
    Value row =
        rowOf(b.add(step, b.add(run.base, 1)), b.mul(parent, getRatio()));
    emitGroup(
        [&](KernelBuilder &k, Value child, Value column) {
          return k.loadVector(means, {k.add(firstSlot, child), column});
        },
        [&](Value child) {
          return b.loadIndex(counts, b.add(firstSlot, child));
        },
        row, slot, /*countsAreNew=*/true);
    return {next, parent};
  }

  /// The row of a node of a level that is a constant, unless there are two
  /// runs.
  Value rowIn(Value level, Value index) {
    std::optional<int64_t> known = getConstantIntValue(level);
    return known ? b.add(firstRowOf(*known), index) : rowOf(level, index);
  }

  /// The top of a finished subtree.
  void emitTop(const Run &run, Value subtree, Value slot) {
    Value row = rowIn(run.top, subtree);
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value mean = k.loadVector(means, {slot, column});
      if (run.topRows)
        k.storeVector(mean, run.topRows, {batch, subtree, column});
      else
        storeOutput(k, mean, tree, {batch, row, column});
    });
    if (!op.getMask())
      return;
    b.single([&] {
      Value count = b.loadIndex(counts, slot);
      if (run.topCounts)
        b.storeIndex(count, run.topCounts, {batch, subtree});
      b.storeIndex(count, op.getCounts(), {batch, row});
    });
  }

  Value countOfRow(const Run &run, Value row) {
    if (run.counts)
      return b.loadIndex(run.counts, {batch, row});
    Value present =
        memref::LoadOp::create(b, op.getMask(), ValueRange{batch, row});
    return b.select(present, b.index(1), b.index(0));
  }

  /// Adds up the tokens of siblings for `slot`, and weighs them for their mean.
  /// Returns what to multiply the sum by.
  Value emitCounts(function_ref<Value(Value)> countOf, Value firstRow,
                   Value slot, bool countsAreNew) {
    Value zero = b.index(0), ratio = b.index(getRatio());
    b.barrier();
    b.single([&] {
      Value total =
          b.loop(zero, ratio, 1, zero, [&](Value child, ValueRange carried) {
             Value count = countOf(child);
             if (countsAreNew)
               b.storeIndex(count, op.getCounts(),
                            {batch, b.add(firstRow, child)});
             return Values{b.add(carried[0], count)};
           }).front();
      b.storeIndex(total, counts, slot);
      // The mean of padding alone is that of its children.
      Value isAbsent = b.equal(total, zero);
      b.loop(zero, ratio, 1, [&](Value child) {
        Value count = b.select(isAbsent, b.index(1), countOf(child));
        b.storeScalar(b.toNumber(count), weights, child);
      });
    });
    Value total = b.loadIndex(counts, slot);
    Value parts = b.toNumber(b.select(b.equal(total, zero), ratio, total));
    return arith::DivFOp::create(b, b.scalar(1.0), parts);
  }

  Value addWeighted(KernelBuilder &k, Value sum, Value number, Value child) {
    if (!op.getMask())
      return k.fadd(sum, number);
    // What is absent may be NaN.
    Value weight = k.broadcast(k.loadScalar(weights, child));
    Value isPresent = arith::CmpFOp::create(k, arith::CmpFPredicate::OGT,
                                            weight, k.splat(0.0));
    return k.fma(k.select(isPresent, number, k.splat(0.0)), weight, sum);
  }

  /// Writes the differences of a group of siblings from row `firstRow` of the
  /// tree on, and their mean to `slot`.
  void emitGroup(
      function_ref<Value(KernelBuilder &, Value child, Value column)> loadChild,
      function_ref<Value(Value child)> countOf, Value firstRow, Value slot,
      bool countsAreNew) {
    Value share = op.getMask()
                      ? emitCounts(countOf, firstRow, slot, countsAreNew)
                      : b.scalar(1.0 / static_cast<double>(getRatio()));
    // Siblings stay in registers while their mean is computed, if they fit.
    constexpr int64_t kUnroll = 16;
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      auto storeDifference = [&](Value mean, Value number, Value child) {
        storeOutput(k, k.fsub(mean, number), tree,
                    {batch, k.add(firstRow, child), column});
      };
      if (getRatio() <= kUnroll) {
        Values numbers;
        Value sum = k.splat(0.0);
        for (int64_t child = 0; child < getRatio(); ++child) {
          numbers.push_back(loadChild(k, k.index(child), column));
          sum = child == 0 && !op.getMask()
                    ? numbers[0]
                    : addWeighted(k, sum, numbers[child], k.index(child));
        }
        Value mean = k.fmul(sum, k.broadcast(share));
        k.storeVector(mean, means, {slot, column});
        for (int64_t child = 0; child < getRatio(); ++child)
          storeDifference(mean, numbers[child], k.index(child));
        return;
      }
      Value zero = k.index(0), ratio = k.index(getRatio());
      Value sum =
          k.loop(zero, ratio, 1, k.splat(0.0),
                 [&](Value child, ValueRange carried) {
                   Value number = loadChild(k, child, column);
                   return Values{addWeighted(k, carried[0], number, child)};
                 })
              .front();
      Value mean = k.fmul(sum, k.broadcast(share));
      k.loop(zero, ratio, 1, [&](Value child) {
        storeDifference(mean, loadChild(k, child, column), child);
      });
      k.storeVector(mean, means, {slot, column});
    });
  }

  TreeBuildOp op;
  Values buffers;
  Value means, counts, weights;
};
} // namespace

//===----------------------------------------------------------------------===//
// Materialize
//===----------------------------------------------------------------------===//

namespace {
class MaterializeKernel : TreeKernel {
public:
  MaterializeKernel(TeamBuilder &builder, TreeMaterializeOp op)
      : TreeKernel(builder, op.getShape(), op.getTree()), op(op) {}

  void emit() {
    Value groups = numNodesOf(1);
    Value perTask = getTaskSize(groups, b.index(kRowsPerTask / getRatio()));
    forEachTask(getNumTasks(groups, perTask), op.getOutput(), [&](Value task) {
      makeTables();
      startPath();
      Value first = b.mul(task, perTask);
      b.loop(first, b.min(b.add(first, perTask), groups), 1,
             [&](Value group) { emitGroup(group); });
    });
  }

private:
  void emitGroup(Value group) {
    Value level = b.index(0);
    Value first = b.mul(group, getRatio());
    walkTo(level, first);
    Value firstRow = b.add(first, firstRowOf(0));
    b.loop(b.index(0), b.index(getRatio()), 1, [&](Value child) {
      Value row = b.add(firstRow, child), token = b.add(first, child);
      b.forColumns(width, [&](KernelBuilder &k, Value column) {
        prefetch(k, tree, {batch, k.add(row, 2), column});
        Value difference = k.loadVector(tree, {batch, row, column});
        storeOutput(k, k.fsub(getParentRow(k, level, column), difference),
                    op.getOutput(), {batch, token, column});
      });
    });
  }

  TreeMaterializeOp op;
};
} // namespace

LogicalResult fovea::attn::lowerToTeams(TreeBuildOp op, TeamBuilder &builder) {
  BuildKernel(builder, op).emit();
  return success();
}

LogicalResult fovea::attn::lowerToTeams(TreeMaterializeOp op,
                                        TeamBuilder &builder) {
  MaterializeKernel(builder, op).emit();
  return success();
}
