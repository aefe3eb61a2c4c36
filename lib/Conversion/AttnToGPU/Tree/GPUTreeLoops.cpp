//===- GPUTreeLoops.cpp - Building, reading and moving trees on a GPU -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUTreeKernels.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
/// What the operations have in common.
class TreeLoops {
protected:
  TreeLoops(OpBuilder &builder, Location loc, TreeAttr shape, Value tree)
      : b(loc, builder, builder.getF32Type(), /*lanes=*/0), shape(shape),
        tree(tree), batches(b.extent(tree, 0)),
        roots(getMemRefType(tree).getDimSize(1) / shape.getNodesPerRoot()),
        width(getMemRefType(tree).getDimSize(2)) {}

  int64_t getLevels() const { return shape.getLevels(); }
  int64_t getRatio() const { return shape.getRatio(); }

  /// The row of node `index` of a level.
  Value rowOf(int64_t level, Value index) {
    return b.add(index, shape.getFirstRow(level, roots));
  }
  /// The ancestor on `level` of what begins at `token`.
  Value ancestor(int64_t level, Value token) {
    return b.div(token, shape.getSegment(level));
  }
  Value loadIndex(Value memref, ValueRange at) {
    Value entry = memref::LoadOp::create(b, memref, at);
    return arith::IndexCastOp::create(b, b.getIndexType(), entry);
  }
  void storeIndex(Value index, Value memref, ValueRange at) {
    Value entry = arith::IndexCastOp::create(b, b.getI32Type(), index);
    memref::StoreOp::create(b, entry, memref, at);
  }
  Value toNumber(Value index) {
    Value integer = arith::IndexCastOp::create(b, b.getI32Type(), index);
    return arith::SIToFPOp::create(b, b.getF32Type(), integer);
  }
  /// A number as it would come back from the tree.
  Value round(Value number) {
    Type type = getMemRefType(tree).getElementType();
    if (type == number.getType())
      return number;
    Value rounded = arith::TruncFOp::create(b, type, number);
    return arith::ExtFOp::create(b, number.getType(), rounded);
  }
  /// A buffer `[batches, extents...]` that ends with the operation.
  Value allocate(ArrayRef<int64_t> extents, Type type) {
    SmallVector<int64_t> shape = {getMemRefType(tree).getDimSize(0)};
    llvm::append_range(shape, extents);
    SmallVector<Value> dynamicExtents;
    if (ShapedType::isDynamic(shape[0]))
      dynamicExtents.push_back(batches);
    return buffers.emplace_back(memref::AllocOp::create(
        b, MemRefType::get(shape, type), dynamicExtents));
  }
  void freeBuffers() {
    for (Value buffer : buffers)
      memref::DeallocOp::create(b, buffer);
  }

  /// One number of the row that node `index` of the least level `lowest` has:
  /// the root's, less the differences on the way. `lowest` is a number or null
  /// for 0.
  Value fetch(Value batch, Value token, Value column, Value lowest,
              int64_t last = 0) {
    Value sum = b.loadScalar(
        tree,
        {batch, rowOf(getLevels(), ancestor(getLevels(), token)), column});
    for (int64_t level = getLevels() - 1; level >= last; --level) {
      auto descend = [&] {
        Value row = rowOf(level, ancestor(level, token));
        return b.fsub(sum, b.loadScalar(tree, {batch, row, column}));
      };
      if (!lowest) {
        sum = descend();
        continue;
      }
      Value isAbove = b.less(lowest, b.index(level + 1));
      sum = b.select(isAbove, b.getF32Type(), descend, [&] { return sum; });
    }
    return sum;
  }
  /// Whether an entry of a list is a node, and not an absent one.
  Value isThere(Value index) { return b.less(b.index(-1), index); }
  /// The first token of a node whose level is known at run time only.
  Value firstToken(Value level, Value index) {
    Value segment = b.index(1);
    for (int64_t l = 1; l <= getLevels(); ++l)
      segment = b.select(b.less(level, b.index(l)), segment,
                         b.index(shape.getSegment(l)));
    return b.mul(index, segment);
  }
  /// The row of a node, likewise.
  Value rowOfAny(Value level, Value index) {
    Value first = b.index(shape.getFirstRow(0, roots));
    for (int64_t l = 1; l <= getLevels(); ++l)
      first = b.select(b.less(level, b.index(l)), first,
                       b.index(shape.getFirstRow(l, roots)));
    return b.add(first, index);
  }

  KernelBuilder b;
  TreeAttr shape;
  Value tree, batches;
  int64_t roots, width;

private:
  Values buffers;
};
} // namespace

//===----------------------------------------------------------------------===//
// Build
//===----------------------------------------------------------------------===//

