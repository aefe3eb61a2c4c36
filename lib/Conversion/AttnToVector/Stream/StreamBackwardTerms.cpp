//===- StreamBackwardTerms.cpp - Gradients of log weights and biases ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

static bool broadcastsKeys(Value term) {
  return term && cast<MemRefType>(term.getType()).getShape().back() == 1;
}

void StreamBackwardKernel::allocateTermSums() {
  termSums.clear();
  for (const StreamSourceGradient &source : gradients) {
    TermSums &sums = termSums.emplace_back();
    if (broadcastsKeys(source.logWeight))
      sums.logWeight = b.scratch({1}, b.getStateType());
    if (broadcastsKeys(source.bias)) {
      bool broadcastsRows =
          cast<MemRefType>(source.bias.getType()).getDimSize(2) == 1;
      sums.bias = b.scratch({broadcastsRows ? 1 : tiles.getQueryLanes()},
                            b.getStateType());
    }
  }
}

/// Calls `body` for the elements of `sums`, which may be null: one, or one for
/// each of `count` queries.
static void forEachTermSum(KernelBuilder &b, Value sums, Value count,
                           llvm::function_ref<void(Value)> body) {
  if (!sums)
    return;
  bool isOne = cast<MemRefType>(sums.getType()).getDimSize(0) == 1;
  b.loop(b.index(0), isOne ? b.index(1) : count, 1, body);
}

void StreamBackwardKernel::clearTermSums() {
  for (const TermSums &source : termSums)
    for (Value sums : {source.logWeight, source.bias})
      forEachTermSum(b, sums, blockQueries,
                     [&](Value i) { b.storeScalar(b.scalar(0.0), sums, i); });
}

/// When all later items have ended, so that sums have an order.
void StreamBackwardKernel::storeTermSums() {
  bool any = llvm::any_of(termSums, [](const TermSums &sums) {
    return sums.logWeight || sums.bias;
  });
  if (!any)
    return;
  turns.wait(b.index(Turns::kLast));
  for (size_t index = 0; index < termSums.size(); ++index) {
    const TermSums &sums = termSums[index];
    const GradientView &view = views[index];
    forEachTermSum(b, sums.logWeight, blockQueries, [&](Value i) {
      addTo(view.logWeight, i, b.loadScalar(sums.logWeight, i));
    });
    forEachTermSum(b, sums.bias, blockQueries, [&](Value i) {
      bool isOne = cast<MemRefType>(sums.bias.getType()).getDimSize(0) == 1;
      Value row = isOne ? i : b.add(blockQuery, i);
      addTo(view.bias, {row, b.index(0)}, b.loadScalar(sums.bias, i));
    });
  }
}

/// Of what the score region reads for the entries of a tile.
void StreamBackwardKernel::addReadGradients(const Segment &tile) {
  if (readGradients.empty())
    return;
  ScoreBody &body = getScore(tile.source).body;
  Value position = firstPosition(sources[tile.source]);
  b.loop(tile.skip, tile.count, 1, [&](Value offset) {
    Value key = positionOf(tile, offset);
    b.loop(b.index(0), b.index(tiles.getQueryLanes()), lanes, [&](Value lane) {
      for (unsigned read = 0; read < body.getNumReads(); ++read)
        body.addToSums(b, read,
                       liveGradients(readGradients[read], offset, lane),
                       {b.add(position, lane), /*step=*/1}, {key});
    });
  });
}

/// When all later items have ended, so that sums have an order.
void StreamBackwardKernel::storeReadGradients() {
  if (readGradients.empty())
    return;
  turns.wait(b.index(Turns::kLast));
  for (auto &function : scoreFunctions)
    function->body.storeSums(b, backward.getDCaptures());
}

void StreamBackwardKernel::addTermGradients(const Segment &tile) {
  addReadGradients(tile);
  const GradientView &view = views[tile.source];
  const SourceView &source = sources[tile.source];
  if (view.logWeight || (view.bias && source.biasRowBroadcasts))
    addRowSums(tile);
  if (!view.bias || source.biasRowBroadcasts)
    return;
  if (source.biasKeyBroadcasts)
    addColumnSums(tile);
  else
    addBiases(tile);
}

