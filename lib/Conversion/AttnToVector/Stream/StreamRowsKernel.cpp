//===- StreamRowsKernel.cpp - Few query rows of attn.stream ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "fovea/Kernels/StreamRanges.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Fewer keys are not worth a part of their own, and with so many tasks there
/// are enough for the threads of a machine.
static constexpr int64_t kMinPart = 512, kTasks = 16;
/// Heads of consecutive rows are one task only where so many are left.
static constexpr int64_t kFewTasks = 4;
/// Parts begin at multiples of it, so that their tiles are whole.
static constexpr int64_t kPartStep = 128;

StreamRowsKernel::StreamRowsKernel(StreamOp op, const KernelBuilder &builder,
                                   Options options)
    : op(op), b(builder), lanes(op.getTiles()->getLanes()),
      accumulators(options.numRegisters / 2),
      splitVectors(options.splitVectors),
      // The head of a region is the same in all lanes only along the columns.
      mostRows(op.getScores().empty() ? kMaxRows : kColumnRows),
      maxRows(mostRows), isSoftmax(op.getWeighting() == Weighting::Softmax),
      manageCache(options.manageCache) {
  auto query = cast<MemRefType>(op.getQuery().getType());
  for (Region &score : op.getScores())
    scoreFunctions.push_back(std::make_unique<TileScore>(
        score, op.getCaptures(),
        isSoftmax ? ScoreBase::ToBase2 : ScoreBase::Natural));
  width = query.getDimSize(3);
  valueWidth = cast<MemRefType>(op.getOutput().getType()).getDimSize(3);
  paddedWidth = llvm::alignTo(width, lanes);
  paddedValueWidth = llvm::alignTo(valueWidth, lanes);
  int64_t heads = query.getDimSize(1), queries = query.getDimSize(2),
          keyHeads =
              cast<MemRefType>(op.getValues().front().getType()).getDimSize(1);
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(queries) &&
      !ShapedType::isDynamic(keyHeads) && keyHeads != 0)
    maxRows = std::clamp<int64_t>(heads / keyHeads * queries, 1, mostRows);
  // A quarter of the instructions that widen bf16, for rows of whole pairs.
  alternates = b.getStateType().isF32() && width % (2 * lanes) == 0 &&
               valueWidth % (2 * lanes) == 0 &&
               llvm::all_of(op.getSourceList(), [](const StreamSource &source) {
                 return getElementTypeOrSelf(source.keys).isBF16() &&
                        getElementTypeOrSelf(source.values).isBF16();
               });
  // As blocks of queries: weights are rounded as if the output were.
  auto isNarrow = [](Value memref) {
    return getElementTypeOrSelf(memref).isBF16();
  };
  hasAMX = options.amx;
  usesPairs = (hasAMX ? maxRows > kAMXColumnRows : options.bf16Pairs) &&
              isSoftmax && op.getScores().empty() && op.getCodes().empty() &&
              alternates && lanes == kAMXRows && isNarrow(op.getQuery()) &&
              isNarrow(op.getOutput());
  columnRows = usesPairs && hasAMX ? kAMXColumnRows : kColumnRows;
  // Eight accumulators just cover the latency of two multiply-adds a cycle:
  // with 16 registers twelve accumulate, and four hold operands.
  hasFewRegisters = options.numRegisters < 32;
  usesLanes =
      splitVectors && dotsPairs() && !isLatent() && maxRows > kColumnRows / 2;
  rowTile = usesPairs ? kPairTile : kRowTile;
  rowAccumulators = hasFewRegisters ? 12 : 24;
  chooseHeadBlock();
  if (usesLanes && !isPaged)
    columnRows = kLaneGroupRows;
  hasListsOfHeads =
      llvm::any_of(op.getSourceList(), [&](const StreamSource &source) {
        if (!source.rowList)
          return false;
        int64_t lists =
            cast<MemRefType>(source.rowList.getType()).getDimSize(1);
        return lists != 1 &&
               (ShapedType::isDynamic(lists) || lists != keyHeads);
      });
  // A mask leaves a single query an interval of rows.
  isMasked = queries != 1 && op.getBlock() != 1 &&
             llvm::any_of(op.getSourceList(), [](const StreamSource &source) {
               return !source.attr.getMask().isTrivial();
             });
}

//===----------------------------------------------------------------------===//
// Sets of rows, and parts of their keys
//===----------------------------------------------------------------------===//

