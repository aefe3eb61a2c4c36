//===- ConvRows.cpp - Single rows of attn.conv_apply ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows that were marked, from their scores with the row's own maximum taken
// off: a soft-max that nothing else can spoil. And rows that read values that
// are no finite numbers, for which all others have read zeros.
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
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

Value ConvKernel::isRead(Value segment, Value lag) {
  Value score = b.loadScalar(scores, scoreOffset(segment, lag));
  return arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, score,
                               b.scalar(-kInfinity));
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
  b.overVectors(paddedWidth, [&](Value column) {
    b.storeVector(b.splat(0.0), sums, column);
  });
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
  overColumns(width, /*inits=*/{}, [&](Value column, ValueRange) {
    Value sum = b.loadVector(sums, column);
    storeOutput(arith::DivFOp::create(b, sum, divisor), row, column);
    return Values();
  });
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

//===----------------------------------------------------------------------===//
// Spoilt rows
//===----------------------------------------------------------------------===//

void ConvApplyKernel::spoilRows() {
  bool isFound = !packsValues && findsSpoilt();
  Value spoilt = loadIndex(firstSpoilt, {batch, isFound ? head : group});
  b.ifThen(b.less(spoilt, numTokens), [&] {
    prepareExactRows(numTokens);
    Value first = b.max(spoilt, firstColumn(b.index(0)));
    Value tokens = allocate(b.getIndexType(), {numTokens});
    Value count = listSpoilt(first, tokens);
    auto spoilBy = [&](Value row, Value key, Value isOpen) {
      Value isReached = b.both(isOpen, b.less(key, b.add(row, 1)));
      return b.select(
          isReached, isOpen.getType(), [&] { return spoilRow(row, key); },
          [&] { return isOpen; });
    };
    forAll({b.ceilDiv(b.sub(numTokens, first), kExactRows)},
           [&](ValueRange task) {
             Value begin = b.add(first, b.mul(task[0], kExactRows));
             Value end = b.min(b.add(begin, kExactRows), numTokens);
             b.loop(begin, end, 1, [&](Value row) {
               // The latest first: often it spoils the whole row.
               Value yes = arith::ConstantIntOp::create(b, 1, /*width=*/1);
               b.loop(b.index(0), count, 1, yes,
                      [&](Value done, ValueRange isOpen) {
                        Value place = b.sub(b.sub(count, b.index(1)), done);
                        Value key = loadIndex(tokens, place);
                        return Values{spoilBy(row, key, isOpen[0])};
                      });
             });
           });
    memref::DeallocOp::create(b, buffers.pop_back_val());
  });
}

/// Lists the tokens from `first` on that have a value that is no finite number;
/// returns how many.
Value ConvApplyKernel::listSpoilt(Value first, Value tokens) {
  return b.loop(
      first, numTokens, 1, b.index(0), [&](Value token, ValueRange count) {
        auto addRests = [&](Value column, ValueRange running) {
          Value numbers = loadColumns(value, {batch, group, token}, column);
          return Values{b.fadd(running[0], b.fsub(numbers, numbers))};
        };
        Value rests = overColumns(width, b.splat(0.0), addRests)[0];
        Value isSpoilt = vector::ReductionOp::create(
            b, vector::CombiningKind::OR,
            arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, rests, rests));
        // An entry that is not kept is written over by the next one.
        storeIndex(token, tokens, count[0]);
        return Values{b.select(isSpoilt, b.add(count[0], 1), count[0])};
      })[0];
}

/// Makes a row NaN in the columns in which a key is no finite number, if it
/// reads the key. Returns whether it has numbers left.
Value ConvApplyKernel::spoilRow(Value row, Value key) {
  Value reads = isRead(segmentOf(key), b.sub(row, key));
  Value none = firstLanes(b.index(0)), zeros = b.splat(0.0);
  auto spoilColumns = [&](Value column, ValueRange left) {
    Value numbers = loadColumns(value, {batch, group, key}, column);
    Value rests = b.select(reads, b.fsub(numbers, numbers), zeros);
    Value old = loadColumns(apply.getOutput(), {batch, head, row}, column);
    Value isNumber =
        arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, rests, rests);
    Value next = arith::SelectOp::create(b, isNumber, old, rests);
    storeOutput(next, row, column);
    isNumber = arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, next, next);
    isNumber = arith::AndIOp::create(b, isNumber,
                                     firstLanes(b.sub(b.index(width), column)));
    return Values{arith::OrIOp::create(b, left[0], isNumber)};
  };
  Value left = overColumns(width, none, spoilColumns)[0];
  return vector::ReductionOp::create(b, vector::CombiningKind::OR, left);
}
