//===- TreeBuildKernel.cpp - Loops of attn.tree_build, tree_materialize ---===//
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

//===----------------------------------------------------------------------===//
// Build
//===----------------------------------------------------------------------===//

namespace {
/// Goes through the tokens once, a group of siblings at a time. Their mean
/// waits in `means` until those of all its siblings are there; then that group
/// is next. A tree with few roots is cut into subtrees, whose tops are the
/// leaves of a second, small run.
class BuildKernel : TreeKernel {
public:
  BuildKernel(OpBuilder &builder, TreeBuildOp op, const TreeTarget &target)
      : TreeKernel(builder, op.getLoc(), op.getShape(), op.getTree(), target),
        op(op) {}

  void emit() {
    // The highest level with enough nodes to keep all threads busy.
    int64_t cut = getLevels();
    while (cut > 1 && shape.getNumNodes(cut, roots) < 8 * target.minTasks)
      --cut;
    if (cut == getLevels()) {
      emitSubtrees({op.getInput(), Value(), 0, cut, Value(), Value()});
      return;
    }
    // Sums of the upper levels are not rounded to the type of the tree.
    auto type = cast<MemRefType>(tree.getType());
    int64_t tops = shape.getNumNodes(cut, roots);
    auto allocate = [&](ArrayRef<int64_t> shape, Type element) -> Value {
      SmallVector<int64_t> extents = {type.getDimSize(0)};
      llvm::append_range(extents, shape);
      SmallVector<Value> dynamicExtents;
      if (type.isDynamicDim(0))
        dynamicExtents.push_back(b.extent(tree, 0));
      return memref::AllocOp::create(b, MemRefType::get(extents, element),
                                     dynamicExtents, b.getI64IntegerAttr(64));
    };
    Value rows = allocate({tops, width}, b.getStateType());
    Value counts;
    if (op.getMask())
      counts = allocate({tops}, b.getI32Type());
    emitSubtrees({op.getInput(), Value(), 0, cut, rows, counts});
    emitSubtrees({rows, counts, cut, getLevels(), Value(), Value()});
    memref::DeallocOp::create(b, rows);
    if (counts)
      memref::DeallocOp::create(b, counts);
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

  void emitSubtrees(const Run &run) {
    int64_t subtrees = shape.getNumNodes(run.top, roots);
    int64_t height = run.top - run.base;
    int64_t groups = shape.getSegment(height - 1);
    // About 256 rows to a task.
    int64_t perTask =
        std::max<int64_t>(1, 256 / std::max<int64_t>(groups * getRatio(), 1));
    forEachTask(
        b.index((subtrees + perTask - 1) / perTask), tree, [&](Value task) {
          makeTables();
          firstColumn = b.index(0);
          // Children of the open nodes by level, and then the top.
          int64_t slots = (height - 1) * getRatio() + 1;
          means = b.scratch({slots, width}, b.getStateType());
          if (op.getMask()) {
            counts = b.scratch({slots}, b.getIndexType());
            weights = b.scratch({getRatio()}, b.getStateType());
          }
          Value first = b.mul(task, perTask);
          b.loop(first, b.min(b.add(first, perTask), subtrees), 1,
                 [&](Value subtree) { emitSubtree(run, subtree, groups); });
        });
  }

  void emitSubtree(const Run &run, Value subtree, int64_t groups) {
    int64_t height = run.top - run.base;
    b.loop(b.index(0), b.index(groups), 1, [&](Value g) {
      // The first group of rows is read from outside.
      Value group = b.add(b.mul(subtree, groups), g);
      Value firstChild = b.mul(group, getRatio());
      auto slotOf = [&](Value step, Value node) {
        return b.add(b.mul(step, getRatio()), b.rem(node, getRatio()));
      };
      Value zero = b.index(0);
      emitGroup(
          [&](Value child, const Columns &c) {
            return load(run.rows, {batch, b.add(firstChild, child)}, c);
          },
          [&](Value child) {
            return countOfRow(run, b.add(firstChild, child));
          },
          b.add(b.index(shape.getFirstRow(run.base, roots)), firstChild),
          height == 1 ? zero : slotOf(zero, group), run.base == 0);
      if (height == 1)
        return;
      // Then as many more as are complete. `step` counts levels above base + 1.
      loopWhile(
          {zero, group},
          [&](ValueRange state) {
            Value isLast =
                b.equal(b.rem(state[1], getRatio()), b.index(getRatio() - 1));
            return b.both(b.less(state[0], b.index(height - 1)), isLast);
          },
          [&](ValueRange state) {
            Value step = state[0], parent = b.div(state[1], getRatio());
            Value next = b.add(step, 1);
            Value firstSlot = b.mul(step, getRatio());
            Value isTop = b.equal(next, b.index(height - 1));
            Value slot =
                b.select(isTop, b.mul(next, getRatio()), slotOf(next, parent));
            Value row =
                rowOf(b.add(step, run.base + 1), b.mul(parent, getRatio()));
            emitGroup(
                [&](Value child, const Columns &c) {
                  return load(means, b.add(firstSlot, child), c);
                },
                [&](Value child) {
                  return loadIndex(counts, b.add(firstSlot, child));
                },
                row, slot, /*countsAreNew=*/true);
            return Values{next, parent};
          });
    });
    emitTop(run, subtree, b.index((height - 1) * getRatio()));
  }

  /// The top of a finished subtree.
  void emitTop(const Run &run, Value subtree, Value slot) {
    Value row = b.add(subtree, shape.getFirstRow(run.top, roots));
    forColumns([&](const Columns &c) {
      Value mean = load(means, slot, c);
      if (run.topRows)
        store(mean, run.topRows, {batch, subtree}, c);
      else
        storeOutput(mean, tree, {batch, row}, c);
    });
    if (!op.getMask())
      return;
    Value count = loadIndex(counts, slot);
    if (run.topCounts)
      storeIndex(count, run.topCounts, {batch, subtree});
    storeIndex(count, op.getCounts(), {batch, row});
  }

  Value countOfRow(const Run &run, Value row) {
    if (run.counts)
      return loadIndex(run.counts, {batch, row});
    Value present =
        memref::LoadOp::create(b, op.getMask(), ValueRange{batch, row});
    return b.select(present, b.index(1), b.index(0));
  }

  /// Writes the differences of a group of siblings from row `firstRow` of the
  /// tree on, and their mean to `slot`.
  void emitGroup(llvm::function_ref<Value(Value, const Columns &)> loadChild,
                 llvm::function_ref<Value(Value)> countOf, Value firstRow,
                 Value slot, bool writeCounts) {
    Value zero = b.index(0), ratio = b.index(getRatio());
    Value share = b.scalar(1.0 / static_cast<double>(getRatio()));
    if (op.getMask()) {
      Value total =
          b.loop(zero, ratio, 1, zero, [&](Value child, ValueRange carried) {
             Value count = countOf(child);
             if (writeCounts)
               storeIndex(count, op.getCounts(),
                          {batch, b.add(firstRow, child)});
             return Values{b.add(carried[0], count)};
           }).front();
      storeIndex(total, counts, slot);
      // The mean of padding alone is that of its children.
      Value isAbsent = b.equal(total, zero);
      Value parts = toNumber(b.select(isAbsent, ratio, total));
      share = arith::DivFOp::create(b, b.scalar(1.0), parts);
      b.loop(zero, ratio, 1, [&](Value child) {
        Value count = b.select(isAbsent, b.index(1), countOf(child));
        b.storeScalar(toNumber(count), weights, child);
      });
    }
    auto addTo = [&](Value sum, Value number, Value child) {
      if (!op.getMask())
        return b.fadd(sum, number);
      // What is absent may be NaN.
      Value weight = b.broadcast(b.loadScalar(weights, child));
      Value isPresent = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                              weight, b.splat(0.0));
      Value term = b.select(isPresent, number, b.splat(0.0));
      return b.fma(term, weight, sum);
    };
    // Siblings stay in registers while their mean is computed, if they fit.
    constexpr int64_t kUnroll = 16;
    forColumns([&](const Columns &c) {
      if (getRatio() <= kUnroll) {
        Values numbers;
        Value sum = b.splat(0.0);
        for (int64_t child = 0; child < getRatio(); ++child) {
          numbers.push_back(loadChild(b.index(child), c));
          sum = child == 0 && !op.getMask()
                    ? numbers[0]
                    : addTo(sum, numbers[child], b.index(child));
        }
        Value mean = b.fmul(sum, b.broadcast(share));
        store(mean, means, slot, c);
        for (int64_t child = 0; child < getRatio(); ++child)
          storeOutput(b.fsub(mean, numbers[child]), tree,
                      {batch, b.add(firstRow, child)}, c);
        return;
      }
      Value sum =
          b.loop(zero, ratio, 1, b.splat(0.0),
                 [&](Value child, ValueRange carried) {
                   return Values{addTo(carried[0], loadChild(child, c), child)};
                 })
              .front();
      Value mean = b.fmul(sum, b.broadcast(share));
      b.loop(zero, ratio, 1, [&](Value child) {
        storeOutput(b.fsub(mean, loadChild(child, c)), tree,
                    {batch, b.add(firstRow, child)}, c);
      });
      store(mean, means, slot, c);
    });
  }