namespace {
class BuildLoops : TreeLoops {
public:
  BuildLoops(OpBuilder &builder, TreeBuildOp op)
      : TreeLoops(builder, op.getLoc(), op.getShape(), op.getTree()), op(op) {}

  void emit() {
    if (op.getMask())
      emitCounts();
    // Means of inner nodes are not rounded to the type of the tree.
    int64_t inner =
        shape.getNodesPerRoot() * roots - shape.getNumNodes(0, roots);
    means = allocate({inner, width}, b.getF32Type());
    for (int64_t level = 1; level <= getLevels(); ++level)
      emitLevel(level);
    freeBuffers();
  }

private:
  void emitCounts() {
    for (int64_t level = 0; level <= getLevels(); ++level)
      parallelLoop(
          b, {batches, b.index(shape.getNumNodes(level, roots))},
          [&](ValueRange at) {
            Value row[] = {at[0], rowOf(level, at[1])};
            if (level == 0) {
              Value present = memref::LoadOp::create(b, op.getMask(), at);
              Value count = b.select(present, b.index(1), b.index(0));
              return storeIndex(count, op.getCounts(), row);
            }
            Value first = rowOf(level - 1, b.mul(at[1], getRatio()));
            Value total = b.loop(
                b.index(0), b.index(getRatio()), 1, {b.index(0)},
                [&](Value child, ValueRange sum) -> Values {
                  return {b.add(sum[0], countOf(at[0], b.add(first, child)))};
                })[0];
            storeIndex(total, op.getCounts(), row);
          });
  }

  Value countOf(Value batch, Value row) {
    return loadIndex(op.getCounts(), {batch, row});
  }

  /// The mean of the children of every node, and how far they are from it.
  void emitLevel(int64_t level) {
    parallelLoop(
        b, {batches, b.index(shape.getNumNodes(level, roots)), b.index(width)},
        [&](ValueRange at) {
          Value batch = at[0], node = at[1], column = at[2];
          Value firstChild = b.mul(node, getRatio());
          Value zero = b.index(0), ratio = b.index(getRatio());
          auto loadChild = [&](Value child) {
            Value index = b.add(firstChild, child);
            if (level == 1)
              return b.loadScalar(op.getInput(), {batch, index, column});
            return b.loadScalar(means,
                                {batch, rowOf(level - 1, index), column});
          };
          Value isAbsent, parts = ratio;
          if (op.getMask()) {
            Value total = countOf(batch, rowOf(level, node));
            // The mean of padding alone is that of its children.
            isAbsent = b.equal(total, zero);
            parts = b.select(isAbsent, ratio, total);
          }
          auto addChild = [&](Value child, ValueRange sum) -> Values {
            Value number = loadChild(child);
            if (isAbsent) {
              Value row = rowOf(level - 1, b.add(firstChild, child));
              Value count = countOf(batch, row);
              count = b.select(isAbsent, b.index(1), count);
              // What is absent may be NaN.
              number = b.select(b.less(zero, count), number, b.scalar(0.0));
              number = b.fmul(number, toNumber(count));
            }
            return {b.fadd(sum[0], number)};
          };
          Value sum = b.loop(zero, ratio, 1, {b.scalar(0.0)}, addChild)[0];
          Value mean = arith::DivFOp::create(b, sum, toNumber(parts));
          b.loop(zero, ratio, 1, [&](Value child) {
            Value row = rowOf(level - 1, b.add(firstChild, child));
            b.storeScalar(b.fsub(mean, loadChild(child)), tree,
                          {batch, row, column});
          });
          Value target[] = {batch, rowOf(level, node), column};
          b.storeScalar(mean, level == getLevels() ? tree : means, target);
        });
  }

  TreeBuildOp op;
  Value means;
};
} // namespace

void fovea::attn::emitTreeLoops(OpBuilder &builder, TreeBuildOp op) {
  BuildLoops(builder, op).emit();
}

//===----------------------------------------------------------------------===//
// Materialize and fetch
//===----------------------------------------------------------------------===//

namespace {
class FetchLoops : TreeLoops {
public:
  FetchLoops(OpBuilder &builder, Location loc, TreeAttr shape, Value tree)
      : TreeLoops(builder, loc, shape, tree) {}

  /// Siblings share the sum down to their parent.
  void materialize(Value output) {
    parallelLoop(
        b, {batches, b.index(shape.getNumNodes(1, roots)), b.index(width)},
        [&](ValueRange at) {
          Value first = b.mul(at[1], getRatio());
          Value parent = fetch(at[0], first, at[2], /*lowest=*/{}, /*last=*/1);
          b.loop(b.index(0), b.index(getRatio()), 1, [&](Value child) {
            Value token = b.add(first, child);
            Value difference =
                b.loadScalar(tree, {at[0], rowOf(0, token), at[2]});
            b.storeScalar(b.fsub(parent, difference), output,
                          {at[0], token, at[2]});
          });
        });
  }

