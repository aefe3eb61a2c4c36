//===- PoolToTeams.cpp - Pooled summaries, for both targets ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   a team for each row e
//     for each vector of columns
//       maximum of the scores of tokens(e); then sums of weights and of
//       weights times tokens
//
// The gradient has a team for the tokens of each interval, which takes the
// sums of all rows that have them again: nothing is kept of the forward pass,
// and no two teams add to the same element.
//
//===----------------------------------------------------------------------===//

#include "PoolTeams.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Tokens that a team should take, and rows that share some, at most.
static constexpr int64_t kTeamTokens = 512, kMaxSharers = 64;

namespace {
/// What both have in common. Functions of columns are given the builder of a
/// vector of them.
class PoolKernel {
public:
  template <typename OpTy>
  PoolKernel(TeamBuilder &builder, OpTy op, Value rows)
      : b(builder), input(op.getInput()), gate(op.getGate()),
        positionBias(op.getPositionBias()), interval(op.getInterval()),
        overlap(op.getOverlap()), numTokens(b.extent(input, 2)),
        numRows(b.extent(rows, 2)),
        width(cast<MemRefType>(input.getType()).getDimSize(3)) {}

protected:
  /// A batch entry and a head, and a vector of columns.
  struct Place {
    Value batch, head, column;
  };
  /// What the soft-max of one row is made of; the maximum is in base 2.
  struct Row {
    Value maximum, inverse, mean;
  };

  /// Tokens `first .. second - 1` of a row.
  std::pair<Value, Value> tokensOf(KernelBuilder &k, Value row) {
    Value begin = k.mul(row, interval);
    return {k.max(k.sub(begin, k.index(overlap)), 0),
            k.min(k.add(begin, interval), numTokens)};
  }
  int64_t rowsPerTeam() const {
    return std::max<int64_t>(kTeamTokens / (interval + overlap), 1);
  }
  Value loadToken(KernelBuilder &k, Value from, const Place &at, Value token) {
    return k.loadVector(from, {at.batch, at.head, token, at.column});
  }
  Value loadScore(KernelBuilder &k, const Place &at, Value token);
  /// A token, or zero where its score removes it.
  Value loadInput(KernelBuilder &k, const Place &at, Value token, Value score);
  Value getWeight(KernelBuilder &k, Value score, Value maximum) {
    Value difference = k.fsub(score, maximum);
    // A lane of a GPU has an instruction for it.
    return k.getLanes() ? softmax::exp2(k, difference)
                        : math::Exp2Op::create(k, difference);
  }
  Row pool(KernelBuilder &k, const Place &at, Value row);

  TeamBuilder &b;
  Value input, gate, positionBias;
  int64_t interval, overlap;
  Value numTokens, numRows;
  int64_t width;
};

class PoolGradient : public PoolKernel {
public:
  PoolGradient(TeamBuilder &builder, PoolBackwardOp op)
      : PoolKernel(builder, op, op.getDOutput()), op(op),
        sharers((interval - 1 + overlap) / interval + 1) {}

  LogicalResult emit();

private:
  void emitInterval(const Place &at, Value first);
  void emitToken(KernelBuilder &k, const Place &at, Value first, Value token);
  void emitPositionBias();

  PoolBackwardOp op;
  /// Rows, from that of an interval on, that may have tokens of it.
  int64_t sharers;
  Value maxima, inverses, means;
};
} // namespace

/// In base 2; masked where it is minus infinity.
Value PoolKernel::loadScore(KernelBuilder &k, const Place &at, Value token) {
  Value score = loadToken(k, gate, at, token);
  if (positionBias)
    score = k.fadd(
        score, k.loadVector(positionBias, {k.rem(token, interval), at.column}));
  return k.fmax(k.splat(softmax::kMasked),
                k.fmul(score, k.splat(softmax::kLog2E)));
}

Value PoolKernel::loadInput(KernelBuilder &k, const Place &at, Value token,
                            Value score) {
  return arith::SelectOp::create(k, softmax::isMasked(k, score), k.splat(0.0),
                                 loadToken(k, input, at, token));
}

PoolKernel::Row PoolKernel::pool(KernelBuilder &k, const Place &at, Value row) {
  auto [begin, end] = tokensOf(k, row);
  Value maximum = k.loop(begin, end, 1, {k.splat(softmax::kAdmitted)},
                         [&](Value token, ValueRange top) -> Values {
                           return {k.fmax(loadScore(k, at, token), top[0])};
                         })[0];
  Values sums =
      k.loop(begin, end, 1, {k.splat(0.0), k.splat(0.0)},
             [&](Value token, ValueRange sums) -> Values {
               Value score = loadScore(k, at, token);
               Value weight = getWeight(k, score, maximum);
               Value number = loadInput(k, at, token, score);
               return {k.fadd(sums[0], weight), k.fma(weight, number, sums[1])};
             });
  Value inverse = softmax::inverseSum(k, maximum, sums[0]);
  return {maximum, inverse, k.fmul(sums[1], inverse)};
}

namespace {
struct PoolForward : PoolKernel {
  PoolForward(TeamBuilder &builder, PoolOp op)
      : PoolKernel(builder, op, op.getOutput()), output(op.getOutput()) {}

