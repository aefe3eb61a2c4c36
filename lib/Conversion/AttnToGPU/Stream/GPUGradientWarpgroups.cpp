//===- GPUGradientWarpgroups.cpp - Gradients of attn.stream on sm_90a -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUGradientKernel.h"
#include "fovea/Kernels/GPU/GPUTileProduct.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// What lies in registers while sums for values are started early fits beside
/// sums of so many columns, and of so many without.
static constexpr int64_t kMostEarlyColumns = 128,
                         kMostSummedColumns = kMostColumnsAlone;
/// A block with one consumer leaves registers for who finds its tiles.
static constexpr WarpgroupRegisters kRegistersOfOne = {56, 240};
/// With threads that copy rows one by one.
static constexpr WarpgroupRegisters kRegistersTogether = {56, 224};

GradientWarpgroups::GradientWarpgroups(RowBuilder &host, StreamBackwardOp op,
                                       const StreamSource &source,
                                       const GradientInputs &inputs,
                                       bool ofRows, bool sumsGradients,
                                       const ListsOfRows *listsOfRows,
                                       const GatheredRows *gathered,
                                       const GatheredRows *joined)
    : GradientBlock(host, op, gathered ? gathered->getSource() : source, ofRows,
                    sumsGradients ? 2 : 1, listsOfRows, gathered, joined),
      type(getProductType(op)), statistics(inputs.statistics),
      sumsGradients(sumsGradients) {
  ownSquares = ofRows ? inputs.squaresOfRows : inputs.squaresOfQueries;
  passingSquares = ofRows ? inputs.squaresOfQueries : inputs.squaresOfRows;
  if (inputs.score)
    score.emplace(*inputs.score, op.getCaptures());
  own = getOperands(this->source, /*areRows=*/ofRows, ownRows);
  isEarly = ofRows && own.columns[0] + own.columns[1] <= kMostEarlyColumns;
  passing = getOperands(this->source, /*areRows=*/!ofRows, kTile);
  for (int64_t i = 0; i < getNumOwn(); ++i)
    own.places[i] = place(getBoxedBytes(ownRows, own.columns[i]));
  int64_t ownBytes = own.getBytes(ownRows, getNumOwn());
  numStages =
      ownBytes + 4 * passing.getBytes(kTile) <= kMostOperandBytes ? 4 : 2;
  for (int64_t i : {0, 1})
    passing.places[i] =
        place(numStages * getBoxedBytes(kTile, passing.columns[i]));
  statisticsPlace = ofRows ? place(numStages * kTile * kStatistics * 4) : 0;
  placeReaders(numStages);
  barrierPlace = place((1 + 2 * numStages) * 8);
  placeTiles(numStages);
  placeListedRows(numStages);
  placeOwnNumbers();
  if (joined)
    joinedPassing = getOperands(joined->getSource(), /*areRows=*/true, kTile);
}

/// With maps for boxes of `rows` rows.
GradientWarpgroups::Operands
GradientWarpgroups::getOperands(const StreamSource &source, bool areRows,
                                int64_t rows) {
  Operands operands;
  operands.areRows = areRows;
  operands.memrefs[0] = areRows ? source.keys : op.getQuery();
  operands.memrefs[1] = areRows ? source.values : op.getDOutput();
  for (int64_t i : {0, 1}) {
    Value memref = operands.memrefs[i];
    operands.columns[i] = getWidth(memref);
    if (areRows && isScattered)
      continue;
    if (areRows || tileHeads == 1) {
      operands.maps[i] = createBoxMap(host, op.getLoc(), memref, rows);
      continue;
    }
    // Heads of one query after the other.
    unsigned order[] = {0, 2, 1, 3};
    memref = memref::TransposeOp::create(
        host, op.getLoc(), memref,
        AffineMapAttr::get(
            AffineMap::getPermutationMap(order, host.getContext())));
    int64_t heads = std::min(tileHeads, rows);
    operands.maps[i] =
        createBoxMap(host, op.getLoc(), memref, heads, rows / heads);
  }
  return operands;
}

