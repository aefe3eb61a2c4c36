//===- ConvGradientRows.cpp - Single rows of attn.conv_apply_backward -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows that were marked add to the gradients entry by entry, with weights next
// to the row's own maximum. A task has some keys, or some lags, and all rows.
//
//===----------------------------------------------------------------------===//

#include "ConvGradient.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

void ConvGradientKernel::listMarkedRows(Value end) {
  b.loop(b.index(0), end, 1, b.index(0), [&](Value row, ValueRange count) {
    // An entry that is not kept is written over by the next one.
    storeIndex(row, markedRows, count[0]);
    Value next = b.add(count[0], 1);
    return Values{b.select(isMarked(row), next, count[0])};
  });
}

/// Finds the maximum, the normaliser and the mean of a row.
void ConvGradientKernel::prepareExactRow(Value row, Value rowWeights) {
  Value top = findRowTop(row);
  auto visit = [&](Value segment, Value low, Value high, ValueRange carried) {
    return b.loop(low, high, kLags, carried, [&](Value first, ValueRange sum) {
      Value count = b.min(b.sub(high, first), b.index(kLags));
      return Values{storeRunWeights(segment, first, count, b.broadcast(top),
                                    sum[0], rowWeights)};
    });
  };
  Value normalisers = forEachRun(row, b.splat(0.0), visit)[0];
  Value normaliser =
      vector::ReductionOp::create(b, vector::CombiningKind::ADD, normalisers);
  Value isZero = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, normaliser,
                                       b.scalar(0.0));
  Value reciprocal = arith::DivFOp::create(b, b.scalar(1.0), normaliser);
  b.storeScalar(top, exactTops, row);
  b.storeScalar(b.select(isZero, b.scalar(0.0), reciprocal), exactFactors, row);
  Value delta = dot(row, [&](Value column) {
    return loadColumns(backward.getOutput(), {batch, head, row}, column);
  });
  b.storeScalar(delta, exactDeltas, row);
}

/// Visits the entries of a row at lags `[firstLag, endLag)`.
void ConvGradientKernel::forEachEntry(
    Value row, Value firstLag, Value endLag, Value rowWeights,
    function_ref<void(Value, Value, Value)> body) {
  Value top = b.broadcast(b.loadScalar(exactTops, row));
  Value factor = b.loadScalar(exactFactors, row);
  auto visit = [&](Value segment, Value low, Value high, ValueRange) {
    low = b.max(low, firstLag);
    high = b.min(high, endLag);
    b.loop(low, high, kLags, [&](Value first) {
      Value count = b.min(b.sub(high, first), b.index(kLags));
      storeRunWeights(segment, first, count, top, b.splat(0.0), rowWeights);
      b.loop(b.index(0), count, 1, [&](Value at) {
        Value weight = b.fmul(b.loadScalar(rowWeights, at), factor);
        Value lag = b.add(first, at);
        b.ifThen(isRead(segment, lag), [&] { body(segment, lag, weight); });
      });
    });
    return Values();
  };
  forEachRun(row, /*inits=*/{}, visit);
}

void ConvGradientKernel::addExactValues(Value row, Value firstKey, Value endKey,
                                        Value rowWeights) {
  // Lags below 0 have no entry.
  Value first = b.sub(b.add(row, 1), endKey);
  Value end = b.sub(b.add(row, 1), firstKey);
  forEachEntry(
      row, first, end, rowWeights, [&](Value, Value lag, Value weight) {
        overColumns(width, /*inits=*/{}, [&](Value column, ValueRange) {
          Value gradient =
              loadColumns(backward.getDOutput(), {batch, head, row}, column);
          addToValue(b.fmul(gradient, b.broadcast(weight)), b.sub(row, lag),
                     column);
          return Values();
        });
      });
}

void ConvGradientKernel::addExactLags(Value row, Value firstLag, Value endLag,
                                      Value rowWeights) {
  Value delta = b.loadScalar(exactDeltas, row);
  forEachEntry(row, firstLag, endLag, rowWeights,
               [&](Value segment, Value lag, Value weight) {
                 Value key = b.sub(row, lag);
                 Value product = dot(row, [&](Value column) {
                   return loadColumns(value, {batch, group, key}, column);
                 });
                 Value gradient = b.fmul(weight, b.fsub(product, delta));
                 Value at = scoreOffset(segment, lag);
                 b.storeScalar(
                     b.fadd(b.loadScalar(profileGradients, at), gradient),
                     profileGradients, at);
               });
}

void ConvGradientKernel::emitExactRows(const Marked &marked) {
  Value numMarked = marked.count;
  prepareExactRows(marked.end);
  listMarkedRows(marked.end);
  forAll({b.ceilDiv(numMarked, kExactRows)}, [&](ValueRange task) {
    Value rowWeights = b.scratch({kLags}, b.getStateType());
    Value first = b.mul(task[0], kExactRows);
    Value end = b.min(b.add(first, kExactRows), numMarked);
    b.loop(first, end, 1, [&](Value place) {
      prepareExactRow(loadIndex(markedRows, place), rowWeights);
    });
  });
  // All marked rows add to some keys, or to some lags, that a task has.
  auto forAllChunks = [&](auto add) {
    forAll({b.ceilDiv(numTokens, kTaskRows)}, [&](ValueRange task) {
      Value rowWeights = b.scratch({kLags}, b.getStateType());
      Value first = b.mul(task[0], kTaskRows);
      Value end = b.min(b.add(first, kTaskRows), numTokens);
      b.loop(b.index(0), numMarked, 1, [&](Value place) {
        Value row = loadIndex(markedRows, place);
        b.ifThen(b.less(first, b.add(row, 1)),
                 [&] { add(row, first, end, rowWeights); });
      });
    });
  };
  forAllChunks([&](Value row, Value firstKey, Value endKey, Value rowWeights) {
    addExactValues(row, firstKey, endKey, rowWeights);
  });
  forAllChunks([&](Value row, Value firstLag, Value endLag, Value rowWeights) {
    addExactLags(row, firstLag, endLag, rowWeights);
  });
}
