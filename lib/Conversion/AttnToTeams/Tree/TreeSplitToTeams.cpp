//===- TreeSplitToTeams.cpp - Choosing nodes of trees ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A team for each batch entry finds the lowest score that is split, bit by bit,
// by counting the scores above; so the time is linear in the candidates. Then
// it lists the candidates to split, and goes through them: the nodes of the
// frontier up to each are copied, and its children put in its place.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
class SplitKernel {
public:
  SplitKernel(TeamBuilder &builder, TreeSplitOp op)
      : b(builder), op(op), split(op.getSplit()),
        ratio(op.getShape().getRatio()) {
    numNodes =
        b.sub(b.extent(op.getNewLevel(), 1), b.index(split * (ratio - 1)));
    numCandidates =
        op.getCandidates() ? b.extent(op.getCandidates(), 1) : numNodes;
    if (op.getCounts())
      roots =
          b.div(b.extent(op.getCounts(), 1), op.getShape().getNodesPerRoot());
  }

  void emit() {
    b.forTeams({b.extent(op.getNewLevel(), 0)}, [&](ValueRange point) {
      batch = point[0];
      for (Value list : {op.getNewLevel(), op.getNewIndex(), op.getChildren()})
        clear(list);
      b.barrier();
      listPositions();
      emitFrontier();
    });
  }

private:
  /// What nobody writes to is absent.
  void clear(Value list) {
    b.forNumbers(b.index(0), b.extent(list, 1), [&](Value at) {
      b.storeIndex(b.index(-1), list, {batch, at});
    });
  }

  Value list(Value extent) { return b.teamBuffer(extent, b.getI32Type()); }
  Value compare(KernelBuilder &k, arith::CmpFPredicate predicate, Value x,
                Value y) {
    return arith::CmpFOp::create(k, predicate, x, y);
  }

  //===--------------------------------------------------------------------===//
  // Candidates
  //===--------------------------------------------------------------------===//

  /// Lists the candidates that are split, in order; returns how many.
  Value choose() {
    storeKeys();
    Value least = op.getScores() ? findLeast() : b.scalar(0.0);
    Value numGreater = countIf(arith::CmpFPredicate::OGT, least);
    Value ties = list(numCandidates);
    Value numTies = b.listNumbers(numCandidates,
                                  [&](KernelBuilder &k, Value number) {
                                    return compare(k, arith::CmpFPredicate::OEQ,
                                                   loadKey(k, number), least);
                                  },
                                  ties, {});
    b.barrier();
    // Of equal candidates the first ones are split.
    Value numLeft = b.sub(b.index(split), toIndex(numGreater));
    Value endOfTies = b.select(
        b.less(numLeft, numTies), b.getIndexType(),
        [&] { return b.loadIndex(ties, numLeft); },
        [&] { return numCandidates; });
    chosen = list(numCandidates);
    Value numChosen = b.listNumbers(
        numCandidates,
        [&](KernelBuilder &k, Value number) {
          Value key = loadKey(k, number);
          Value isGreater = compare(k, arith::CmpFPredicate::OGT, key, least);
          Value isEqual = compare(k, arith::CmpFPredicate::OEQ, key, least);
          return k.either(isGreater,
                          k.both(isEqual, k.less(number, endOfTies)));
        },
        chosen, {});
    b.barrier();
    return numChosen;
  }

  /// Keys are scores, where NaN counts as the lowest one; those of candidates
  /// that cannot be split are NaN, of which no comparison holds.
  void storeKeys() {
    Type type =
        op.getScores()
            ? cast<MemRefType>(op.getScores().getType()).getElementType()
            : b.getStateType();
    keys = b.teamBuffer(numCandidates, type);
    Value none = b.scalar(std::numeric_limits<double>::quiet_NaN());
    b.forNumbers(b.index(0), numCandidates, [&](Value candidate) {
      Value key = b.scalar(0.0);
      if (op.getScores())
        key = orLowest(b.loadScalar(op.getScores(), {batch, candidate}));
      key = b.select(canSplit(candidate), key, none);
      b.storeScalar(key, keys, candidate);
    });
    b.barrier();
  }

