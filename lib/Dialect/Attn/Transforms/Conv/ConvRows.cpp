//===- ConvRows.cpp - Single rows of attn.conv_apply ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows that were marked, from their scores with the row's own maximum taken
// off: a soft-max that nothing else can spoil.
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

void ConvApplyKernel::emitExactRows(const Marked &marked) {
  b.ifThen(b.less(b.index(0), marked.count), [&] {
    prepareExactRows(marked.end);
    forAll({b.ceilDiv(marked.end, kExactRows)}, [&](ValueRange task) {
      Value sums = b.scratch({paddedWidth}, b.getStateType());
      Value rowWeights = b.scratch({kLags}, b.getStateType());
      Value first = b.mul(task[0], kExactRows);
      Value end = b.min(b.add(first, kExactRows), marked.end);
      b.loop(first, end, 1, [&](Value row) {
        b.ifThen(isMarked(row), [&] { emitExactRow(row, sums, rowWeights); });
      });
    });
  });
}

ConvKernel::Values ConvKernel::forEachRun(
    Value row, ValueRange inits,
    function_ref<Values(Value, Value, Value, ValueRange)> body) {
  return b.loop(b.index(0), b.add(segmentOf(row), 1), 1, inits,
                [&](Value segment, ValueRange carried) {
                  Value end =
                      b.min(firstColumn(b.add(segment, 1)), b.add(row, 1));
                  Value low = b.sub(b.add(row, 1), end);
                  Value high = b.sub(b.add(row, 1), firstColumn(segment));
                  return body(segment, low, high, carried);
                });
}

Value ConvKernel::findRowTop(Value row) {
  auto visit = [&](Value segment, Value low, Value high, ValueRange carried) {
    return b.loop(low, high, lanes, carried, [&](Value lag, ValueRange tops) {
      Value score = loadMasked(scores, scoreOffset(segment, lag),
                               firstLanes(b.sub(high, lag)), -kInfinity);
      return Values{b.fmax(score, tops[0])};
    });
  };
  Value tops = forEachRun(row, b.splat(-kInfinity), visit)[0];
  Value top =
      vector::ReductionOp::create(b, vector::CombiningKind::MAXNUMF, tops);
  // Without an entry all weights are zero, whatever is taken off.
  Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, top,
                                        b.scalar(-kInfinity));
  return b.select(isEmpty, b.scalar(0.0), top);
}

Value ConvKernel::storeRunWeights(Value segment, Value first, Value count,
                                  Value top, Value sum, Value rowWeights) {
  for (int64_t at = 0; at < kLags; at += lanes) {
    Value lag = b.add(first, at);
    Value mask = firstLanes(b.sub(count, b.index(at)));
    Value score =
        loadMasked(scores, scoreOffset(segment, lag), mask, -kInfinity);
    score = b.fmax(b.splat(softmax::kMasked), b.fsub(score, top));
    Value weight = softmax::exp2(b, score);
    sum = b.fadd(sum, weight);
    b.storeVector(weight, rowWeights, b.index(at));
  }
  return sum;
}

void ConvApplyKernel::emitExactRow(Value row, Value sums, Value rowWeights) {
  for (int64_t column = 0; column < paddedWidth; column += lanes)
    b.storeVector(b.splat(0.0), sums, b.index(column));
  Value top = b.broadcast(findRowTop(row));
  auto visit = [&](Value segment, Value low, Value high, ValueRange carried) {
    return b.loop(low, high, kLags, carried,
                  [&](Value first, ValueRange carried) {
                    Value count = b.min(b.sub(high, first), b.index(kLags));
                    return Values{addRun(row, segment, first, count, top,
                                         carried[0], sums, rowWeights)};
                  });
  };
  Value normalisers = forEachRun(row, b.splat(0.0), visit)[0];
  Value normaliser =
      vector::ReductionOp::create(b, vector::CombiningKind::ADD, normalisers);
  Value isZero = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, normaliser,
                                       b.scalar(0.0));
  Value divisor = b.broadcast(b.select(isZero, b.scalar(1.0), normaliser));
  for (int64_t column = 0; column < width; column += lanes) {
    Value sum = b.loadVector(sums, b.index(column));
    storeOutput(arith::DivFOp::create(b, sum, divisor), row, b.index(column));
  }
}

/// Adds at most `kLags` lags from `first` on. Returns the normaliser's sums.
Value ConvApplyKernel::addRun(Value row, Value segment, Value first,
                              Value count, Value top, Value normaliser,
                              Value sums, Value rowWeights) {
  normaliser =
      storeRunWeights(segment, first, count, top, normaliser, rowWeights);
  Value lastKey = b.sub(row, first);
  // A tile of columns at a time, which stays in registers.
  int64_t vectors = plan.columnMultiple / lanes;
  b.loop(b.index(0), b.index(paddedWidth), vectors * lanes, [&](Value column) {
    Values tileSums;
    for (int64_t k = 0; k < vectors; ++k)
      tileSums.push_back(b.loadVector(sums, b.add(column, k * lanes)));
    tileSums = b.loop(
        b.index(0), count, 1, tileSums, [&](Value at, ValueRange carried) {
          Values next(carried);
          Value weight = b.broadcast(b.loadScalar(rowWeights, at));
          Value key = b.sub(lastKey, at);
          for (int64_t k = 0; k < vectors; ++k)
            next[k] = b.fma(weight,
                            b.loadVector(values, {batch, group, key,
                                                  b.add(column, k * lanes)}),
                            next[k]);
          return next;
        });
    for (int64_t k = 0; k < vectors; ++k)
      b.storeVector(tileSums[k], sums, b.add(column, k * lanes));
  });
  return normaliser;
}