StreamRowsKernel::Sets StreamRowsKernel::makeSets() {
  setHeads = hasListsOfHeads ? b.extent(op.getQuery(), 1) : keyHeads;
  group = b.div(b.extent(op.getQuery(), 1), b.max(setHeads, 1));
  Sets sets;
  sets.chunkQueries = numQueries;
  sets.chunks = b.index(1);
  // A single query may be of any block.
  if (op.getBlock() != 0 && getConstantIntValue(numQueries) != 1) {
    sets.chunkQueries = b.min(numQueries, op.getBlock());
    sets.chunks = b.ceilDiv(numQueries, op.getBlock());
  }
  Value rows = b.mul(group, sets.chunkQueries);
  sets.setsPerChunk = b.ceilDiv(rows, mostRows);
  sets.partHeads = b.index(1);
  if (partHeads != 1)
    sets.partHeads = b.select(b.less(rows, b.index(headRows + 1)),
                              b.index(partHeads), b.index(1));
  sets.partNumber = countSets(sets, countHeadTasks(sets.partHeads));
  return sets;
}

/// Tasks of so many key heads each.
Value StreamRowsKernel::countHeadTasks(Value heads) {
  return b.div(b.add(setHeads, b.sub(heads, b.index(1))), heads);
}

Value StreamRowsKernel::countSets(const Sets &sets, Value headTasks) {
  Value heads = b.mul(b.extent(op.getQuery(), 0), headTasks);
  return b.mul(b.mul(heads, sets.chunks), sets.setsPerChunk);
}

/// Sets how many key heads a task has where their keys have so many parts.
void StreamRowsKernel::assignHeads(Sets &sets, Value numParts) {
  sets.taskHeads = b.index(1);
  if (headBlock != 1 && isPaged)
    sets.taskHeads = sets.partHeads;
  else if (headBlock != 1) {
    Value tasks = b.mul(sets.partNumber, numParts);
    Value goTogether =
        b.both(areInterleaved(), b.less(b.index(kFewTasks - 1), tasks));
    sets.taskHeads = b.select(goTogether, sets.partHeads, b.index(1));
  }
  sets.headTasks = countHeadTasks(sets.taskHeads);
  sets.number = countSets(sets, sets.headTasks);
}

/// Which set is the `number`-th of those that the runtime hands out from the
/// last to the first: heads go in the order of memory, as do their parts. So
/// the lines that one asks for behind its end are those of the next. The last
/// queries of a head, which may take the longest, stay first.
StreamRowsKernel::Value StreamRowsKernel::orderHeads(const Sets &sets,
                                                     Value number) {
  Value ofHead = b.mul(sets.chunks, sets.setsPerChunk);
  Value heads = b.div(sets.number, ofHead);
  Value head = b.sub(b.sub(heads, b.index(1)), b.div(number, ofHead));
  return b.add(b.mul(head, ofHead), b.rem(number, ofHead));
}

void StreamRowsKernel::viewSet(const Sets &sets, Value number) {
  Value set = b.rem(number, sets.setsPerChunk);
  number = b.div(number, sets.setsPerChunk);
  firstQuery = b.mul(b.rem(number, sets.chunks), sets.chunkQueries);
  number = b.div(number, sets.chunks);
  setHead = b.mul(b.rem(number, sets.headTasks), sets.taskHeads);
  taskHeads = b.min(sets.taskHeads, b.sub(setHeads, setHead));
  headOfTask = b.index(0);
  keyHead = setHead;
  if (hasListsOfHeads)
    keyHead = b.div(setHead, b.div(setHeads, keyHeads));
  batch = b.div(number, sets.headTasks);
  setQueries = b.min(sets.chunkQueries, b.sub(numQueries, firstQuery));
  // As equal as whole vectors allow.
  int64_t step = std::min(lanes, mostRows);
  Value rows = b.mul(group, setQueries);
  Value share = b.div(b.add(rows, b.sub(sets.setsPerChunk, b.index(1))),
                      sets.setsPerChunk);
  share = b.mul(b.ceilDiv(share, step), step);
  setBegin = b.mul(set, share);
  setRows = b.sub(b.min(b.add(setBegin, share), rows), setBegin);
}

SourceLength StreamRowsKernel::getLength(const StreamSource &source) {
  return emitLength(b, source, batch, sequenceRows);
}

