//===- StreamBackwardKernel.cpp - Vector code of stream_backward ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// The `lse` in base 2 of rows that read nothing: their weights are 2^-this.
/// Far enough beyond every score, and a difference that exp2 can take.
static constexpr double kEmpty = 0x1p32;

/// Whether every block reads all rows of all sources, as far as masks let it.
static bool readsAllRows(StreamBackwardOp op) {
  AffineMap all = AffineMap::get(1, 2,
                                 {getAffineConstantExpr(0, op.getContext()),
                                  getAffineSymbolExpr(0, op.getContext())},
                                 op.getContext());
  return op.getBlock() == 0 &&
         llvm::all_of(op.getSources().getAsRange<SourceAttr>(),
                      [&](SourceAttr source) {
                        return !source.hasRowLists() &&
                               source.getRanges() == ArrayRef(all);
                      });
}

StreamBackwardKernel::StreamBackwardKernel(
    StreamBackwardOp backward, StreamOp forward,
    ArrayRef<ScoreDerivatives> derivatives, OpBuilder &builder, ModuleOp module,
    Options options)
    : StreamKernel(forward, builder, options), backward(backward),
      turns(b, module), gradients(backward.getSourceList()),
      isOrdered(readsAllRows(backward)) {
  padsRows = true;
  usesAMX = isAny(Arithmetic::AMX);
  for (auto [function, own] : llvm::zip(scoreFunctions, derivatives))
    function->setDerivatives(own);
  tileRows = llvm::alignTo(std::max(tiles.getKey(), tiles.getQueryLanes()),
                           tiles.getKeys());
  // A tile asks for the next one's bias: while it is scored, where that has as
  // many rows.
  biasAhead = tileRows == tiles.getQueryLanes() ? 0 : tiles.getKey();
  biasLocality = 2;
  columnVectors =
      std::max<int64_t>(1, tiles.getKeys() * tiles.getVectors() / kRows);
  divideHeads();
}

//===----------------------------------------------------------------------===//
// A head
//===----------------------------------------------------------------------===//

void StreamBackwardKernel::allocateScratch() {
  int64_t queries = tiles.getQueryLanes();
  Type state = b.getStateType();
  int64_t paddedWidth = llvm::alignTo(width, lanes);
  int64_t paddedValueWidth = llvm::alignTo(valueWidth, lanes);
  packedQueries = b.scratch({paddedWidth, queries}, state);
  stagedQueries = b.scratch({queries, paddedWidth}, state);
  packedGradients = b.scratch({paddedValueWidth, queries}, state);
  stagedGradients = b.scratch({queries, paddedValueWidth}, state);
  queryGradients = b.scratch({queries, paddedWidth}, state);
  int64_t scoreRows = usesAMX ? llvm::alignTo(tileRows, kAMXDepth) : tileRows;
  scores = b.scratch({scoreRows, queries}, state);
  scoreGradients = b.scratch({scoreRows, queries}, state);
  if (llvm::any_of(scoreFunctions, [](const auto &function) {
        return !function->keepsGradient();
      }))
    productGradients = b.scratch({scoreRows, queries}, state);
  readGradients.clear();
  Value numPositions;
  if (llvm::none_of(gradients, [](const StreamSourceGradient &source) {
        return source.forward.rowList ||
               source.forward.attr.getMask().hasStride();
      })) {
    numPositions = b.index(0);
    for (const StreamSourceGradient &source : gradients)
      numPositions = b.max(numPositions, b.extent(source.keys, 2));
    numPositions = b.add(numPositions, queries);
  }
  for (auto &function : scoreFunctions) {
    // Sources have their tiles one after the other.
    while (readGradients.size() < function->body.getNumReads())
      readGradients.push_back(b.scratch({tileRows, queries}, state));
    function->body.allocateSums(b, numPositions,
                                b.extent(backward.getQuery(), 2));
  }
  rowLse = b.scratch({queries}, state);
  rowDelta = b.scratch({queries}, state);
  tail = b.scratch({lanes}, state);
  clearedRows =
      b.scratch({static_cast<int64_t>(gradients.size())}, b.getIndexType());
  if (usesAMX)
    allocateForGradients();
  if (isAny(Arithmetic::Converted) || usesAMX) {
    stagedKeys = b.scratch({tileRows, paddedWidth}, state);
    stagedValues = b.scratch({tileRows, paddedValueWidth}, state);
  }
  allocateTables();
  if (int64_t rows = ranges.getMaxTableRows(); rows && isChunked())
    tableTargets = b.scratch({rows}, b.getIndexType());
  if (isChunked() && windowRows) {
    windowKeys = b.scratch({windowRows, width}, state);
    windowValues = b.scratch({windowRows, valueWidth}, state);
  }
  if (hasBias)
    packedBias = b.scratch({tileRows, queries}, state);
  allocateTermSums();
}

