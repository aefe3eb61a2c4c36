//===- ConvKernel.cpp - Loops of sums of convolutions ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Tasks of whole heads that make a loop parallel, and numbers of the values
/// and profiles of a head that a thread can have tables for.
static constexpr int64_t kManyTasks = 16, kSmallHead = 1 << 19;

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
  // What takes the place of values that are not all finite is as wide.
  auto plain = MemRefType::get(type.getShape(), type.getElementType());
  packsValues = paddedWidth != width ||
                type.getElementType() != b.getStateType() ||
                !memref::CastOp::areCastCompatible(plain, type);
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
  auto emitOneByOne = [&] {
    allocateBuffers();
    b.loop(b.index(0), batches, 1,
           [&](Value batch) { emitHeads(batch, b.index(0), heads); });
    freeBuffers(numShared);
  };
  // Heads that share values add to the same gradient, so these stay together.
  Value count = b.index(1);
  if (isa<ConvApplyBackwardOp>(op))
    count = b.max(b.div(heads, b.max(b.extent(value, 1), 1)), 1);
  Value groups = b.div(heads, count);
  auto emitTasks = [&] {
    // Loops inside of a task are not parallel.
    forAll({batches, groups}, [&](ValueRange task) {
      allocateBuffers();
      Value first = b.mul(task[1], count);
      emitHeads(task[0], first, b.add(first, count));
      freeBuffers(numShared);
    });
  };
  // With extents that are known at run time only, both are there.
  Value isFew = b.less(b.mul(batches, groups), b.index(kManyTasks));
  Value numbers = b.mul(numTokens, b.add(b.mul(numBases, 4), width));
  Value isLarge = b.less(b.index(kSmallHead), numbers);
  b.ifThenElse(b.either(isFew, isLarge), emitOneByOne, emitTasks);
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
    cleanWeights();
    emitHead();
  });
}

/// Frees all buffers but the first `count`.
void ConvKernel::freeBuffers(size_t count) {
  while (buffers.size() > count)
    memref::DeallocOp::create(b, buffers.pop_back_val());
}