  void fetchNodes(TreeFetchOp op) {
    Value count = b.extent(op.getRows(), 1);
    auto getNode = [&](Value batch, Value j) {
      return std::pair(loadIndex(op.getLevel(), {batch, j}),
                       loadIndex(op.getIndex(), {batch, j}));
    };
    parallelLoop(b, {batches, count, b.index(width)}, [&](ValueRange at) {
      auto [level, index] = getNode(at[0], at[1]);
      Value number = b.select(
          isThere(index), b.getF32Type(),
          [&, level = level, index = index] {
            return fetch(at[0], firstToken(level, index), at[2], level);
          },
          [&] { return b.scalar(0.0); });
      b.storeScalar(number, op.getRows(), at);
    });
    if (!op.getLogWeight())
      return;
    parallelLoop(b, {batches, count}, [&](ValueRange at) {
      auto [level, index] = getNode(at[0], at[1]);
      auto getWeight = [&, level = level, index = index]() -> Value {
        if (!op.getCounts())
          return b.fmul(toNumber(level),
                        b.scalar(std::log(static_cast<double>(getRatio()))));
        Value row[] = {at[0], rowOfAny(level, index)};
        Value tokens = memref::LoadOp::create(b, op.getCounts(), row);
        return softmax::logCount(b, tokens);
      };
      Value weight = b.select(isThere(index), b.getF32Type(), getWeight, [&] {
        return b.scalar(-std::numeric_limits<double>::infinity());
      });
      b.storeScalar(weight, op.getLogWeight(), at);
    });
  }
};
} // namespace

void fovea::attn::emitTreeLoops(OpBuilder &builder, TreeMaterializeOp op) {
  FetchLoops(builder, op.getLoc(), op.getShape(), op.getTree())
      .materialize(op.getOutput());
}

void fovea::attn::emitTreeLoops(OpBuilder &builder, TreeFetchOp op) {
  FetchLoops(builder, op.getLoc(), op.getShape(), op.getTree()).fetchNodes(op);
}

//===----------------------------------------------------------------------===//
// Update
//===----------------------------------------------------------------------===//

namespace {
/// Listed nodes cover the sequence in order, so every ancestor of them is known
/// by the first listed node under it, its *place* in the list. A buffer has the
/// changes of nodes at their places; level by level, those of the children of a
/// node become differences from their mean, which goes to the same place.
class UpdateLoops : TreeLoops {
public:
  UpdateLoops(OpBuilder &builder, TreeUpdateOp op)
      : TreeLoops(builder, op.getLoc(), op.getShape(), op.getTree()), op(op),
        count(b.extent(op.getRows(), 1)) {}

  void emit() {
    changes = allocateForList({width}, b.getF32Type());
    places = allocateForList({getRatio()}, b.getI32Type());
    emitListed();
    for (int64_t level = 1; level <= getLevels(); ++level) {
      findPlaces(level);
      emitLevel(level);
    }
    memref::DeallocOp::create(b, changes);
    memref::DeallocOp::create(b, places);
  }

private:
  Value allocateForList(ArrayRef<int64_t> extents, Type type) {
    auto rows = getMemRefType(op.getRows());
    SmallVector<int64_t> shape = {rows.getDimSize(0), rows.getDimSize(1)};
    SmallVector<Value> dynamicExtents;
    for (int64_t dim : {0, 1})
      if (rows.isDynamicDim(dim))
        dynamicExtents.push_back(b.extent(op.getRows(), dim));
    llvm::append_range(shape, extents);
    return memref::AllocOp::create(b, MemRefType::get(shape, type),
                                   dynamicExtents);
  }

  std::pair<Value, Value> getNode(Value batch, Value j) {
    return {loadIndex(op.getLevel(), {batch, j}),
            loadIndex(op.getIndex(), {batch, j})};
  }
  Value countOf(Value batch, Value row) {
    return loadIndex(op.getCounts(), {batch, row});
  }

  /// Changes of the listed nodes; roots among them have new rows at once.
  void emitListed() {
    parallelLoop(b, {batches, count, b.index(width)}, [&](ValueRange at) {
      Value batch = at[0];
      auto [level, index] = getNode(batch, at[1]);
      b.ifThen(isThere(index), [&, level = level, index = index] {
        emitListed(at, level, index);
      });
    });
  }
  void emitListed(ValueRange at, Value level, Value index) {
    Value batch = at[0], column = at[2];
    Value row = rowOfAny(level, index);
    Value isPresent;
    if (op.getCounts())
      isPresent = b.less(b.index(0), countOf(batch, row));
    Value wanted = b.loadScalar(op.getRows(), at);
    b.ifThenElse(
        b.equal(level, b.index(getLevels())),
        [&] {
          Value target[] = {batch, row, column};
          auto replace = [&] { b.storeScalar(wanted, tree, target); };
          isPresent ? b.ifThen(isPresent, replace) : replace();
        },
        [&] {
          // What a fetch would have returned: then there is no change.
          Value token = firstToken(level, index);
          Value old = round(fetch(batch, token, column, level));
          Value change = b.fsub(wanted, old);
          if (isPresent)
            change = b.select(isPresent, change, b.scalar(0.0));
          b.storeScalar(change, changes, at);
        });
  }

