//===- GPUStreamMasks.cpp - What queries of attn.stream do not read -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A query does not read rows that a mask cuts, rows behind the tile, and rows
// that a score, a log weight or a bias of minus infinity removes. Their scores
// are set, whatever they were, and their weights are 0. Values that are NaN or
// infinite are taken out of a tile that some query does not read all of.
//
//===----------------------------------------------------------------------===//

#include "GPUBiasPairs.h"
#include "GPUStreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// Terms
//===----------------------------------------------------------------------===//

/// Whether a number that the exponential multiplies by `scale` removes what it
/// is added to.
static Value isMasked(KernelBuilder &b, Value term, double scale = 1.0) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, term,
                               b.scalar(softmax::kMasked / scale));
}

Value GPUStreamKernel::removes(Value term) {
  return isMasked(b, term, exponentScale);
}

/// Called by all lanes of a warp with the logarithms of the weights of the 32
/// rows from a multiple of 32 on.
void GPUStreamKernel::noteHidden(Value stage, Value number, Value weight) {
  storeBits(sharedHidden, stage, number, isMasked(b, weight));
}

void GPUStreamKernel::storeBits(Value bits, Value stage, Value number,
                                Value condition) {
  Value votes = b.ballot(condition);
  Value at = b.add(b.mul(stage, getHiddenWords()), b.div(number, kWarpSize));
  b.ifThen(b.equal(b.lane(), b.i32(0)),
           [&] { memref::StoreOp::create(b, votes, bits, b.toIndex(at)); });
}

Value GPUStreamKernel::loadBits(Value bits, Value stage, Value word) {
  Value at = b.add(b.mul(stage, getHiddenWords()), word);
  return memref::LoadOp::create(b, bits, b.toIndex(at));
}

/// Where the query of a row of the block stands.
Value GPUStreamKernel::getQueryPosition(Value row) {
  if (rowsAreHeads)
    return b.add(b.toI32(getFirstPosition()), getStep(row));
  return b.add(b.toI32(firstRow), b.add(blockQuery, row));
}

/// Terms by distance of the head of a row of the block.
Value GPUStreamKernel::getTerms(Value terms, Value row) {
  if (!rowsAreHeads)
    return terms;
  return b.rowView(terms, b.broadcastIndex(terms, 0, getRowHead(row)));
}

/// The distance of a row of a tile from the query of a row of the block, or the
/// next one that has terms where that is masked.
Value GPUStreamKernel::getDistance(const Tile &tile, const SourceView &source,
                                   Value row, Value offset) {
  Value position = b.sub(getQueryPosition(row), source.origin);
  Value terms = source.relativeKeys ? source.relativeKeys : source.distanceBias;
  int64_t numTerms = getMemRefType(terms).getDimSize(rowsAreHeads ? 1 : 0);
  return b.clamp(b.sub(position, b.add(tile.row, offset)), b.i32(0),
                 b.i32(numTerms - 1));
}

/// What relative keys add to the thread's scores of 8 rows, before the scale.
Values GPUStreamKernel::multiplyRelative(const Tile &tile,
                                         const SourceView &source,
                                         int64_t number) {
  Value lastQuery = b.sub(blockQueries, b.i32(1));
  Values rows, keys, biases, distances;
  for (int64_t half : {0, 1}) {
    rows.push_back(b.min(getOwnRow(half), lastQuery));
    keys.push_back(getTerms(source.relativeKeys, rows[half]));
    biases.push_back(getTerms(source.relativeBias, rows[half]));
  }
  for (int64_t i = 0; i < 4; ++i)
    distances.push_back(b.toIndex(getDistance(
        tile, source, rows[i / 2], b.add(pairColumn, number * 8 + i % 2))));
  return b.loop(b.index(0), b.index(width), 1, Values(4, b.scalar(0.0)),
                [&](Value k, ValueRange sums) {
                  Values next(sums);
                  for (int64_t half : {0, 1}) {
                    Values at = b.toIndices(locateRow(rows[half]));
                    at.push_back(k);
                    Value query = b.fadd(b.loadScalar(queryRows, at),
                                         b.loadScalar(biases[half], k));
                    for (int64_t i : {2 * half, 2 * half + 1})
                      next[i] = b.fma(
                          query, b.loadScalar(keys[half], {distances[i], k}),
                          next[i]);
                  }
                  return next;
                });
}

