//===- StreamBackwardToGPU.cpp - GPU kernels of attn.stream_backward ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   queries  a block of threads for 64 queries: dQ += scale dS K, source after
//            source
//   rows     one for 64 rows of a source: dK = scale dS^T Q and dV = P^T dO,
//            over all queries that read them and all heads that share them, in
//            order; two blocks where one has no registers for both sums
//
// Of more than 256 columns a block has a part.
//
//   terms    one for 64 by 64 numbers of a term: the sum of dS along the axes
//            that were broadcast
//   captures what score regions read (GPUCaptureGradients.cpp)
//
// On sm_90a, kernels of warpgroups (GPUGradientKernel.h) take the place
// of the first two for the sources that they can compute (GPUGradientPlan.cpp).
// No two blocks add to the same number, so sums have a fixed order.
//
//===----------------------------------------------------------------------===//

#include "GPUCaptureGradients.h"
#include "GPUGradientPlan.h"
#include "GPUListBackward.h"
#include "GPUStreamBackward.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/SourceScores.h"
#include "fovea/Differentiate/ScoreDerivative.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "fovea/Kernels/GPU/SharedRows.h"
#include "fovea/Kernels/ReadLines.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;
using Of = GradientTile::Of;
using Kept = GradientTile::Kept;
using Place = GradientTile::Place;

namespace {
class StreamBackwardLoops {
public:
  StreamBackwardLoops(OpBuilder &builder, StreamBackwardOp op,
                      ArrayRef<ScoreDerivatives> scores,
                      const GPULowering &lowering);

  void emit();

private:
  using Source = StreamSourceGradient;

  /// A gradient as sums are kept: f32, rounded to where it belongs at the end.
  Value getSums(Value gradient);
  void roundSums();

  /// Adds to `querySums`, unless nothing is there yet; warpgroups round what
  /// the last source adds.
  void emitSource(const PlannedSource &planned, const Source &source,
                  Value querySums, bool isFirst, bool isLast);
  /// Goes into a kernel with a block of threads for each point.
  GPUKernelBuilder makeBuilder() {
    return {op.getLoc(), b, GradientTile::kNumThreads};
  }
  template <typename Tile = GradientTile>
  Tile makeTile(GPUKernelBuilder &builder, const Source &source) {
    return {builder, op, source.forward, deltas, score ? &*score : nullptr,
            math};
  }
  /// `add()` unless the region leaves nothing of a tile: then `running`.
  template <typename Tile>
  Values addUnlessRemoved(GPUKernelBuilder &k, Tile &tile, const Place &place,
                          ValueRange running, function_ref<Values()> add);
  void emitQueries(const Source &source, Value sums, bool isFirst);
  /// Either of the sums may be null, for another kernel.
  void emitRows(const Source &source, Value keySums, Value valueSums);
  /// Adds gradients of the scores of 64 queries by 64 rows to what a block of
  /// threads has for a term, or of all queries where it `sumsQueries`.
  template <typename Tile>
  Values addScores(GPUKernelBuilder &k, Tile &tile, const Place &place,
                   bool sumsQueries, ValueRange running);
  /// `Tile` is that of the source.
  template <typename Tile>
  void emitTerm(const Source &source, Value sums, bool isBias);
  template <typename Tile> void emitTerms(const Source &source);
  template <typename Tile> void emitBiasTerm(const Source &source);
  /// Makes the sums for what score regions read, which are zeros; null for what
  /// nobody reads.
  void clearCaptureSums();
  /// Stores 64 columns of a tile from `column` on, added to what is there.
  void store(GPUKernelBuilder &k, GradientTile &tile, ValueRange sums,
             Value memref, ValueRange at, Value firstRow, Value column,
             bool adds);

  StreamBackwardOp op;
  RowBuilder b;
  ArrayRef<ScoreDerivatives> scores;
  /// Of the present source the derivative by its products, if it has a region.
  std::optional<ScoreDerivatives> score;
  /// Which tiles each region removes, and that of the present source.
  SmallVector<ScoreAdmission> admissions;
  ScoreAdmission *admission = nullptr;
  /// Of the present source, if it has lists.
  std::optional<ListsOfRows> listsOfRows;
  Values captureSums;
  F32Math math;
  bool warpgroups; // whether the chip has them
  WarpgroupGradients *warpgroupKernels = nullptr;
  Value batches, heads, keyHeads, headsOfKey, numQueries, deltas;
  SmallVector<std::pair<Value, Value>> rounded;
};
} // namespace