void ConvApplyKernel::emitHead() {
  emitProduct();
  Marked marked = judgeRows();
  countRows(marked.count);
  emitExactRows(marked);
  spoilRows();
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

ConvKernel::Values
ConvKernel::forEachVector(Value low, Value high, ValueRange inits,
                          function_ref<Values(Value, Value, ValueRange)> body) {
  Value end = b.add(low, b.roundDown(b.max(b.sub(high, low), 0), lanes));
  Values carried =
      b.loop(low, end, lanes, inits, [&](Value at, ValueRange carried) {
        return body(at, /*mask=*/Value(), carried);
      });
  return b.loop(end, high, lanes, carried, [&](Value at, ValueRange carried) {
    return body(at, firstLanes(b.sub(high, at)), carried);
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

VectorType ConvKernel::getWideType() {
  return VectorType::get({b.getLanes()}, b.getF64Type());
}

Value ConvKernel::splatWide(double number) {
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(cast<ShapedType>(Type(getWideType())),
                                b.getF64FloatAttr(number)));
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
      b, VectorType::get({b.getLanes()}, b.getI1Type()), count);
}

Value ConvKernel::loadMasked(Value memref, ValueRange indices, Value mask,
                             double otherwise) {
  auto elementType =
      cast<FloatType>(cast<MemRefType>(memref.getType()).getElementType());
  auto type = VectorType::get({b.getLanes()}, elementType);
  Value fill = arith::ConstantOp::create(
      b, DenseElementsAttr::get(cast<ShapedType>(Type(type)),
                                b.getFloatAttr(elementType, otherwise)));
  Value numbers =
      vector::MaskedLoadOp::create(b, type, memref, indices, mask, fill);
  if (elementType.getWidth() >= b.getStateType().getWidth())
    return numbers;
  return arith::ExtFOp::create(b, b.getVectorType(), numbers);
}

ConvKernel::Values
ConvKernel::overColumns(int64_t end, ValueRange inits,
                        function_ref<Values(Value, ValueRange)> body) {
  Values carried = b.overVectors(width, inits, body);
  for (int64_t column = llvm::alignDown(width, lanes); column < end;
       column += lanes)
    carried = body(b.index(column), carried);
  return carried;
}

Value ConvKernel::loadColumns(Value memref, ValueRange at, Value column) {
  Values indices(at);
  indices.push_back(column);
  std::optional<int64_t> known = getConstantIntValue(column);
  int64_t left = known ? width - *known : lanes;
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
    numbers = arith::TruncFOp::create(
        b, VectorType::get({b.getLanes()}, elementType), numbers);
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
  Value chunks = b.ceilDiv(lags, kLagChunk);
  // That of the first chunk is found even if there is none.
  partialTops = allocate(b.getF64Type(), {b.max(chunks, 1)});
  chunkSums = allocate(b.getStateType(), {numBases, chunks});
  Value rows = b.mul(b.ceilDiv(numTokens, lanes), lanes);
  // Vectors of rows begin anywhere.
  reciprocals = allocate(b.getStateType(), {b.add(rows, lanes)});
  marks = allocate(b.getI8Type(), {numTokens});
  markedOfTask = allocate(indexType, {numTokens});
}

/// Values stay where they are, if they can, unless one of them is no finite
/// number.
void ConvKernel::prepareValues() {
  Value batches = b.extent(value, 0), groups = b.extent(value, 1);
  auto allocateValues = [&](Value count) {
    return allocate(b.getStateType(),
                    {batches, groups, count, b.index(paddedWidth)});
  };
  if (!packsValues && findsSpoilt()) {
    firstSpoilt = allocate(b.getIndexType(), {batches, b.extent(basis, 1)});
    copies = allocateValues(numTokens);
    values = value;
    return;
  }
  Value tasks = b.ceilDiv(numTokens, kTaskRows);
  Value marks = allocate(b.getI8Type(), {batches, groups, tasks});
  auto cleanAll = [&](Value target) {
    forAll({batches, groups, tasks}, [&](ValueRange task) {
      Value first = b.mul(task[2], kTaskRows);
      Value end = b.min(b.add(first, kTaskRows), numTokens);
      Value none = firstLanes(b.index(0));
      Value isSpoilt =
          b.loop(first, end, 1, none, [&](Value row, ValueRange carried) {
            Value found = cleanRow(task[0], task[1], row, target);
            return Values{arith::OrIOp::create(b, found, carried[0])};
          })[0];
      isSpoilt =
          vector::ReductionOp::create(b, vector::CombiningKind::OR, isSpoilt);
      memref::StoreOp::create(
          b, arith::ExtUIOp::create(b, b.getI8Type(), isSpoilt), marks, task);
    });
    findSpoilt(marks);
  };
  firstSpoilt = allocate(b.getIndexType(), {batches, groups});
  if (packsValues) {
    values = allocateValues(numTokens);
    return cleanAll(values);
  }
  cleanAll(/*target=*/Value());
  Value first = b.loop(
      b.index(0), batches, 1, numTokens, [&](Value batch, ValueRange carried) {
        return b.loop(b.index(0), groups, 1, carried,
                      [&](Value group, ValueRange carried) {
                        Value own = loadIndex(firstSpoilt, {batch, group});
                        return Values{b.min(own, carried[0])};
                      });
      })[0];
  Value isClean = b.equal(first, numTokens);
  copies = allocateValues(b.select(isClean, b.index(0), numTokens));
  b.ifThen(b.less(first, numTokens), [&] { cleanAll(copies); });
  values = memref::CastOp::create(b, value.getType(), copies);
  values = b.select(isClean, value, values);
}

Value ConvKernel::cleanRow(Value batch, Value group, Value row, Value target) {
  auto cleanColumns = [&](Value column, ValueRange running) -> Values {
    Value numbers = loadColumns(value, {batch, group, row}, column);
    // Zeros, or NaN.
    Value rests = b.fsub(numbers, numbers);
    Value sums = b.fadd(running[0], rests);
    if (!target)
      return {sums};
    Value isFinite =
        arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, rests, rests);
    numbers = arith::SelectOp::create(b, isFinite, numbers, b.splat(0.0));
    b.storeVector(numbers, target, {batch, group, row, column});
    return {sums};
  };
  Value sums = overColumns(paddedWidth, b.splat(0.0), cleanColumns)[0];
  return arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, sums, sums);
}

