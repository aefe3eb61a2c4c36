//===- LowerToReferenceTree.cpp - Trees of averages as plain loops --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An update moves all tokens of the listed nodes and builds the tree anew, a
// choice counts how many candidates are better: nothing here knows the
// shortcuts that the kernels take.
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Loops over the nodes of a tree.
struct ReferenceTree {
  using Value = mlir::Value;
  /// `tree` has the nodes along its extent 1, if it is given.
  ReferenceTree(ReferenceBuilder &ref, TreeAttr shape, Value tree)
      : ref(ref), b(ref.getBuilder()), shape(shape) {
    if (!tree)
      return;
    roots = ref.div(ref.extent(tree, 1), ref.index(shape.getNodesPerRoot()));
    tokens = numNodes(/*level=*/0);
  }

  Value numNodes(int64_t level) {
    return ref.mul(roots, ref.index(shape.getNumNodes(level, /*roots=*/1)));
  }

  Value loadIndex(Value buffer, ValueRange indices) {
    Value value = memref::LoadOp::create(b, buffer, indices);
    return arith::IndexCastOp::create(b, b.getIndexType(), value);
  }
  void storeIndex(Value value, Value buffer, ValueRange indices) {
    Type type = cast<MemRefType>(buffer.getType()).getElementType();
    value = arith::IndexCastOp::create(b, type, value);
    memref::StoreOp::create(b, value, buffer, indices);
  }
  Value equal(Value a, Value c) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, a, c);
  }

  Value node(int64_t level, Value x) {
    Value above = ref.index(shape.getFirstRow(level, /*roots=*/1));
    return ref.add(ref.mul(roots, above), x);
  }

  /// The row, in one column, of the ancestor of token `t` at level `level`.
  Value ancestorRow(Value tree, Value batch, Value t, Value column,
                    int64_t level) {
    Value sum;
    for (int64_t l = shape.getLevels(); l >= level; --l) {
      Value x = ref.div(t, ref.index(shape.getSegment(l)));
      Value term = ref.load(tree, {batch, node(l, x), column});
      sum = sum ? ref.subNumbers(sum, term) : term;
    }
    return sum;
  }

  /// Calls `body(level)` for the level that the index `level` has; any other
  /// index, such as that of an absent node, does nothing.
  void forLevel(Value level, function_ref<void(int64_t)> body) {
    for (int64_t l = 0; l <= shape.getLevels(); ++l)
      ref.ifThen(equal(level, ref.index(l)), [&] { body(l); });
  }

  /// Builds one column of a tree by definition, from what `load` says of each
  /// token; `isPresent` may be null.
  void build(function_ref<Value(Value token)> load,
             function_ref<void(Value number, Value node)> store,
             function_ref<Value(Value token)> isPresent);

  ReferenceBuilder &ref;
  ImplicitLocOpBuilder &b;
  TreeAttr shape;
  Value roots, tokens;
};
} // namespace

void ReferenceTree::build(function_ref<Value(Value)> load,
                          function_ref<void(Value, Value)> store,
                          function_ref<Value(Value)> isPresent) {
  Value zero = ref.number(0.0), one = ref.number(1.0);
  auto mean = [&](int64_t level, Value x) -> Value {
    if (level == 0)
      return load(x);
    Value segment = ref.index(shape.getSegment(level));
    Value first = ref.mul(x, segment), end = ref.add(first, segment);
    auto sumOf = [&](function_ref<Value(Value)> term,
                     function_ref<Value(Value)> counts) {
      return ref.accumulate(first, end, zero, [&](Value t, Value sum) {
        auto more = [&] { return ref.addNumbers(sum, term(t)); };
        return counts ? ref.when(counts(t), more, sum) : more();
      });
    };
    auto countOne = [&](Value) { return one; };
    auto meanOf = [&](function_ref<Value(Value)> counts) {
      return ref.divNumbers(sumOf(load, counts), sumOf(countOne, counts));
    };
    if (!isPresent)
      return meanOf(nullptr);
    // A node of padding alone has the mean of its padding.
    Value count = sumOf(countOne, isPresent);
    Value isEmpty =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, count, zero);
    Value padding = ref.when(isEmpty, [&] { return meanOf(nullptr); }, zero);
    return ref.when(isEmpty, [&] { return padding; }, meanOf(isPresent));
  };
  for (int64_t level = 0; level <= shape.getLevels(); ++level)
    ref.forEach(numNodes(level), [&](Value x) {
      Value row = mean(level, x);
      if (level != shape.getLevels())
        row = ref.subNumbers(
            mean(level + 1, ref.div(x, ref.index(shape.getRatio()))), row);
      store(row, node(level, x));
    });
}