StreamBackwardLoops::StreamBackwardLoops(OpBuilder &builder,
                                         StreamBackwardOp op,
                                         ArrayRef<ScoreDerivatives> scores,
                                         const GPULowering &lowering)
    : op(op), b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
      scores(scores), math(lowering.f32), warpgroups(lowering.gpu.warpgroups),
      batches(b.extent(op.getQuery(), 0)), heads(b.extent(op.getQuery(), 1)),
      keyHeads(b.extent(op.getKeys().front(), 1)),
      // Without heads there are no key heads to divide by.
      headsOfKey(b.max(b.div(heads, b.max(keyHeads, 1)), 1)),
      numQueries(b.extent(op.getQuery(), 2)) {
  // Narrow numbers are tf32 numbers, and weights are rounded as they were.
  if (!getMemRefType(op.getQuery()).getElementType().isF32() &&
      math == F32Math::TF32x3)
    math = F32Math::TF32;
}

Value StreamBackwardLoops::getSums(Value gradient) {
  if (getMemRefType(gradient).getElementType().isF32())
    return gradient;
  Value sums = b.allocateLike(gradient, b.getF32Type());
  rounded.push_back({sums, gradient});
  return sums;
}

void StreamBackwardLoops::roundSums() {
  for (auto [sums, gradient] : rounded) {
    Values extents;
    for (int64_t dim = 0; dim < getMemRefType(gradient).getRank(); ++dim)
      extents.push_back(b.extent(gradient, dim));
    parallelLoop(b, extents,
                 [&, &sums = sums, &gradient = gradient](ValueRange at) {
                   b.storeScalar(b.loadScalar(sums, at), gradient, at);
                 });
    memref::DeallocOp::create(b, sums);
  }
}

void StreamBackwardLoops::store(GPUKernelBuilder &k, GradientTile &tile,
                                ValueRange sums, Value memref, ValueRange at,
                                Value firstRow, Value column, bool adds) {
  tile.forEach(sums, [&](Value row, Value place, Value sum) {
    Value to[] = {at[0], at[1], k.add(firstRow, row), k.add(place, column)};
    Value exists = k.both(k.less(to[2], k.extent(memref, 2)),
                          k.less(to[3], k.index(getWidth(memref))));
    k.ifThen(exists, [&] {
      Value total = adds ? k.fadd(k.loadScalar(memref, to), sum) : sum;
      k.storeScalar(total, memref, to);
    });
  });
}

template <typename Tile>
Values StreamBackwardLoops::addUnlessRemoved(GPUKernelBuilder &k, Tile &tile,
                                             const Place &place,
                                             ValueRange running,
                                             function_ref<Values()> add) {
  // Listed rows may stand anywhere.
  if constexpr (std::is_same_v<Tile, GradientTile>)
    if (admission)
      return changeIf(k, tile.isRead(*admission, place), running, add);
  return add();
}

/// Parts of 64 columns that a block sums; none of what is null.
static GradientTile::Columns divideColumns(Value memref) {
  return memref ? GradientTile::divideColumns(getWidth(memref))
                : GradientTile::Columns();
}