/// Stores the first token of the first task of each head that has a mark.
void ConvKernel::findSpoilt(Value marks) {
  forAll({b.extent(value, 0), b.extent(value, 1)}, [&](ValueRange head) {
    Value tasks = b.ceilDiv(numTokens, kTaskRows);
    Value first = b.loop(
        b.index(0), tasks, 1, numTokens, [&](Value done, ValueRange carried) {
          Value task = b.sub(b.sub(tasks, b.index(1)), done);
          Value mark = memref::LoadOp::create(
              b, marks, ValueRange{head[0], head[1], task});
          Value isMarked = arith::CmpIOp::create(
              b, arith::CmpIPredicate::ne, mark,
              arith::ConstantIntOp::create(b, 0, /*width=*/8));
          return Values{b.select(isMarked, b.mul(task, kTaskRows), carried[0])};
        })[0];
    storeIndex(first, firstSpoilt, head);
  });
}

void ConvKernel::prepareBounds() {
  b.loop(b.index(0), numBases, 1, [&](Value r) {
    Value size = memref::LoadOp::create(b, sizes, ValueRange{batch, head, r});
    size = arith::IndexCastOp::create(b, b.getIndexType(), size);
    storeIndex(b.sub(numTokens, size), bounds, r);
  });
  storeIndex(numTokens, bounds, numBases);
  if (plan.block == 0)
    listSegments(b.index(0), numTokens);
}

/// Stores the segments of columns `[first, end)`.
void ConvKernel::listSegments(Value first, Value end) {
  b.loop(b.index(0), numBases, 1, [&](Value segment) {
    Value begin = b.max(first, firstColumn(segment));
    Value behind = b.min(end, firstColumn(b.add(segment, 1)));
    b.loop(begin, behind, 1,
           [&](Value column) { storeIndex(segment, segments, column); });
  });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

void ConvKernel::prepareWeights() {
  // The profile of zeros. A pair of windows of it is a transform and a block
  // long; elsewhere it stands for a segment.
  Value start = b.mul(numBases, weightRow);
  Value count = weightRow;
  if (plan.block != 0)
    count = b.min(count, llvm::alignTo(length + plan.block, lanes));
  b.loop(start, b.add(start, count), lanes,
         [&](Value at) { b.storeVector(b.splat(0.0), weights, at); });
  auto isSome = [&](Value top) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, top,
                                 wide(-kInfinity));
  };
  // The greatest score sum of a few lags is taken off, unless there are others
  // so much greater that weights had better be computed again.
  forAll({b.index(1)}, [&](ValueRange) {
    auto visit = [&](Value, Value, Value sum, ValueRange tops) {
      return Values{maxNumber(sum, tops[0])};
    };
    storeTop(forEachScoreSum(b.index(0), b.min(scoreRow, kFirstLags),
                             splatWide(-kInfinity), visit)[0],
             b.index(0));
  });
  Value top = memref::LoadOp::create(b, partialTops, b.index(0));
  Value inits[] = {
      b.fmul(b.select(isSome(top), top, wide(0.0)), wide(-softmax::kLog2E)),
      b.index(1)};
  auto storeAll = [&](Value, ValueRange carried) {
    shift = carried[0];
    b.ifThen(b.less(b.index(0), carried[1]), [&] { storeWeights(); });
    Value top = b.loop(b.index(0), b.ceilDiv(scoreRow, kLagChunk), 1,
                       wide(-kInfinity), [&](Value chunk, ValueRange carried) {
                         Value part =
                             memref::LoadOp::create(b, partialTops, chunk);
                         return Values{b.fmax(part, carried[0])};
                       })[0];
    // Where the first lags have no score it may also be less.
    Value isFar = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                        math::AbsFOp::create(b, top),
                                        wide(kLogMostWeight));
    isFar = arith::AndIOp::create(b, isFar, isSome(top));
    return Values{b.select(isFar, b.fsub(shift, top), shift),
                  b.select(isFar, b.index(1), b.index(0))};
  };
  shift = b.loop(b.index(0), b.index(2), 1, inits, storeAll)[0];
}

