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
    Run run = {op.getInput(), Value(), 0, 0, Value(), Value()};
    while (run.base < getLevels()) {
      run.top = getTop(run.base);
      run.topRows = run.topCounts = Value();
      if (run.top < getLevels())
        allocateTops(run);
      emitSubtrees(run);
      run = {run.topRows, run.topCounts, run.top, run.top, Value(), Value()};
    }
    for (Value buffer : buffers)
      memref::DeallocOp::create(b, buffer);
  }

private:
  /// Subtrees from level `base` to level `top`.
  struct Run {
    /// Rows of level `base`, and their numbers of tokens if they are not those
    /// of the mask.
    Value rows, counts;
    int64_t base, top;
    /// Where the tops go, if not to the tree.
    Value topRows, topCounts;
  };

  /// The highest level with enough nodes to keep all teams busy. A thread does
  /// what is above on its own.
  int64_t getTop(int64_t base) const {
    int64_t wanted = b.getMinTeams(), top = getLevels();
    if (!b.hasManyTeams()) {
      wanted *= 8;
      if (base > 0)
        return top;
    }
    while (top > base + 1 && shape.getNumNodes(top, roots) < wanted)
      --top;
    return top;
  }

  /// Sums of upper levels are not rounded to the type of the tree.
  void allocateTops(Run &run) {
    int64_t tops = shape.getNumNodes(run.top, roots);
    auto allocate = [&](ArrayRef<int64_t> extents, Type type) {
      return buffers.emplace_back(b.allocate(b.extent(tree, 0), extents, type));
    };
    run.topRows = allocate({tops, width}, b.getStateType());
    if (op.getMask())
      run.topCounts = allocate({tops}, b.getI32Type());
  }

  void emitSubtrees(const Run &run) {
    int64_t subtrees = shape.getNumNodes(run.top, roots);
    int64_t height = run.top - run.base;
    int64_t groups = shape.getSegment(height - 1);
    int64_t perTask =
        getTaskSize(subtrees, kRowsPerTask / (groups * getRatio()));
    Value numTasks = b.index((subtrees + perTask - 1) / perTask);
    forEachTask(numTasks, tree, [&](Value task) {
      makeTables();
      // Children of the open nodes by level, and then the top.
      int64_t slots = (height - 1) * getRatio() + 1;
      means = b.teamBuffer({slots, width}, b.getStateType());
      if (op.getMask()) {
        counts = b.teamBuffer({slots}, b.getI32Type());
        weights = b.teamBuffer({getRatio()}, b.getStateType());
      }
      Value first = b.mul(task, perTask);
      b.loop(first, b.min(b.add(first, perTask), subtrees), 1,
             [&](Value subtree) { emitSubtree(run, subtree, groups); });
    });
  }

  void emitSubtree(const Run &run, Value subtree, int64_t groups) {
    int64_t height = run.top - run.base;
    b.loop(b.index(0), b.index(groups), 1, [&](Value g) {
      Value group = b.add(b.mul(subtree, groups), g);
      emitLowestGroup(run, group);
      if (height == 1)
        return;
      // Then as many more as are complete. `step` counts levels above base + 1.
      b.loopWhile(
          {b.index(0), group},
          [&](ValueRange state) {
            return b.both(b.less(state[0], b.index(height - 1)),
                          isLastSibling(state[1]));
          },
          [&](ValueRange state) {
            return emitNextGroup(run, state[0], state[1]);
          });
    });
    emitTop(run, subtree, b.index((height - 1) * getRatio()));
  }

  /// The first group of rows is read from outside.
  void emitLowestGroup(const Run &run, Value group) {
    Value firstChild = b.mul(group, getRatio());
    Value zero = b.index(0);
    emitGroup(
        [&](KernelBuilder &k, Value child, Value column) {
          return k.loadVector(run.rows,
                              {batch, k.add(firstChild, child), column});
        },
        [&](Value child) { return countOfRow(run, b.add(firstChild, child)); },
        b.add(b.index(shape.getFirstRow(run.base, roots)), firstChild),
        run.top == run.base + 1 ? zero : getSlot(zero, group), run.base == 0);
  }

  /// The group that ends with `node`, `step` levels above the lowest means.
  /// Returns the next step, and the parent.
  Values emitNextGroup(const Run &run, Value step, Value node) {
    Value parent = b.div(node, getRatio());
    Value next = b.add(step, 1);
    Value firstSlot = b.mul(step, getRatio());
    Value isTop = b.equal(next, b.index(run.top - run.base - 1));
    Value slot =
        b.select(isTop, b.mul(next, getRatio()), getSlot(next, parent));
    Value row = rowOf(b.add(step, run.base + 1), b.mul(parent, getRatio()));
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

  /// The top of a finished subtree.
  void emitTop(const Run &run, Value subtree, Value slot) {
    Value row = b.add(subtree, shape.getFirstRow(run.top, roots));
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
    int64_t groups = shape.getNumNodes(1, roots);
    int64_t perTask = getTaskSize(groups, kRowsPerTask / getRatio());
    Value numTasks = b.index((groups + perTask - 1) / perTask);
    forEachTask(numTasks, op.getOutput(), [&](Value task) {
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
    Value firstRow = b.add(first, shape.getFirstRow(0, roots));
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