void StreamBackwardLoops::emitQueries(const Source &source, Value sums,
                                      bool isFirst) {
  GPUKernelBuilder k = makeBuilder();
  GradientTile::Columns columns = divideColumns(op.getQuery());
  Values at = beginBlocks(k,
                          {batches, heads, b.ceilDiv(numQueries, kGradientTile),
                           b.index(columns.numBlocks)},
                          GradientTile::getSharedBytes());
  GradientTile tile = makeTile(k, source);
  Value firstColumn = k.mul(at[3], columns.getStep());
  Place place = {
      at[0],   at[1],  k.div(at[1], headsOfKey), k.mul(at[2], kGradientTile),
      Value(), Value()};
  tile.ranges.setBatch(place.batch);
  int64_t numParts = columns.numParts;
  Values carried;
  for (int64_t part = 0; part < numParts; ++part)
    carried.append(tile.makeSums());
  size_t size = carried.size() / numParts;
  auto columnOf = [&](int64_t part) {
    return k.add(firstColumn, part * kGradientTile);
  };
  auto addTile = [&](Value firstRow, ValueRange running) -> Values {
    place.firstRow = firstRow;
    return addUnlessRemoved(k, tile, place, running, [&] {
      tile.compute(place, /*rowsAreQueries=*/true, Of::Products,
                   op.getScale().convertToDouble());
      Values next;
      for (int64_t part = 0; part < numParts; ++part)
        next.append(tile.addKept(Kept::Gradients,
                                 running.slice(part * size, size),
                                 source.forward.keys, place.batch,
                                 place.keyHead, firstRow, columnOf(part)));
      return next;
    });
  };
  carried = k.loop(
      k.index(0), tile.ranges.getNumRanges(), 1, carried,
      [&](Value range, ValueRange running) {
        place.range = range;
        GradientRanges::Span rows =
            tile.ranges.getRowsOfTile(range, place.firstQuery, kGradientTile);
        return k.loop(rows.begin, rows.end, kGradientTile, running, addTile);
      });
  for (int64_t part = 0; part < numParts; ++part)
    store(k, tile, ValueRange(carried).slice(part * size, size), sums, at,
          place.firstQuery, columnOf(part), /*adds=*/!isFirst);
}

void StreamBackwardLoops::emitRows(const Source &source, Value keySums,
                                   Value valueSums) {
  Value numRows = b.extent(source.forward.keys, 2);
  GPUKernelBuilder k = makeBuilder();
  // Keys have all of their columns beside values.
  GradientTile::Columns columns =
      divideColumns(valueSums ? valueSums : keySums);
  Values at = beginBlocks(k,
                          {batches, keyHeads, b.ceilDiv(numRows, kGradientTile),
                           b.index(columns.numBlocks)},
                          GradientTile::getSharedBytes());
  GradientTile tile = makeTile(k, source);
  Place place = {at[0],  Value(), at[1], Value(), k.mul(at[2], kGradientTile),
                 Value()};
  tile.ranges.setBatch(place.batch);
  Value firstColumn = k.mul(at[3], columns.getStep());
  GradientRanges::Span rows = {place.firstRow,
                               k.add(place.firstRow, kGradientTile)};
  Value firstKeyColumn = valueSums ? k.index(0) : firstColumn;
  int64_t keyParts = divideColumns(keySums).numParts,
          valueParts = divideColumns(valueSums).numParts;
  Values carried;
  for (int64_t part = 0; part < keyParts + valueParts; ++part)
    carried.append(tile.makeSums());
  size_t size = carried.size() / (keyParts + valueParts);
  auto addTile = [&](ValueRange running) {
    tile.compute(place, /*rowsAreQueries=*/false,
                 keyParts > 0 ? Of::Products : Of::Nothing,
                 op.getScale().convertToDouble());
    Values next;
    auto addParts = [&](Kept kept, int64_t first, int64_t numParts,
                        Value memref, Value column) {
      for (int64_t part = 0; part < numParts; ++part)
        next.append(
            tile.addKept(kept, running.slice((first + part) * size, size),
                         memref, place.batch, place.head, place.firstQuery,
                         k.add(column, part * kGradientTile)));
    };
    addParts(Kept::Gradients, 0, keyParts, op.getQuery(), firstKeyColumn);
    addParts(Kept::Weights, keyParts, valueParts, op.getDOutput(), firstColumn);
    return next;
  };
  Value firstHead = k.mul(at[1], headsOfKey);
  Value endHead = k.min(k.add(firstHead, headsOfKey), heads);
  auto addQueries = [&](Value number, ValueRange running) -> Values {
    place.firstQuery = k.mul(number, kGradientTile);
    auto addRead = [&] {
      return addUnlessRemoved(k, tile, place, running,
                              [&] { return addTile(running); });
    };
    if (tile.ranges.ascend())
      return addRead();
    GradientRanges::Span read =
        tile.ranges.getRowsOfTile(place.range, place.firstQuery, kGradientTile);
    Value isRead =
        k.both(k.less(read.begin, rows.end), k.less(rows.begin, read.end));
    return changeIf(k, isRead, running, addRead);
  };
  carried = k.loop(k.index(0), tile.ranges.getNumRanges(), 1, carried,
                   [&](Value range, ValueRange running) {
                     place.range = range;
                     GradientRanges::Span tiles =
                         tile.ranges.getTilesOfRows(range, rows, kGradientTile);
                     return k.loop(firstHead, endHead, 1, running,
                                   [&](Value head, ValueRange running) {
                                     place.head = head;
                                     return k.loop(tiles.begin, tiles.end, 1,
                                                   running, addQueries);
                                   });
                   });
  for (int64_t part = 0; part < keyParts + valueParts; ++part) {
    bool isKey = part < keyParts;
    Value column = isKey
                       ? k.add(firstKeyColumn, part * kGradientTile)
                       : k.add(firstColumn, (part - keyParts) * kGradientTile);
    store(k, tile, ValueRange(carried).slice(part * size, size),
          isKey ? keySums : valueSums, at, place.firstRow, column,
          /*adds=*/false);
  }
}