/// Visits the score sums of lags `[first, first + count)`, in f64, segment by
/// segment, as far as the segment has lags; other elements of the last vector
/// are minus infinity. `finish` sees what was carried behind a segment.
ConvKernel::Values
ConvKernel::forEachScoreSum(Value first, Value count, ValueRange inits,
                            ScoreVisitor visit,
                            function_ref<Values(Value, ValueRange)> finish) {
  Value sums = b.scratch({kLagChunk}, b.getF64Type());
  b.loop(b.index(0), count, lanes, [&](Value at) {
    vector::StoreOp::create(b, splatWide(0.0), sums, at);
  });
  auto visitSegment = [&](Value segment, ValueRange carried) {
    // Later segments have no more lags.
    Value size = b.sub(numTokens, firstColumn(segment));
    Value end = b.min(count, b.sub(size, first)), next = b.add(segment, 1);
    auto visitVector = [&](Value at, Value mask, ValueRange carried) {
      Value lag = b.add(first, at);
      Value place[] = {batch, head, segment, lag};
      // Lags of a segment are far from those of the next.
      b.prefetch(basis, {batch, head, next, lag}, /*locality=*/3);
      if (finish)
        b.prefetch(weights, weightOffset(next, lag), /*locality=*/3,
                   /*isWrite=*/true);
      Value term = mask ? loadMasked(basis, place, mask, 0.0)
                        : b.loadVector(basis, place);
      Value sum = vector::LoadOp::create(b, getWideType(), sums, at);
      sum = b.fadd(sum, widen(term));
      vector::StoreOp::create(b, sum, sums, at);
      if (mask)
        sum = arith::SelectOp::create(b, mask, sum, splatWide(-kInfinity));
      return visit(segment, lag, sum, carried);
    };
    Values found = forEachVector(b.index(0), end, carried, visitVector);
    return finish ? finish(segment, found) : found;
  };
  return b.loop(b.index(0), numBases, 1, inits, visitSegment);
}

/// The greater one, where neither NaN nor plus infinity is great: taken off all
/// scores, it would leave none to the rows that do not read it.
Value ConvKernel::maxNumber(Value sums, Value tops) {
  Value isGreater =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, sums, tops);
  Value isFinite = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, sums,
                                         splatWide(kInfinity));
  isGreater = arith::AndIOp::create(b, isGreater, isFinite);
  return arith::SelectOp::create(b, isGreater, sums, tops);
}

/// Stores the greatest of the scores of a chunk.
void ConvKernel::storeTop(Value tops, Value first) {
  Value top =
      vector::ReductionOp::create(b, vector::CombiningKind::MAXNUMF, tops);
  memref::StoreOp::create(b, top, partialTops, b.div(first, kLagChunk));
}

/// The binary logarithms of the weights of a vector of score sums, in f64.
Value ConvKernel::normalise(Value sums) {
  return b.fma(
      sums, splatWide(softmax::kLog2E),
      vector::BroadcastOp::create(b, getWideType(), shift).getResult());
}

Value ConvKernel::narrow(Value numbers) {
  if (b.getStateType().isF64())
    return numbers;
  return arith::TruncFOp::create(b, b.getVectorType(), numbers);
}