void StreamBackwardKernel::viewGradients(Value batch, Value head) {
  Value keyHead =
      b.floorDiv(head, b.floorDiv(b.extent(backward.getQuery(), 1),
                                  b.extent(backward.getKeys().front(), 1)));
  views.clear();
  Value firstRow = b.index(0);
  for (const StreamSourceGradient &source : gradients) {
    GradientView view;
    view.keys = b.rowView(source.keys, {batch, keyHead});
    view.values = b.rowView(source.values, {batch, keyHead});
    auto viewTerm = [&](Value term, Value ofHead) -> Value {
      if (!term)
        return Value();
      return b.rowView(term, {b.broadcastIndex(term, 0, batch),
                              b.broadcastIndex(term, 1, ofHead)});
    };
    view.logWeight = viewTerm(source.logWeight, keyHead);
    view.bias = viewTerm(source.bias, head);
    if (view.bias && isExclusiveBias(source))
      view.streamsBias = hasAlignedRows(view.bias);
    view.firstRow = firstRow;
    firstRow = b.add(firstRow, b.extent(source.keys, 2));
    views.push_back(view);
  }
  dQueryRows = b.rowView(backward.getDQuery(), {batch, head});
  dOutputRows = b.rowView(backward.getDOutput(), {batch, head});
  if (backward.getDLse())
    dLseRow = b.rowView(backward.getDLse(), {batch, head});
}

void StreamBackwardKernel::emitHead(Value batch, Value head, Value begin,
                                    Value end) {
  viewHead(batch, head);
  viewGradients(batch, head);
  for (auto &function : scoreFunctions)
    function->body.clearSums(b);
  // One query head of a key head starts the sums, and leaves no row without
  // one: the last one where heads are items, which are taken from the last one
  // on.
  if (!isOrdered) {
    Value group = b.div(b.extent(backward.getQuery(), 1),
                        b.extent(backward.getKeys().front(), 1));
    Value number = b.rem(head, group);
    if (isChunked()) {
      beginChunk(begin, end, b.equal(number, b.sub(group, b.index(1))));
    } else {
      b.ifThen(b.equal(number, b.index(0)), [&] {
        for (unsigned source = 0; source < gradients.size(); ++source)
          memref::StoreOp::create(b, b.index(0), clearedRows, b.index(source));
      });
    }
  }
  Value present = findEnd(begin, end);
  forEachQueryBlock(begin, present,
                    [&](Value query, Value numQueries, Value blockIndex) {
                      emitQueryBlock(query, numQueries, blockIndex);
                    });
  if (op.getQueryLengths())
    b.loop(present, end, 1, [&](Value row) { clearRow(dQueryRows, row); });
  if (isChunked())
    endChunk();
  else if (!isOrdered)
    for (unsigned source = 0; source < gradients.size(); ++source)
      clearRowsBefore(source, b.extent(gradients[source].keys, 2));
  storeReadGradients();
}