  /// Minus infinity for NaN.
  Value orLowest(Value number) {
    Value isNumber = compare(b, arith::CmpFPredicate::ORD, number, number);
    return b.select(isNumber, number,
                    b.scalar(-std::numeric_limits<double>::infinity()));
  }

  Value loadKey(KernelBuilder &k, Value candidate) {
    return k.loadScalar(keys, candidate);
  }

  /// Whether a candidate is there, also in the frontier, and has tokens.
  Value canSplit(Value candidate) {
    Value node = candidate, isThere = b.less(candidate, numPositions);
    if (op.getCandidates()) {
      node = b.loadIndex(op.getCandidates(), {batch, candidate});
      isThere = b.both(isThere, b.less(b.index(-1), node));
    }
    if (!op.getCounts())
      return isThere;
    Value firstRow =
        b.mul(roots, op.getShape().getFirstRow(op.getAt(), /*roots=*/1));
    Value row = b.add(b.max(node, 0), firstRow);
    Value count = b.loadIndex(op.getCounts(), {batch, row});
    return b.both(isThere, b.less(b.index(0), count));
  }

  /// For how many keys `predicate` holds, compared with `bound`.
  Value countIf(arith::CmpFPredicate predicate, Value bound) {
    return b.sumColumns(
        b.index(0), numCandidates, [&](KernelBuilder &k, Value at) {
          Value holds =
              compare(k, predicate, k.loadVector(keys, at), k.broadcast(bound));
          return arith::SelectOp::create(k, holds, k.splat(1.0), k.splat(0.0))
              .getResult();
        });
  }

  Value toIndex(Value number) {
    Value integer = arith::FPToSIOp::create(b, b.getI64Type(), number);
    return arith::IndexCastOp::create(b, b.getIndexType(), integer);
  }

