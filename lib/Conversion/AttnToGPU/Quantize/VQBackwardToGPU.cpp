//===- VQBackwardToGPU.cpp - GPU kernels of gradients of attn.vq ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUVQBackward.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/SharedRows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

using Kept = SquareTile::Kept;

static constexpr int64_t kTile = SquareTile::kSize;
/// Queries that add to the same sums of codewords where nothing is causal.
static constexpr int64_t kGroupQueries = 512;
/// Parts of the queries of a head that sum by distance on their own.
static constexpr int64_t kDistanceParts = 8;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

static int64_t getNumParts(int64_t width) {
  return llvm::divideCeil(width, kTile);
}

static Values makeSums(VQTile &tile, int64_t parts) {
  Values sums;
  for (int64_t part = 0; part < parts; ++part)
    sums.append(tile.makeSums());
  return sums;
}

/// Narrow numbers are tf32 numbers, and weights are rounded as they were.
static F32Math chooseMath(VQBackwardOp op, F32Math math) {
  bool isNarrow = !getMemRefType(op.getQuery()).getElementType().isF32() &&
                  !getMemRefType(op.getCodebook()).getElementType().isF32();
  return isNarrow && math == F32Math::TF32x3 ? F32Math::TF32 : math;
}

VQBackwardLoops::VQBackwardLoops(OpBuilder &builder, VQBackwardOp op,
                                 const GPULowering &lowering)
    : op(op), b(op.getLoc(), builder), loops(b, op),
      problem{op, chooseMath(op, lowering.f32), loops.getWindow()},
      usesStream(isStream(lowering.gpu)), width(getWidth(op.getQuery())),
      valueWidth(getWidth(op.getValue())), batches(b.extent(op.getQuery(), 0)),
      heads(b.extent(op.getQuery(), 1)), keyHeads(b.extent(op.getValue(), 1)),
      // Without heads there are no key heads to divide by.
      headsOfKey(b.max(b.div(heads, b.max(keyHeads, 1)), 1)),
      // The block after a memory may read the means of a state; without one,
      // the next is the first that has older tokens.
      firstCached(b.index(problem.getMemory() + (loops.hasState() ? 0 : 1))),
      distanceSums(b, loops, op) {
  numCodes = problem.getNumCodes();
  Value numTokens = problem.window.numTokens;
  int64_t block = problem.getBlock();
  bool isCausal = op.getCausal();
  numBlocks = isCausal ? b.ceilDiv(numTokens, block) : b.index(1);
  blockLength = isCausal ? b.index(block) : numTokens;
  tilesOfBlock = b.ceilDiv(blockLength, kTile);
  queryRows = problem.window.length;
  tokenRows = numTokens;
  rowsBeforeQueries = rowsBeforeTokens = b.index(0);
  if (isFramed())
    setFrames();
}

Value VQBackwardLoops::getFirstQuery(KernelBuilder &k, Value token) {
  if (!loops.hasState())
    return token;
  return k.max(k.sub(token, problem.window.numBefore), 0);
}

void VQBackwardLoops::setQueries(KernelBuilder &k, Place &place, Value block,
                                 Value tile) {
  place.block = block;
  Value begin = k.mul(block, blockLength);
  const VQWindow &window = problem.window;
  Value end = k.min(k.add(begin, blockLength), window.numTokens);
  place.firstQuery = k.add(getFirstQuery(k, begin), k.mul(tile, kTile));
  place.endQuery = k.sub(end, window.numBefore);
}

Values
VQBackwardLoops::loopOverHeads(GPUKernelBuilder &k, Value keyHead,
                               ValueRange running,
                               function_ref<Values(Value, ValueRange)> body) {
  Value first = k.mul(keyHead, headsOfKey);
  return k.loop(first, k.min(k.add(first, headsOfKey), heads), 1, running,
                body);
}

