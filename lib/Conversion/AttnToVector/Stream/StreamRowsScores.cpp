//===- StreamRowsScores.cpp - Scores of few query rows --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading at the speed of memory takes as many lines on their way as the second
// cache level has buffers for, more than the first has: lines are asked for so
// far ahead and evenly, in the order of memory, by prefetches to that level.
// Of a single row the CPU's own prefetcher does better on a Zen 4, as long as
// each row of keys is read to its end before the next one.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// How far ahead lines are asked for, in bytes; where the CPU's own prefetcher
/// reads a single row, only if it is short.
static constexpr int64_t kAheadBytes = 1 << 14, kShortAheadBytes = 1 << 11,
                         kShortRowBytes = 256;
static constexpr int64_t kLineBytes = 64;
/// Accumulators of a register tile of vectors of two columns: LLVM moves what
/// is broadcast far ahead of the products.
static constexpr int64_t kPairedSums = 18;

static int64_t getElementBytes(Value memref) {
  return getElementTypeOrSelf(memref).getIntOrFloatBitWidth() / 8;
}

//===----------------------------------------------------------------------===//
// Rows of keys and values
//===----------------------------------------------------------------------===//

bool StreamRowsKernel::isStaged(Value memref, int64_t width) {
  bool isNarrow = getElementTypeOrSelf(memref) != b.getStateType();
  return width % lanes != 0 || (isNarrow && !alongColumns);
}

/// Copies rows where they cannot be multiplied as they are. Where copies ask
/// for no lines, the products with them do.
StreamRowsKernel::Rows StreamRowsKernel::stage(const Rows &rows, Value staged,
                                               int64_t width, bool asks) {
  if (!isStaged(rows.memref, width))
    return rows;
  int64_t ahead = asks ? getAhead(rows, /*numRows=*/4) : 0;
  b.loop(b.index(0), rows.count, 1, [&](Value key) {
    Value row = rows.at(b, key);
    if (ahead)
      askRow(rows, b.add(key, ahead));
    b.copyRow(rows.memref, row, staged, key, width);
    b.loop(b.index(width), b.index(llvm::alignTo(width, lanes)), 1,
           [&](Value column) {
             b.storeScalar(b.scalar(0.0), staged, {key, column});
           });
  });
  return {staged, b.index(0), rows.count, /*isStaged=*/true};
}

Value StreamRowsKernel::Rows::at(KernelBuilder &b, Value key) const {
  return numbers ? Value(memref::LoadOp::create(b, numbers, key))
                 : b.add(first, key);
}

StreamRowsKernel::Value StreamRowsKernel::Rows::atAhead(KernelBuilder &b,
                                                        Value key) const {
  return at(b, numbers ? b.min(key, b.sub(numNumbers, b.index(1))) : key);
}

/// Register tiles read the last row again behind the end.
StreamRowsKernel::Value StreamRowsKernel::rowOf(const Rows &rows, Value key) {
  return rows.at(b, b.min(key, b.sub(rows.count, b.index(1))));
}

StreamRowsKernel::Values StreamRowsKernel::loadColumns(Value memref,
                                                       ValueRange at) {
  if (getColumnVectors() == 1)
    return {b.loadVector(memref, at)};
  auto [even, odd] = b.loadPairs(memref, at);
  return {even, odd};
}

int64_t StreamRowsKernel::getLinesPerRow(Value memref) {
  int64_t columns = cast<MemRefType>(memref.getType()).getShape().back();
  return llvm::divideCeil(columns * getElementBytes(memref), kLineBytes);
}

int64_t StreamRowsKernel::getAhead(const Rows &rows, int64_t numRows) {
  auto type = cast<MemRefType>(rows.memref.getType());
  int64_t bytes = type.getShape().back() * getElementBytes(rows.memref);
  if (!manageCache || bytes == 0 || rows.isStaged)
    return 0;
  // The CPU's own prefetcher does not know the list.
  if (rows.ofHeads)
    return getHeadsTile();
  // Either product asks for lines of the next tile.
  if (rows.areShared)
    return kLatentTile;
  int64_t ahead = kAheadBytes / bytes;
  // AMX reads a tile at once. Of a list the next one is known.
  if (multipliesPairs())
    return rows.numbers ? kShortPairTile : std::max(ahead, kPairTile);
  if (rows.numbers)
    return std::clamp<int64_t>(ahead, 1, kRowTile);
  // What reads a single row as fast on others reads it slower on an Intel with
  // AVX-512.
  if (numRows == 1 && (splitVectors || hasFewRegisters)) {
    // With 16 registers a row of narrow elements is read in several pieces.
    bool isNarrow =
        hasFewRegisters && type.getElementType() != b.getStateType();
    return bytes <= kShortRowBytes * (isNarrow ? 2 : 1)
               ? kShortAheadBytes / bytes
               : 0;
  }
  return std::max<int64_t>(1, ahead);
}

