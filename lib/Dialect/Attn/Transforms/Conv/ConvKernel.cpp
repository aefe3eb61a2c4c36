//===- ConvKernel.cpp - Loops of sums of convolutions ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "RuntimeCalls.h"
#include "SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Lags whose score sums lie in the first-level cache while bases are added.
static constexpr int64_t kLagChunk = 1024;

ConvKernel::ConvKernel(OpBuilder &builder, Operation *op, Value basis,
                       Value sizes, Value value, const ConvPlan &plan)
    : b(op->getLoc(), builder,
        getStateType(cast<MemRefType>(value.getType()).getElementType()),
        plan.lanes),
      op(op), basis(basis), sizes(sizes), value(value), plan(plan),
      lanes(plan.lanes) {
  auto type = cast<MemRefType>(value.getType());
  width = type.getDimSize(3);
  paddedWidth = llvm::alignTo(width, plan.columnMultiple);
  packsValues =
      paddedWidth != width || type.getElementType() != b.getStateType();
  length = plan.block + plan.piece;
  numGroups = llvm::divideCeil(paddedWidth, plan.getColumns());
  slots = numGroups;
}

void ConvKernel::emit() {
  numTokens = b.extent(basis, 3);
  numBases = b.extent(basis, 2);
  if (!plan.radices.empty())
    twiddles = emitTwiddles(b, op, plan.radices);
  prepareValues();
  prepareShared();
  size_t numShared = buffers.size();
  Value batches = b.extent(basis, 0), heads = b.extent(basis, 1);
  if (plan.headsOfTask != 0) {
    // Loops inside of a task are not parallel.
    Value count = b.index(plan.headsOfTask);
    forAll({batches, b.div(heads, count)}, [&](ValueRange task) {
      allocateBuffers();
      Value first = b.mul(task[1], count);
      emitHeads(task[0], first, b.add(first, count));
      freeBuffers(numShared);
    });
  } else {
    allocateBuffers();
    b.loop(b.index(0), batches, 1,
           [&](Value batch) { emitHeads(batch, b.index(0), heads); });
    freeBuffers(numShared);
  }
  finish();
  freeBuffers(0);
}

void ConvKernel::emitHeads(Value batch, Value first, Value end) {
  // Without heads there are no groups to divide by.
  Value shared =
      b.div(b.extent(basis, 1), b.max(b.extent(value, 1), b.index(1)));
  b.loop(first, end, 1, [&](Value head) {
    this->batch = batch;
    this->head = head;
    group = b.div(head, b.max(shared, b.index(1)));
    prepareBounds();
    prepareWeights();
    prepareNormalisers();
    emitHead();
  });
}

/// Frees all buffers but the first `count`.
void ConvKernel::freeBuffers(size_t count) {
  while (buffers.size() > count)
    memref::DeallocOp::create(b, buffers.pop_back_val());
}

void ConvApplyKernel::emitHead() {
  invertNormalisers();
  emitProduct();
  boundErrors();
  countRows(judgeRows());
  emitExactRows();
}

//===----------------------------------------------------------------------===//
// Helpers
//===----------------------------------------------------------------------===//

void ConvKernel::forAll(ArrayRef<Value> counts,
                        function_ref<void(ValueRange)> body) {
  SmallVector<OpFoldResult> bounds;
  for (Value count : counts)
    bounds.push_back(getAsOpFoldResult(count));
  scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                        /*mapping=*/std::nullopt,
                        [&](OpBuilder &, Location, ValueRange ivs) {
                          body(ivs);
                          b.freeScratch();
                          scf::InParallelOp::create(b);
                        });
}

void ConvKernel::forAllRows(ArrayRef<Value> leading,
                            function_ref<void(ValueRange, Value)> body) {
  Values counts(leading);
  counts.push_back(b.ceilDiv(numTokens, kTaskRows));
  forAll(counts, [&](ValueRange task) {
    Value first = b.mul(task.back(), kTaskRows);
    Value end = b.min(b.add(first, kTaskRows), numTokens);
    b.loop(first, end, 1, [&](Value row) { body(task.drop_back(), row); });
  });
}