static void lowerTreeBuild(TreeBuildOp op) {
  ReferenceBuilder ref(op);
  ReferenceTree tree(ref, op.getShape(), op.getTree());
  ref.forEach(ref.extent(op.getTree(), 0), [&](Value batch) {
    auto isPresent = [&](Value t) -> Value {
      return memref::LoadOp::create(tree.b, op.getMask(), ValueRange{batch, t});
    };
    function_ref<Value(Value)> present;
    if (op.getMask())
      present = isPresent;
    ref.forEach(ref.extent(op.getTree(), 2), [&](Value column) {
      tree.build(
          [&](Value t) { return ref.load(op.getInput(), {batch, t, column}); },
          [&](Value number, Value node) {
            ref.store(number, op.getTree(), {batch, node, column});
          },
          present);
    });
    if (!op.getCounts())
      return;
    for (int64_t level = 0; level <= op.getShape().getLevels(); ++level)
      ref.forEach(tree.numNodes(level), [&](Value x) {
        Value segment = ref.index(op.getShape().getSegment(level));
        Value first = ref.mul(x, segment);
        Value count = ref.accumulate(
            first, ref.add(first, segment), ref.index(0),
            [&](Value t, Value sum) {
              return ref.select(isPresent(t), ref.add(sum, ref.index(1)), sum);
            });
        tree.storeIndex(count, op.getCounts(), {batch, tree.node(level, x)});
      });
  });
  op.erase();
}

static void lowerTreeFetch(TreeFetchOp op) {
  ReferenceBuilder ref(op);
  TreeAttr shape = op.getShape();
  ReferenceTree tree(ref, shape, op.getTree());
  ref.forEach(ref.extent(op.getRows(), 0), [&](Value batch) {
    ref.forEach(ref.extent(op.getRows(), 1), [&](Value j) {
      Value x = tree.loadIndex(op.getIndex(), {batch, j});
      ref.ifThen(ref.less(x, ref.index(0)), [&] {
        ref.forEach(ref.extent(op.getRows(), 2), [&](Value column) {
          ref.store(ref.number(0.0), op.getRows(), {batch, j, column});
        });
        if (op.getLogWeight())
          ref.store(ref.minusInfinity(), op.getLogWeight(), {batch, j});
      });
      tree.forLevel(tree.loadIndex(op.getLevel(), {batch, j}), [&](int64_t l) {
        Value first = ref.mul(x, ref.index(shape.getSegment(l)));
        ref.forEach(ref.extent(op.getRows(), 2), [&](Value column) {
          ref.store(tree.ancestorRow(op.getTree(), batch, first, column, l),
                    op.getRows(), {batch, j, column});
        });
        if (!op.getLogWeight())
          return;
        Value weight = ref.log(ref.index(shape.getSegment(l)));
        if (op.getCounts()) {
          Value count =
              tree.loadIndex(op.getCounts(), {batch, tree.node(l, x)});
          Value isEmpty = tree.equal(count, ref.index(0));
          weight = op.getWholeSegments()
                       ? ref.select(isEmpty, ref.minusInfinity(), weight)
                       : ref.log(count);
        }
        ref.store(weight, op.getLogWeight(), {batch, j});
      });
    });
  });
  op.erase();
}