/// The element of a bias for a row of the block and one of the tile.
Value GPUStreamKernel::loadBias(const Tile &tile, const SourceView &source,
                                Value row, Value offset) {
  row = b.min(row, b.sub(blockQueries, b.i32(1)));
  Values at = broadcastRow(b, source.bias, b.toIndices(locateRow(row)));
  // What lies beyond the tile is masked.
  offset = b.min(offset, b.sub(tile.count, b.i32(1)));
  Value key = source.attr.getHasLocalBias() ? b.add(tile.biasColumn, offset)
                                            : getRow(tile, offset);
  at.push_back(b.broadcastIndex(source.bias, at.size(), b.toIndex(key)));
  return b.loadScalar(source.bias, at);
}

/// What a bias by distance adds to the thread's scores of 8 rows. Entries of
/// two rows of queries are as far apart as those of the tiles beside: counted
/// from one distance, they are loaded once. Two heads have biases of their own,
/// and two packed queries any distance from each other.
Values GPUStreamKernel::loadDistances(const Tile &tile,
                                      const SourceView &source,
                                      int64_t number) {
  auto getFirst = [&](int64_t half) {
    return b.sub(b.sub(getQueryPosition(getOwnRow(half)), source.origin),
                 b.add(tile.row, pairColumn));
  };
  Value first = getFirst(0);
  Value firsts[] = {first, rowsAreHeads ? getFirst(1) : first};
  Value biases[] = {getTerms(source.distanceBias, getOwnRow(0)),
                    getTerms(source.distanceBias, getOwnRow(1))};
  Value last = b.i32(getWidth(biases[0]) - 1);
  int64_t apart = rowsAreHeads ? 0 : 8; // the rows of both
  Values terms;
  for (int64_t i = 0; i < 4; ++i) {
    Value distance = b.add(firsts[i / 2], apart * (i / 2) - 8 * number - i % 2);
    // Only masked entries are farther, or of threads without a query.
    distance = b.clamp(distance, b.i32(0), last);
    terms.push_back(b.loadScalar(biases[i / 2], b.toIndex(distance)));
  }
  return terms;
}

/// Loads what a source's biases add, before the scores are there.
GPUStreamKernel::Terms GPUStreamKernel::loadTerms(const Tile &tile) {
  Terms terms;
  if (!hasBias || sources.size() > 1 || tile.isTable || hasLists)
    return terms;
  const SourceView &source = sources.front();
  for (int64_t number = 0; source.distanceBias && number < keyTile / 8;
       ++number)
    terms.distances.append(loadDistances(tile, source, number));
  if (!source.bias)
    return terms;
  BiasTile bias = {source.bias, {}, {}, tile.count, pairColumn, keyTile};
  for (auto [half, row] : llvm::enumerate(bias.rows))
    row = b.toIndices(
        locateRow(b.min(getOwnRow(half), b.sub(blockQueries, b.i32(1)))));
  bias.firstColumn = source.attr.getHasLocalBias() ? tile.biasColumn : tile.row;
  terms.pairs = loadBiasPairs(b, bias);
  return terms;
}

/// What all biases add to one entry, `bias` and `distance` if they are there.
Value GPUStreamKernel::addTogether(Value bias, Value distance) {
  Value sum =
      bias && distance ? b.fadd(bias, distance) : (bias ? bias : distance);
  return sum ? multiply(sum, termScale) : sum;
}

Value GPUStreamKernel::multiply(Value number, double factor) {
  return factor == 1.0 ? number : b.fmul(number, b.scalar(factor));
}