/// Rows that are joined pass in the same places.
void GradientWarpgroups::withJoined(function_ref<void()> body) {
  Operands rows = passing;
  llvm::copy(joinedPassing.maps, rows.maps);
  llvm::SaveAndRestore ownPassing(passing, rows);
  llvm::SaveAndRestore ownSource(source, joined->getSource());
  llvm::SaveAndRestore ownGathered(gathered, joined);
  body();
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

bool GradientWarpgroups::takesTurns() {
  return numConsumers == 2 && sumsGradients &&
         own.columns[0] + own.columns[1] > kMostEarlyColumns;
}

Values GradientWarpgroups::startProducts(int64_t i, Value stage) {
  Value left = w.advance(own.addresses[i],
                         k.mul(getGroup(), kWarpgroupRows * kBoxBytes));
  // Eight descriptors or more, otherwise kept in registers by the loop.
  left = k.recompute(w.getDescriptor(left, kChunkBytes));
  Value right = w.getDescriptor(getAddress(i, stage), kChunkBytes);
  return w.startScores(type, left, ownRows, right, kTile, own.columns[i]);
}

/// Marks the weights of a tile that is cut, or their slopes: those of entries
/// that are not read become hidden weights. Of `packed` weights they become 0.
Values GradientWarpgroups::markHidden(const Tile &tile, ValueRange weights,
                                      ValueRange packed) {
  Values numbers(weights);
  llvm::append_range(numbers, packed);
  return changeIf(k, tile.isCut, numbers, [&] {
    Values next;
    rarely([&] {
      Tile own = loadPlace(tile, getStage(tile));
      Values areRead;
      for (auto [i, weight] : llvm::enumerate(weights)) {
        Value offset = k.add(getPairColumn(), int64_t(i / 4 * 8 + i % 2));
        areRead.push_back(reads(own, i % 4 / 2, offset));
        next.push_back(k.select(areRead[i], weight, getHiddenWeight(k)));
      }
      for (auto [i, pair] : llvm::enumerate(packed)) {
        Value low = k.select(areRead[2 * i], k.i32(0xFFFF), k.i32(0)),
              high = k.select(areRead[2 * i + 1], k.i32(-0x10000), k.i32(0));
        Value bits = k.createOrFold<arith::OrIOp>(low, high);
        next.push_back(k.createOrFold<arith::AndIOp>(pair, bits));
      }
    });
    return next;
  });
}

/// Gradients are 0 where weights are hidden.
Values GradientWarpgroups::hide(const Tile &tile, ValueRange weights,
                                ValueRange gradients) {
  return changeIf(k, tile.isCut, gradients, [&] {
    Values next;
    for (auto [weight, gradient] : llvm::zip(weights, gradients))
      next.push_back(k.select(isWeight(k, weight), gradient, k.scalar(0.0)));
    return next;
  });
}

/// Takes what is not finite out of the tiles that are multiplied by weights,
/// some of which are 0 because their entries are not read. Waits for `products`
/// in flight, which read what is taken out.
void GradientWarpgroups::clearHidden(const Tile &tile, Values &sums,
                                     Values *products) {
  int64_t firstPart = sumsGradients ? 0 : 1, numParts = sumsValues ? 2 : 1;
  Values carried(sums);
  if (products)
    carried.append(*products);
  carried = changeIf(k, tile.isCut, carried, [&] {
    Values done, changed;
    if (products)
      done = w.waitProducts(0, *products);
    rarely([&] {
      Tile own = loadPlace(tile, getStage(tile));
      SmallVector<SharedRows> boxes[2];
      Value isFound = k.i1(false);
      for (int64_t i = firstPart; i < numParts; ++i) {
        boxes[i] = getPassingBoxes(i, getStage(tile));
        for (const SharedRows &rows : boxes[i])
          isFound = k.either(isFound, findUnbounded(k, rows));
      }
      changed = changeIf(k, k.anyThread(isFound), sums, [&] {
        Values next;
        for (int64_t i = firstPart, first = 0; i < numParts; ++i) {
          int64_t count = passing.columns[i] / 2;
          Values part(ValueRange(sums).slice(first, count));
          takeUnbounded(k, boxes[i], getPairColumn(), part,
                        [&](int64_t half, Value row) {
                          return readsEntry(own, half, row);
                        });
          next.append(part);
          first += count;
        }
        k.barrier();
        for (int64_t i = firstPart; i < numParts; ++i)
          for (const SharedRows &rows : boxes[i])
            clearUnbounded(k, rows);
        w.publishWrites();
        k.barrier();
        return next;
      });
    });
    changed.append(done);
    return changed;
  });
  sums = Values(ValueRange(carried).take_front(sums.size()));
  if (products)
    *products = Values(ValueRange(carried).drop_front(sums.size()));
}

/// Minus lse, or delta, for each entry of the thread: of columns in pairs, or
/// of its rows.
Values GradientWarpgroups::loadStatistics(Value stage, int64_t which) {
  Values numbers;
  for (int64_t i = 0; i < kTile / 2; i += 4) {
    if (!ofRows) {
      for (int64_t j = 0; j < 4; ++j)
        numbers.push_back(ownStatistics[j / 2 * kStatistics + which]);
      continue;
    }
    Value first = k.add(k.mul(stage, kStatistics * kTile),
                        k.add(getPairColumn(), which * kTile + i / 4 * 8));
    auto load = vector::LoadOp::create(k, VectorType::get({2}, k.getF32Type()),
                                       passingStatistics, k.toIndex(first));
    load.setAlignment(8);
    for (int64_t j = 0; j < 4; ++j)
      numbers.push_back(vector::ExtractOp::create(k, load, j % 2));
  }
  return numbers;
}

/// Makes weights of the products of a tile, and what gradients of the products
/// are multiples of.
GradientWarpgroups::Weighed GradientWarpgroups::weigh(const Tile &tile,
                                                      ValueRange products,
                                                      ValueRange logWeights,
                                                      ValueRange biases) {
  Value stage = getStage(tile);
  Values shifts = loadStatistics(stage, 0), weights, slopes;
  double scale = score ? 1.0 : op.getScale().convertToDouble();
  Value factor = k.scalar(scale * softmax::kLog2E);
  auto weighEntry = [&](size_t i, const Score &entry) {
    auto unlessRemoved = [&](Value number) {
      return entry.isRemoved
                 ? k.select(entry.isRemoved, getHiddenWeight(k), number)
                 : number;
    };
    Value shift = shifts[i];
    if (source.logWeight)
      shift = k.fadd(shift, logWeights[ofRows ? i % 4 / 2 : i / 4 * 2 + i % 2]);
    if (source.bias)
      shift =
          k.fma(getBiasEntry(k, biases, i), k.scalar(softmax::kLog2E), shift);
    Value weight = k.exp2(k.fma(entry.score, factor, shift));
    if (!entry.derivative || !sumsGradients) {
      weights.push_back(unlessRemoved(weight));
      return;
    }
    // Weights that are removed are 0. Zero is added to slopes, so that none is
    // like a hidden weight.
    weights.push_back(weight);
    slopes.push_back(
        unlessRemoved(k.fma(weight, entry.derivative, k.scalar(0.0))));
  };
  if (score)
    computeScores(loadPlace(tile, stage), products, weighEntry);
  else
    for (auto [i, product] : llvm::enumerate(products))
      weighEntry(i, {product});
  if (slopes.empty()) {
    slopes = weights = markHidden(tile, weights);
    return {weights, {}, slopes};
  }
  // One register has two weights beside their slopes.
  Values packed;
  if (sumsValues)
    packed = w.packWeights(type, weights);
  Values marked = markHidden(tile, slopes, packed);
  size_t count = slopes.size();
  return {weights, Values(ValueRange(marked).drop_front(count)),
          Values(ValueRange(marked).take_front(count))};
}

Values GradientWarpgroups::addTile(Tile tile, ValueRange sums) {
  Value stage = getStage(tile);
  // Of the thread's rows, or of columns in pairs.
  Values logWeights;
  if (source.logWeight && ofRows) {
    logWeights = loadOwn(LogWeight);
    tile.isCut = k.either(tile.isCut, hasHidden);
  } else if (source.logWeight) {
    Value isCut = tile.isCut, firstRow = loadPlace(tile, stage).firstRow;
    for (int64_t column = 0; column < kTile / 4; ++column) {
      Value offset = k.add(getPairColumn(), column / 2 * 8 + column % 2);
      Value row =
          isScattered
              ? k.max(loadListed(k.mul(stage, kTile), offset, StoredRow), 0)
              : k.add(firstRow, offset);
      logWeights.push_back(loadLogWeight(row));
      if (isScattered)
        isCut = k.either(isCut, isMinusInfinity(logWeights.back()));
    }
    // Nobody has looked at rows that are copied one by one.
    if (isScattered)
      tile.isCut = k.anyThread(isCut);
  }
  Values biases;
  if (source.bias)
    biases = loadBias(loadPlace(tile, stage));
  // Wide sums of rows leave registers for either products with gradients or a
  // bias of each query, or what a region computes.
  bool isPerQuery =
      source.bias && getMemRefType(source.bias).getDimSize(2) != 1;
  bool startsLate =
           (isPerQuery || score) && sumsValues && !isEarly && sumsGradients,
       startsBoth = sumsGradients && !startsLate;
  // Numbers of barriers take no registers of the loop.
  Value turn = takesTurns() ? k.recompute(getGroup()) : Value();
  if (turn)
    w.awaitTurn(turn);
  w.beginProducts();
  Values scores = startProducts(0, stage), products;
  if (startsBoth)
    products = startProducts(1, stage);
  if (turn)
    w.giveTurn(k.rem(k.add(turn, 1), numConsumers));
  scores = w.waitProducts(startsBoth ? 1 : 0, scores);
  Values deltas;
  if (isEarly && sumsGradients)
    deltas = loadStatistics(stage, 1);
  auto [weights, packed, slopes] = weigh(tile, scores, logWeights, biases);
  if (startsLate) {
    w.beginProducts();
    products = startProducts(1, stage);
  }

  size_t count = sumsGradients ? passing.columns[0] / 2 : 0;
  Values next(sums), values, sum;
  auto addValues = [&, &packed = packed] {
    values = w.multiplyWeights(type, ValueRange(next).drop_front(count), packed,
                               getAddress(1, stage), kTile);
  };
  if (isEarly || !sumsGradients) {
    clearHidden(tile, next, sumsGradients ? &products : nullptr);
    if (packed.empty())
      packed = w.packWeights(type, weights);
    w.beginProducts();
    addValues();
    w.commitProducts();
  }
  if (sumsGradients) {
    products = w.waitProducts(isEarly ? 1 : 0, products);
    if (!isEarly)
      deltas = loadStatistics(stage, 1);
    for (auto [i, product] : llvm::enumerate(products))
      product = k.fsub(product, deltas[i]);
    auto multiply = [&, &slopes = slopes](ValueRange factors) {
      Values gradients;
      for (auto [factor, product] : llvm::zip_equal(factors, products))
        gradients.push_back(k.fmul(factor, product));
      return hide(tile, slopes, gradients);
    };
    Values gradients = multiply(slopes);
    if (sumsScores)
      addScores(weights == slopes ? gradients : multiply(weights));
    Values packedGradients = w.packWeights(type, gradients);
    if (!isEarly) {
      if (sumsValues && packed.empty())
        packed = w.packWeights(type, weights);
      clearHidden(tile, next, /*products=*/nullptr);
    }
    w.beginProducts();
    sum = w.multiplyWeights(type, ValueRange(next).take_front(count),
                            packedGradients, getAddress(0, stage), kTile);
    if (sumsValues && !isEarly)
      addValues();
    w.commitProducts();
  }
  sum.append(values);
  sum = w.waitProducts(0, sum);
  k.ifThen(k.equal(k.lane(), k.i32(0)),
           [&] { w.arrive(getBarrier(free, stage)); });
  return sum;
}

Values GradientWarpgroups::consume() {
  if (!hasListRows())
    w.wait(loaded, k.i32(0));
  if (!ofRows)
    for (int64_t half : {0, 1}) {
      Value last = k.sub(k.mul(k.extent(statistics, 2), kTile), k.index(1));
      Value query = k.min(k.toIndex(getOwnRow(half)), last);
      for (int64_t i = 0; i < kStatistics; ++i)
        ownStatistics.push_back(
            k.loadScalar(statistics, {batch, head, k.div(query, kTile),
                                      k.index(i), k.rem(query, kTile)}));
    }
  if (ofRows && source.logWeight) {
    Values weights;
    for (int64_t half : {0, 1}) {
      Value row = getOwnRow(half);
      if (hasListRows())
        row = k.max(loadOwnListed(row, StoredRow), 0);
      weights.push_back(loadLogWeight(row));
    }
    hasHidden = k.anyThread(
        k.either(isMinusInfinity(weights[0]), isMinusInfinity(weights[1])));
    storeOwn(LogWeight, weights);
    storeOwn(ScoreSum, {k.scalar(0.0), k.scalar(0.0)});
  }
  int64_t width = (sumsGradients ? passing.columns[0] : 0) +
                  (sumsValues ? passing.columns[1] : 0);
  enterScores();
  Values sums(width / 2, k.scalar(0.0));
  sums.insert(sums.begin(), k.i32(0));
  if (takesTurns())
    k.ifThen(k.equal(getGroup(), k.i32(numConsumers - 1)),
             [&] { w.giveTurn(k.i32(0)); });
  Value count = needsEnd() ? Value() : countTiles();
  sums = addTiles(count, sums);
  if (joined)
    withJoined(
        [&] { sums = addTiles(k.add(count, countJoinedTiles()), sums); });
  return Values(ValueRange(sums).drop_front());
}

/// The number of the next tile, and sums with all tiles up to number `count`,
/// or to the end if it is null.
Values GradientWarpgroups::addTiles(Value count, ValueRange sums) {
  auto awaitTile = [&](Value number) {
    Tile tile;
    tile.number = number;
    w.wait(getBarrier(full, getStage(tile)), getParity(tile));
    return getStage(tile);
  };
  return k.loopWhile(
      sums,
      [&](ValueRange carried) {
        return count ? k.less(carried.front(), count)
                     : isTile(awaitTile(carried.front()));
      },
      [&](ValueRange carried) {
        Tile tile;
        Value number = tile.number = carried.front();
        if (count)
          awaitTile(number);
        // What threads copied, products read.
        if (passesRows())
          w.publishWrites();
        tile.isCut = isCut(getStage(tile));
        Values next = {k.add(number, 1)};
        next.append(addTile(tile, carried.drop_front()));
        return next;
      });
}

void GradientWarpgroups::emit(Value first, Value second, Value third,
                              Value earlier) {
  sumsScores = third != nullptr;
  sumsValues = second != nullptr;
  begin();
  for (int64_t i = 0; i < getNumOwn(); ++i)
    own.addresses[i] = w.getShared(own.places[i]);
  for (int64_t i : {0, 1})
    passing.addresses[i] = w.getShared(passing.places[i]);
  if (ofRows)
    passingStatistics = k.sharedBuffer(
        statisticsPlace, {numStages * kTile * kStatistics}, k.getF32Type());
  loaded = w.getShared(barrierPlace);
  full = w.advance(loaded, 8);
  free = w.advance(full, 8 * numStages);
  k.ifThen(k.equal(k.thread(), k.i32(0)), [&] {
    if (!hasListRows())
      w.initBarrier(loaded, 1);
    for (int64_t stage = 0; stage < numStages; ++stage) {
      // One arrival of who starts copies, or of every warp that writes the
      // tile, and of every thread that copies its rows.
      w.initBarrier(w.advance(full, 8 * stage),
                    passesRows() ? kWarpgroupSize + 4 : 1);
      // One arrival of every warp that reads the tile.
      w.initBarrier(w.advance(free, 8 * stage), numConsumers * 4);
    }
    w.publishBarriers();
  });
  if (hasListRows())
    copyOwnListed();
  k.barrier();
  int64_t firstProducer = numConsumers * kWarpgroupSize;
  WarpgroupRegisters registers = numConsumers == 1   ? kRegistersOfOne
                                 : passesRows()      ? kRegistersTogether
                                 : numConsumers == 3 ? kRegistersOfThree
                                                     : kRegistersAlone;
  k.ifThenElse(
      k.less(k.thread(), k.i32(firstProducer)),
      [&] {
        w.setRegisters(registers.consumer, /*raises=*/true);
        k.inGroup(0, firstProducer, [&] {
          Values sums = consume();
          size_t count = sumsGradients ? passing.columns[0] / 2 : 0;
          double scale = op.getScale().convertToDouble();
          withKeptNumbers([&] {
            if (first)
              store(ValueRange(sums).take_front(count), first, scale, earlier);
            if (second)
              store(ValueRange(sums).drop_front(count), second, 1.0,
                    /*earlier=*/Value());
            if (third)
              storeScores(third);
          });
        });
      },
      [&] {
        w.setRegisters(registers.producer, /*raises=*/false);
        k.inGroup(firstProducer, kWarpgroupSize, [&] {
          if (passesRows())
            produceRows();
          else
            k.ifThen(k.equal(k.thread(), k.i32(0)), [&] { produce(); });
        });
      });
}

/// The kernel for lists of each pass, and those that add up their parts.
void GradientWarpgroups::emitPasses(ValueRange sums) {
  Values parts;
  for (Value sum : sums)
    parts.push_back(sum ? passes->allocateParts(sum) : Value());
  int64_t ofOperands = sharedBytes;
  passes->forEach([&] {
    sharedBytes = ofOperands;
    emit(parts[0], parts[1], parts[2], /*earlier=*/Value());
    for (auto [part, sum] : llvm::zip(parts, sums))
      if (sum)
        passes->addUp(part, sum);
  });
  for (Value part : parts)
    if (part)
      memref::DeallocOp::create(host, part);
}

void GradientWarpgroups::emitRows(Value first, Value second, Value third) {
  Values results = {first, second, third}, sums;
  for (Value result : results)
    sums.push_back(result ? allocateSums(result) : Value());
  if (passes)
    emitPasses(sums);
  else
    emit(sums[0], sums[1], sums[2], /*earlier=*/Value());
  for (auto [sum, result] : llvm::zip(sums, results))
    if (result)
      addUpSums(sum, result);
}

void fovea::attn::emitQueryGradients(RowBuilder &host, StreamBackwardOp op,
                                     const StreamSource &source,
                                     const GradientInputs &inputs,
                                     Value earlier, Value result,
                                     const GatheredRows *gathered,
                                     const GatheredRows *joined) {
  GradientWarpgroups(host, op, source, inputs, /*ofRows=*/false,
                     /*sumsGradients=*/true, /*listsOfRows=*/nullptr, gathered,
                     joined)
      .emit(result, /*second=*/Value(), /*third=*/Value(), earlier);
}

void fovea::attn::emitRowGradients(RowBuilder &host, StreamBackwardOp op,
                                   const StreamSource &source,
                                   const GradientInputs &inputs,
                                   const ListsOfRows *listsOfRows,
                                   const GatheredRows *gathered, Value keySums,
                                   Value valueSums, Value weightSums) {
  auto emit = [&](Value keys, Value values, Value weights) {
    GradientWarpgroups(host, op, source, inputs, /*ofRows=*/true,
                       /*sumsGradients=*/keys != nullptr, listsOfRows, gathered,
                       /*joined=*/nullptr)
        .emitRows(keys, values, weights);
  };
  bool hasSlopes =
      inputs.score && !matchPattern(inputs.score->score, m_OneFloat());
  int64_t columns = getWidth(source.keys) + getWidth(source.values);
  if (!keySums ||
      columns <= (hasSlopes ? kMostEarlyColumns : kMostSummedColumns))
    return emit(keySums, valueSums, weightSums);
  // Beside wide sums of both there is no register for weights and slopes, and
  // beside wider ones for products.
  emit(keySums, Value(), weightSums);
  emit(Value(), valueSums, Value());
}