void StreamRowsKernel::askLine(const Rows &rows, Value row, Value line) {
  int64_t step = kLineBytes / getElementBytes(rows.memref);
  Value column = b.mul(line, step);
  if (rows.end)
    column = b.add(
        column, b.select(b.less(row, rows.end), b.index(0), rows.toNextHead));
  b.prefetch(rows.memref, {row, column}, /*locality=*/2);
}

void StreamRowsKernel::askRow(const Rows &rows, Value key) {
  askRow(rows, key, b.index(0), getLinesPerRow(rows.memref));
}

/// What to ask for in place of a key of the next tile: where several heads go
/// through a tile in turn, all heads of one row before those of the next, which
/// is their order in memory.
std::pair<StreamRowsKernel::Rows, StreamRowsKernel::Value>
StreamRowsKernel::orderByRows(const Rows &rows, Value key) {
  if (!rows.ofHeads)
    return {rows, key};
  Value number =
      b.add(b.mul(headOfTask, rows.count), b.sub(key, b.index(getHeadsTile())));
  Value head = b.add(b.sub(keyHead, headOfTask), b.rem(number, taskHeads));
  Rows ordered = rows;
  ordered.memref =
      b.rowView(rows.ofHeads, {b.broadcastIndex(rows.ofHeads, 0, batch),
                               b.broadcastIndex(rows.ofHeads, 1, head)});
  return {ordered, b.add(b.div(number, taskHeads), getHeadsTile())};
}

void StreamRowsKernel::askRow(const Rows &rows, Value key, Value firstLine,
                              int64_t count) {
  auto [asked, place] = orderByRows(rows, key);
  Value row = asked.atAhead(b, place);
  for (int64_t i = 0; i < count; ++i)
    askLine(asked, row, b.add(firstLine, i));
}

void StreamRowsKernel::ask(const Rows &rows, Value key, Value firstLine,
                           int64_t count) {
  constexpr int64_t kMaxWritten = 16;
  int64_t linesPerRow = getLinesPerRow(rows.memref);
  auto askNext = [&](Value line) {
    Value row = rows.atAhead(b, b.add(key, b.div(line, linesPerRow)));
    askLine(rows, row, b.rem(line, linesPerRow));
  };
  if (count > kMaxWritten)
    return b.loop(firstLine, b.add(firstLine, count), 1, askNext);
  for (int64_t i = 0; i < count; ++i)
    askNext(b.add(firstLine, i));
}