void ConvKernel::forAllLagChunks(function_ref<void(Value, Value)> body) {
  forAll({b.ceilDiv(scoreRow, kLagChunk)}, [&](ValueRange task) {
    Value first = b.mul(task[0], kLagChunk);
    body(first, b.min(b.sub(scoreRow, first), b.index(kLagChunk)));
  });
}

Value ConvKernel::allocate(Type type, ArrayRef<Value> extents) {
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamicExtents;
  for (Value extent : extents) {
    std::optional<int64_t> constant = getConstantIntValue(extent);
    shape.push_back(constant.value_or(ShapedType::kDynamic));
    if (!constant)
      dynamicExtents.push_back(extent);
  }
  return buffers.emplace_back(
      memref::AllocOp::create(b, MemRefType::get(shape, type), dynamicExtents,
                              b.getI64IntegerAttr(64)));
}

Value ConvKernel::loadIndex(Value memref, ValueRange indices) {
  return memref::LoadOp::create(b, memref, indices);
}

void ConvKernel::storeIndex(Value index, Value memref, ValueRange indices) {
  memref::StoreOp::create(b, index, memref, indices);
}

Value ConvKernel::weightOffset(Value segment, Value lag) {
  return b.add(b.add(b.mul(segment, weightRow), lag), plan.front);
}

Value ConvKernel::scoreOffset(Value segment, Value lag) {
  return b.add(b.mul(segment, scoreRow), lag);
}

Value ConvKernel::wide(double number) {
  return arith::ConstantOp::create(b, b.getF64FloatAttr(number));
}

Value ConvKernel::widen(Value number) {
  if (getElementTypeOrSelf(number.getType()).isF64())
    return number;
  Type type = b.getF64Type();
  if (auto vector = dyn_cast<VectorType>(number.getType()))
    type = vector.clone(type);
  return arith::ExtFOp::create(b, type, number);
}

Value ConvKernel::firstLanes(Value count) {
  return vector::CreateMaskOp::create(
      b, VectorType::get({lanes}, b.getI1Type()), count);
}

Value ConvKernel::loadMasked(Value memref, ValueRange indices, Value mask,
                             double otherwise) {
  auto elementType =
      cast<FloatType>(cast<MemRefType>(memref.getType()).getElementType());
  auto type = VectorType::get({lanes}, elementType);
  Value fill = arith::ConstantOp::create(
      b, DenseElementsAttr::get(cast<ShapedType>(Type(type)),
                                b.getFloatAttr(elementType, otherwise)));
  Value numbers =
      vector::MaskedLoadOp::create(b, type, memref, indices, mask, fill);
  if (elementType.getWidth() >= b.getStateType().getWidth())
    return numbers;
  return arith::ExtFOp::create(b, b.getVectorType(), numbers);
}

Value ConvKernel::loadColumns(Value memref, ValueRange at, int64_t column) {
  Values indices(at);
  indices.push_back(b.index(column));
  int64_t left = width - column;
  if (left >= lanes)
    return b.loadVector(memref, indices);
  if (left <= 0)
    return b.splat(0.0);
  return loadMasked(memref, indices, firstLanes(b.index(left)), 0.0);
}