void StreamBackwardKernel::addTo(Value target, ValueRange indices,
                                 Value scalar) {
  b.storeScalar(b.fadd(b.loadScalar(target, indices), scalar), target, indices);
}

/// The gradients of a row of the tile, a vector from query `first` on: zero in
/// lanes without a query.
Value StreamBackwardKernel::liveGradients(Value gradients, Value row,
                                          Value first) {
  SmallVector<int32_t> numbers;
  for (int64_t lane = 0; lane < lanes; ++lane)
    numbers.push_back(lane);
  Value queries = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  Value count =
      arith::IndexCastOp::create(b, b.getI32Type(), b.sub(blockQueries, first));
  count = vector::BroadcastOp::create(b, queries.getType(), count);
  Value isLive =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, queries, count);
  return arith::SelectOp::create(
      b, isLive, b.loadVector(gradients, {row, first}), b.splat(0.0));
}

/// Per row of the source, over the queries of the block.
void StreamBackwardKernel::addRowSums(const Segment &tile) {
  const GradientView &view = views[tile.source];
  const SourceView &source = sources[tile.source];
  const TermSums &sums = termSums[tile.source];
  b.loop(tile.skip, tile.count, 1, [&](Value offset) {
    Value sum = liveGradients(scoreGradients, offset, b.index(0));
    for (int64_t v = 1; v < vectors; ++v)
      sum = b.fadd(sum,
                   liveGradients(scoreGradients, offset, b.index(v * lanes)));
    Value total = sumLanes(b, sum), row = sourceRow(tile, offset);
    if (sums.logWeight)
      addTo(sums.logWeight, b.index(0), total);
    else if (view.logWeight)
      addTo(view.logWeight, row, total);
    if (!view.bias || !source.biasRowBroadcasts)
      return;
    if (sums.bias)
      addTo(sums.bias, b.index(0), total);
    else
      addTo(view.bias, {b.index(0), row}, total);
  });
}

/// Per query, over the rows of the tile.
void StreamBackwardKernel::addColumnSums(const Segment &tile) {
  Values sums =
      b.loop(tile.skip, tile.count, 1, Values(vectors, b.splat(0.0)),
             [&](Value offset, ValueRange running) {
               Values next;
               for (int64_t v = 0; v < vectors; ++v)
                 next.push_back(b.fadd(
                     running[v], b.loadVector(scoreGradients,
                                              {offset, b.index(v * lanes)})));
               return next;
             });
  for (int64_t v = 0; v < vectors; ++v) {
    b.storeVector(sums[v], tail, b.index(0));
    Value first = b.index(v * lanes);
    b.loop(first, b.min(b.index((v + 1) * lanes), blockQueries), 1,
           [&](Value query) {
             addTo(termSums[tile.source].bias, query,
                   b.loadScalar(tail, b.sub(query, first)));
           });
  }
}

/// Whether every element of a bias is that of one score: ranges of a source do
/// not overlap, so its gradient is stored once. One row of queries or keys is
/// summed like one that many share.
bool StreamBackwardKernel::isExclusiveBias(const StreamSourceGradient &source) {
  auto type = cast<MemRefType>(source.bias.getType());
  auto query = cast<MemRefType>(backward.getQuery().getType());
  auto isWhole = [&](int64_t dim) {
    return type.getDimSize(dim) != 1 || query.getDimSize(dim) == 1;
  };
  return isWhole(0) && isWhole(1) && type.getDimSize(2) != 1 &&
         type.getDimSize(3) != 1;
}

/// Whether the gradient of the bias is that of single scores: then whole
/// squares of rows and queries are transposed in registers.
bool StreamBackwardKernel::hasBiasSquares(const Segment &tile) {
  const SourceView &source = sources[tile.source];
  return views[tile.source].bias && !source.biasRowBroadcasts &&
         !source.biasKeyBroadcasts && tile.kind != Segment::Table;
}

