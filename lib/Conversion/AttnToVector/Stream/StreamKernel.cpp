//===- StreamKernel.cpp - Query blocks of attn.stream ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

StreamKernel::StreamKernel(StreamOp op, OpBuilder &builder, Options options)
    : op(op), tiles(*op.getTiles()),
      b(op.getLoc(), builder, getStateType(getElementTypeOrSelf(op.getQuery())),
        tiles.getLanes()),
      lanes(tiles.getLanes()), vectors(tiles.getVectors()),
      hasBias(!op.getBiases().empty()), manageCache(options.manageCache),
      isSoftmax(op.getWeighting() == Weighting::Softmax), ranges(op) {
  base = !isSoftmax                                  ? ScoreBase::Natural
         : llvm::all_of(op.getScores(), addsToScore) ? ScoreBase::InBase2
                                                     : ScoreBase::ToBase2;
  for (Region &score : op.getScores())
    scoreFunctions.push_back(
        std::make_unique<TileScore>(score, op.getCaptures(), base));
  auto query = cast<MemRefType>(op.getQuery().getType());
  width = query.getDimSize(3);
  valueWidth = cast<MemRefType>(op.getOutput().getType()).getDimSize(3);
  // Pairs round the weights of the values to bf16, as if the output were.
  allowsPairs = isSoftmax && op.getCodes().empty() &&
                query.getElementType().isBF16() &&
                getElementTypeOrSelf(op.getOutput()).isBF16() && lanes == 16 &&
                (options.amx || (options.bf16Pairs && width % 2 == 0));
  biasAhead = 2 * lanes;
  collectKeyTables();
  usesPairs =
      llvm::any_of(op.getSourceList(), [&](const StreamOp::Source &source) {
        return hasPairs(source);
      });
  usesAMX = usesPairs && options.amx;
}

bool StreamKernel::hasPairs(const StreamOp::Source &source) {
  return allowsPairs && getElementTypeOrSelf(source.keys).isBF16() &&
         getElementTypeOrSelf(source.values).isBF16();
}

StreamKernel::Arithmetic
StreamKernel::getArithmetic(const StreamOp::Source &source) {
  Type keys = getElementTypeOrSelf(source.keys);
  Type values = getElementTypeOrSelf(source.values);
  // Keys of a table are not read row by row.
  if (findKeyTable(source.keys))
    keys = b.getStateType();
  if (padsRows && width % lanes != 0)
    return Arithmetic::Converted;
  if (hasPairs(source))
    return usesAMX ? Arithmetic::AMX : Arithmetic::Pairs;
  if (packsRows())
    return Arithmetic::Packed;
  if (keys == b.getStateType() && values == b.getStateType())
    return Arithmetic::InPlace;
  return Arithmetic::Converted;
}

bool StreamKernel::isAny(Arithmetic arithmetic) {
  return llvm::any_of(op.getSourceList(), [&](const StreamOp::Source &source) {
    return getArithmetic(source) == arithmetic;
  });
}

//===----------------------------------------------------------------------===//
// Buffers and views
//===----------------------------------------------------------------------===//