  Value toNumber(Value index) {
    Value integer = arith::IndexCastOp::create(b, b.getI64Type(), index);
    return arith::SIToFPOp::create(b, b.getStateType(), integer);
  }

  TreeBuildOp op;
  Value means, counts, weights;
};
} // namespace

//===----------------------------------------------------------------------===//
// Materialize
//===----------------------------------------------------------------------===//

namespace {
class MaterializeKernel : TreeKernel {
public:
  MaterializeKernel(OpBuilder &builder, TreeMaterializeOp op,
                    const TreeTarget &target)
      : TreeKernel(builder, op.getLoc(), op.getShape(), op.getTree(), target),
        op(op) {}

  void emit() {
    int64_t groups = shape.getNumNodes(1, roots);
    int64_t perTask = std::max<int64_t>(1, 256 / getRatio());
    forEachTask(b.index((groups + perTask - 1) / perTask), op.getOutput(),
                [&](Value task) {
                  makeTables();
                  startPath(width, b.index(0), b.index(width));
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
    Value row = b.add(first, shape.getFirstRow(0, roots));
    b.loop(b.index(0), b.index(getRatio()), 1, [&](Value child) {
      forColumns([&](const Columns &c) {
        Value next = b.add(b.add(row, child), 2);
        prefetch(tree, {batch, next}, c);
        Value difference = load(tree, {batch, b.add(row, child)}, c);
        storeOutput(b.fsub(getParentRow(level, c), difference), op.getOutput(),
                    {batch, b.add(first, child)}, c);
      });
    });
  }

  TreeMaterializeOp op;
};
} // namespace

void fovea::attn::emitTreeKernel(OpBuilder &builder, TreeBuildOp op,
                                 const TreeTarget &target) {
  BuildKernel(builder, op, target).emit();
}

void fovea::attn::emitTreeKernel(OpBuilder &builder, TreeMaterializeOp op,
                                 const TreeTarget &target) {
  MaterializeKernel(builder, op, target).emit();
}