void ConvKernel::storeColumns(Value numbers, Value memref, ValueRange at,
                              Value column) {
  Values indices(at);
  indices.push_back(column);
  if (paddedWidth == width)
    return b.storeVector(numbers, memref, indices);
  auto elementType =
      cast<FloatType>(cast<MemRefType>(memref.getType()).getElementType());
  if (elementType != b.getStateType())
    numbers = arith::TruncFOp::create(b, VectorType::get({lanes}, elementType),
                                      numbers);
  Value mask = firstLanes(b.sub(b.index(width), column));
  vector::MaskedStoreOp::create(b, memref, indices, mask, numbers);
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

void ConvKernel::allocateBuffers() {
  Type indexType = b.getIndexType();
  Value lags = b.mul(b.ceilDiv(numTokens, plan.lagMultiple), plan.lagMultiple);
  // The last tile of queries reads past the last lag: zeros of what is next.
  weightRow = b.add(lags, plan.front);
  scoreRow = lags;
  bounds = allocate(indexType, {b.add(numBases, 1)});
  segments = allocate(indexType, {numTokens});
  weights = allocate(b.getStateType(), {b.mul(b.add(numBases, 1), weightRow)});
  scores = allocate(b.getStateType(), {b.mul(numBases, scoreRow)});
  partialTops = allocate(b.getF64Type(), {b.ceilDiv(lags, kLagChunk)});
  normalisers = allocate(b.getF64Type(), {numTokens});
  reciprocals = allocate(b.getStateType(), {numTokens});
  marks = allocate(indexType, {numTokens});
  allocateWindowSums();
}

void ConvKernel::prepareValues() {
  values = value;
  if (!packsValues)
    return;
  Value batches = b.extent(value, 0), groups = b.extent(value, 1);
  values = allocate(b.getStateType(),
                    {batches, groups, numTokens, b.index(paddedWidth)});
  forAllRows({batches, groups}, [&](ValueRange task, Value row) {
    for (int64_t column = 0; column < paddedWidth; column += lanes)
      b.storeVector(loadColumns(value, {task[0], task[1], row}, column), values,
                    {task[0], task[1], row, b.index(column)});
  });
}

void ConvKernel::prepareBounds() {
  b.loop(b.index(0), numBases, 1, [&](Value r) {
    Value size = memref::LoadOp::create(b, sizes, ValueRange{batch, head, r});
    size = arith::IndexCastOp::create(b, b.getIndexType(), size);
    storeIndex(b.sub(numTokens, size), bounds, r);
  });
  storeIndex(numTokens, bounds, numBases);
  b.loop(b.index(0), numBases, 1, [&](Value r) {
    b.loop(firstColumn(r), firstColumn(b.add(r, 1)), 1,
           [&](Value column) { storeIndex(r, segments, column); });
  });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

void ConvKernel::prepareWeights() {
  // The profile of zeros, and those before the first lag of the others.
  Value zeros = b.splat(0.0);
  b.loop(b.index(0), numBases, 1, [&](Value segment) {
    Value start = b.mul(segment, weightRow);
    b.loop(start, b.add(start, plan.front), lanes,
           [&](Value at) { b.storeVector(zeros, weights, at); });
  });
  Value start = b.mul(numBases, weightRow);
  b.loop(start, b.add(start, weightRow), lanes,
         [&](Value at) { b.storeVector(zeros, weights, at); });
  storeProfiles(findTop());
}

/// Visits the score sums of a chunk of lags, in f64, segment by segment, as far
/// as the segment has lags: `mask` is true for these.
Value ConvKernel::forEachLagVector(Value chunk, Value init, LagVisitor visit) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  Value zeros =
      arith::ConstantOp::create(b, b.getZeroAttr(cast<Type>(wideType)));
  Value sums = b.scratch({kLagChunk}, b.getF64Type());
  Value first = b.mul(chunk, kLagChunk);
  Value count = b.min(b.sub(scoreRow, first), b.index(kLagChunk));
  b.loop(b.index(0), count, lanes,
         [&](Value at) { vector::StoreOp::create(b, zeros, sums, at); });
  auto visitSegment = [&](Value segment, ValueRange carried) {
    Value size = b.sub(numTokens, firstColumn(segment));
    // Later segments have no more.
    Value end = b.min(count, b.sub(size, first));
    return b.loop(
        b.index(0), end, lanes, carried, [&](Value at, ValueRange carried) {
          Value lag = b.add(first, at);
          Value mask = firstLanes(b.sub(size, lag));
          Value term =
              widen(loadMasked(basis, {batch, head, segment, lag}, mask, 0.0));
          Value sum = vector::LoadOp::create(b, wideType, sums, at);
          sum = b.fadd(sum, term);
          vector::StoreOp::create(b, sum, sums, at);
          return Values{visit(segment, lag, sum, mask, carried[0])};
        });
  };
  return b.loop(b.index(0), numBases, 1, init, visitSegment)[0];
}

/// The greatest score sum of the head, in f64; 0 when there is none.
Value ConvKernel::findTop() {
  Value chunks = b.ceilDiv(scoreRow, kLagChunk);
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  auto fill = [&](double number) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<ShapedType>(Type(wideType)),
                                  b.getF64FloatAttr(number)));
  };
  forAll({chunks}, [&](ValueRange task) {
    Value tops = forEachLagVector(
        task[0], fill(-kInfinity),
        [&](Value, Value, Value sum, Value mask, Value top) -> Value {
          Value present =
              arith::SelectOp::create(b, mask, sum, fill(-kInfinity));
          return b.fmax(present, top);
        });
    Value top =
        vector::ReductionOp::create(b, vector::CombiningKind::MAXNUMF, tops);
    memref::StoreOp::create(b, top, partialTops, task[0]);
  });
  Value top = b.loop(b.index(0), chunks, 1, wide(-kInfinity),
                     [&](Value chunk, ValueRange carried) {
                       Value part =
                           memref::LoadOp::create(b, partialTops, chunk);
                       return Values{b.fmax(part, carried[0])};
                     })[0];
  Value isNone = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, top,
                                       wide(-kInfinity));
  return b.select(isNone, wide(0.0), top);
}