/// Whether all queries of a tile of rows are found by their lists.
template <typename Tile>
static constexpr bool kFindsQueries = std::is_same_v<Tile, ListGradientTile>;

template <typename Tile>
Values StreamBackwardLoops::addScores(GPUKernelBuilder &k, Tile &tile,
                                      const Place &place, bool sumsQueries,
                                      ValueRange running) {
  if constexpr (kFindsQueries<Tile>)
    if (sumsQueries)
      return tile.overReaders(
          *listsOfRows, place.batch, place.head, place.firstRow, running,
          [&](Value firstReader, ValueRange running) {
            tile.compute(firstReader, /*rowsAreQueries=*/true, Of::Scores);
            return addAll(k, running, tile.loadKept(Kept::Gradients));
          });
  return addUnlessRemoved(k, tile, place, running,
                          [&] { return tile.addScores(place, running); });
}

/// The gradient of a log weight [B, G, M] or a bias [B, H, N, M], any extent of
/// which may be 1 and stand for all.
template <typename Tile>
void StreamBackwardLoops::emitTerm(const Source &source, Value sums,
                                   bool isBias) {
  Value numRows = b.extent(source.forward.keys, 2);
  MemRefType type = getMemRefType(sums);
  bool sumsBatches = type.getDimSize(0) == 1,
       sumsHeads = type.getDimSize(1) == 1;
  bool sumsQueries = !isBias || type.getDimSize(2) == 1;
  bool loopsQueries = sumsQueries && !kFindsQueries<Tile>;
  bool sumsRows = type.getShape().back() == 1;
  auto tiles = [&](bool isSummed, Value extent) {
    return isSummed ? b.index(1) : b.ceilDiv(extent, kGradientTile);
  };
  GPUKernelBuilder k = makeBuilder();
  Values at =
      beginBlocks(k,
                  {b.extent(sums, 0), b.extent(sums, 1),
                   tiles(sumsQueries, numQueries), tiles(sumsRows, numRows)},
                  Tile::getSharedBytes());
  Tile tile = makeTile<Tile>(k, source);
  Place place;
  Value firstQuery = k.mul(at[2], kGradientTile);
  Value firstRow = k.mul(at[3], kGradientTile), zero = k.index(0);
  // The numbers of an axis that a block adds up.
  auto sumOver = [&](Value first, Value count, Value all, bool isSummed,
                     int64_t step, ValueRange running,
                     function_ref<Values(Value, ValueRange)> body) {
    return k.loop(isSummed ? zero : first, isSummed ? all : k.add(first, count),
                  step, running, body);
  };
  Value one = k.index(1), tileSize = k.index(kGradientTile);
  Value firstHead = isBias ? at[1] : k.mul(at[1], headsOfKey);
  Value numHeads = isBias ? one : headsOfKey;
  Values total = sumOver(
      at[0], one, batches, sumsBatches, 1, tile.makeSums(),
      [&](Value batch, ValueRange running) {
        place.batch = batch;
        tile.setBatch(batch);
        return sumOver(
            firstHead, numHeads, heads, sumsHeads, 1, running,
            [&](Value head, ValueRange running) {
              place.head = head;
              place.keyHead = k.div(head, headsOfKey);
              return sumOver(
                  firstQuery, tileSize, numQueries, loopsQueries, kGradientTile,
                  running, [&](Value query, ValueRange running) {
                    place.firstQuery = query;
                    return sumOver(firstRow, tileSize, numRows, sumsRows,
                                   kGradientTile, running,
                                   [&](Value row, ValueRange running) {
                                     place.firstRow = row;
                                     return addScores(k, tile, place,
                                                      sumsQueries, running);
                                   });
                  });
            });
      });
  tile.keep(Kept::Gradients, total);
  // A thread for each number that is left, which adds up the others.
  Value numColumns = sumsRows ? one : tileSize;
  Value count = k.mul(sumsQueries ? one : tileSize, numColumns);
  k.loop(k.toIndex(k.thread()), count, GradientTile::kNumThreads,
         [&](Value number) {
           Value row = k.div(number, numColumns);
           Value column = k.rem(number, numColumns);
           Value sum = sumOver(
               row, one, tileSize, sumsQueries, 1, {k.scalar(0.0)},
               [&](Value i, ValueRange sum) {
                 return sumOver(
                     column, one, tileSize, sumsRows, 1, sum,
                     [&](Value j, ValueRange sum) -> Values {
                       return {k.fadd(sum[0],
                                      tile.loadKept(Kept::Gradients, i, j))};
                     });
               })[0];
           Values to = {at[0], at[1]};
           if (isBias)
             to.push_back(k.add(firstQuery, row));
           to.push_back(k.add(firstRow, column));
           Value exists = k.less(to.back(), k.extent(sums, to.size() - 1));
           if (isBias)
             exists = k.both(exists, k.less(to[2], k.extent(sums, 2)));
           k.ifThen(exists, [&] { k.storeScalar(sum, sums, to); });
         });
}