static void lowerTreeMaterialize(TreeMaterializeOp op) {
  ReferenceBuilder ref(op);
  ReferenceTree tree(ref, op.getShape(), op.getTree());
  ref.forEach(ref.extent(op.getTree(), 0), [&](Value batch) {
    ref.forEach(tree.tokens, [&](Value t) {
      ref.forEach(ref.extent(op.getTree(), 2), [&](Value column) {
        ref.store(tree.ancestorRow(op.getTree(), batch, t, column, 0),
                  op.getOutput(), {batch, t, column});
      });
    });
  });
  op.erase();
}

static void lowerTreeUpdate(TreeUpdateOp op) {
  ReferenceBuilder ref(op);
  TreeAttr shape = op.getShape();
  ReferenceTree tree(ref, shape, op.getTree());
  Value moved = ref.allocate(ShapedType::kDynamic, tree.tokens);
  Value zero = ref.index(0);
  ref.forEach(ref.extent(op.getTree(), 0), [&](Value batch) {
    auto isPresent = [&](Value t) -> Value {
      Value count = tree.loadIndex(op.getCounts(), {batch, tree.node(0, t)});
      return ref.less(ref.index(0), count);
    };
    function_ref<Value(Value)> present;
    if (op.getCounts())
      present = isPresent;
    ref.forEach(ref.extent(op.getTree(), 2), [&](Value column) {
      ref.forEach(tree.tokens, [&](Value t) {
        ref.store(tree.ancestorRow(op.getTree(), batch, t, column, 0), moved,
                  t);
      });
      ref.forEach(ref.extent(op.getRows(), 1), [&](Value j) {
        Value x = tree.loadIndex(op.getIndex(), {batch, j});
        Value level = tree.loadIndex(op.getLevel(), {batch, j});
        tree.forLevel(level, [&](int64_t l) {
          Value segment = ref.index(shape.getSegment(l));
          Value first = ref.mul(x, segment);
          Value old = tree.ancestorRow(op.getTree(), batch, first, column, l);
          Value row = ref.load(op.getRows(), {batch, j, column});
          Value change = ref.subNumbers(row, old);
          if (op.getCounts()) {
            Value count =
                tree.loadIndex(op.getCounts(), {batch, tree.node(l, x)});
            change =
                ref.select(tree.equal(count, zero), ref.number(0.0), change);
          }
          ref.forEach(first, ref.add(first, segment), [&](Value t) {
            ref.store(ref.addNumbers(ref.load(moved, t), change), moved, t);
          });
        });
      });
      tree.build([&](Value t) { return ref.load(moved, {t}); },
                 [&](Value number, Value node) {
                   ref.store(number, op.getTree(), {batch, node, column});
                 },
                 present);
    });
  });
  op.erase();
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

static void lowerTreeSplit(TreeSplitOp op) {
  ReferenceBuilder ref(op);
  TreeAttr shape = op.getShape();
  int64_t at = op.getAt();
  bool haveCounts = op.getCounts() != nullptr;
  ReferenceTree tree(ref, shape, op.getCounts());
  ImplicitLocOpBuilder &b = tree.b;
  int64_t added = op.getSplit() * (shape.getRatio() - 1);
  Value frontier = ref.sub(ref.extent(op.getNewLevel(), 1), ref.index(added));
  Value candidates =
      op.getCandidates() ? ref.extent(op.getCandidates(), 1) : frontier;
  Value split = ref.index(op.getSplit()), ratio = ref.index(shape.getRatio());
  Value zero = ref.index(0), one = ref.index(1);

  ref.forEach(ref.extent(op.getNewLevel(), 0), [&](Value batch) {
    auto indexOf = [&](Value m) {
      return op.getCandidates() ? tree.loadIndex(op.getCandidates(), {batch, m})
                                : m;
    };
    auto hasTokens = [&](Value m) -> Value {
      Value x = indexOf(m), isThere = ref.lessOrEqual(zero, x);
      if (!haveCounts)
        return isThere;
      Value node = tree.node(at, ref.max(x, zero));
      Value count = tree.loadIndex(op.getCounts(), {batch, node});
      return ref.both(isThere, ref.less(zero, count));
    };
    // NaN counts as the lowest score.
    auto scoreOf = [&](Value m) {
      Value score = ref.load(op.getScores(), {batch, m});
      Value isNumber =
          arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, score, score);
      return ref.select(isNumber, score, ref.minusInfinity());
    };
    auto isBetter = [&](Value other, Value m) -> Value {
      Value earlier = ref.less(other, m);
      if (op.getScores()) {
        Value a = scoreOf(other), c = scoreOf(m);
        Value above = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, a, c);
        Value tie = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, a, c);
        earlier = ref.either(above, ref.both(tie, earlier));
      }
      return ref.both(hasTokens(other), earlier);
    };
    auto isSplit = [&](Value m) -> Value {
      Value better =
          ref.accumulate(zero, candidates, zero, [&](Value other, Value sum) {
            return ref.select(isBetter(other, m), ref.add(sum, one), sum);
          });
      return ref.both(hasTokens(m), ref.less(better, split));
    };

    // Where the next node, child and candidate are.
    Value places =
        memref::AllocOp::create(b, MemRefType::get({3}, b.getIndexType()));
    auto next = [&](int64_t which) -> Value {
      Value at = ref.index(which);
      Value place = memref::LoadOp::create(b, places, at);
      memref::StoreOp::create(b, ref.add(place, one), places, at);
      return place;
    };
    for (int64_t which : {0, 1, 2})
      memref::StoreOp::create(b, zero, places, ref.index(which));
    auto append = [&](Value level, Value index) {
      Value place = next(0);
      tree.storeIndex(level, op.getNewLevel(), {batch, place});
      tree.storeIndex(index, op.getNewIndex(), {batch, place});
    };
    auto visitCandidate = [&] {
      Value m = next(2), x = indexOf(m);
      auto choice = scf::IfOp::create(b, isSplit(m), /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(choice.thenBlock());
      ref.forEach(ratio, [&](Value child) {
        Value index = ref.add(ref.mul(x, ratio), child);
        append(ref.index(at - 1), index);
        tree.storeIndex(index, op.getChildren(), {batch, next(1)});
      });
      b.setInsertionPointToStart(choice.elseBlock());
      append(ref.index(at), x);
    };
    ref.forEach(frontier, [&](Value j) {
      if (!op.getLevel())
        return visitCandidate();
      Value level = tree.loadIndex(op.getLevel(), {batch, j});
      Value index = tree.loadIndex(op.getIndex(), {batch, j});
      Value isCandidate = tree.equal(level, ref.index(at));
      auto kind = scf::IfOp::create(b, isCandidate, /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(kind.thenBlock());
      visitCandidate();
      b.setInsertionPointToStart(kind.elseBlock());
      ref.ifThen(ref.lessOrEqual(zero, index), [&] { append(level, index); });
    });
    // Where fewer were split, the rest is absent.
    Value absent = ref.index(-1);
    auto countOf = [&](int64_t which) -> Value {
      return memref::LoadOp::create(b, places, ref.index(which));
    };
    ref.forEach(countOf(0), ref.extent(op.getNewLevel(), 1),
                [&](Value) { append(absent, absent); });
    ref.forEach(countOf(1), ref.extent(op.getChildren(), 1), [&](Value j) {
      tree.storeIndex(absent, op.getChildren(), {batch, j});
    });
  });
  op.erase();
}