void ConvKernel::storeProfiles(Value top) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  forAll({b.ceilDiv(scoreRow, kLagChunk)}, [&](ValueRange task) {
    Value tops = vector::BroadcastOp::create(b, wideType, top);
    Value unit =
        vector::BroadcastOp::create(b, wideType, wide(softmax::kLog2E));
    forEachLagVector(
        task[0], b.index(0),
        [&](Value segment, Value lag, Value sum, Value mask, Value carried) {
          Value score = b.fmul(b.fsub(sum, tops), unit);
          if (!b.getStateType().isF64())
            score = arith::TruncFOp::create(b, b.getVectorType(), score);
          score = arith::SelectOp::create(b, mask, score, b.splat(-kInfinity));
          b.storeVector(score, scores, scoreOffset(segment, lag));
          // Minus infinity has no power; NaN stays.
          Value weight =
              softmax::exp2(b, b.fmax(b.splat(softmax::kMasked), score));
          b.storeVector(weight, weights, weightOffset(segment, lag));
          return carried;
        });
    Value first = b.mul(task[0], kLagChunk);
    Value end = b.min(b.add(first, kLagChunk), scoreRow);
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
      Value size = b.sub(numTokens, firstColumn(segment));
      Value behind = b.mul(b.ceilDiv(size, lanes), lanes);
      b.loop(b.max(first, behind), end, lanes, [&](Value lag) {
        b.storeVector(b.splat(-kInfinity), scores, scoreOffset(segment, lag));
        b.storeVector(b.splat(0.0), weights, weightOffset(segment, lag));
      });
    });
  });
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Reports how many rows are computed again.
void ConvApplyKernel::countRows(Value count) {
  RuntimeCalls::emitCall(
      b, op->getParentOfType<ModuleOp>(), "fovea_rt_count_recomputed",
      /*resultType=*/Type(),
      arith::IndexCastOp::create(b, b.getI64Type(), count).getResult());
  count = arith::IndexCastOp::create(b, b.getI32Type(), count);
  memref::StoreOp::create(b, count, apply.getRecomputed(),
                          ValueRange{batch, head});
}