template <typename Tile>
void StreamBackwardLoops::emitTerms(const Source &source) {
  if (source.logWeight)
    emitTerm<Tile>(source, getSums(source.logWeight), /*isBias=*/false);
  emitBiasTerm<Tile>(source);
}

/// A bias may be a mask, whose gradient nobody reads.
template <typename Tile>
void StreamBackwardLoops::emitBiasTerm(const Source &source) {
  if (source.bias && !isUnread(op, source.bias))
    emitTerm<Tile>(source, getSums(source.bias), /*isBias=*/true);
}

void StreamBackwardLoops::clearCaptureSums() {
  for (Value gradient : op.getDCaptures()) {
    // What is no parameter, such as slopes of ALiBi.
    if (isUnread(op, gradient)) {
      captureSums.push_back(Value());
      continue;
    }
    MemRefType type = getMemRefType(gradient);
    bool isF64 = type.getElementType().isF64();
    Value sums = isF64 ? gradient : getSums(gradient);
    captureSums.push_back(sums);
    Values extents;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      extents.push_back(b.extent(gradient, dim));
    parallelLoop(b, extents, [&](ValueRange at) {
      Type element = getMemRefType(sums).getElementType();
      Value zero = arith::ConstantOp::create(b, b.getZeroAttr(element));
      memref::StoreOp::create(b, zero, sums, at);
    });
  }
}

void StreamBackwardLoops::emitSource(const PlannedSource &planned,
                                     const Source &source, Value querySums,
                                     bool isFirst, bool isLast) {
  bool isListed = source.forward.rowList != nullptr;
  const ScoreDerivatives *score = this->score ? &*this->score : nullptr;
  auto [hasQueries, hasRows] = planned.hasWarpgroups;
  if (hasQueries)
    warpgroupKernels->emit(
        planned, source, score, isListed ? &*listsOfRows : nullptr,
        isFirst ? Value() : querySums, isLast ? op.getDQuery() : querySums);
  // With the gradient of a log weight.
  if (hasRows)
    return emitBiasTerm<GradientTile>(source);
  auto emitSums = [&](Value keySums, Value valueSums) {
    if (isListed)
      emitListRows(b, op, source.forward, deltas, *listsOfRows, score, math,
                   keySums, valueSums);
    else
      emitRows(source, keySums, valueSums);
  };
  if (!hasQueries && isListed)
    emitListQueries(b, op, source.forward, deltas, score, math, querySums,
                    isFirst);
  if (!hasQueries && !isListed)
    emitQueries(source, querySums, isFirst);
  Value keySums = getSums(source.keys), valueSums = getSums(source.values);
  if (divideColumns(keySums).numParts + divideColumns(valueSums).numParts <=
      GradientTile::kMostParts) {
    emitSums(keySums, valueSums);
  } else {
    emitSums(keySums, Value());
    emitSums(Value(), valueSums);
  }
  if (isListed)
    emitTerms<ListGradientTile>(source);
  else
    emitTerms<GradientTile>(source);
}