/// Adds terms to scores, which are multiplied by `factor` first.
void GPUStreamKernel::addBias(const Tile &tile, const Terms &ahead,
                              double factor, SmallVectorImpl<Values> &scores) {
  Value maskedScore = b.scalar(masked);
  for (auto [index, source] : llvm::enumerate(sources)) {
    if (!source.hasTerms())
      continue;
    auto add = [&, &source = source] {
      for (auto [number, tileScores] : llvm::enumerate(scores)) {
        // Products of tensor cores have the scale.
        Values products, scaled;
        if (source.relativeKeys && ahead.relative)
          scaled = ahead.relative(number);
        else if (source.relativeKeys)
          products = multiplyRelative(tile, source, number);
        Values distances;
        if (!ahead.distances.empty())
          distances = Values(ValueRange(ahead.distances).slice(4 * number, 4));
        else if (source.distanceBias)
          distances = loadDistances(tile, source, number);
        for (auto [i, score] : llvm::enumerate(tileScores)) {
          if (!products.empty())
            score = b.fma(products[i], b.scalar(scoreScale),
                          multiply(score, factor));
          if (!scaled.empty())
            score = factor == 1.0 ? b.fadd(score, scaled[i])
                                  : b.fma(score, b.scalar(factor), scaled[i]);
          Value bias;
          if (!ahead.pairs.empty()) {
            bias = getBiasEntry(b, ahead.pairs, 4 * number + i);
          } else if (source.bias) {
            Value offset = b.add(pairColumn, int64_t(number * 8 + i % 2));
            bias = loadBias(tile, source, getOwnRow(i / 2), offset);
          }
          Value term =
              addTogether(bias, distances.empty() ? Value() : distances[i]);
          if (!term)
            continue;
          Value sum = factor == 1.0 || source.relativeKeys
                          ? b.fadd(score, term)
                          : b.fma(score, b.scalar(factor), term);
          score = b.select(removes(term), maskedScore, sum);
        }
      }
    };
    if (sources.size() == 1)
      add();
    else
      changeScores(b.equal(tile.source, b.i32(index)), scores, add);
  }
}

//===----------------------------------------------------------------------===//
// Score regions
//===----------------------------------------------------------------------===//

/// What a region makes of the product of a query of the block and a row of the
/// tile.
Value GPUStreamKernel::computeScore(ScoreBody &body, const Tile &tile,
                                    Value row, Value offset, Value product) {
  // Threads without a query, and rows behind the tile, repeat the last one.
  if (rowsAreHeads)
    body.enterHead(b, batch, getRowHead(row));
  row = b.min(row, b.sub(blockQueries, b.i32(1)));
  offset = b.min(offset, b.sub(tile.count, b.i32(1)));
  // As masks count: the last query stands at the last key.
  Value shift = b.sub(
      selectBySource(tile, [](const SourceView &view) { return view.tokens; }),
      numRows);
  Value query =
      b.add(b.add(getFirstPosition(), shift), b.toIndex(getStep(row)));
  Value key = b.toIndex(getPosition(tile, offset));
  if (tile.stride) {
    Value stride = b.toIndex(tile.stride);
    key = b.add(b.mul(key, stride), b.sub(stride, b.index(1)));
  }
  product = multiply(product, op.getScale().convertToDouble());
  return multiply(body.evaluate(b, product, {query}, {key}).score, termScale);
}

/// Makes scores of products. Where terms follow, says which of them remove
/// their entries: a term could raise these.
Values GPUStreamKernel::computeScores(const Tile &tile,
                                      SmallVectorImpl<Values> &scores) {
  auto compute = [&](ScoreBody &body) {
    for (auto [number, tileScores] : llvm::enumerate(scores))
      for (auto [i, score] : llvm::enumerate(tileScores)) {
        Value offset = b.add(pairColumn, int64_t(number * 8 + i % 2));
        score = computeScore(body, tile, getOwnRow(i / 2), offset, score);
      }
  };
  if (scoreBodies.size() == 1)
    compute(scoreBodies.front());
  else
    for (auto [index, body] : llvm::enumerate(scoreBodies))
      changeScores(b.equal(tile.source, b.i32(index)), scores,
                   [&, &body = body] { compute(body); });
  Values removed;
  if (llvm::none_of(scoreBodies,
                    [](const ScoreBody &body) { return body.mayRemove(); }))
    return removed;
  Value maskedScore = b.scalar(masked);
  for (Values &tileScores : scores)
    for (Value &score : tileScores) {
      if (hasWeights || hasBias)
        removed.push_back(removes(score));
      else // Finite; a NaN stays.
        score = arith::MaximumFOp::create(b, score, maskedScore);
    }
  return removed;
}