  /// The greatest number that at least `split` keys are not less than; minus
  /// infinity if there are fewer keys. Numbers are ordered as integers whose
  /// bits are theirs, with the sign's flipped, or all if they are negative.
  Value findLeast() {
    FloatType number = b.getStateType();
    unsigned width = number.getWidth();
    Type integer = b.getIntegerType(width);
    auto constant = [&](const APInt &value) -> Value {
      return arith::ConstantOp::create(b, b.getIntegerAttr(integer, value));
    };
    Value zero = constant(APInt::getZero(width)),
          sign = constant(APInt::getSignMask(width)),
          ones = constant(APInt::getAllOnes(width)),
          one = constant(APInt(width, 1));
    auto toNumber = [&](Value order) -> Value {
      Value isPositive =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, order, zero);
      Value bits =
          arith::XOrIOp::create(b, order, b.select(isPositive, sign, ones));
      return arith::BitcastOp::create(b, number, bits);
    };
    Value inits[] = {zero, sign};
    auto addBit = [&](Value, ValueRange state) -> Values {
      Value next = arith::OrIOp::create(b, state[0], state[1]);
      Value count = countIf(arith::CmpFPredicate::OGE, toNumber(next));
      Value isEnough = compare(b, arith::CmpFPredicate::OGE, count,
                               b.scalar(static_cast<double>(split)));
      return {b.select(isEnough, next, state[0]),
              arith::ShRUIOp::create(b, state[1], one)};
    };
    Value order = b.loop(b.index(0), b.index(width), 1, inits, addBit).front();
    // Bits below minus infinity are those of NaN.
    return orLowest(toNumber(order));
  }

  //===--------------------------------------------------------------------===//
  // The frontier
  //===--------------------------------------------------------------------===//

  /// Where candidates are in the frontier.
  void listPositions() {
    numPositions = numNodes;
    if (!op.getLevel())
      return;
    positions = list(numNodes);
    numPositions =
        b.listNumbers(numNodes,
                      [&](KernelBuilder &k, Value node) {
                        Value level = k.loadIndex(op.getLevel(), {batch, node});
                        return k.equal(level, k.index(op.getAt()));
                      },
                      positions, {});
    b.barrier();
  }

  void emitFrontier() {
    Value begin = b.index(0), numChosen = b.index(0);
    if (split > 0) {
      numChosen = choose();
      begin = b.loop(b.index(0), numChosen, 1, begin,
                     [&](Value number, ValueRange begin) -> Values {
                       Value node = b.loadIndex(chosen, number);
                       if (positions)
                         node = b.loadIndex(positions, node);
                       copyNodes(begin.front(), node, number);
                       emitChildren(node, number);
                       return {b.add(node, 1)};
                     })
                  .front();
    }
    copyNodes(begin, numNodes, numChosen);
  }

  /// Copies nodes before which `numSplit` others have become their children.
  void copyNodes(Value begin, Value end, Value numSplit) {
    Value shift = b.mul(numSplit, ratio - 1);
    b.forNumbers(begin, end, [&](Value node) {
      Value index = indexOf(node);
      b.ifThen(b.less(b.index(-1), index), [&] {
        Value level = op.getLevel() ? b.loadIndex(op.getLevel(), {batch, node})
                                    : b.index(op.getAt());
        put(level, index, b.add(node, shift));
      });
    });
  }

  void emitChildren(Value node, Value numSplit) {
    Value first = b.mul(indexOf(node), ratio);
    Value target = b.add(node, b.mul(numSplit, ratio - 1));
    b.forNumbers(b.index(0), b.index(ratio), [&](Value child) {
      Value index = b.add(first, child);
      put(b.index(op.getAt() - 1), index, b.add(target, child));
      b.storeIndex(index, op.getChildren(),
                   {batch, b.add(b.mul(numSplit, ratio), child)});
    });
  }

  Value indexOf(Value node) {
    return op.getIndex() ? b.loadIndex(op.getIndex(), {batch, node}) : node;
  }

  void put(Value level, Value index, Value target) {
    b.storeIndex(level, op.getNewLevel(), {batch, target});
    b.storeIndex(index, op.getNewIndex(), {batch, target});
  }

  TeamBuilder &b;
  TreeSplitOp op;
  int64_t split, ratio;
  /// Constants where types tell them.
  Value numCandidates, numNodes, roots;
  Value batch;
  /// Keys of candidates; numbers of those that are split; places of all of them
  /// in the frontier, null where they are the frontier.
  Value keys, chosen, positions, numPositions;
};
} // namespace

/// Scores are compared in a type that has all of them, and the number of
/// candidates.
static FloatType getKeyType(TreeSplitOp op, Builder &builder) {
  constexpr int64_t kMostInF32 = 1 << 24;
  Value scores = op.getScores();
  int64_t candidates = op.getNumCandidates();
  bool isDouble = (scores && getElementTypeOrSelf(scores).isF64()) ||
                  ShapedType::isDynamic(candidates) || candidates > kMostInF32;
  return isDouble ? builder.getF64Type() : builder.getF32Type();
}

static LogicalResult splitByThreads(TreeSplitOp op, OpBuilder &builder,
                                    VectorLowering &lowering) {
  ThreadTeamBuilder teams(op.getLoc(), builder, getKeyType(op, builder),
                          lowering.cpu.vectorBits, lowering.minTasks);
  SplitKernel(teams, op).emit();
  return success();
}

static LogicalResult splitByWarps(TreeSplitOp op, OpBuilder &builder,
                                  GPULowering &) {
  WarpTeamBuilder teams(op.getLoc(), builder, getKeyType(op, builder));
  SplitKernel(teams, op).emit();
  return success();
}

void fovea::attn::attachTreeSplitToTeams(MLIRContext &context) {
  attachLowerings<VectorModel, splitByThreads>(context);
  attachLowerings<GPUModel, splitByWarps>(context);
}