void VQBackwardLoops::store(GPUKernelBuilder &k, VQTile &tile, ValueRange parts,
                            Value memref, ValueRange leading, Value first,
                            Value end, Value column) {
  size_t size = tile.makeSums().size();
  for (size_t part = 0; part * size < parts.size(); ++part)
    tile.forEach(parts.slice(part * size, size),
                 [&](Value ofRow, Value ofColumn, Value sum) {
                   Values to(leading);
                   to.push_back(k.add(first, ofRow));
                   to.push_back(k.add(column, k.add(ofColumn, part * kTile)));
                   Value exists =
                       k.both(k.less(to.end()[-2], end),
                              k.less(to.back(), k.index(getWidth(memref))));
                   k.ifThen(exists, [&] { k.storeScalar(sum, memref, to); });
                 });
}

void VQBackwardLoops::emitQueries() {
  GPUKernelBuilder k = makeBuilder();
  VQTile::Columns columns = VQTile::divideColumns(width);
  Values at = beginBlocks(
      k, {batches, heads, numBlocks, tilesOfBlock, b.index(columns.numBlocks)},
      VQTile::getSharedBytes());
  VQTile tile(k, problem);
  Place place = {at[0], at[1], k.div(at[1], headsOfKey)};
  setQueries(k, place, at[2], at[3]);
  Value isTile = k.less(place.firstQuery, place.endQuery), zero = k.index(0);
  Value firstColumn = k.mul(at[4], columns.getStep());
  Values sums = makeSums(tile, columns.numParts);
  size_t size = sums.size() / columns.numParts;
  auto addRows = [&](Value begin, Value end, bool isCache) {
    place.isCache = isCache;
    sums = k.loop(
        begin, k.select(isTile, end, zero), kTile, sums,
        [&](Value firstRow, ValueRange running) -> Values {
          place.firstRow = firstRow;
          tile.compute(place, /*rowsAreQueries=*/true, /*hasGradients=*/true,
                       op.getScale().convertToDouble());
          Values next;
          for (int64_t part = 0; part < columns.numParts; ++part)
            next.append(tile.addKeys(place, running.slice(part * size, size),
                                     k.add(firstColumn, part * kTile)));
          return next;
        });
  };
  Value hasCache = isTile;
  if (op.getCausal()) {
    Value begin =
        k.mul(k.sub(at[2], k.index(problem.getMemory())), blockLength);
    begin = k.max(begin, 0);
    Value end = k.min(k.add(place.firstQuery, kTile), place.endQuery);
    end = k.add(end, problem.window.numBefore);
    addRows(begin, end, /*isCache=*/false);
    if (Value keys = op.getRelativeKeys()) {
      Value reach =
          k.min(k.sub(end, begin), k.index(getMemRefType(keys).getDimSize(1)));
      sums = k.loop(zero, k.select(isTile, reach, zero), kTile, sums,
                    [&](Value firstDistance, ValueRange running) -> Values {
                      tile.keepByDistance(place, firstDistance,
                                          /*rowsAreDistances=*/false,
                                          op.getScale().convertToDouble());
                      Values next;
                      for (int64_t part = 0; part < columns.numParts; ++part)
                        next.append(tile.addRelativeKeys(
                            place, running.slice(part * size, size),
                            firstDistance, k.add(firstColumn, part * kTile)));
                      return next;
                    });
    }
    hasCache = k.less(k.sub(firstCached, k.index(1)), at[2]);
  }
  addRows(zero, k.select(hasCache, k.index(numCodes), zero),
          /*isCache=*/true);
  store(k, tile, sums, op.getDQuery(), {at[0], at[1]}, place.firstQuery,
        place.endQuery, firstColumn);
}