SmallVector<StreamRowsKernel::Interval>
StreamRowsKernel::getIntervals(const StreamSource &source, Value firstQuery,
                               Value numQueries) {
  SmallVector<Interval> intervals;
  int64_t size = op.getBlock();
  Value first = b.add(firstRow, firstQuery);
  Value block = size ? b.floorDiv(first, b.index(size)) : b.index(0);
  auto [rows, tokens] = getLength(source);
  Value position = b.add(first, b.sub(tokens, sequenceRows));
  Value lastPosition = b.add(position, b.sub(numQueries, b.index(1)));
  MaskAttr mask = source.attr.getMask();
  auto rowAt = [&](Value position) { return emitFirstRow(b, mask, position); };
  for (AffineMap range : source.attr.getRanges()) {
    RangeBounds run = emitRangeBounds(b, range, block, rows, sequenceRows);
    Value biasBegin = b.index(0);
    if (source.attr.getHasLocalBias()) {
      biasBegin = run.first;
      run.high = b.min(run.high, b.add(run.first, b.extent(source.bias, 3)));
    }
    Interval all = {run.low, run.high, run.low, run.high, biasBegin};
    if (mask.getCausal()) {
      Value end = b.add(lastPosition, 1), innerEnd = b.add(position, 1);
      if (mask.hasPrefix()) {
        end = b.max(end, mask.getPrefix());
        innerEnd = b.max(innerEnd, mask.getPrefix());
      }
      all.high = b.min(all.high, rowAt(end));
      all.innerHigh = b.min(all.innerHigh, rowAt(innerEnd));
    }
    if (mask.hasWindow()) {
      Value window = b.index(mask.getWindow());
      all.low = b.max(all.low, rowAt(b.add(b.sub(position, window), 1)));
      all.innerLow =
          b.max(all.innerLow, rowAt(b.add(b.sub(lastPosition, window), 1)));
      if (!mask.getCausal()) {
        all.high = b.min(all.high, rowAt(b.add(lastPosition, window)));
        all.innerHigh = b.min(all.innerHigh, rowAt(b.add(position, window)));
      }
    }
    intervals.push_back(all);
  }
  return intervals;
}

/// How many parts the keys of each set are cut into, all ranges alike.
Value StreamRowsKernel::getNumParts(const Sets &sets) {
  // In a parallel loop there are tasks already.
  if (op->getParentOfType<scf::ForallOp>())
    return b.index(1);
  // The last chunk reads the most, if they differ.
  Value first = b.mul(b.max(b.sub(sets.chunks, b.index(1)), b.index(0)),
                      sets.chunkQueries);
  Value total = b.index(0);
  for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
    SmallVector<Interval> intervals =
        getIntervals(source, first, b.sub(numQueries, first));
    enclose(index, intervals);
    for (const Interval &interval : intervals) {
      Value length = b.max(b.sub(interval.high, interval.low), b.index(0));
      if (source.rowList)
        length = b.mul(b.extent(source.rowList, 3), source.attr.getUnit());
      total = b.add(total, length);
    }
  }
  // Several heads of a task do more for a key, and are fewer tasks.
  Value most = b.div(b.mul(total, b.min(sets.partHeads, 2)), kMinPart);
  if (partHeads != 1 && !isPaged) {
    // Heads that are alone have as many parts, each with a state to merge.
    Value few = b.div(b.add(total, 2 * kMinPart - 1), 2 * kMinPart);
    Value fewer = b.max(b.min(few, kFewTasks), b.div(total, 8 * kMinPart));
    most = b.select(b.equal(sets.partHeads, b.index(1)), most, fewer);
  }
  Value number = b.max(sets.partNumber, 1);
  Value wanted = b.div(b.add(number, kTasks - 1), number);
  return b.max(b.min(wanted, most), 1);
}