/// Whether squares are stored one or a few behind every register tile of rows,
/// because memory is slower than the stores of a whole tile.
bool StreamBackwardKernel::spreadsBiasSquares(const Segment &tile) {
  return hasBiasSquares(tile) && tile.kind == Segment::Rows &&
         kRows * vectors % lanes == 0;
}

/// The squares that go with the register tile of rows from `offset` on.
void StreamBackwardKernel::addBiasSquaresAt(const Segment &tile, Value offset) {
  if (!spreadsBiasSquares(tile))
    return;
  int64_t perTile = kRows * vectors / lanes;
  for (int64_t i = 0; i < perTile; ++i) {
    Value number = b.add(b.mul(b.div(offset, kRows), perTile), i);
    Value row = b.mul(b.div(number, vectors), lanes);
    Value query = b.mul(b.rem(number, vectors), lanes);
    b.ifThen(b.both(b.less(row, b.roundDown(tile.count, lanes)),
                    b.less(query, b.roundDown(blockQueries, lanes))),
             [&] { addBiasSquare(tile, row, query); });
  }
}

void StreamBackwardKernel::addBiasSquare(const Segment &tile, Value offset,
                                         Value query) {
  Value target = views[tile.source].bias;
  bool isExclusive = isExclusiveBias(gradients[tile.source]);
  auto add = [&](bool streams) {
    Values square;
    for (int64_t i = 0; i < lanes; ++i)
      square.push_back(b.loadVector(scoreGradients, {b.add(offset, i), query}));
    for (auto [i, vector] : llvm::enumerate(b.transpose(square))) {
      Values at = {b.add(b.add(blockQuery, query), i), b.add(tile.row, offset)};
      b.storeVector(isExclusive ? vector
                                : b.fadd(b.loadVector(target, at), vector),
                    target, at, streams);
    }
  };
  Value streams = views[tile.source].streamsBias;
  if (!isExclusive || !streams)
    return add(/*streams=*/false);
  Value first = b.add(tile.row, tile.skip);
  b.ifThenElse(
      b.both(streams, b.equal(b.rem(first, lanes), b.index(0))),
      [&] { add(/*streams=*/true); }, [&] { add(/*streams=*/false); });
}

/// One by one, but for whole squares.
void StreamBackwardKernel::addBiases(const Segment &tile) {
  Value target = views[tile.source].bias;
  // Tables end with copies of their last row.
  bool isExclusive =
      tile.kind != Segment::Table && isExclusiveBias(gradients[tile.source]);
  auto addElements = [&](Value low, Value lowQuery, Value highQuery) {
    b.loop(lowQuery, highQuery, 1, [&](Value query) {
      b.loop(low, tile.count, 1, [&](Value offset) {
        Values at = {b.add(blockQuery, query), sourceRow(tile, offset)};
        Value gradient = b.loadScalar(scoreGradients, {offset, query});
        if (isExclusive)
          b.storeScalar(gradient, target, at);
        else
          addTo(target, at, gradient);
      });
    });
  };
  if (!hasBiasSquares(tile))
    return addElements(tile.skip, b.index(0), blockQueries);
  bool spreads = spreadsBiasSquares(tile);
  Value length = b.max(b.sub(tile.count, tile.skip), b.index(0));
  // Squares that are spread go with whole register tiles only.
  int64_t rows = spreads ? std::max(lanes, kRows) : lanes;
  Value fullRows = b.add(tile.skip, b.roundDown(length, rows));
  Value fullQueries = b.roundDown(blockQueries, lanes);
  if (!spreads)
    b.loop(tile.skip, fullRows, lanes, [&](Value offset) {
      b.loop(b.index(0), fullQueries, lanes,
             [&](Value query) { addBiasSquare(tile, offset, query); });
    });
  addElements(fullRows, b.index(0), fullQueries);
  addElements(tile.skip, fullQueries, blockQueries);
}