/// Asks in a turn of a loop for its share of the next rows: for some lines of
/// one row, whose place is computed once, or for whole rows. Turns that are
/// left ask for nothing; if they were a third, all ask evenly for lines.
void StreamRowsKernel::askShare(const NextRows &next, Value turn,
                                TurnsOfRows ratio) {
  int64_t lines = getLinesPerRow(next.rows.memref);
  int64_t parts = std::clamp<int64_t>(ratio.turns / ratio.rows, 1, lines);
  int64_t perPart = llvm::divideCeil(lines, parts);
  parts = llvm::divideCeil(lines, perPart);
  if (3 * parts * ratio.rows <= 2 * ratio.turns) {
    int64_t count = llvm::divideCeil(ratio.rows * lines, ratio.turns);
    return ask(next.rows, next.first, b.mul(turn, count), count);
  }
  int64_t perTurn =
      std::max<int64_t>(1, llvm::divideCeil(ratio.rows, ratio.turns));
  Value number = b.mul(b.div(turn, parts), perTurn);
  Value first =
      b.min(b.mul(b.rem(turn, parts), perPart), b.index(lines - perPart));
  auto askPart = [&] {
    for (int64_t i = 0; i < perTurn; ++i) {
      Value row = next.rows.atAhead(b, b.add(b.add(next.first, number), i));
      for (int64_t line = 0; line < perPart; ++line)
        askLine(next.rows, row, b.add(first, line));
    }
  };
  b.ifThen(b.less(number, next.count), askPart);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

StreamRowsKernel::Value StreamRowsKernel::Plane::at(KernelBuilder &b, Value key,
                                                    Value row) const {
  Value offset = alongColumns ? b.add(b.mul(row, pitch), key)
                              : b.add(b.mul(key, pitch), row);
  return origin ? b.add(origin, offset) : offset;
}

void StreamRowsKernel::scoreKeys(const Rows &keys, const Plane &target) {
  if (multipliesPairs())
    return scoreByPairs(keys, target);
  Rows rows = stage(keys, stagedKeys, width, /*asks=*/alongColumns);
  if (!alongColumns)
    return scoreAlongRows(rows, keys, target);
  auto scoreMany = [&] {
    if (maxRows <= kColumnRows / 2)
      return scoreAlongColumns(rows, target, kColumnRows / 2);
    b.ifThenElse(
        areEights(),
        [&] {
          usesLanes ? scoreInLanes(rows, target)
                    : scoreAlongColumns(rows, target, kColumnRows);
        },
        [&] { scoreAlongColumns(rows, target, kColumnRows / 2); });
  };
  b.ifThenElse(
      b.equal(paddedRows, b.index(1)),
      [&] { scoreAlongColumns(rows, target, 1); },
      [&] {
        b.ifThenElse(
            b.equal(paddedRows, b.index(2)),
            [&] { scoreAlongColumns(rows, target, 2); }, scoreMany);
      });
}

/// Asks for a line in a turn of the loop of products, half of those of each
/// row: a burst of them would wait for the buffers of the first cache level.
void StreamRowsKernel::askSharedTurn(const Rows &keys, ValueRange rows,
                                     Value turn) {
  Value row = rows[0];
  if (rows.size() == 2)
    row = b.select(b.equal(b.rem(turn, 2), b.index(0)), row, rows[1]);
  askLine(keys, row, b.div(turn, 2));
}

/// Asks for what these turns leave: a line, and where values are other arrays,
/// all behind it.
void StreamRowsKernel::askSharedRest(const Rows &keys, Value row) {
  int64_t shared = getSharedLines(keys.memref);
  askLine(keys, row, b.index(shared - 1));
  b.ifThenElse(
      keys.areShared, [] {},
      [&] {
        for (int64_t line = shared; line < getLinesPerRow(keys.memref); ++line)
          askLine(keys, row, b.index(line));
      });
}

/// Whether a loop of so many turns over the columns asks for lines in each, and
/// not for all of a row at once: half a dozen that are asked for together keep
/// loads waiting. Two or three do not.
bool StreamRowsKernel::spreadsLines(const Rows &keys, int64_t turns) {
  constexpr int64_t kFewLines = 3;
  int64_t lines = getLinesPerRow(keys.memref);
  return asksEvenly(keys) && !keys.ofHeads && lines > kFewLines &&
         lines >= turns;
}

/// How many of the turns over the columns are written out for a single row. A
/// turn is one product: with 16 registers, whose vectors are short, counting
/// takes as many instructions, and fewer lines are on their way. A loop is
/// left: without one, LLVM would read all keys of a vector of sums column by
/// column, which the CPU's own prefetcher follows less well.
int64_t StreamRowsKernel::unrollSingleRow(int64_t turns) const {
  constexpr int64_t kMostWritten = 8;
  int64_t unroll = 1;
  while (hasFewRegisters && unroll < kMostWritten && turns % (4 * unroll) == 0)
    unroll *= 2;
  return unroll;
}

/// Scores of so many rows by groups of up to four: products along the columns
/// for as many keys as make a vector of sums of a group.
void StreamRowsKernel::scoreAlongColumns(const Rows &keys, const Plane &target,
                                         int64_t rows) {
  int64_t numRows = std::min({rows, kGroupRows, lanes});
  int64_t groups = rows / numRows;
  // Two keys share what is loaded of the rows. A single row has nothing to
  // share, and a Zen 4 reads long rows faster one by one.
  int64_t numKeys = lanes / numRows;
  bool isDot = dotsPairs();
  int64_t step = getColumnVectors() * lanes,
          numVectors = isDot ? 1 : step / lanes;
  auto loadPart = [&](Value memref, ValueRange at) -> Value {
    return vector::LoadOp::create(b, getNarrow(b, step), memref, at);
  };
  bool isLong = getElementTypeOrSelf(keys.memref) == b.getStateType() &&
                width * getElementBytes(keys.memref) > kShortRowBytes;
  bool isOneByOne = numRows == 1 || (splitVectors && groups == 1 && isLong);
  int64_t together = isOneByOne ? 1 : std::min<int64_t>(2, numKeys);
  int64_t ahead = keys.areShared ? 0 : getAhead(keys, numRows);
  // Every group of rows asks for its share of what all of them read.
  int64_t share = together / groups,
          turns = llvm::divideCeil(paddedWidth, step);
  int64_t unroll = numRows == 1 ? unrollSingleRow(turns) : 1, perTurn = 0;
  if (numRows != 1 && spreadsLines(keys, turns))
    perTurn = llvm::divideCeil(getLinesPerRow(keys.memref), turns);
  auto scoreTile = [&](Value key, Value row) {
    Values sums(lanes);
    for (int64_t first = 0; first < numKeys; first += together) {
      Values nextRows;
      if (ahead) {
        Value turn = b.add(b.mul(b.div(row, numRows), numKeys), first);
        Value from = b.add(b.add(key, ahead), b.div(turn, groups));
        for (int64_t i = 0; perTurn && i < share; ++i)
          nextRows.push_back(keys.atAhead(b, b.add(from, i)));
        if (!perTurn)
          b.loop(b.index(0), b.index(share), 1,
                 [&](Value i) { askRow(keys, b.add(from, i)); });
      }
      Values asked;
      for (int64_t i = 0; keys.areShared && i < together; ++i) {
        asked.push_back(keys.atAhead(b, b.add(key, first + i + kLatentTile)));
        askSharedRest(keys, asked.back());
      }
      Values at;
      for (int64_t i = 0; i < together; ++i)
        at.push_back(rowOf(keys, b.add(key, first + i)));
      Values zeros(together * numRows, b.splat(0.0));
      auto addColumns = [&](Value column, ValueRange running) {
        SmallVector<Values> loaded;
        Value line = b.mul(b.div(column, step), perTurn);
        for (Value row : nextRows)
          for (int64_t i = 0; i < perTurn; ++i)
            askLine(keys, row, b.add(line, i));
        if (keys.areShared)
          askSharedTurn(keys, asked, b.div(column, step));
        for (Value keyRow : at)
          loaded.push_back(isDot
                               ? Values{loadPart(keys.memref, {keyRow, column})}
                               : loadColumns(keys.memref, {keyRow, column}));
        Values next(running);
        for (int64_t r = 0; r < numRows; ++r)
          for (int64_t v = 0; v < numVectors; ++v) {
            Value at = b.add(b.mul(b.add(row, r), paddedWidth),
                             b.add(column, v * lanes));
            Value part =
                isDot ? loadPart(packed, at) : b.loadVector(packed, at);
            for (int64_t i = 0; i < together; ++i) {
              Value &sum = next[r * together + i];
              sum = isDot ? dotPairs(b, loaded[i][v], part, sum)
                          : b.fma(loaded[i][v], part, sum);
            }
          }
        return next;
      };
      Values products = b.loop(b.index(0), b.index(paddedWidth), unroll * step,
                               zeros, [&](Value first, ValueRange running) {
                                 Values next(running);
                                 for (int64_t u = 0; u < unroll; ++u)
                                   next =
                                       addColumns(b.add(first, u * step), next);
                                 return next;
                               });
      for (int64_t r = 0; r < numRows; ++r)
        for (int64_t i = 0; i < together; ++i)
          sums[r * numKeys + first + i] = products[r * together + i];
    }
    Value total = b.sumEach(sums);
    if (isDot) // the rows are as they were
      total = b.fmul(total, b.splat(getScoreScale()));
    for (int64_t r = 0; r < numRows; ++r) {
      Value part = total;
      if (numRows != 1)
        part = vector::ExtractStridedSliceOp::create(b, total, r * numKeys,
                                                     numKeys, /*strides=*/1);
      vector::StoreOp::create(b, part, target.memref,
                              target.at(b, key, b.add(row, r)));
    }
  };
  b.loop(b.index(0), keys.count, numKeys, [&](Value key) {
    b.loop(b.index(0), b.index(rows), numRows,
           [&](Value row) { scoreTile(key, row); });
  });
}

void StreamRowsKernel::scoreAlongRows(const Rows &keys, const Rows &asked,
                                      const Plane &target) {
  int64_t step = hasFewRegisters ? kNarrowRowStep : kRowStep;
  forRowVectors([&](Value low, Value high, RowVectors vectors) {
    int64_t sums = vectors.columns == 1 ? rowAccumulators : kPairedSums;
    int64_t numKeys = std::min(step, sums / vectors.number);
    // What is packed of these rows stays in the first cache level.
    b.loop(low, high, vectors.getSlots(lanes), [&](Value row) {
      b.loop(b.index(0), keys.count, numKeys, [&](Value key) {
        scoreAlongRows(keys, asked, target, key, row, numKeys, vectors);
      });
    });
  });
}

/// Four columns at a time, which ask for their share of the next rows.
StreamRowsKernel::Values StreamRowsKernel::loopOverColumns(
    const NextRows &next, int64_t numKeys, ValueRange inits,
    function_ref<Values(Value, ValueRange)> addColumn) {
  constexpr int64_t kUnroll = 4;
  auto askAhead = [&](Value column) {
    if (next.asks)
      b.ifThen(next.asks, [&] {
        int64_t turns = llvm::divideCeil(width, kUnroll);
        askShare(next, b.div(column, kUnroll), {turns, numKeys});
      });
  };
  return b.unrolledLoop(b.index(0), b.index(width), kUnroll, inits, addColumn,
                        askAhead);
}

/// Scores of a register tile of keys and vectors of rows. The first rows ask
/// for keys.
void StreamRowsKernel::scoreAlongRows(const Rows &keys, const Rows &asked,
                                      const Plane &target, Value key, Value row,
                                      int64_t numKeys, RowVectors vectors) {
  int64_t numVectors = vectors.number, columns = vectors.columns;
  int64_t ahead = getAhead(asked, lanes);
  Value isFirst = b.equal(row, b.index(0));
  // A tile is copied whole, and the next one asked for meanwhile.
  if (keys.isStaged && !asked.isStaged) {
    ahead = ahead ? rowTile : 0;
    isFirst = b.both(isFirst, hasNextTile);
  }
  NextRows next = {asked, b.add(key, ahead), b.index(numKeys),
                   ahead ? isFirst : Value()};
  Values at;
  for (int64_t i = 0; i < numKeys; ++i)
    at.push_back(rowOf(keys, b.add(key, i)));
  auto addStep = [&](Value step, ValueRange running) {
    Value column = b.mul(step, columns);
    Values parts, sums;
    for (int64_t v = 0; v < numVectors; ++v)
      parts.push_back(b.loadVector(packed, vectorAt(column, row, v, columns)));
    for (int64_t i = 0; i < numKeys; ++i) {
      Value element = broadcastColumns(keys.memref, {at[i], column}, columns);
      for (Value part : parts)
        sums.push_back(b.fma(element, part, running[sums.size()]));
    }
    return sums;
  };
  Values zeros(numKeys * numVectors, b.splat(0.0));
  Values sums = columns == 1
                    ? loopOverColumns(next, numKeys, zeros, addStep)
                    : loopOverPairs(next, key, numKeys, zeros, addStep);
  for (int64_t i = 0; i < numKeys; ++i) {
    Values own =
        addColumns(ValueRange(sums).slice(i * numVectors, numVectors), columns);
    for (auto [v, sum] : llvm::enumerate(own))
      b.storeVector(sum, target.memref,
                    target.at(b, b.add(key, i), b.add(row, v * lanes)));
  }
}

/// The scores of all rows of tables.
void StreamRowsKernel::scoreTables(ArrayRef<SourceView> views) {
  for (const KeyTable &table : keyTables) {
    auto *source = llvm::find_if(
        views, [&](const SourceView &view) { return view.keyTable == &table; });
    int64_t step = alongColumns ? kColumnTile : rowTile;
    hasNextTile = b.equal(b.index(0), b.index(0));
    b.loop(b.index(0), b.index(table.numRows), step, [&](Value first) {
      Value count = b.min(b.sub(b.index(table.numRows), first), step);
      Plane target = getTableScores(table);
      target.origin = target.at(b, first, b.index(0));
      scoreKeys({source->keys, first, count}, target);
    });
  }
}

int64_t StreamRowsKernel::padTable(int64_t numRows) {
  return std::max(llvm::alignTo(numRows, kColumnTile),
                  llvm::alignTo(numRows, kNarrowRowStep));
}

StreamRowsKernel::Plane
StreamRowsKernel::getTableScores(const KeyTable &table) {
  return {table.scores,
          alongColumns ? b.index(padTable(table.numRows)) : paddedRows,
          alongColumns};
}

/// Scores of rows of a table.
void StreamRowsKernel::lookUp(const Tile &tile) {
  Plane table = getTableScores(*tile.source.keyTable);
  auto rowOfTable = [&](Value key) {
    Value row = b.add(tile.low, key);
    return tile.source.codes ? b.loadIndex(tile.source.codes, row) : row;
  };
  if (alongColumns)
    return b.loop(b.index(0), setRows, 1, [&](Value row) {
      b.loop(b.index(0), tile.count, 1, [&](Value key) {
        b.storeScalar(
            b.loadScalar(table.memref, table.at(b, rowOfTable(key), row)),
            scores.memref, scores.at(b, key, row));
      });
    });
  b.loop(b.index(0), tile.count, 1, [&](Value key) {
    Value from = rowOfTable(key);
    b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
      b.storeVector(b.loadVector(table.memref, table.at(b, from, row)),
                    scores.memref, scores.at(b, key, row));
    });
  });
}