void ConvKernel::storeWeights() {
  forAllLagChunks([&](Value first, Value count) {
    auto store = [&](Value segment, Value lag, Value sum, ValueRange carried) {
      // Minus infinity has no power; NaN stays.
      Value score = normalise(sum), top = maxNumber(score, carried[1]);
      score = b.fmax(b.splat(softmax::kMasked), narrow(score));
      Value numbers = softmax::exp2(b, score);
      b.storeVector(numbers, weights, weightOffset(segment, lag));
      return Values{b.fadd(carried[0], numbers), top};
    };
    auto finish = [&](Value segment, ValueRange carried) {
      Value sum = vector::ReductionOp::create(b, vector::CombiningKind::ADD,
                                              carried[0]);
      Value chunk = b.div(first, kLagChunk);
      b.storeScalar(sum, chunkSums, {segment, chunk});
      return Values{b.splat(0.0), carried[1]};
    };
    Value inits[] = {b.splat(0.0), splatWide(-kInfinity)};
    Values found = forEachScoreSum(first, count, inits, store, finish);
    storeTop(found[1], first);
    // Zeros before the first lag and behind the last, as far as a window
    // reaches.
    Value isFirst = b.equal(first, b.index(0)), end = b.add(first, count);
    Value low = b.select(isFirst, b.index(-plan.front), b.index(0));
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
      auto clear = [&](Value first, Value end) {
        b.loop(first, end, lanes, [&](Value lag) {
          b.storeVector(b.splat(0.0), weights, weightOffset(segment, lag));
        });
      };
      clear(low, b.index(0));
      Value size = b.sub(numTokens, firstColumn(segment));
      Value behind = b.mul(b.ceilDiv(size, lanes), lanes);
      int64_t reach = plan.block != 0 ? plan.front + lanes : 2 * plan.front;
      clear(b.max(first, behind), b.min(end, b.add(behind, reach)));
    });
  });
}

/// Stores zeros for weights that are NaN, as those of plus infinity are, too.
/// The rows that read one have a normaliser that is NaN, and are marked.
void ConvKernel::cleanWeights() {
  auto isNaN = [&](Value numbers) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, numbers,
                                 numbers);
  };
  // Hardly ever there is one, and a parallel loop has its price.
  Value chunks = b.ceilDiv(numTokens, kLagChunk);
  Value total =
      b.loop(b.index(0), numBases, 1, b.scalar(0.0),
             [&](Value segment, ValueRange carried) {
               return b.loop(b.index(0), chunks, 1, carried,
                             [&](Value chunk, ValueRange sum) {
                               Value own =
                                   b.loadScalar(chunkSums, {segment, chunk});
                               return Values{b.select(isNaN(own), own, sum[0])};
                             });
             })[0];
  auto cleanChunk = [&](Value first, Value count) {
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
      Value chunk = b.div(first, kLagChunk);
      Value left = b.sub(b.sub(numTokens, firstColumn(segment)), first);
      Value sum = b.loadScalar(chunkSums, {segment, chunk});
      b.ifThen(isNaN(sum), [&] {
        b.loop(b.index(0), b.min(count, left), lanes, [&](Value lag) {
          Value at = weightOffset(segment, b.add(first, lag));
          Value numbers = b.loadVector(weights, at);
          numbers =
              arith::SelectOp::create(b, isNaN(numbers), b.splat(0.0), numbers);
          b.storeVector(numbers, weights, at);
        });
      });
    });
  };
  b.ifThen(isNaN(total), [&] { forAllLagChunks(cleanChunk); });
}

/// Stores what rows before `end` need if they are marked: scores, and the
/// segments of columns.
void ConvKernel::prepareExactRows(Value end) {
  forAll({b.ceilDiv(end, kLagChunk)}, [&](ValueRange task) {
    Value first = b.mul(task[0], kLagChunk);
    Value count = b.min(b.sub(scoreRow, first), b.index(kLagChunk));
    listSegments(first, b.min(b.add(first, count), numTokens));
    // Only what is not read is minus infinity.
    Value least = splatWide(b.getStateType().isF64()
                                ? std::numeric_limits<double>::lowest()
                                : std::numeric_limits<float>::lowest());
    auto isLess = [&](Value x, Value y) -> Value {
      return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, y);
    };
    auto store = [&](Value segment, Value lag, Value sum, ValueRange) {
      Value score = normalise(sum);
      Value isRead = isLess(splatWide(-kInfinity), sum);
      Value isOut = arith::AndIOp::create(b, isRead, isLess(score, least));
      score = arith::SelectOp::create(b, isOut, least, score);
      b.storeVector(narrow(score), scores, scoreOffset(segment, lag));
      return Values();
    };
    forEachScoreSum(first, count, ValueRange(), store);
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
