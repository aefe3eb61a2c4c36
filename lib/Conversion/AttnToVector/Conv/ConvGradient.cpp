//===- ConvGradient.cpp - Loops of attn.conv_apply_backward ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvGradient.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Whether no two heads add to the gradients of the same values.
static bool hasOwnValues(ConvBuilder &b) {
  int64_t heads = cast<MemRefType>(b.basis.getType()).getDimSize(1);
  return !ShapedType::isDynamic(heads) &&
         heads == cast<MemRefType>(b.value.getType()).getDimSize(1);
}

bool fovea::attn::conv::areSpectraFar(const ConvBuilder &b) {
  int64_t tokens = cast<MemRefType>(b.basis.getType()).getDimSize(3);
  int64_t rowBytes = b.paddedWidth * b.getStateType().getWidth() / 8;
  return !ShapedType::isDynamic(tokens) &&
         2 * tokens * rowBytes > b.plan.mostCached;
}

ValueGradients::ValueGradients(ConvBuilder &b, Value dValue, bool areBegun)
    : b(b), dValue(dValue), sums(dValue),
      areCleared(!areBegun || !hasOwnValues(b)) {
  Value batches = b.extent(b.value, 0), groups = b.extent(b.value, 1);
  auto type = cast<MemRefType>(dValue.getType());
  if (b.paddedWidth != b.width || type.getElementType() != b.getStateType())
    sums = b.allocate(b.getStateType(),
                      {batches, groups, b.numTokens, b.index(b.paddedWidth)});
  if (areCleared) {
    b.forAllRows({batches, groups}, [&](ValueRange task, Value row) {
      b.clearRow(sums, {task[0], task[1], row});
    });
    return;
  }
  // A vector is aligned if the first one is.
  type = cast<MemRefType>(sums.getType());
  if (areSpectraFar(b) && type.getLayout().isIdentity()) {
    Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, sums);
    int64_t bytes = b.getLanes() * b.getStateType().getWidth() / 8;
    isAligned = b.equal(b.rem(address, bytes), b.index(0));
  }
}

void ValueGradients::beginHead(Value firstKey) {
  if (areCleared)
    return;
  b.forAll({b.ceilDiv(firstKey, kTaskRows)}, [&](ValueRange task) {
    Value first = b.mul(task[0], kTaskRows);
    b.loop(first, b.min(b.add(first, kTaskRows), firstKey), 1,
           [&](Value key) { b.clearRow(sums, {b.batch, b.group, key}); });
  });
}

void ValueGradients::begin(ComplexRow numbers, Value key, Value column) {
  auto visitParts = [&](auto visit) {
    visit(numbers.re, column);
    visit(numbers.im, b.add(column, b.getLanes()));
  };
  auto store = [&](bool isStreamed) {
    visitParts([&](Value part, Value column) {
      b.storeVector(part, sums, {b.batch, b.group, key, column}, isStreamed);
    });
  };
  if (areCleared)
    visitParts([&](Value part, Value column) { add(part, key, column); });
  else if (isAligned)
    b.ifThenElse(
        isAligned, [&] { store(/*isStreamed=*/true); },
        [&] { store(/*isStreamed=*/false); });
  else
    store(/*isStreamed=*/false);
}

void ValueGradients::add(Value numbers, Value key, Value column) {
  Value at[] = {b.batch, b.group, key, column};
  b.storeVector(b.fadd(b.loadVector(sums, at), numbers), sums, at);
}