/// Gradients of tokens from the queries of their own and the next `memory`
/// blocks.
void VQBackwardLoops::emitTokens(Value keySums, Value valueSums) {
  GPUKernelBuilder k = makeBuilder();
  // Keys have all of their columns beside values.
  VQTile::Columns columns =
      VQTile::divideColumns(valueSums ? valueWidth : width);
  Values at = beginBlocks(
      k,
      {batches, keyHeads, numBlocks, tilesOfBlock, b.index(columns.numBlocks)},
      VQTile::getSharedBytes());
  VQTile tile(k, problem);
  Place place = {at[0], Value(), at[1]};
  const VQWindow &window = problem.window;
  Value begin = k.mul(at[2], blockLength);
  place.firstRow = k.add(begin, k.mul(at[3], kTile));
  Value endRow = k.min(k.add(begin, blockLength), window.numTokens);
  Value reach = k.mul(blockLength, problem.getMemory());
  place.endQuery =
      k.sub(k.min(k.add(endRow, reach), window.numTokens), window.numBefore);
  Value firstQuery = getFirstQuery(k, place.firstRow);
  Value isTile = k.less(place.firstRow, endRow);
  // Nobody may ask for the gradients of tokens that were kept.
  if (loops.hasState() && op.getDState().empty())
    isTile =
        k.both(isTile, k.less(window.numBefore, k.add(place.firstRow, kTile)));
  Value endLoop = k.select(isTile, place.endQuery, k.index(0));
  int64_t keyParts = keySums ? VQTile::divideColumns(width).numParts : 0,
          valueParts = valueSums ? columns.numParts : 0;
  Value firstColumn = k.mul(at[4], columns.getStep());
  Value firstKeyColumn = valueSums ? k.index(0) : firstColumn;
  Values sums = makeSums(tile, keyParts + valueParts);
  size_t size = sums.size() / (keyParts + valueParts);
  auto addTile = [&](Value firstQuery, ValueRange running) -> Values {
    place.firstQuery = firstQuery;
    tile.compute(place, /*rowsAreQueries=*/false,
                 /*hasGradients=*/keyParts > 0,
                 op.getScale().convertToDouble());
    Values next;
    auto addParts = [&](Kept kept, ValueRange parts, Value memref,
                        Value column) {
      for (size_t part = 0; part * size < parts.size(); ++part)
        next.append(tile.addQueries(kept, place, parts.slice(part * size, size),
                                    memref, k.add(column, part * kTile)));
    };
    addParts(Kept::Gradients, running.take_front(keyParts * size),
             window.queries, firstKeyColumn);
    addParts(Kept::Weights, running.drop_front(keyParts * size),
             window.dOutputs, firstColumn);
    return next;
  };
  sums = loopOverHeads(k, at[1], sums, [&](Value head, ValueRange running) {
    place.head = head;
    return k.loop(firstQuery, endLoop, kTile, running, addTile);
  });
  ValueRange all(sums);
  if (keyParts)
    store(k, tile, all.take_front(keyParts * size), keySums, {at[0], at[1]},
          place.firstRow, endRow, firstKeyColumn);
  if (valueParts)
    store(k, tile, all.drop_front(keyParts * size), valueSums, {at[0], at[1]},
          place.firstRow, endRow, firstColumn);
}

/// Gradients of the values of older tokens by their codes: of block
/// `firstCached` + n in group n, or of any queries.
void VQBackwardLoops::emitCodes() {
  GPUKernelBuilder k = makeBuilder();
  VQTile::Columns columns = VQTile::divideColumns(valueWidth);
  Values at =
      beginBlocks(k,
                  {batches, keyHeads, numGroups, b.index(getNumParts(numCodes)),
                   b.index(columns.numBlocks)},
                  VQTile::getSharedBytes());
  VQTile tile(k, problem);
  Place place = {at[0], Value(), at[1]};
  place.isCache = true;
  place.firstRow = k.mul(at[3], kTile);
  Value first;
  if (op.getCausal()) {
    setQueries(k, place, k.add(at[2], firstCached), k.index(0));
    first = place.firstQuery;
  } else {
    first = k.mul(at[2], kGroupQueries);
    place.endQuery = k.min(k.add(first, kGroupQueries), problem.window.length);
  }
  Value firstColumn = k.mul(at[4], columns.getStep());
  int64_t parts = columns.numParts;
  Values sums = makeSums(tile, parts);
  size_t size = sums.size() / parts;
  auto addTile = [&](Value firstQuery, ValueRange running) -> Values {
    place.firstQuery = firstQuery;
    tile.compute(place, /*rowsAreQueries=*/false, /*hasGradients=*/false);
    Values next;
    for (int64_t part = 0; part < parts; ++part)
      next.append(tile.addQueries(
          Kept::Weights, place, running.slice(part * size, size),
          problem.window.dOutputs, k.add(firstColumn, part * kTile)));
    return next;
  };
  sums = loopOverHeads(k, at[1], sums, [&](Value head, ValueRange running) {
    place.head = head;
    return k.loop(first, place.endQuery, kTile, running, addTile);
  });
  store(k, tile, sums, codeSums, {at[0], at[1], at[2]}, place.firstRow,
        k.index(numCodes), firstColumn);
}

