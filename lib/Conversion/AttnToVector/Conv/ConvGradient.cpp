//===- ConvGradient.cpp - Loops of attn.conv_apply_backward ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvGradient.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

void ConvGradientKernel::allocateBuffers() {
  ConvKernel::allocateBuffers();
  Type state = b.getStateType();
  // Whole blocks of rows may be read behind the last one.
  front = std::max(kTaskRows, lanes);
  rowGradients = allocate(state, {numTokens, b.index(paddedWidth)});
  rowDeltas = allocate(state, {b.add(numTokens, 2 * front)});
  profileGradients = allocate(state, {b.mul(numBases, scoreRow)});
  markedRows = allocate(b.getIndexType(), {numTokens});
  exactTops = allocate(state, {numTokens});
  exactFactors = allocate(state, {numTokens});
  exactDeltas = allocate(state, {numTokens});
}

/// Sums for d_value start from zero, in place where it can hold them.
void ConvGradientKernel::prepareShared() {
  valueSums = backward.getDValue();
  Value batches = b.extent(value, 0), groups = b.extent(value, 1);
  auto type = cast<MemRefType>(valueSums.getType());
  if (paddedWidth != width || type.getElementType() != b.getStateType())
    valueSums = allocate(b.getStateType(),
                         {batches, groups, numTokens, b.index(paddedWidth)});
  forAllRows({batches, groups}, [&](ValueRange task, Value row) {
    b.loop(b.index(0), b.index(paddedWidth), lanes, [&](Value column) {
      b.storeVector(b.splat(0.0), valueSums, {task[0], task[1], row, column});
    });
  });
}

void ConvGradientKernel::finish() {
  if (valueSums == backward.getDValue())
    return;
  forAllRows({b.extent(value, 0), b.extent(value, 1)},
             [&](ValueRange task, Value row) {
               b.loop(b.index(0), b.index(width), lanes, [&](Value column) {
                 Value at[] = {task[0], task[1], row, column};
                 storeColumns(b.loadVector(valueSums, at), backward.getDValue(),
                              ValueRange(at).drop_back(), column);
               });
             });
}

void ConvGradientKernel::emitHead() {
  prepareProducts();
  judgeRows();
  Marked marked = prepareRows();
  emitProducts();
  b.ifThen(b.less(b.index(0), marked.count), [&] { emitExactRows(marked); });
  storeBases();
}

void ConvGradientKernel::addToValue(Value numbers, Value key, Value column) {
  Value at[] = {batch, group, key, column};
  b.storeVector(b.fadd(b.loadVector(valueSums, at), numbers), valueSums, at);
}

/// The product of a row of d_output with another.
Value ConvGradientKernel::dot(Value row, function_ref<Value(Value)> other) {
  auto addProducts = [&](Value column, ValueRange running) {
    Value gradient =
        loadColumns(backward.getDOutput(), {batch, head, row}, column);
    return Values{b.fma(gradient, other(column), running[0])};
  };
  Value sum = overColumns(width, b.splat(0.0), addProducts)[0];
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, sum);
}

/// Returns which rows are marked after all.
ConvKernel::Marked ConvGradientKernel::prepareRows() {
  for (int64_t at = 0; at < front; at += lanes) {
    b.storeVector(b.splat(0.0), rowDeltas, b.index(at));
    b.storeVector(b.splat(0.0), rowDeltas, b.add(numTokens, front + at));
  }
  return markTasks(kTaskRows, [&](Value, Value first, Value end) {
    return b.loop(first, end, 1, b.index(0), [&](Value row, ValueRange count) {
      Value more = b.add(count[0], 1);
      return Values{b.select(prepareRow(row), more, count[0])};
    })[0];
  });
}

/// Rows that are marked, and those without an entry, have a factor of 0 and
/// count as zeros, whatever they hold. Returns whether the row is marked.
Value ConvGradientKernel::prepareRow(Value row) {
  Value factor = b.loadScalar(reciprocals, row);
  Value isNone = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor,
                                       b.scalar(0.0));
  Value mayBeSpoilt =
      b.less(loadIndex(firstSpoilt, {batch, group}), b.add(row, 1));
  Value isOut = b.either(isNone, b.either(isMarked(row), mayBeSpoilt));
  Value at[] = {batch, head, row};
  Value delta = b.select(
      isOut, b.getStateType(), [&] { return b.scalar(0.0); },
      [&] {
        Value product = dot(row, [&](Value column) {
          return loadColumns(backward.getOutput(), at, column);
        });
        return b.fmul(product, factor);
      });
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  Value isFinite = arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, delta,
                                         b.fsub(delta, delta));
  Value isKept = b.select(isOut, no, isFinite);
  b.ifThenElse(
      isKept,
      [&] {
        Value factors = b.broadcast(factor);
        overColumns(paddedWidth, /*inits=*/{}, [&](Value column, ValueRange) {
          Value numbers = loadColumns(backward.getDOutput(), at, column);
          b.storeVector(b.fmul(numbers, factors), rowGradients, {row, column});
          return Values();
        });
        b.storeScalar(delta, rowDeltas, b.add(row, front));
      },
      [&] {
        b.loop(b.index(0), b.index(paddedWidth), lanes, [&](Value column) {
          b.storeVector(b.splat(0.0), rowGradients, {row, column});
        });
        b.storeScalar(b.scalar(0.0), rowDeltas, b.add(row, front));
      });
  Value isDone = b.either(isNone, isKept);
  Value mark = arith::ExtUIOp::create(
      b, b.getI8Type(),
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, isDone, no)
          .getResult());
  memref::StoreOp::create(b, mark, marks, row);
  return isMarked(row);
}

void ConvGradientKernel::storeProfileGradients(
    function_ref<Value(Value, Value)> sum) {
  forAllLagChunks([&](Value firstLag, Value count) {
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
      Value size = b.sub(numTokens, firstColumn(segment));
      Value end = b.min(b.add(firstLag, count), size);
      b.loop(firstLag, end, lanes, [&](Value lag) {
        Value weight = b.loadVector(weights, weightOffset(segment, lag));
        b.storeVector(b.fmul(weight, sum(segment, lag)), profileGradients,
                      scoreOffset(segment, lag));
      });
    });
  });
}

void ConvGradientKernel::storeBases() {
  forAllLagChunks([&](Value firstLag, Value count) {
    Value end = b.add(firstLag, count);
    b.loop(firstLag, end, lanes, [&](Value lag) {
      Value isThere = firstLanes(b.sub(numTokens, lag));
      b.loop(b.index(0), numBases, 1, b.splat(0.0),
             [&](Value step, ValueRange sums) {
               Value r = b.sub(b.sub(numBases, b.index(1)), step);
               Value size = b.sub(numTokens, firstColumn(r));
               Value part =
                   loadMasked(profileGradients, scoreOffset(r, lag),
                              firstLanes(b.sub(size, lag)), /*otherwise=*/0.0);
               Value sum = b.fadd(sums[0], part), stored = sum;
               Value dBasis = backward.getDBasis();
               auto type = cast<FloatType>(
                   cast<MemRefType>(dBasis.getType()).getElementType());
               if (type != b.getStateType())
                 stored = arith::TruncFOp::create(
                     b, VectorType::get({lanes}, type), sum);
               vector::MaskedStoreOp::create(
                   b, dBasis, ValueRange{batch, head, r, lag}, isThere, stored);
               return Values{sum};
             });
    });
  });
}