void ValueGradients::finish() {
  if (sums == dValue)
    return;
  b.forAllRows({b.extent(b.value, 0), b.extent(b.value, 1)},
               [&](ValueRange task, Value row) {
                 b.loop(b.index(0), b.index(b.width), b.getLanes(),
                        [&](Value column) {
                          Value at[] = {task[0], task[1], row, column};
                          b.storeColumns(b.loadVector(sums, at), dValue,
                                         ValueRange(at).drop_back(), column);
                        });
               });
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

ProfileGradients::ProfileGradients(ConvTables &tables, Value dBasis)
    : t(tables), b(t.b), dBasis(dBasis),
      memref(b.allocate(b.getStateType(),
                        {b.mul(b.numBases, t.profiles.scoreRow)})) {}

void ProfileGradients::add(Value number, Value segment, Value lag) {
  Value at = t.profiles.scoreAt(segment, lag);
  b.storeScalar(b.fadd(b.loadScalar(memref, at), number), memref, at);
}

void ProfileGradients::storeWeighted(function_ref<Value(Value, Value)> sum) {
  t.profiles.forAllLagChunks([&](Value firstLag, Value count) {
    b.loop(b.index(0), b.numBases, 1, [&](Value segment) {
      Value size = t.segments.numLags(segment);
      Value end = b.min(b.add(firstLag, count), size);
      b.loop(firstLag, end, b.getLanes(), [&](Value lag) {
        Value weight = t.profiles.loadWeights(segment, lag);
        store(b.fmul(weight, sum(segment, lag)), segment, lag);
      });
    });
  });
}

void ProfileGradients::finish() {
  t.profiles.forAllLagChunks([&](Value firstLag, Value count) {
    b.loop(firstLag, b.add(firstLag, count), b.getLanes(),
           [&](Value lag) { storeBases(lag); });
  });
}

/// A basis is in the profiles of all segments from its own on.
void ProfileGradients::storeBases(Value lag) {
  Value isThere = b.firstLanes(b.sub(b.numTokens, lag));
  b.loop(b.index(0), b.numBases, 1, b.splat(0.0),
         [&](Value step, ValueRange sums) {
           Value r = b.sub(b.sub(b.numBases, b.index(1)), step);
           Value mask = b.firstLanes(b.sub(t.segments.numLags(r), lag));
           Value part = b.loadMasked(memref, t.profiles.scoreAt(r, lag), mask,
                                     /*otherwise=*/0.0);
           Value sum = b.fadd(sums[0], part);
           b.storeMasked(sum, dBasis, {b.batch, b.head, r, lag}, isThere);
           return Values{sum};
         });
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

static bool isPartitioned(const ConvBuilder &b) {
  return b.plan.algorithm != ConvAlgorithm::Toeplitz;
}

RowGradients::RowGradients(ConvTables &tables, ConvApplyBackwardOp op)
    : t(tables), b(t.b), op(op),
      // Whole blocks of rows may be read behind the last one.
      front(std::max(kTaskRows, b.getLanes())) {
  Type state = b.getStateType();
  // Transforms read each row once.
  if (isPartitioned(b) && b.paddedWidth == b.width)
    factors = b.allocate(state, {b.numTokens});
  else
    memref = b.allocate(state, {b.numTokens, b.index(b.paddedWidth)});
  deltas = b.allocate(state, {b.add(b.numTokens, 2 * front)});
}

Value RowGradients::loadGradient(Value row, Value column) {
  return b.loadColumns(op.getDOutput(), {b.batch, b.head, row}, column);
}

Value RowGradients::dot(Value row, function_ref<Value(Value)> other) {
  auto addProducts = [&](Value column, ValueRange running) {
    Value gradient = loadGradient(row, column);
    return Values{b.fma(gradient, other(column), running[0])};
  };
  return sumLanes(b, b.overColumns(b.width, b.splat(0.0), addProducts)[0]);
}

Value RowGradients::dotOutput(Value row) {
  return dot(row, [&](Value column) {
    return b.loadColumns(op.getOutput(), {b.batch, b.head, row}, column);
  });
}

ConvMarks::Marked RowGradients::prepare(int64_t taskRows,
                                        function_ref<void(Value task)> take) {
  for (int64_t at = 0; at < front; at += b.getLanes()) {
    b.storeVector(b.splat(0.0), deltas, b.index(at));
    b.storeVector(b.splat(0.0), deltas, b.add(b.numTokens, front + at));
  }
  return t.marks.forAllTasks(taskRows, [&](Value task, Value first, Value end) {
    Value marked =
        b.loop(first, end, 1, b.index(0), [&](Value row, ValueRange count) {
          Value more = b.add(count[0], 1);
          return Values{b.select(prepareRow(row), more, count[0])};
        })[0];
    take(task);
    return marked;
  });
}

/// Rows that are marked, and those without an entry, have a factor of 0 and
/// count as zeros, whatever they hold. Returns whether the row is marked.
Value RowGradients::prepareRow(Value row) {
  Value factor = t.normalisers.loadReciprocal(row);
  Value isNone = b.compare(arith::CmpFPredicate::OEQ, factor, b.scalar(0.0));
  Value mayBeSpoilt = b.less(t.values.firstSpoiltToken(), b.add(row, 1));
  Value isOut = b.either(isNone, b.either(t.marks.isMarked(row), mayBeSpoilt));
  Value delta = b.select(
      isOut, b.getStateType(), [&] { return b.scalar(0.0); },
      [&] { return b.fmul(dotOutput(row), factor); });
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  Value isFinite =
      b.compare(arith::CmpFPredicate::ORD, delta, b.fsub(delta, delta));
  Value isKept = b.select(isOut, no, isFinite);
  b.ifThenElse(
      isKept, [&] { storeRow(row, delta, factor); },
      [&] {
        clearRow(row);
        storeDelta(b.scalar(0.0), row);
      });
  t.marks.set(row, b.equal(b.either(isNone, isKept), no));
  return t.marks.isMarked(row);
}

void RowGradients::clearRow(Value row) {
  if (factors)
    return b.storeScalar(b.scalar(0.0), factors, row);
  b.clearRow(memref, row);
}

ComplexRow RowGradients::loadRow(ConvTransform &transform, Value row,
                                 Value column) {
  if (memref)
    return transform.loadTokens(memref, {}, row, column, b.numTokens);
  Value exists = b.less(row, b.numTokens);
  row = b.min(row, b.sub(b.numTokens, b.index(1)));
  Value factor = b.select(exists, b.loadScalar(factors, row), b.scalar(0.0));
  // Whatever it holds.
  Value isNone = b.compare(arith::CmpFPredicate::OEQ, factor, b.scalar(0.0));
  Value factors = b.broadcast(factor), zeros = b.splat(0.0);
  auto load = [&](Value column) {
    Value numbers = b.fmul(loadGradient(row, column), factors);
    return b.select(isNone, zeros, numbers);
  };
  Value re = load(column);
  return {re, load(b.add(column, b.getLanes()))};
}

void RowGradients::storeRow(Value row, Value delta, Value factor) {
  storeDelta(delta, row);
  if (this->factors)
    return b.storeScalar(factor, this->factors, row);
  Value factors = b.broadcast(factor);
  b.overColumns(b.paddedWidth, /*inits=*/{}, [&](Value column, ValueRange) {
    b.storeVector(b.fmul(loadGradient(row, column), factors), memref,
                  {row, column});
    return Values();
  });
}

//===----------------------------------------------------------------------===//
// Exact rows
//===----------------------------------------------------------------------===//
//
// Marked rows add to the gradients entry by entry, with weights next to the
// row's own maximum. A task has some keys, or some lags, and all rows.
//
//===----------------------------------------------------------------------===//

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
  b.storeScalar(top, tops, row);
  b.storeScalar(getFactor(b, normaliser), factors, row);
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

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

namespace {
class ConvGradient : public ConvKernel {
public:
  using Allocate =
      function_ref<std::unique_ptr<ConvProduct>(ConvGradientTables &)>;

  ConvGradient(ConvBuilder &b, ConvValues &convValues, ValueGradients &values,
               ConvApplyBackwardOp op, Allocate allocate)
      : tables(b, convValues, values, op), product(allocate(tables)) {}

private:
  void emitHead() override;

  ConvGradientTables tables;
  std::unique_ptr<ConvProduct> product;
};
} // namespace

void ConvGradient::emitHead() {
  ConvBuilder &b = tables.b;
  tables.t.prepare();
  product->prepare();
  tables.t.marks.judge([&](Value block, Value first, Value end) {
    return product->judgeBlock(block, first, end);
  });
  ConvMarks::Marked marked =
      tables.rows.prepare(product->getPreparedRows(),
                          [&](Value task) { product->takePreparedRows(task); });
  product->emit();
  b.ifThen(b.less(b.index(0), marked.count),
           [&] { tables.exact.emit(marked); });
  tables.profiles.finish();
}

void fovea::attn::conv::emitConvGradient(ConvBuilder &b, ConvApplyBackwardOp op,
                                         ConvGradient::Allocate allocate) {
  ConvValues convValues(b, /*findsSpoilt=*/isPartitioned(b));
  ValueGradients values(b, op.getDValue(), /*areBegun=*/isPartitioned(b));
  // Heads that share values add to the same gradient, so these stay together.
  Value heads = b.extent(b.basis, 1);
  Value shared = b.max(b.div(heads, b.max(b.extent(b.value, 1), 1)), 1);
  emitConvHeads(b, /*headsOfTask=*/shared, [&] {
    return std::make_unique<ConvGradient>(b, convValues, values, op, allocate);
  });
  values.finish();
  b.freeBuffers(0);
}