void StreamBackwardKernel::emitQueryBlock(Value query, Value numQueries,
                                          Value blockIndex) {
  blockQuery = query;
  blockQueries = numQueries;
  queryTile = packRows({queryRows, stagedQueries, packedQueries, width}, query,
                       numQueries, b.splat(getScoreScale()));
  gradientTile =
      packRows({dOutputRows, stagedGradients, packedGradients, valueWidth},
               query, numQueries, /*factor=*/Value());
  findSpecialQueries();
  prepareRows();
  b.loop(b.index(0), b.index(tiles.getQueryLanes()), 1, [&](Value row) {
    // The rows have room for whole vectors.
    b.overVectors(llvm::alignTo(width, lanes), [&](Value column) {
      b.storeVector(b.splat(0.0), queryGradients, {row, column});
    });
  });
  clearTermSums();
  if (isChunked()) {
    waitForBlock(blockIndex);
    if (placedSource)
      clearRowsBefore(*placedSource,
                      b.min(placedBounds(blockIndex).high, chunkEnd));
  } else if (!isOrdered) {
    for (auto [index, source] : llvm::enumerate(sources))
      for (AffineMap range : source.attr.getRanges())
        clearRowsBefore(index, source.list
                                   ? b.extent(source.keys, 0)
                                   : emitRangeBounds(b, range, blockIndex,
                                                     source.rows, numRows)
                                         .high);
  }
  enterAdmission();
  SmallVector<Segment> segments, shorts;
  collectSegments(blockIndex, segments, shorts);
  segments.append(shorts);
  for (Segment &segment : segments)
    if (segment.kind == Segment::Diagonal &&
        arithmeticOf(segment) == Arithmetic::AMX) {
      // Triangles save products of vectors.
      Value count = b.max(b.sub(segment.count, segment.skip), b.index(0));
      segment = slice(segment, segment.skip, /*size=*/0);
      segment.kind = Segment::Masked;
      segment.count = count;
      segment.skip = b.index(0);
    }
  if (usesAMX)
    packForGradients(query, numQueries, segments);
  for (const Segment &segment : segments)
    lookAheadInTable(segment);
  // Down the rows, as the items of a chain follow each other.
  for (unsigned source = 0; source < sources.size(); ++source)
    for (const Segment &segment : segments)
      if (segment.source == source)
        b.loop(b.index(0), segment.count, tileRows, [&](Value offset) {
          ifAdmitted(slice(segment, offset, tileRows), /*values=*/{},
                     [&](const Segment &tile) {
                       emitTile(tile);
                       return Values();
                     });
        });
  if (usesAMX)
    finishQueryGradients();
  storeQueryGradients();
  storeTermSums();
}

void StreamBackwardKernel::emitTile(Segment tile) {
  tile.scoreRow = b.index(0);
  bool isAMX = arithmeticOf(tile) == Arithmetic::AMX;
  Segment source = tile;
  tile = isAMX ? stageForGradients(tile) : stage(tile);
  packBias(tile);
  TileLookaheads ahead = lookAheadOf(tile);
  tile.lookahead = ahead.scores;
  startSpecialKeys(tile);
  if (isAMX)
    scoreGradientsByAMX(tile);
  forEachRowTile(tile, [&](const RowLoop &rows) {
    scoreGradientRows(tile, ahead.scoreGradients, rows);
  });
  findSpecialKeys();
  // What follows touches rows that other blocks add to. A tile behind everybody
  // else: the rows that are asked for ahead shall not be those that another
  // core is adding to.
  const GradientView &view = views[tile.source];
  Value end = b.add(view.firstRow, tile.kind == Segment::Table
                                       ? sources[tile.source].rows
                                       : b.add(tile.row, tile.count));
  auto waitForTurn = [&] {
    if (isOrdered)
      turns.wait(b.add(end, tileRows));
  };
  Value scale = b.splat(op.getScale().convertToDouble());
  auto endRows = [&](Value offset) { addBiasSquaresAt(tile, offset); };
  if (isAMX) {
    narrowGradients(tile);
    multiplyGradients(tile);
    waitForTurn();
    addSumsToRows(tile, valueSums, valueTarget(tile), valueWidth);
    addSumsToRows(tile, keySums, keyTarget(tile), width, scale);
    if (spreadsBiasSquares(tile))
      b.loop(b.index(0), b.roundDown(tile.count, kRows), kRows, endRows);
    if (Value special = isSpecial(tile))
      b.ifThen(special, [&] { addSpecials(source); });
  } else {
    addQueryGradients(tile, ahead.queries);
    waitForTurn();
    addRowGradients(tile, {scores, gradientTile, valueTarget(tile), valueWidth,
                           ahead.values, gradientsAreSpecial});
    addRowGradients(tile,
                    {productGradientsOf(tile), queryTile, keyTarget(tile),
                     width, ahead.keys, queriesAreSpecial, scale, endRows});
  }
  addTermGradients(tile);
  if (isOrdered)
    turns.end(end);
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

/// Sets `lse`, in base 2, and `delta` for the queries of the block.
void StreamBackwardKernel::prepareRows() {
  int64_t queries = tiles.getQueryLanes();
  b.loop(b.index(0), b.index(queries), lanes, [&](Value lane) {
    b.storeVector(b.splat(kEmpty), rowLse, lane);
    b.storeVector(b.splat(0.0), rowDelta, lane);
  });
  Value minusInfinity = b.scalar(-std::numeric_limits<double>::infinity());
  b.loop(b.index(0), blockQueries, 1, [&](Value row) {
    Value query = b.add(blockQuery, row);
    Value sum = b.overVectors(
        valueWidth, b.splat(0.0), [&](Value column, ValueRange running) {
          return Values{b.fma(b.loadVector(gradientTile, {row, column}),
                              b.loadVector(outputView, {query, column}),
                              running.front())};
        })[0];
    Value delta = sumLanes(b, sum);
    for (int64_t column = valueWidth / lanes * lanes; column < valueWidth;
         ++column)
      delta = b.fadd(
          delta, b.fmul(b.loadScalar(gradientTile, {row, b.index(column)}),
                        b.loadScalar(outputView, {query, b.index(column)})));
    if (dLseRow)
      delta = b.fsub(delta, b.loadScalar(dLseRow, query));
    Value lse = b.loadScalar(lseView, query);
    Value isEmpty =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, lse, minusInfinity);
    lse = arith::SelectOp::create(b, isEmpty, b.scalar(kEmpty),
                                  b.fmul(lse, b.scalar(softmax::kLog2E)));
    b.storeScalar(lse, rowLse, row);
    b.storeScalar(delta, rowDelta, row);
  });
}