LogicalResult StreamRowsKernel::emit() {
  keyHeads = b.extent(op.getValues().front(), 1);
  numQueries = b.extent(op.getQuery(), 2);
  firstRow = op.getFirstRow() ? Value(op.getFirstRow()) : b.index(0);
  sequenceRows = op.getNumRows() ? Value(op.getNumRows()) : numQueries;
  Sets sets = makeSets();
  encloseKeys();
  Value numParts = getNumParts(sets);
  assignHeads(sets, numParts);
  Value isWhole = b.equal(numParts, b.index(1));
  Value rowsPerSet = b.min(b.mul(group, sets.chunkQueries), mostRows);
  Value rowsPerPart = b.mul(rowsPerSet, sets.taskHeads);
  if (!matchPattern(isWhole, m_One())) {
    Value count = b.mul(b.mul(sets.number, numParts), rowsPerPart);
    count = b.select(isWhole, b.index(0), count);
    partOutputs = b.allocate(count, {paddedValueWidth}, b.getStateType());
    partStates = b.allocate(count, {2}, b.getStateType());
  }
  auto forSets = [&](ArrayRef<Value> bounds,
                     function_ref<void(ValueRange)> body) {
    auto emitTask = [&](ValueRange at) {
      viewSet(sets, at[0]);
      body(at);
      b.freeScratch();
    };
    if (!op->getParentOfType<scf::ForallOp>())
      return b.forAll(bounds, [&](ValueRange at) {
        Values ordered = {orderHeads(sets, at[0])};
        if (at.size() > 1)
          ordered.push_back(b.sub(b.sub(numParts, b.index(1)), at[1]));
        emitTask(ordered);
      });
    b.loop(b.index(0), bounds[0], 1,
           [&](Value set) { emitTask({set, b.index(0)}); });
  };
  forSets({sets.number, numParts}, [&](ValueRange at) {
    allocateScratch();
    b.ifThen(b.less(b.index(0), setRows), [&] {
      emitSet(at[1], numParts);
      b.ifThenElse(
          isWhole,
          [&] {
            forHeads([&] {
              b.loop(b.index(0), setRows, 1, [&](Value r) { finishRow(r); });
            });
          },
          [&] {
            Value part = b.add(b.mul(at[0], numParts), at[1]);
            forHeads([&] {
              storePart(b.add(b.mul(part, rowsPerPart),
                              b.mul(headOfTask, rowsPerSet)));
            });
          });
    });
  });
  if (!partOutputs)
    return finish();
  b.ifThen(b.less(b.index(1), numParts), [&] {
    forSets(sets.number, [&](ValueRange at) {
      allocateState();
      forHeads([&] {
        mergeParts(b.add(b.mul(b.mul(at[0], numParts), rowsPerPart),
                         b.mul(headOfTask, rowsPerSet)),
                   numParts, rowsPerPart);
      });
    });
  });
  memref::DeallocOp::create(b, partOutputs);
  memref::DeallocOp::create(b, partStates);
  return finish();
}

/// What comes behind all code.
LogicalResult StreamRowsKernel::finish() {
  SmallVector<const ScoreAdmission *> admissions;
  for (auto &function : scoreFunctions) {
    admissions.push_back(&function->admission);
    if (failed(function->expandMath()))
      return failure();
  }
  remarkOnAdmission(op, admissions);
  return success();
}

void StreamRowsKernel::storePart(Value base) {
  b.loop(b.index(0), setRows, 1, [&](Value row) {
    Value at = b.add(base, row);
    b.copyRow(outputs, row, partOutputs, at, paddedValueWidth);
    b.storeScalar(b.loadScalar(maxima, row), partStates, {at, b.index(0)});
    b.storeScalar(b.loadScalar(sums, row), partStates, {at, b.index(1)});
  });
}

/// The rows of a set from its parts, which start at row `base`, in order.
void StreamRowsKernel::mergeParts(Value base, Value numParts,
                                  Value rowsPerPart) {
  b.loop(b.index(0), setRows, 1, [&](Value row) {
    auto rowOfPart = [&](Value part) {
      return b.add(base, b.add(b.mul(part, rowsPerPart), row));
    };
    Value zero = b.index(0);
    Value maximum = b.loop(
        zero, numParts, 1, b.scalar(softmax::kAdmitted),
        [&](Value part, ValueRange greatest) -> Values {
          return {b.fmax(b.loadScalar(partStates, {rowOfPart(part), zero}),
                         greatest[0])};
        })[0];
    clearRow(outputs, row);
    Value sum = b.loop(
        zero, numParts, 1, b.scalar(0.0),
        [&](Value part, ValueRange sum) -> Values {
          Value at = rowOfPart(part);
          Value own = b.loadScalar(partStates, {at, zero});
          Value factor = softmax::exp2(b, b.broadcast(b.fsub(own, maximum)));
          b.overVectors(paddedValueWidth, [&](Value column) {
            Value next = b.fma(factor, b.loadVector(partOutputs, {at, column}),
                               b.loadVector(outputs, {row, column}));
            b.storeVector(next, outputs, {row, column});
          });
          Value share = b.fmul(vector::ExtractOp::create(b, factor, 0),
                               b.loadScalar(partStates, {at, b.index(1)}));
          return {b.fadd(sum[0], share)};
        })[0];
    b.storeScalar(maximum, maxima, row);
    b.storeScalar(sum, sums, row);
    finishRow(row);
  });
}

//===----------------------------------------------------------------------===//
// One part of the keys of a set
//===----------------------------------------------------------------------===//

