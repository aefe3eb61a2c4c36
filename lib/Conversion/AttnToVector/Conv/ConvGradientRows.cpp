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

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

ExactRowGradients::ExactRowGradients(ConvTables &tables, RowGradients &rows,
                                     ValueGradients &values,
                                     ProfileGradients &profiles)
    : t(tables), b(t.b), rows(rows), values(values), profiles(profiles),
      marked(b.allocate(b.getIndexType(), {b.numTokens})) {
  for (Value *ofRows : {&tops, &factors, &deltas})
    *ofRows = b.allocate(b.getStateType(), {b.numTokens});
}

/// Finds the maximum, the normaliser and the mean of a row.
void ExactRowGradients::prepareRow(Value row, RowWeights &weights) {
  Value top = weights.findTop(row);
  Value normaliser = weights.sum(row, b.broadcast(top), [](Value, Value) {});
  Value isZero =
      b.compare(arith::CmpFPredicate::OEQ, normaliser, b.scalar(0.0));
  Value reciprocal = arith::DivFOp::create(b, b.scalar(1.0), normaliser);
  b.storeScalar(top, tops, row);
  b.storeScalar(b.select(isZero, b.scalar(0.0), reciprocal), factors, row);
  b.storeScalar(rows.dotOutput(row), deltas, row);
}

/// Visits the entries of a row at lags `[firstLag, endLag)`.
void ExactRowGradients::forEachEntry(
    Value row, Value firstLag, Value endLag, RowWeights &weights,
    function_ref<void(Value, Value, Value)> body) {
  Value top = b.broadcast(b.loadScalar(tops, row));
  Value factor = b.loadScalar(factors, row);
  weights.forEachEntry(row, top, firstLag, endLag,
                       [&](Value segment, Value lag, Value weight) {
                         body(segment, lag, b.fmul(weight, factor));
                       });
}

void ExactRowGradients::addValues(Value row, Value firstKey, Value endKey,
                                  RowWeights &weights) {
  // Lags below 0 have no entry.
  Value next = b.add(row, 1);
  auto add = [&](Value, Value lag, Value weight) {
    b.overColumns(b.width, /*inits=*/{}, [&](Value column, ValueRange) {
      Value gradient = rows.loadGradient(row, column);
      values.add(b.fmul(gradient, b.broadcast(weight)), b.sub(row, lag),
                 column);
      return Values();
    });
  };
  forEachEntry(row, b.sub(next, endKey), b.sub(next, firstKey), weights, add);
}

void ExactRowGradients::addLags(Value row, Value firstLag, Value endLag,
                                RowWeights &weights) {
  Value delta = b.loadScalar(deltas, row);
  auto add = [&](Value segment, Value lag, Value weight) {
    Value key = b.sub(row, lag);
    Value product = rows.dot(
        row, [&](Value column) { return t.values.loadOriginal(key, column); });
    profiles.add(b.fmul(weight, b.fsub(product, delta)), segment, lag);
  };
  forEachEntry(row, firstLag, endLag, weights, add);
}

void ExactRowGradients::emit(const ConvMarks::Marked &found) {
  t.profiles.prepareScores(found.end);
  b.listIf(b.index(0), found.end, marked,
           [&](Value row) { return t.marks.isMarked(row); });
  b.forAll({b.ceilDiv(found.count, kExactRows)}, [&](ValueRange task) {
    RowWeights weights(t);
    Value first = b.mul(task[0], kExactRows);
    Value end = b.min(b.add(first, kExactRows), found.count);
    b.loop(first, end, 1, [&](Value place) {
      prepareRow(b.loadIndex(marked, place), weights);
    });
  });
  // All marked rows add to some keys, or to some lags, that a task has.
  auto forAllChunks = [&](auto add) {
    b.forAll({b.ceilDiv(b.numTokens, kTaskRows)}, [&](ValueRange task) {
      RowWeights weights(t);
      Value first = b.mul(task[0], kTaskRows);
      Value end = b.min(b.add(first, kTaskRows), b.numTokens);
      b.loop(b.index(0), found.count, 1, [&](Value place) {
        Value row = b.loadIndex(marked, place);
        b.ifThen(b.less(first, b.add(row, 1)),
                 [&] { add(row, first, end, weights); });
      });
    });
  };
  forAllChunks([&](Value row, Value first, Value end, RowWeights &weights) {
    addValues(row, first, end, weights);
  });
  forAllChunks([&](Value row, Value first, Value end, RowWeights &weights) {
    addLags(row, first, end, weights);
  });
}