/// Whether the region removes an entry of a thread that does not have its
/// product, which is taken again.
Value GPUStreamKernel::removesEntry(const Tile &tile, Value row, Value offset) {
  Values query =
      b.toIndices(locateRow(b.min(row, b.sub(blockQueries, b.i32(1)))));
  Value key =
      b.toIndex(getRow(tile, b.min(offset, b.sub(tile.count, b.i32(1)))));
  Value zero = b.scalar(0.0), removed = b.i1(false);
  for (auto [index, source] : llvm::enumerate(sources)) {
    ScoreBody &body = getOfSource(scoreBodies, index);
    // The row is one of this source, which others may not have.
    removed =
        whereSource(tile, index, removed, [&, &source = source]() -> Value {
          Value product =
              b.loop(b.index(0), b.index(width), 1, {zero},
                     [&](Value column, ValueRange sum) -> Values {
                       Values at(query);
                       at.push_back(column);
                       return {b.fma(b.loadScalar(queryRows, at),
                                     b.loadScalar(source.keys, {key, column}),
                                     sum[0])};
                     })[0];
          return removes(computeScore(body, tile, row, offset, product));
        });
  }
  return removed;
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Runs `then` where `condition` holds on all scores; elsewhere they stay.
void GPUStreamKernel::changeScores(Value condition,
                                   SmallVectorImpl<Values> &scores,
                                   function_ref<void()> then) {
  auto getNumbers = [&] {
    Values numbers;
    for (const Values &tile : scores)
      numbers.append(tile);
    return numbers;
  };
  Values changed = changeIf(b, condition, getNumbers(), [&] {
    then();
    return getNumbers();
  });
  for (auto [i, value] : llvm::enumerate(changed))
    scores[i / 4][i % 4] = value;
}

/// The rows of a tile that one of the thread's queries may read.
GPUStreamKernel::Bounds GPUStreamKernel::getBounds(const Tile &tile,
                                                   int64_t half) {
  Value row = getStep(getOwnRow(half));
  Value upper = getFirstRow(tile, b.add(tile.upper, row));
  if (tile.prefix)
    upper = b.max(upper, tile.prefix);
  // Places say which rows there are.
  upper = b.min(upper, hasLists ? b.i32(kFar) : tile.count);
  Value lower = b.max(getFirstRow(tile, b.add(tile.lower, row)), 0);
  return {lower, b.max(b.sub(upper, lower), 0)};
}

/// One unsigned comparison does for both bounds.
static Value isWithin(KernelBuilder &b, Value offset, Value length) {
  return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ult, offset,
                                       length);
}

/// Whether a mask or a log weight removes an entry of a tile, the same for all
/// threads.
Value GPUStreamKernel::isCut(const Tile &tile, Value stage) {
  Value isCut;
  if (hasLists) {
    isCut = isAny(sharedCuts, stage);
  } else {
    // Every query of the block may read every row of most tiles.
    auto [lower, upper] = getCommonRows(tile);
    isCut = b.either(
        b.less(tile.count, b.i32(keyTile)),
        b.either(b.less(upper, b.i32(keyTile)), b.less(b.i32(0), lower)));
  }
  return hasWeights ? b.either(isCut, isAny(sharedHidden, stage)) : isCut;
}

/// The rows of a tile from the first to before the second may be read by every
/// query of the block.
std::pair<Value, Value> GPUStreamKernel::getCommonRows(const Tile &tile) {
  Value upper = getFirstRow(tile, tile.upper);
  if (tile.prefix)
    upper = b.max(upper, tile.prefix);
  return {getFirstRow(tile, b.add(tile.lower, countMostSteps())), upper};
}

/// Whether any row of a tile has its bit.
Value GPUStreamKernel::isAny(Value bits, Value stage) {
  Value all = b.i32(0);
  for (int64_t word = 0; word < getHiddenWords(); ++word)
    all = b.createOrFold<arith::OrIOp>(all, loadBits(bits, stage, b.i32(word)));
  return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ne, all, b.i32(0));
}

/// Sets the scores of what is not read.
void GPUStreamKernel::mask(const Tile &tile, Value stage, Value isCut,
                           SmallVectorImpl<Values> &scores) {
  changeScores(isCut, scores, [&] { applyMask(tile, stage, scores); });
}