/// Whether the rows of both begin in the same place.
static Value beginTogether(KernelBuilder &b, Value one, Value other) {
  auto addressOf = [&](Value memref) {
    auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
    Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
    Type type = getElementTypeOrSelf(memref);
    return b.add(base,
                 b.mul(metadata.getOffset(), type.getIntOrFloatBitWidth() / 8));
  };
  return b.equal(addressOf(one), addressOf(other));
}

StreamRowsKernel::SourceView
StreamRowsKernel::view(const StreamSource &source) {
  auto blockOf = [&] {
    return b.floorDiv(b.add(firstRow, firstQuery),
                      b.index(std::max<int64_t>(op.getBlock(), 1)));
  };
  auto fix = [&](Value memref, bool hasBlocks) {
    SmallVector<Value> at = {b.broadcastIndex(memref, 0, batch),
                             b.broadcastIndex(memref, 1, keyHead)};
    if (hasBlocks)
      at.push_back(b.broadcastIndex(memref, 2, blockOf()));
    return b.rowView(memref, at);
  };
  SourceView view;
  view.attr = source.attr;
  view.operands = source;
  SourceLength length = getLength(source);
  view.rows = length.rows;
  view.tokens = length.tokens;
  view.keys = fix(source.keys, false);
  view.values = fix(source.values, source.hasValueBlocks());
  if (source.codes)
    view.codes = fix(source.codes, false);
  if (manageCache && isLatent() && !hasSeveralHeads())
    view.valuesAreKeys = beginTogether(b, view.keys, view.values);
  if (Value lists = source.rowList)
    view.list = b.rowView(lists, {b.broadcastIndex(lists, 0, batch),
                                  emitListHead(b, lists, setHead, setHeads),
                                  b.broadcastIndex(lists, 2, blockOf())});
  if (source.logWeight)
    view.logWeight = fix(source.logWeight, source.hasLogWeightBlocks());
  view.bias = source.bias;
  auto *table = llvm::find_if(keyTables, [&](const KeyTable &table) {
    return table.operand == source.keys;
  });
  view.keyTable = table == keyTables.end() ? nullptr : table;
  return view;
}

void StreamRowsKernel::emitSet(Value part, Value numParts) {
  auto attend = [&] {
    forHeads([&] {
      startState(b.equal(part, b.index(0)));
      packRows();
    });
    SmallVector<SourceView> views;
    for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
      views.push_back(view(source));
      enterAdmission(index, views.back());
    }
    scoreTables(views);
    for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
      const SourceView &view = views[index];
      SmallVector<Interval> intervals =
          getIntervals(source, firstQuery, setQueries);
      enclose(index, intervals);
      for (const Interval &interval : intervals) {
        if (view.list) {
          attendList(view, interval, part, numParts);
          continue;
        }
        Value share = shareOf(
            b.max(b.sub(interval.high, interval.low), b.index(0)), numParts);
        Value low = b.add(interval.low, b.mul(part, share));
        Value high = b.min(interval.high, b.add(low, share));
        attendRows(view, interval, low, high);
      }
    }
  };
  auto attendAlongColumns = [&] {
    alongColumns = true;
    // One or two rows are multiplied as such, more by fours or eights.
    Value padded = b.mul(b.ceilDiv(setRows, 4), 4);
    if (columnRows > kColumnRows)
      padded =
          b.select(b.less(b.index(kColumnRows), setRows),
                   b.mul(b.ceilDiv(setRows, kColumnRows), kColumnRows), padded);
    paddedRows = b.select(b.less(setRows, b.index(3)), setRows, padded);
    attend();
    forHeads([&] {
      orderColumns();
      b.loop(b.index(0), setRows, 1, [&](Value row) {
        Value total = b.loadVector(laneSums, b.mul(row, lanes));
        b.storeScalar(sumLanes(b, total), sums, row);
      });
    });
  };
  if (maxRows <= columnRows)
    return attendAlongColumns();
  b.ifThenElse(
      b.less(b.index(columnRows), setRows),
      [&] {
        alongColumns = false;
        int64_t step = std::max<int64_t>(lanes, 4);
        paddedRows = b.mul(b.ceilDiv(setRows, step), step);
        rowPitch = b.index(getRowPitch());
        layOutSlots();
        attend();
        if (usesColumns())
          return turnColumns();
        forHeads([&] { orderColumns(); });
      },
      attendAlongColumns);
}

/// A part's share of so many rows.
Value StreamRowsKernel::shareOf(Value length, Value numParts) {
  Value share = b.div(b.add(length, b.sub(numParts, b.index(1))), numParts);
  if (matchPattern(numParts, m_One()))
    return share;
  return b.mul(b.ceilDiv(share, kPartStep), kPartStep);
}