  void emit() {
    Value grid[] = {b.extent(input, 0), b.extent(input, 1)};
    b.forRows(grid, numRows, rowsPerTeam(), [&](ValueRange at) {
      b.forColumns(width, [&](KernelBuilder &k, Value column) {
        Row row = pool(k, {at[0], at[1], column}, at[2]);
        k.storeVector(row.mean, output, {at[0], at[1], at[2], column});
      });
    });
  }

  Value output;
};
} // namespace

//===----------------------------------------------------------------------===//
// Gradient
//===----------------------------------------------------------------------===//

/// The tokens from `first` row's own on.
void PoolGradient::emitInterval(const Place &place, Value first) {
  Value end = b.min(b.add(first, sharers), numRows);
  Value token = b.mul(first, interval);
  Value lastToken = b.min(b.add(token, interval), numTokens);
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Place at = {place.batch, place.head, column};
    k.loop(first, end, 1, [&](Value number) {
      Row row = pool(k, at, number);
      Values to = {k.sub(number, first), column};
      k.storeVector(row.maximum, maxima, to);
      k.storeVector(row.inverse, inverses, to);
      k.storeVector(row.mean, means, to);
    });
    k.loop(token, lastToken, 1,
           [&](Value token) { emitToken(k, at, first, token); });
  });
}

void PoolGradient::emitToken(KernelBuilder &k, const Place &at, Value first,
                             Value token) {
  // What no row has is not read.
  Value end = k.min(k.add(k.div(k.add(token, overlap), interval), 1), numRows);
  Values sums = k.loop(
      first, end, 1, {k.splat(0.0), k.splat(0.0)},
      [&](Value number, ValueRange sums) -> Values {
        Values from = {k.sub(number, first), at.column};
        Value score = loadScore(k, at, token);
        Value weight = k.fmul(getWeight(k, score, k.loadVector(maxima, from)),
                              k.loadVector(inverses, from));
        Value ofRow = k.fmul(weight, loadToken(k, op.getDOutput(), at, number));
        // A token that is removed has no gradient, whatever that of its row is.
        ofRow = arith::SelectOp::create(k, softmax::isMasked(k, score),
                                        k.splat(0.0), ofRow);
        Value difference =
            k.fsub(loadInput(k, at, token, score), k.loadVector(means, from));
        difference = arith::SelectOp::create(k, softmax::isMasked(k, score),
                                             k.splat(0.0), difference);
        return {k.fadd(sums[0], ofRow), k.fma(ofRow, difference, sums[1])};
      });
  Values to = {at.batch, at.head, token, at.column};
  k.storeVector(sums[0], op.getDInput(), to);
  k.storeVector(sums[1], op.getDGate(), to);
}

/// The sums of what is stored for the gate, in order.
void PoolGradient::emitPositionBias() {
  Value bias = op.getDPositionBias(), dGate = op.getDGate(), zero = b.index(0);
  b.forTeams({b.index(interval)}, [&](ValueRange team) {
    Value place = team.front();
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      auto overTokens = [&](Value batch, Value head, ValueRange sum) {
        return k.loop(
            place, numTokens, interval, sum,
            [&](Value token, ValueRange sum) -> Values {
              return {k.fadd(
                  sum[0], k.loadVector(dGate, {batch, head, token, column}))};
            });
      };
      Values sum = k.loop(zero, k.extent(dGate, 0), 1, {k.splat(0.0)},
                          [&](Value batch, ValueRange sum) {
                            return k.loop(zero, k.extent(dGate, 1), 1, sum,
                                          [&](Value head, ValueRange sum) {
                                            return overTokens(batch, head, sum);
                                          });
                          });
      k.storeVector(sum[0], bias, {place, column});
    });
  });
}

LogicalResult PoolGradient::emit() {
  if (sharers > kMaxSharers)
    return op.emitOpError("expects an overlap of less than ")
           << kMaxSharers << " intervals on CPUs and GPUs, but got " << overlap
           << " tokens for intervals of " << interval;
  Value intervals = b.ceilDiv(numTokens, interval);
  Value grid[] = {b.extent(input, 0), b.extent(input, 1), intervals};
  b.forTeams(grid, [&](ValueRange at) {
    maxima = b.teamBuffer({sharers, width}, b.getStateType());
    inverses = b.teamBuffer({sharers, width}, b.getStateType());
    means = b.teamBuffer({sharers, width}, b.getStateType());
    emitInterval({at[0], at[1], Value()}, at[2]);
  });
  if (op.getDPositionBias())
    emitPositionBias();
  return success();
}

namespace fovea::attn {

static LogicalResult lowerToTeams(PoolOp op, TeamBuilder &b) {
  PoolForward(b, op).emit();
  return success();
}

static LogicalResult lowerToTeams(PoolBackwardOp op, TeamBuilder &b) {
  return PoolGradient(b, op).emit();
}

void attachPoolToTeams(MLIRContext &context) {
  attachTeamLowerings<PoolOp, PoolBackwardOp, TopKOp>(context);
}

} // namespace fovea::attn