void StreamBackwardLoops::emit() {
  // What a query's gradients of scores have in common.
  deltas = b.allocate({batches, heads, numQueries}, {}, b.getF32Type());
  emitRowDots(b, op.getDOutput(), op.getOutput(), /*factor=*/1.0, deltas,
              op.getDLse());
  SmallVector<Source> sources = op.getSourceList();
  for (Region &region : op.getScores())
    admissions.emplace_back(region, op.getCaptures());
  SmallVector<PlannedSource> plan = planGradients(op, admissions, warpgroups);
  WarpgroupGradients kernels(b, op, deltas);
  warpgroupKernels = &kernels;
  auto hasQueryKernel = [](const PlannedSource &planned) {
    return !planned.joinsNext;
  };
  const PlannedSource *first = llvm::find_if(plan, hasQueryKernel);
  // Sums of several sources are f32; warpgroups round those of the last one, so
  // that no kernel does nothing else.
  Value querySums = op.getDQuery(), ownSums;
  if (!plan.back().hasWarpgroups[0])
    querySums = getSums(op.getDQuery());
  else if (first != &plan.back() &&
           !getMemRefType(querySums).getElementType().isF32())
    querySums = ownSums = b.allocateLike(op.getDQuery(), b.getF32Type());
  clearCaptureSums();
  for (const PlannedSource &planned : plan) {
    size_t i = planned.number;
    const Source &source = sources[i];
    if (!scores.empty()) {
      Value derivative = getOfSource(scores, i).score;
      Region &region = *derivative.getParentRegion();
      score.reset();
      // Where other sources have regions, one may yield what it is given.
      if (getYieldedScore(region) != region.getArgument(score_argument::Score))
        score = {derivative, {}};
      admission = &getOfSource(admissions, i);
      if (!*admission)
        admission = nullptr;
    }
    if (source.forward.rowList)
      listsOfRows.emplace(b, op, source.forward,
                          !planned.hasWarpgroups[1] ? ListsOfRows::Of::Blocks
                          : namesTiles(source.forward)
                              ? ListsOfRows::Of::BlocksOfEntries
                              : ListsOfRows::Of::Entries);
    emitSource(planned, source, querySums, /*isFirst=*/&planned == first,
               /*isLast=*/&planned == &plan.back());
    if (!captureSums.empty())
      emitCaptureGradients(b, op, source.forward, getOfSource(scores, i),
                           deltas, math, listsOfRows ? &*listsOfRows : nullptr,
                           admission, captureSums);
    if (listsOfRows)
      listsOfRows->free();
    listsOfRows.reset();
  }
  SmallVector<const ScoreAdmission *> all;
  for (const ScoreAdmission &each : admissions)
    all.push_back(&each);
  remarkOnAdmission(op, all);
  roundSums();
  memref::DeallocOp::create(b, deltas);
  kernels.free();
  if (ownSums)
    memref::DeallocOp::create(b, ownSums);
}

static LogicalResult lowerStreamBackward(StreamBackwardOp op,
                                         OpBuilder &builder,
                                         GPULowering &lowering) {
  // Data is f64 altogether, if at all; captures of a region may be, too.
  if (failed(verifyGPUElementTypes(op, {op.getQuery()})) ||
      failed(verifyGPUWidths(op, {op.getQuery()}, kMaxQueryWidth)))
    return failure();
  if (op.getDSink())
    return op.emitOpError("has a gradient of a sink; run "
                          "--attn-expand-patterns first");
  FailureOr<SmallVector<ScoreDerivatives>> scores = appendScoreDerivatives(
      op.getScores(), /*ofReads=*/!op.getDCaptures().empty());
  if (failed(scores) || failed(checkReads(op, *scores)))
    return failure();
  StreamBackwardLoops(builder, op, *scores, lowering).emit();
  return success();
}

void fovea::attn::attachStreamBackwardToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerStreamBackward>(context);
}