/// Whether a score of the thread says that its entry is not read.
Value GPUStreamKernel::hasMasked(ArrayRef<Values> scores) {
  Value isMasked = b.i1(false);
  for (const Values &tile : scores)
    for (Value score : tile)
      isMasked = b.either(isMasked, removes(score));
  return isMasked;
}

/// The thread's columns of a tile, two of every eight, from row `row` on: a bit
/// for each, 32 in a word.
Values GPUStreamKernel::getColumnsFrom(Value row) {
  Value own = b.clamp(b.sub(row, pairColumn), b.i32(0), b.i32(keyTile));
  Value before = b.add(b.mul(b.div(own, 8), 2), b.min(b.rem(own, 8), 2));
  Values words;
  for (int64_t first = 0; first < keyTile / 4; first += 32) {
    Value count = first ? b.max(b.sub(before, b.i32(first)), 0) : before;
    Value bits = b.createOrFold<arith::ShLIOp>(b.i32(-1), count);
    words.push_back(b.select(b.less(count, b.i32(32)), bits, b.i32(0)));
  }
  return words;
}

/// The same of rows that log weights hide.
Values GPUStreamKernel::getHiddenColumns(Value stage) {
  Values words;
  for (int64_t word = 0; word < getHiddenWords(); ++word) {
    Value rows = b.createOrFold<arith::ShRUIOp>(
        loadBits(sharedHidden, stage, b.i32(word)), pairColumn);
    // Four pairs of bits, a byte apart, come together in the highest byte.
    Value pairs = b.mul(b.bitAnd(rows, 0x03030303), 0x01041040);
    Value bits = b.createOrFold<arith::ShRUIOp>(pairs, b.i32(24));
    int64_t place = word % 4 * 8;
    if (place == 0)
      words.push_back(bits);
    else
      words.back() = b.createOrFold<arith::OrIOp>(
          words.back(), b.createOrFold<arith::ShLIOp>(bits, b.i32(place)));
  }
  return words;
}

/// The same as applyMask in fewer instructions, where rows have no places.
void GPUStreamKernel::applyBits(const Tile &tile, Value stage,
                                SmallVectorImpl<Values> &scores) {
  Value maskedScore = b.scalar(masked);
  Values hidden;
  if (hasWeights)
    hidden = getHiddenColumns(stage);
  // One row and then the other: ptxas makes predicates of seven neighbouring
  // bits at once, if their tests follow one another.
  for (int64_t half : {0, 1}) {
    auto [lower, length] = getBounds(tile, half);
    Values read = getColumnsFrom(lower);
    Values behind = getColumnsFrom(b.add(lower, length));
    for (auto [word, bits] : llvm::enumerate(read)) {
      Value others = behind[word];
      if (hasWeights)
        others = b.createOrFold<arith::OrIOp>(others, hidden[word]);
      bits = b.createOrFold<arith::AndIOp>(bits, b.bitXor(others, -1));
    }
    for (auto [number, tileScores] : llvm::enumerate(scores))
      for (int64_t i : {0, 1}) {
        int64_t column = number * 2 + i;
        Value bit = b.bitAnd(read[column / 32], int64_t(1) << column % 32);
        Value &score = tileScores[2 * half + i];
        score = b.select(b.equal(bit, b.i32(0)), maskedScore, score);
      }
  }
}