void StreamKernel::allocateScratch() {
  int64_t queries = tiles.getQueryLanes();
  Type state = b.getStateType();
  int64_t paddedWidth = llvm::alignTo(width, lanes);
  int64_t paddedValueWidth = llvm::alignTo(valueWidth, lanes);
  // The rows of a streamed tile, or of the diagonal, or of all short ranges.
  int64_t rows = ranges.getMaxShortRows();
  if (ranges.hasLongRanges())
    rows = std::max({rows, tiles.getKey(), queries});
  // Segments start at even rows when rows are multiplied in pairs.
  rows += ranges.getNumShortRanges() * (getRowUnit() - 1);
  rows = llvm::alignTo(std::max<int64_t>(rows, 2), getRowUnit());

  if (packsRows())
    allocateWindows();
  else
    outputs = b.scratch({paddedValueWidth, queries}, state);
  packedQueries = b.scratch({paddedWidth, queries}, state);
  stagedQueries = b.scratch({queries, paddedWidth}, state);
  scores = b.scratch({rows, queries}, state);
  if (ranges.getMaxShortRows())
    chunkWeights = b.scratch({getChunkRows(), queries}, state);
  outputRows = b.scratch({queries, paddedValueWidth}, state);
  factors = b.scratch({queries}, state);
  if (usesPairs) {
    Type bf16 = b.getBF16Type();
    int64_t pairRows = rows / 2;
    int64_t pairWidth = llvm::alignTo(width, 2 * lanes);
    stagedPairs = b.scratch({queries, pairWidth}, bf16);
    if (!packsRows())
      queryPairs = b.scratch({pairWidth / 2, 2 * queries}, bf16);
    weightPairs = b.scratch({pairRows, 2 * queries}, bf16);
    if (usesAMX)
      allocateForAMX(rows);
    else
      valuePairs = b.scratch({pairRows, 2 * paddedValueWidth}, bf16);
  }
  if (isAny(Arithmetic::Packed)) {
    Value isShared = isWorthPacking();
    Value numRows =
        b.select(isShared, getNumCopies(),
                 b.index(areNarrow(op.getSourceList().front()) ? rows : 0));
    packed = {b.scratch(numRows, {width}, state),
              b.scratch(numRows, {valueWidth}, state),
              b.scratch({1}, b.getIndexType()), isShared};
  }
  if (isAny(Arithmetic::Converted)) {
    stagedKeys = b.scratch({rows, width}, state);
    stagedValues = b.scratch({rows, valueWidth}, state);
  }
  for (KeyTable &keys : keyTables) {
    keys.scores = b.scratch({keys.numRows, queries}, state);
    if (getElementTypeOrSelf(keys.operand) != state)
      keys.staged = b.scratch({keys.numRows, width}, state);
    int64_t paddedRows = llvm::alignTo(keys.numRows, lanes);
    if (keys.reader)
      keys.weights = b.scratch({paddedRows}, state);
  }
  allocateTables();
  allocateDistanceTerms();
  if (hasBias || !distanceTerms.empty())
    packedBias = b.scratch({rows, queries}, state);
  if (hasBias && !keyTables.empty() && ranges.hasLongRanges())
    biasRows = b.scratch({queries, getLookupTile()}, state);
}

//===----------------------------------------------------------------------===//
// Loops around a query block
//===----------------------------------------------------------------------===//

LogicalResult StreamKernel::emit() {
  boundRuns();
  allocateScratch();
  Value zero = b.index(0);
  b.loop(zero, b.extent(op.getQuery(), 0), 1, [&](Value batch) {
    b.loop(zero, b.extent(op.getQuery(), 1), 1,
           [&](Value head) { emitHead(batch, head); });
  });
  b.freeScratch();
  remarkOnAdmission();
  return expandMath();
}

