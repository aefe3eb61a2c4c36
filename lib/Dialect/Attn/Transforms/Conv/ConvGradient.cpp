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
  Marked marked = judgeRows();
  prepareRows();
  emitProducts();
  b.ifThen(b.less(b.index(0), marked.count), [&] { emitExactRows(marked); });
  storeBases();
}

void ConvGradientKernel::addToValue(Value numbers, Value key, Value column) {
  Value at[] = {batch, group, key, column};
  b.storeVector(b.fadd(b.loadVector(valueSums, at), numbers), valueSums, at);
}

/// The product of a row of d_output with another.
Value ConvGradientKernel::dot(Value row, function_ref<Value(int64_t)> other) {
  Value sum = b.splat(0.0);
  for (int64_t column = 0; column < width; column += lanes)
    sum = b.fma(loadColumns(backward.getDOutput(), {batch, head, row}, column),
                other(column), sum);
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, sum);
}

/// Rows that are marked, and those without an entry, have a factor of 0 and
/// count as zeros, whatever they hold.
void ConvGradientKernel::prepareRows() {
  for (int64_t at = 0; at < front; at += lanes) {
    b.storeVector(b.splat(0.0), rowDeltas, b.index(at));
    b.storeVector(b.splat(0.0), rowDeltas, b.add(numTokens, front + at));
  }
  forAllRows({}, [&](ValueRange, Value row) {
    Value factor = b.loadScalar(reciprocals, row);
    Value isNone = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor,
                                         b.scalar(0.0));
    isNone = b.either(isNone, isMarked(row));
    b.ifThenElse(
        isNone,
        [&] {
          b.loop(b.index(0), b.index(paddedWidth), lanes, [&](Value column) {
            b.storeVector(b.splat(0.0), rowGradients, {row, column});
          });
          b.storeScalar(b.scalar(0.0), rowDeltas, b.add(row, front));
        },
        [&] {
          Value at[] = {batch, head, row}, factors = b.broadcast(factor);
          for (int64_t column = 0; column < paddedWidth; column += lanes) {
            Value numbers = loadColumns(backward.getDOutput(), at, column);
            b.storeVector(b.fmul(numbers, factors), rowGradients,
                          {row, b.index(column)});
          }
          Value delta = dot(row, [&](int64_t column) {
            return loadColumns(backward.getOutput(), at, column);
          });
          b.storeScalar(b.fmul(delta, factor), rowDeltas, b.add(row, front));
        });
  });
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