static void lowerTreeScore(TreeScoreOp op) {
  ReferenceBuilder ref(op);
  Value query = op.getQuery(), key = op.getKey(), output = op.getOutput();
  Value zero = ref.index(0), candidates = ref.extent(key, 2);
  Value heads = ref.extent(query, 1), tokens = ref.extent(query, 2);
  // Sums over heads and tokens are kept in f64 and rounded once.
  Value sums = ref.allocate(ShapedType::kDynamic, candidates);
  auto scoreOf = [&](Value batch, Value head, Value i, Value x) {
    Value product = ref.dot(query, {batch, head, i}, key,
                            {batch, ref.keyHead(query, key, head), x});
    Value score = ref.mulNumbers(ref.number(op.getScaleOrDefault()), product);
    if (op.getLogWeight())
      score = ref.addNumbers(score, ref.load(op.getLogWeight(), {batch, x}));
    return score;
  };
  /// `body()` for a VIP token that is present.
  auto ifPresent = [&](Value batch, Value i, function_ref<Value()> body,
                       Value otherwise) {
    return op.getMask() ? ref.when(ref.loadCondition(op.getMask(), {batch, i}),
                                   body, otherwise)
                        : body();
  };
  // log(sum over entries of exp): minus infinity without any.
  auto logSum = [&](Value count, function_ref<Value(Value)> score) {
    Value top = ref.accumulate(
        zero, count, ref.minusInfinity(),
        [&](Value e, Value top) { return ref.maxNumbers(top, score(e)); });
    Value shift = ref.select(ref.isMinusInfinity(top), ref.number(0.0), top);
    Value sum =
        ref.accumulate(zero, count, ref.number(0.0), [&](Value e, Value sum) {
          return ref.addNumbers(sum, ref.exp(ref.subNumbers(score(e), shift)));
        });
    return ref.addNumbers(shift, ref.log(sum));
  };
  ref.forEach(ref.extent(output, 0), [&](Value batch) {
    if (op.getExponential()) {
      ref.forEach(candidates, [&](Value x) {
        Value score = logSum(tokens, [&](Value i) {
          return ifPresent(
              batch, i, [&] { return scoreOf(batch, zero, i, x); },
              ref.minusInfinity());
        });
        ref.store(score, output, {batch, x});
      });
      return;
    }
    ref.forEach(candidates,
                [&](Value x) { ref.store(ref.number(0.0), sums, x); });
    ref.forEach(heads, [&](Value head) {
      ref.forEach(tokens, [&](Value i) {
        Value total = logSum(
            candidates, [&](Value x) { return scoreOf(batch, head, i, x); });
        // Where nothing can be looked at, every probability is zero.
        Value nothing = ref.isMinusInfinity(total);
        ref.forEach(candidates, [&](Value x) {
          Value share = ifPresent(
              batch, i,
              [&] {
                return ref.exp(
                    ref.subNumbers(scoreOf(batch, head, i, x), total));
              },
              ref.number(0.0));
          share = ref.select(nothing, ref.number(0.0), share);
          ref.store(ref.addNumbers(ref.load(sums, x), share), sums, x);
        });
      });
    });
    Value present =
        ref.accumulate(zero, tokens, zero, [&](Value i, Value count) -> Value {
          return ifPresent(
              batch, i, [&] { return ref.add(count, ref.index(1)); }, count);
        });
    Value looks = ref.max(ref.mul(heads, present), ref.index(1));
    Value count = arith::SIToFPOp::create(
        ref.getBuilder(), ref.getBuilder().getF64Type(),
        arith::IndexCastOp::create(ref.getBuilder(),
                                   ref.getBuilder().getI64Type(), looks));
    ref.forEach(candidates, [&](Value x) {
      ref.store(ref.divNumbers(ref.load(sums, x), count), output, {batch, x});
    });
  });
  op.erase();
}

void fovea::attn::attachTreeToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerTreeBuild, lowerTreeFetch,
                  lowerTreeMaterialize, lowerTreeUpdate, lowerTreeSplit,
                  lowerTreeScore>(context);
}