void StreamKernel::viewHead(Value batch, Value head) {
  Value heads = b.extent(op.getQuery(), 1);
  sources.clear();
  firstRow = op.getFirstRow() ? Value(op.getFirstRow()) : b.index(0);
  numRows =
      op.getNumRows() ? Value(op.getNumRows()) : b.extent(op.getQuery(), 2);
  numRows = b.lengthOf(op.getQueryLengths(), batch, numRows);
  // All sources have the same key heads.
  Value keyHeads = b.extent(op.getValues().front(), 1);
  Value keyHead = b.floorDiv(head, b.floorDiv(heads, keyHeads));
  viewKeyTables(batch, keyHead);
  layOutDistanceTerms(head);
  for (const StreamOp::Source &source : op.getSourceList()) {
    SourceView view;
    view.keys =
        b.rowView(source.keys, {b.broadcastIndex(source.keys, 0, batch),
                                b.broadcastIndex(source.keys, 1, keyHead)});
    view.keyTable = findKeyTable(source.keys);
    bool isPool = source.attr.getHasListedPositions();
    view.values = b.rowView(
        source.values,
        {isPool ? b.broadcastIndex(source.values, 0, batch) : batch, keyHead});
    if (source.hasValueBlocks())
      view.valueBlocks = view.values;
    if (source.codes)
      view.codes = b.rowView(source.codes, {batch, keyHead});
    if (Value lists = source.rowList)
      view.list = b.rowView(lists, {b.broadcastIndex(lists, 0, batch),
                                    emitListHead(b, lists, head, heads)});
    SourceLength length = emitLength(b, source, batch, numRows);
    view.rows = length.rows;
    view.tokens = length.tokens;
    view.attr = source.attr;
    view.arithmetic = getArithmetic(source);
    view.distanceTerms = findDistanceTerms(source);
    if (view.arithmetic == Arithmetic::Packed ||
        (view.arithmetic == Arithmetic::AMX && packsRows())) {
      view.spreadKeys = std::exchange(view.keys, packed.keys);
      view.spreadValues = std::exchange(view.values, packed.values);
      if (view.arithmetic == Arithmetic::Packed && !areNarrow(source)) {
        view.keys = choosePacked(view.keys, view.spreadKeys);
        view.values = choosePacked(view.values, view.spreadValues);
      }
    }
    if (Value weight = source.logWeight) {
      view.logWeight =
          b.rowView(weight, {b.broadcastIndex(weight, 0, batch),
                             b.broadcastIndex(weight, 1, keyHead)});
      if (source.hasLogWeightBlocks())
        view.logWeightBlocks = view.logWeight;
      view.weightBroadcasts =
          cast<MemRefType>(weight.getType()).getShape().back() == 1;
    }
    if (Value bias = source.bias) {
      auto type = cast<MemRefType>(bias.getType());
      view.bias = b.rowView(bias, {b.broadcastIndex(bias, 0, batch),
                                   b.broadcastIndex(bias, 1, head)});
      view.biasRowBroadcasts = type.getDimSize(2) == 1;
      view.biasKeyBroadcasts = type.getDimSize(3) == 1;
    }
    sources.push_back(view);
  }
  queryRows = b.rowView(op.getQuery(), {batch, head});
  outputView = b.rowView(op.getOutput(), {batch, head});
  if (op.getLse())
    lseView = b.rowView(op.getLse(), {batch, head});
  if (Value sinks = op.getSink())
    sink = b.loadScalar(sinks, {b.broadcastIndex(sinks, 0, batch),
                                b.broadcastIndex(sinks, 1, head)});
  for (auto &function : scoreFunctions)
    function->enterHead(b, batch, head);
  for (SourceView &source : sources)
    if (source.distanceTerms)
      source.origin =
          affine::expandAffineExpr(b, b.getLoc(), source.attr.getOriginExpr(),
                                   /*dimValues=*/{}, {source.rows, numRows});
}

Value StreamKernel::findEnd(Value begin, Value end) {
  if (!op.getQueryLengths())
    return end;
  return b.clamp(b.sub(numRows, firstRow), begin, end);
}

void StreamKernel::emitHead(Value batch, Value head) {
  viewHead(batch, head);
  streamsOutput = canStream(outputView);
  Value rows = b.extent(op.getQuery(), 2), end = findEnd(b.index(0), rows);
  forEachWindow(end, [&] {
    forEachQueryBlock(b.index(0), end,
                      [&](Value query, Value numQueries, Value blockIndex) {
                        emitQueryBlock(query, numQueries, blockIndex);
                      });
  });
  if (!op.getQueryLengths())
    return;
  Value none = b.scalar(-std::numeric_limits<double>::infinity());
  b.loop(end, rows, 1, [&](Value row) {
    b.loop(b.index(0), b.index(valueWidth), 1, [&](Value column) {
      b.storeScalar(b.scalar(0.0), outputView, {row, column});
    });
    if (lseView)
      b.storeScalar(none, lseView, row);
  });
}

void StreamKernel::forEachQueryBlock(
    Value begin, Value end, function_ref<void(Value, Value, Value)> body) {
  int64_t queries = tiles.getQueryLanes();
  auto emitQueries = [&](Value low, Value high, Value blockIndex) {
    b.loop(low, high, queries, [&](Value query) {
      Value count = b.min(b.sub(high, query), b.index(queries));
      body(query, count, blockIndex);
    });
  };
  int64_t block = op.getBlock();
  if (block == 0)
    return emitQueries(begin, end, b.index(0));
  // A query block must not reach into the next block of the sequence.
  Value blockSize = b.index(block), one = b.index(1);
  Value firstBlock = b.floorDiv(b.add(firstRow, begin), blockSize);
  Value lastBlock = b.floorDiv(b.sub(b.add(firstRow, end), one), blockSize);
  b.loop(firstBlock, b.add(lastBlock, one), 1, [&](Value index) {
    Value first = b.sub(b.mul(index, blockSize), firstRow);
    Value low = b.max(first, begin);
    Value high = b.min(b.add(first, blockSize), end);
    emitQueries(low, high, index);
  });
}