void GPUStreamKernel::applyMask(const Tile &tile, Value stage,
                                SmallVectorImpl<Values> &scores) {
  // Most tiles of several sources are cut, so what it takes counts.
  if (stays)
    return applyBits(tile, stage, scores);
  Value maskedScore = b.scalar(masked);
  Bounds bounds[] = {getBounds(tile, 0), getBounds(tile, 1)};
  // The bit of the thread's first column is the lowest one.
  Values words;
  for (int64_t word = 0; hasWeights && word < getHiddenWords(); ++word)
    words.push_back(b.createOrFold<arith::ShRUIOp>(
        loadBits(sharedHidden, stage, b.i32(word)), pairColumn));
  for (auto [number, tileScores] : llvm::enumerate(scores))
    for (int64_t i : {0, 1}) {
      int64_t column = number * 8 + i;
      Value isNone, place;
      if (hasLists)
        place = loadPlace(stage, b.add(pairColumn, column));
      if (hasWeights)
        isNone = b.equal(b.bitAnd(words[column / kWarpSize],
                                  int64_t(1) << column % kWarpSize),
                         b.i32(0));
      for (int64_t half : {0, 1}) {
        Value offset = hasLists ? b.sub(place, bounds[half].lower)
                                : b.add(b.sub(pairColumn, bounds[half].lower),
                                        b.i32(column));
        Value isRead = isWithin(b, offset, bounds[half].length);
        if (isNone)
          isRead = b.both(isRead, isNone);
        Value &score = tileScores[2 * half + i];
        score = b.select(isRead, score, maskedScore);
      }
    }
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Whether a query of the thread reads row `row` of a tile.
Value GPUStreamKernel::readsRow(const Tile &tile, Value stage, int64_t half,
                                Value row) {
  Bounds bounds = getBounds(tile, half);
  Value place = hasLists ? loadPlace(stage, row) : row;
  Value isRead = isWithin(b, b.sub(place, bounds.lower), bounds.length);
  if (hasWeights) {
    Value word = loadBits(sharedHidden, stage, b.div(row, kWarpSize));
    Value bit = b.createOrFold<arith::ShRUIOp>(word, b.rem(row, kWarpSize));
    isRead = b.both(isRead, b.equal(b.bitAnd(bit, 1), b.i32(0)));
  }
  for (auto [index, source] : llvm::enumerate(sources)) {
    if (!source.bias && !source.distanceBias)
      continue;
    isRead = whereSource(tile, index, isRead, [&, &source = source] {
      Value own = b.min(getOwnRow(half), b.sub(blockQueries, b.i32(1)));
      Value bias, distance;
      if (source.bias)
        bias = loadBias(tile, source, getOwnRow(half), row);
      if (source.distanceBias)
        distance = b.loadScalar(getTerms(source.distanceBias, own),
                                b.toIndex(getDistance(tile, source, own, row)));
      Value term = addTogether(bias, distance);
      return b.both(isRead, b.equal(removes(term), b.i1(false)));
    });
  }
  if (!scoreBodies.empty())
    isRead = b.both(
        isRead, b.equal(removesEntry(tile, getOwnRow(half), row), b.i1(false)));
  return isRead;
}

/// Makes the sums NaN whose query reads a value that is not finite.
void GPUStreamKernel::readUnbounded(const Tile &tile, Value stage,
                                    ArrayRef<SharedRows> values, State &state) {
  Values sums;
  for (const Values &output : state.output)
    sums.append(output);
  takeUnbounded(b, values, pairColumn, sums, [&](int64_t half, Value row) {
    return readsRow(tile, stage, half, row);
  });
  for (auto [i, output] : llvm::enumerate(state.output))
    output = Values(ValueRange(sums).slice(4 * i, 4));
}

/// Takes what is not finite out of values among which there is such;
/// `publish` is for those who read them other than by loads.
GPUStreamKernel::Values
GPUStreamKernel::clearFound(const Tile &tile, Value stage,
                            ArrayRef<SharedRows> values, const State &state,
                            function_ref<void()> publish) {
  State next = state;
  readUnbounded(tile, stage, values, next);
  b.barrier();
  for (const SharedRows &rows : values)
    clearUnbounded(b, rows);
  if (publish)
    publish();
  b.barrier();
  return flatten(next);
}

/// Takes what is not finite out of the values of a tile that is cut; `await`
/// waits for values that are on their way.
void GPUStreamKernel::clearHidden(const Tile &tile, Value stage, Value isCut,
                                  ArrayRef<SharedRows> values, State &state,
                                  function_ref<void()> await,
                                  function_ref<void()> publish) {
  Values numbers = changeIf(b, isCut, flatten(state), [&] {
    Values changed;
    rarely([&] {
      if (await)
        await();
      Value isFound = b.i1(false);
      for (const SharedRows &rows : values)
        isFound = b.either(isFound, findUnbounded(b, rows));
      changed = changeIf(b, b.anyThread(isFound), flatten(state), [&] {
        return clearFound(tile, stage, values, state, publish);
      });
    });
    return changed;
  });
  state = unflatten(numbers);
}