  /// Runs `then` if node `j` of the list is the place of an inner node of
  /// `level`, with the index of that.
  void ifPlace(int64_t level, Value batch, Value j,
               llvm::function_ref<void(Value)> then) {
    auto [own, index] = getNode(batch, j);
    Value token = firstToken(own, index);
    Value begins =
        b.equal(b.rem(token, b.index(shape.getSegment(level))), b.index(0));
    Value isInner = b.both(isThere(index), b.less(own, b.index(level)));
    b.ifThen(b.both(isInner, begins), [&] { then(ancestor(level, token)); });
  }

  /// The places of the children of all inner nodes of `level`: lists are in the
  /// order of tokens.
  void findPlaces(int64_t level) {
    parallelLoop(b, {batches, count, b.index(getRatio())}, [&](ValueRange at) {
      ifPlace(level, at[0], at[1], [&](Value node) {
        Value child = b.add(b.mul(node, getRatio()), at[2]);
        Value wanted = b.mul(child, shape.getSegment(level - 1));
        // The last listed node that begins at `wanted` or before.
        auto loop = scf::WhileOp::create(
            b, TypeRange{b.getIndexType(), b.getIndexType()},
            ValueRange{at[1], count},
            [&](OpBuilder &, Location, ValueRange bounds) {
              Value goesOn = b.less(b.add(bounds[0], 1), bounds[1]);
              scf::ConditionOp::create(b, goesOn, bounds);
            },
            [&](OpBuilder &, Location, ValueRange bounds) {
              Value middle = b.div(b.add(bounds[0], bounds[1]), 2);
              auto [own, index] = getNode(at[0], middle);
              // Absent nodes come last.
              Value isAfter = b.either(b.less(index, b.index(0)),
                                       b.less(wanted, firstToken(own, index)));
              Values next = {b.select(isAfter, bounds[0], middle),
                             b.select(isAfter, middle, bounds[1])};
              scf::YieldOp::create(b, next);
            });
        storeIndex(loop.getResult(0), places, at);
      });
    });
  }

  void emitLevel(int64_t level) {
    parallelLoop(b, {batches, count, b.index(width)}, [&](ValueRange at) {
      ifPlace(level, at[0], at[1],
              [&](Value node) { emitParent(level, node, at); });
    });
  }

  /// All children of `node` have their changes.
  void emitParent(int64_t level, Value node, ValueRange at) {
    Value batch = at[0], j = at[1], column = at[2];
    Value zero = b.index(0), ratio = b.index(getRatio());
    Value firstRow = rowOf(level - 1, b.mul(node, getRatio()));
    auto loadChange = [&](Value child) {
      Value place = loadIndex(places, {batch, j, child});
      return b.loadScalar(changes, {batch, place, column});
    };
    Value parts = b.index(getRatio());
    if (op.getCounts())
      parts = b.max(countOf(batch, rowOf(level, node)), 1);
    Value sum = b.loop(zero, ratio, 1, {b.scalar(0.0)},
                       [&](Value child, ValueRange sum) -> Values {
                         Value change = loadChange(child);
                         // Absent children have a change of zero.
                         if (op.getCounts()) {
                           Value row = b.add(firstRow, child);
                           change =
                               b.fmul(change, toNumber(countOf(batch, row)));
                         }
                         return {b.fadd(sum[0], change)};
                       })[0];
    Value mean = arith::DivFOp::create(b, sum, toNumber(parts));
    b.loop(zero, ratio, 1, [&](Value child) {
      Value target[] = {batch, b.add(firstRow, child), column};
      // Written so that no change leaves every bit, the sign of zero too.
      Value back = b.fsub(loadChange(child), mean);
      b.storeScalar(b.fsub(b.loadScalar(tree, target), back), tree, target);
    });
    if (level < getLevels())
      return b.storeScalar(mean, changes, at);
    Value root[] = {batch, rowOf(level, node), column};
    Value back = b.fsub(b.scalar(0.0), mean);
    b.storeScalar(b.fsub(b.loadScalar(tree, root), back), tree, root);
  }

  TreeUpdateOp op;
  Value count, changes, places;
};
} // namespace

void fovea::attn::emitTreeLoops(OpBuilder &builder, TreeUpdateOp op) {
  UpdateLoops(builder, op).emit();
}