/// Every token takes the sum over the groups of queries that are after it.
void VQBackwardLoops::storeValues() {
  const VQWindow &window = problem.window;
  auto sumOf = [&](KernelBuilder &k, ValueRange at) {
    Value group = k.index(0), sum = k.scalar(0.0);
    if (op.getCausal()) {
      Value first = k.sub(firstCached, k.index(problem.getMemory() + 1));
      group = k.sub(k.div(at[2], blockLength), first);
      sum = k.loadScalar(valueSums, getTokenPlace(k, at));
    }
    Value older = k.select(
        k.less(group, numGroups), k.getStateType(),
        [&] {
          Value code = k.loadIndex(window.codes, at.take_front(3));
          return k.loadScalar(codeSums, {at[0], at[1], group, code, at[3]});
        },
        [&] { return k.scalar(0.0); });
    return k.fadd(sum, older);
  };
  loops.storeTokens(op.getDValue(), /*part=*/2, sumOf);
}

/// Any of the first three axes may have an extent of 1 and stand for all.
void VQBackwardLoops::emitBias() {
  Value dBias = op.getDBias();
  int64_t numColumns = (problem.getMemory() + 1) * problem.getBlock();
  bool sumsBatches = getMemRefType(dBias).getDimSize(0) == 1;
  bool sumsHeads = getMemRefType(dBias).getDimSize(1) == 1;
  bool sumsQueries = getMemRefType(dBias).getDimSize(2) == 1;
  // Without queries there may be blocks, of tokens that were kept.
  Value numTiles = b.select(b.less(b.index(0), problem.window.length),
                            b.mul(numBlocks, tilesOfBlock), b.index(0));
  GPUKernelBuilder k = makeBuilder();
  Value one = k.index(1), zero = k.index(0);
  Values at = beginBlocks(k,
                          {b.extent(dBias, 0), b.extent(dBias, 1),
                           sumsQueries ? b.index(1) : numTiles,
                           b.index(getNumParts(numColumns))},
                          VQTile::getSharedBytes());
  VQTile tile(k, problem);
  Value firstColumn = k.mul(at[3], kTile);
  Place place;
  auto sumOver = [&](Value number, Value all, bool isSummed, ValueRange running,
                     function_ref<Values(Value, ValueRange)> body) {
    return k.loop(isSummed ? zero : number, isSummed ? all : k.add(number, one),
                  1, running, body);
  };
  auto setTile = [&](Value number) {
    setQueries(k, place, k.div(number, tilesOfBlock),
               k.rem(number, tilesOfBlock));
  };
  auto addTile = [&](Value number, ValueRange running) -> Values {
    setTile(number);
    // The first blocks have fewer before them.
    Value begin =
        k.mul(k.sub(place.block, k.index(problem.getMemory())), blockLength);
    place.firstRow = k.add(begin, firstColumn);
    tile.compute(place, /*rowsAreQueries=*/true, /*hasGradients=*/true);
    Values next;
    for (auto [sum, gradient] :
         llvm::zip_equal(running, tile.loadKept(Kept::Gradients)))
      next.push_back(k.fadd(sum, gradient));
    return next;
  };
  auto addHead = [&](Value head, ValueRange running) {
    place.head = head;
    place.keyHead = k.div(head, headsOfKey);
    return sumOver(at[2], numTiles, sumsQueries, running, addTile);
  };
  auto addBatch = [&](Value batch, ValueRange running) {
    place.batch = batch;
    return sumOver(at[1], heads, sumsHeads, running, addHead);
  };
  Values total =
      sumOver(at[0], batches, sumsBatches, tile.makeSums(), addBatch);
  Value end = k.index(numColumns);
  if (!sumsQueries) {
    setTile(at[2]);
    tile.forEach(total, [&](Value row, Value column, Value sum) {
      Value to[] = {at[0], at[1], k.add(place.firstQuery, row),
                    k.add(firstColumn, column)};
      k.ifThen(k.both(k.less(to[2], place.endQuery), k.less(to[3], end)),
               [&] { k.storeScalar(sum, dBias, to); });
    });
    return;
  }
  tile.keep(Kept::Gradients, total);
  k.loop(k.toIndex(k.thread()), k.index(kTile), VQTile::kNumThreads,
         [&](Value column) {
           Value sum =
               k.loop(zero, k.index(kTile), 1, {k.scalar(0.0)},
                      [&](Value row, ValueRange sum) -> Values {
                        return {k.fadd(sum[0], tile.loadKept(Kept::Gradients,
                                                             row, column))};
                      })[0];
           Value to[] = {at[0], at[1], zero, k.add(firstColumn, column)};
           k.ifThen(k.less(to[3], end), [&] { k.storeScalar(sum, dBias, to); });
         });
}