void StreamKernel::emitQueryBlock(Value query, Value numQueries,
                                  Value blockIndex) {
  blockQuery = query;
  blockQueries = numQueries;
  State state = startState();
  auto packFactors = [&] {
    if (usesPairs)
      packPairs({queryRows, stagedPairs, queryPairs, width}, query, numQueries);
    if (isAny(Arithmetic::InPlace) || isAny(Arithmetic::Packed) ||
        isAny(Arithmetic::Converted))
      packQueries(query, numQueries);
  };
  if (window)
    resume(query, state, packFactors);
  else
    packFactors();
  for (SourceView &source : sources) {
    if (source.valueBlocks)
      source.values = b.rowView(source.valueBlocks, blockIndex);
    if (source.logWeightBlocks)
      source.logWeight =
          b.rowView(source.logWeightBlocks,
                    b.broadcastIndex(source.logWeightBlocks, 0, blockIndex));
  }
  enterAdmission();
  SmallVector<Segment> longs, shorts;
  collectSegments(blockIndex, longs, shorts);
  SmallVector<Segment> all(longs);
  llvm::append_range(all, shorts);
  Values start = state.maximum;
  scoreTables(all, state.maximum);
  multiplyDistances(query, numQueries, all);
  if (sink && !keyTables.empty())
    for (int64_t v = 0; v < vectors; ++v)
      state.sum[v] = b.fmul(
          state.sum[v], softmax::exp2(b, b.fsub(start[v], state.maximum[v])));
  auto attend = [&]() -> State {
    State next = state;
    if (window && isRepeated)
      rewindOutputs();
    else if (!window && !startsWithDiagonal(shorts))
      clearOutputs();
    streamLongRanges(longs, next);
    if (!shorts.empty()) {
      lookAhead(shorts);
      attendShortRanges(shorts, next);
    }
    return next;
  };
  bool hides = llvm::any_of(all, [&](const Segment &segment) {
    return mayHide(segment) && arithmeticOf(segment) != Arithmetic::AMX;
  });
  state = hides ? repeatUnlessFinite(attend) : attend();
  if (window)
    b.ifThenElse(
        window->isLast, [&] { finish(query, numQueries, state); },
        [&] { suspend(state); });
  else
    finish(query, numQueries, state);
}

void StreamKernel::clearOutputs() {
  Value zero = b.splat(0.0);
  b.loop(b.index(0), b.index(valueWidth), 1, [&](Value column) {
    for (int64_t v = 0; v < vectors; ++v)
      b.storeVector(zero, outputs, {column, b.index(v * lanes)});
  });
}

StreamKernel::State StreamKernel::startState() {
  // Above a masked score, so that such an entry weighs nothing from the start.
  Value maximum = b.splat(softmax::kAdmitted), sum = b.splat(0.0);
  if (sink) {
    auto [score, weight] = softmax::startWithSink(b, sink);
    maximum = b.broadcast(score);
    sum = b.broadcast(weight);
  }
  return {Values(vectors, maximum), Values(vectors, sum)};
}

//===----------------------------------------------------------------------===//
// First and last stage
//===----------------------------------------------------------------------===//

void StreamKernel::packQueries(Value query, Value numQueries) {
  packRows({queryRows, stagedQueries, packedQueries, width}, query, numQueries,
           b.splat(getScoreScale()));
}

double StreamKernel::getScoreScale() {
  double scale = op.getScale().convertToDouble();
  return base == ScoreBase::InBase2 ? scale * softmax::kLog2E : scale;
}