/// The next tile of a long range; or, where ranges follow the queries, what the
/// next block reads: its own rows, and the rows behind those of this one.
StreamBackwardKernel::TileLookaheads
StreamBackwardKernel::lookAheadOf(const Segment &tile) {
  TileLookaheads ahead;
  if (!manageCache || tile.kind != Segment::Rows)
    return ahead;
  const SourceView &source = sources[tile.source];
  const GradientView &view = views[tile.source];
  if (source.bias && !source.biasRowBroadcasts && !source.biasKeyBroadcasts &&
      biasAhead == 0)
    ahead.scores = {{source.bias, blockQuery, 2,
                     b.add(tile.biasColumn, tileRows), tileRows}};
  if (!isOrdered && op.getBlock() == 0)
    return ahead;
  Value next = b.add(tile.row, tileRows);
  if (!isOrdered) {
    Value query = b.add(blockQuery, tiles.getQueryLanes());
    next = b.add(next, tiles.getQueryLanes());
    ahead.scores.push_back({queryRows, query, 2});
    ahead.scoreGradients = {{dOutputRows, query, 2}};
    ahead.queries = {{outputView, query, 2}};
  }
  ahead.values = {{source.values, next, 2}, {view.values, next, 2}};
  ahead.keys = {{view.keys, next, 2}, {source.keys, next, 2}};
  return ahead;
}

/// Asks for the listed rows, most of which the block before has read.
void StreamBackwardKernel::lookAheadInTable(const Segment &segment) {
  if (!manageCache || segment.kind != Segment::Table ||
      sources[segment.source].list)
    return;
  const GradientView &view = views[segment.source];
  Values memrefs = {segment.keys, segment.values};
  // Windows are in the cache.
  if (!isChunked())
    memrefs.append({view.keys, view.values});
  b.loop(b.index(0), segment.count, 1, [&](Value entry) {
    Value row = tableRow(segment, entry);
    for (Value memref : memrefs) {
      auto type = cast<MemRefType>(memref.getType());
      int64_t lineElements = 512 / type.getElementTypeBitWidth();
      for (int64_t column = 0; column < type.getDimSize(1);
           column += lineElements)
        b.prefetch(memref, {row, b.index(column)}, /*locality=*/2);
    }
  });
}