/// Each part of the queries of a head sums what they give 64 distances.
void VQBackwardLoops::emitDistances() {
  distanceSums.allocate(b.index(kDistanceParts));
  Value terms =
      op.getRelativeKeys() ? op.getRelativeKeys() : op.getDistanceBias();
  int64_t numTerms = getMemRefType(terms).getDimSize(1);
  VQTile::Columns columns;
  if (op.getRelativeKeys())
    columns = VQTile::divideColumns(width);
  GPUKernelBuilder k = makeBuilder();
  Values at =
      beginBlocks(k,
                  {batches, heads, b.index(kDistanceParts),
                   b.index(getNumParts(numTerms)), b.index(columns.numBlocks)},
                  VQTile::getSharedBytes());
  VQTile tile(k, problem);
  Place place = {at[0], at[1], k.div(at[1], headsOfKey)};
  Value zero = k.index(0), firstDistance = k.mul(at[3], kTile);
  Value firstColumn = k.mul(at[4], columns.getStep());
  // No query reads tokens that are further away than its memory.
  Value numTiles = k.mul(numBlocks, tilesOfBlock);
  Value isRead = k.less(firstDistance,
                        k.mul(blockLength, k.index(problem.getMemory() + 1)));
  isRead = k.both(isRead, k.less(zero, problem.window.length));
  numTiles = k.select(isRead, numTiles, zero);
  Value perPart = k.ceilDiv(numTiles, kDistanceParts);
  Value begin = k.mul(at[2], perPart);
  Value row = k.rem(k.toIndex(k.thread()), k.index(kTile));
  Values sums = makeSums(tile, columns.numParts);
  size_t size = tile.makeSums().size();
  // The sum of a distance, which a thread has for it, is behind the others.
  sums.push_back(k.scalar(0.0));
  sums = k.loop(
      begin, k.min(k.add(begin, perPart), numTiles), 1, sums,
      [&](Value number, ValueRange running) {
        setQueries(k, place, k.div(number, tilesOfBlock),
                   k.rem(number, tilesOfBlock));
        tile.keepByDistance(place, firstDistance,
                            /*rowsAreDistances=*/true, 1.0);
        Values next;
        for (int64_t part = 0; part < columns.numParts; ++part)
          next.append(
              tile.addRelativeQueries(place, running.slice(part * size, size),
                                      k.add(firstColumn, part * kTile)));
        next.append(k.loop(zero, k.index(kTile), 1, running.take_back(1),
                           [&](Value query, ValueRange sum) -> Values {
                             Value entry =
                                 tile.loadKept(Kept::Gradients, row, query);
                             return {k.fadd(sum[0], entry)};
                           }));
        return next;
      });
  Value end = k.index(numTerms);
  if (op.getRelativeKeys())
    store(k, tile, ValueRange(sums).drop_back(), distanceSums.keys,
          {at[0], at[1], at[2]}, firstDistance, end, firstColumn);
  Value distance = k.add(firstDistance, row);
  Value isOwn = k.both(k.less(k.toIndex(k.thread()), k.index(kTile)),
                       k.both(k.less(distance, end), k.equal(at[4], zero)));
  k.ifThen(isOwn, [&] {
    k.storeScalar(sums.back(), distanceSums.distances,
                  {at[0], at[1], at[2], distance});
  });
  distanceSums.store(op.getScale().convertToDouble());
}