Value StreamKernel::packRows(const RowPack &pack, Value query, Value numQueries,
                             Value factor) {
  int64_t width = pack.width;
  int64_t queries = tiles.getQueryLanes();
  // Narrow types, ragged widths and the last queries of a sequence go through a
  // padded copy; all else is read in place.
  auto copyRows = [&] {
    b.loop(b.index(0), numQueries, 1, [&](Value row) {
      b.copyRow(pack.rows, b.add(query, row), pack.staged, row, width);
    });
    // Lanes without a query compute too. What the scratch held before can be
    // subnormal, which takes some CPUs a hundred times longer.
    Value zero = b.splat(0.0);
    b.loop(numQueries, b.index(queries), 1, [&](Value row) {
      b.overVectors(llvm::alignTo(width, lanes), [&](Value column) {
        b.storeVector(zero, pack.staged, {row, column});
      });
    });
  };
  auto stage = [&]() -> Value {
    copyRows();
    return pack.staged;
  };
  Value rows;
  bool converts = getElementTypeOrSelf(pack.rows) != b.getStateType();
  if (converts || width % lanes != 0) {
    rows = stage();
  } else {
    // One type for both, so that the transposition is emitted only once.
    auto type = MemRefType::get(
        {queries, width}, b.getStateType(),
        StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic,
                               {ShapedType::kDynamic, 1}));
    Value full = b.equal(numQueries, b.index(queries));
    rows = b.select(
        full, type,
        [&]() -> Value {
          SmallVector<OpFoldResult> offsets = {query, b.getIndexAttr(0)},
                                    sizes = {b.getIndexAttr(queries),
                                             b.getIndexAttr(width)},
                                    strides(2, b.getIndexAttr(1));
          Value view =
              memref::SubViewOp::create(b, pack.rows, offsets, sizes, strides);
          return memref::CastOp::create(b, type, view);
        },
        [&]() -> Value { return memref::CastOp::create(b, type, stage()); });
  }
  b.loop(b.index(0), b.index(queries), lanes, [&](Value row) {
    b.loop(b.index(0), b.index(width), lanes, [&](Value column) {
      Values tile;
      for (int64_t i = 0; i < lanes; ++i) {
        Value vector = b.loadVector(rows, {b.add(row, i), column});
        if (pack.addend)
          vector = b.fadd(vector, b.loadVector(pack.addend, column));
        tile.push_back(factor ? b.fmul(vector, factor) : vector);
      }
      for (auto [i, vector] : llvm::enumerate(b.transpose(tile)))
        b.storeVector(vector, pack.packed, {b.add(column, i), row});
    });
  });
  return rows;
}

void StreamKernel::finish(Value query, Value numQueries, const State &state) {
  int64_t queries = tiles.getQueryLanes();
  for (int64_t v = 0; v < vectors; ++v)
    b.storeVector(isSoftmax
                      ? softmax::inverseSum(b, state.maximum[v], state.sum[v])
                      : b.splat(1.0),
                  factors, b.index(v * lanes));

  Value zero = b.splat(0.0);
  auto transposeTo = [&](Value to, Value offset, bool streaming) {
    b.loop(b.index(0), b.index(queries), lanes, [&](Value row) {
      Value factor = b.loadVector(factors, row);
      Value isEmpty =
          arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor, zero);
      b.loop(b.index(0), b.index(valueWidth), lanes, [&](Value column) {
        Values tile;
        for (int64_t i = 0; i < lanes; ++i) {
          Value sum = b.loadVector(outputs, {b.add(column, i), row});
          // A sum that some value made infinite becomes NaN; an empty row is
          // zero whatever the values that it did not read.
          Value mean = b.fma(sum, zero, b.fmul(sum, factor));
          tile.push_back(arith::SelectOp::create(b, isEmpty, zero, mean));
        }
        for (auto [i, vector] : llvm::enumerate(b.transpose(tile)))
          b.storeVector(vector, to, {b.add(b.add(offset, row), i), column},
                        streaming);
      });
    });
  };
  auto copyOut = [&] {
    b.loop(b.index(0), numQueries, 1, [&](Value row) {
      b.copyRow(outputRows, row, outputView, b.add(query, row), valueWidth);
    });
  };
  auto throughCopy = [&] {
    transposeTo(outputRows, b.index(0), /*streaming=*/false);
    copyOut();
  };
  if (valueWidth % lanes != 0) {
    throughCopy();
  } else {
    Value full = b.equal(numQueries, b.index(queries));
    // Linear-time patterns store past the caches, or through a copy when the
    // address does not allow it.
    if (streamsOutput)
      full = b.both(full, streamsOutput);
    b.ifThenElse(
        full, [&] { transposeTo(outputView, query, streamsOutput != nullptr); },
        throughCopy);
  }
  if (!lseView)
    return;
  // The scores of this block are no longer needed: their first row holds lse.
  for (int64_t v = 0; v < vectors; ++v)
    b.storeVector(softmax::logSumExp(b, state.maximum[v], state.sum[v]), scores,
                  {b.index(0), b.index(v * lanes)});
  b.loop(b.index(0), numQueries, 1, [&](Value row) {
    b.storeScalar(b.loadScalar(scores, {b.index(0), row}), lseView,
                  {b.add(query, row)});
  });
}