void StreamBackwardKernel::scoreGradientRows(const Segment &tile,
                                             ArrayRef<Lookahead> ahead,
                                             const RowLoop &loop) {
  Segment second = tile;
  second.lookahead.assign(ahead.begin(), ahead.end());
  unsigned firstVector = loop.firstVector;
  int64_t step = loop.step, live = vectors - firstVector;
  bool hides = mayHide(tile), keeps = keepsGradient(tile);
  bool isAMX = arithmeticOf(tile) == Arithmetic::AMX;
  Values carried;
  if (keyChain)
    carried.push_back(keyChain);
  carried = loopOverRows(loop, carried, [&](Value offset, ValueRange running) {
    Values rows = rowsOf(tile, offset, step);
    Values found = scoreTile(tile, offset, rows, firstVector, loop.masked);
    Values next(running);
    if (keyChain)
      next.front() = addKeyProducts(step, next.front());
    Values derivatives = scoreDerivatives;
    SmallVector<Values> ofReads = readDerivatives;
    auto forEachVector = [&](function_ref<void(int64_t, Values, Value)> body) {
      for (int64_t i = 0; i < step; ++i)
        for (int64_t v = 0; v < live; ++v) {
          Value lane = b.index((firstVector + v) * lanes);
          body(i * live + v, {b.add(offset, i), lane}, lane);
        }
    };
    // lse last: it is larger than the products, whose sum would lose bits.
    forEachVector([&](int64_t i, Values at, Value lane) {
      Value score = b.fsub(found[i], b.loadVector(rowLse, lane));
      Value weight = softmax::exp2(b, score);
      // A row that is no number has no weights at all: not what it hides.
      if (hides)
        weight = softmax::hide(b, softmax::isMasked(b, found[i]), weight);
      b.storeVector(weight, scores, at);
    });
    Values products =
        isAMX ? loadRows(scoreGradients, offset, step, firstVector)
              : multiply(second, offset, rows, firstVector,
                         {tile.values, packedGradients, valueWidth});
    forEachVector([&](int64_t i, Values at, Value lane) {
      Value weight = b.loadVector(scores, at);
      Value gradient = b.fsub(products[i], b.loadVector(rowDelta, lane));
      gradient = b.fmul(weight, gradient);
      if (hides)
        gradient = softmax::hide(b, softmax::isHidden(b, weight), gradient);
      b.storeVector(gradient, scoreGradients, at);
      if (!hasScores())
        return;
      auto store = [&](Value derivative, Value target) {
        Value share = b.fmul(gradient, derivative);
        share = softmax::hide(b, softmax::isHidden(b, weight), share);
        b.storeVector(share, target, at);
      };
      if (!keeps)
        store(derivatives[i], productGradients);
      for (auto [derivative, target] : llvm::zip(ofReads[i], readGradients))
        store(derivative, target);
    });
    // What a triangle leaves out.
    for (int64_t i = 0; i < step; ++i)
      for (unsigned v = 0; v < firstVector; ++v) {
        Values at = {b.add(offset, i), b.index(v * lanes)};
        b.storeVector(b.splat(0.0), scoreGradients, at);
        if (!keeps)
          b.storeVector(b.splat(0.0), productGradients, at);
        for (Value target : readGradients)
          b.storeVector(b.splat(0.0), target, at);
      }
    return next;
  });
  if (keyChain)
    keyChain = carried.front();
}

void StreamBackwardKernel::storeQueryGradients() {
  double scale = op.getScale().convertToDouble();
  auto storeRows = [&](bool streams) {
    b.loop(b.index(0), blockQueries, 1, [&](Value row) {
      Value query = b.add(blockQuery, row);
      b.overVectors(width, [&](Value column) {
        b.storeVector(
            b.fmul(b.loadVector(queryGradients, {row, column}), b.splat(scale)),
            dQueryRows, {query, column}, streams);
      });
      int64_t whole = width / lanes * lanes;
      b.loop(b.index(whole), b.index(width), 1, [&](Value last) {
        b.storeScalar(
            b.fmul(b.loadScalar(queryGradients, {row, last}), b.scalar(scale)),
            dQueryRows, {query, last});
      });
    });
  };
  // Patterns of linear time store past the caches, like the forward.
  Value streams;
  if (op.getBlock() != 0 && width % lanes == 0)
    streams = hasAlignedRows(dQueryRows);
  if (!streams)
    return storeRows(/*streams=*/false);
  b.ifThenElse(
      streams, [&] { storeRows(/*streams=*/true); },
      [&] { storeRows(/*streams=*/false); });
}