void VQBackwardLoops::emit() {
  bool isCausal = op.getCausal();
  Type number = b.getF32Type();
  const VQWindow &window = problem.window;
  // A stream's products take narrow rows.
  Type meanType =
      usesStream ? getMemRefType(op.getCodebook()).getElementType() : number;
  loops.gatherTokens(Reduction::Associative, meanType);
  Value keySums;
  if (isCausal) {
    valueSums = allocateTokens(valueWidth, number);
    bool isDirect = !loops.hasState() && !loops.hasNext();
    keySums = isDirect ? Value(op.getDKey()) : allocateTokens(width, number);
  }
  numGroups = isCausal ? b.max(b.sub(numBlocks, firstCached), 0)
                       : b.ceilDiv(window.length, kGroupQueries);
  // The last group has what the means of the next state get.
  if (loops.hasNext())
    numGroups = b.max(b.sub(b.div(window.numTokens, problem.getBlock()),
                            b.sub(firstCached, b.index(1))),
                      1);
  if (usesStream)
    numGroups = isCausal ? b.max(numGroups, 1) : b.index(1);
  codeSums = loops.allocate(
      {batches, keyHeads, isFramed() ? getMostGroups() : numGroups},
      {numCodes, valueWidth}, number);
  if (usesStream)
    emitStream(keySums);
  else
    emitKernels(keySums);
  if (!isCausal)
    loops.fillRows(op.getDKey(),
                   [](KernelBuilder &k, ValueRange) { return k.scalar(0.0); });
  else if (keySums != op.getDKey())
    loops.storeTokens(op.getDKey(), /*part=*/1,
                      [&](KernelBuilder &k, ValueRange at) {
                        return k.loadScalar(keySums, getTokenPlace(k, at));
                      });
  loops.addLaterSums(codeSums, arith::ConstantIntOp::create(b, 1, /*width=*/1));
  storeValues();
  // Those of constants, such as ALiBi's, nobody reads.
  auto isRead = [&](Value gradient) {
    return gradient && !isUnread(op, gradient);
  };
  bool readsBias = isRead(op.getDBias()),
       readsDistances = isRead(op.getDDistanceBias()) ||
                        isRead(op.getDRelativeKeys()) ||
                        isRead(op.getDRelativeBias());
  if (usesStream && (readsBias || readsDistances))
    emitDeltas();
  if (readsBias)
    emitBias();
  if (readsDistances)
    emitDistances();
  loops.freeBuffers();
}

/// What a query's gradients of scores have in common.
void VQBackwardLoops::emitDeltas() {
  const VQWindow &window = problem.window;
  problem.deltas =
      loops.allocate({batches, heads, window.length}, {}, b.getF32Type());
  emitRowDots(b, window.dOutputs, op.getOutput(), /*factor=*/1.0,
              problem.deltas, op.getDLse());
}

/// Those for queries, tokens and codes.
void VQBackwardLoops::emitKernels(Value keySums) {
  if (problem.isSoftmax())
    emitDeltas();
  emitQueries();
  if (keySums &&
      getNumParts(width) + getNumParts(valueWidth) <= VQTile::kMostParts) {
    emitTokens(keySums, valueSums);
  } else if (keySums) {
    emitTokens(keySums, Value());
    emitTokens(Value(), valueSums);
  }
  emitCodes();
}

static LogicalResult lowerVQBackward(VQBackwardOp op, OpBuilder &builder,
                                     GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)) ||
      failed(verifyGPUWidths(op, {op.getQuery()}, kMaxQueryWidth)))
    return failure();
  VQBackwardLoops(builder, op, lowering).emit();
  return success();
}

void fovea::attn::attachVQBackwardToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerVQBackward>(context);
}
