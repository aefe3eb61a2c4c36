//===- GPUGradientBlock.h - Tiles of gradients on sm_90a --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTBLOCK_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTBLOCK_H

#include "GPUBiasPairs.h"
#include "GPUGatheredRows.h"
#include "GPUListPasses.h"
#include "GradientRanges.h"
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/ScoreBody.h"
#include <optional>

namespace fovea::attn {

/// A block of threads that has rows of a source, or queries, while tiles of the
/// others pass: which tiles these are, and which of their entries are read.
class GradientBlock {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  /// Queries, or rows of a source, of a tile that passes.
  static constexpr int64_t kTile = kWarpgroupRows;
  /// Numbers of f32 for each query: of a tile first one of all queries, then
  /// the other, which are read at different times.
  static constexpr int64_t kStatistics = 2;
  /// The most blocks that share the queries of the same rows.
  static constexpr int64_t kMostParts = 8;
  /// Of shared memory, for operands.
  static constexpr int64_t kMostOperandBytes = 200 * 1024;
  /// The most ranges: each has a thread that finds its tiles.
  static constexpr int64_t kMostRanges = 2 * kWarpgroupSize;

  struct Tile {
    Value number; // of all tiles of the block
    Value head, range, firstRow;
    /// Whether some query of the block does not read some row of the tile.
    Value isCut;
    /// Where the queries stand that read its rows, if they are gathered, or
    /// which rows it has, if lists name them one by one.
    Value firstReaders = {};
  };

protected:
  /// Tiles are those of the source, which has the rows that are `gathered`
  /// unless they are null. Those of rows that are `joined` come behind them.
  /// The block has `numOwn` operands: both, or keys alone.
  GradientBlock(RowBuilder &host, StreamBackwardOp op,
                const StreamSource &source, bool ofRows, int64_t numOwn,
                const ListsOfRows *listsOfRows, const GatheredRows *gathered,
                const GatheredRows *joined);

  int64_t place(int64_t bytes);
  /// Goes into the kernel, and leaves there where tiles are; a barrier must
  /// follow.
  void begin();

  /// Makes room for those who read gathered rows: of the block, or of those
  /// that pass in each stage.
  void placeReaders(int64_t numStages);
  /// Copies those of `rows` rows from `row` on.
  void copyReaders(Value target, Value barrier, Value row, int64_t rows);
  static int64_t getBytesOfReaders(int64_t rows) { return rows * 2 * 4; }

  // One thread finds the tiles, and says in shared memory what each is: what
  // it needs for that takes no registers of the others.
  void placeTiles(int64_t numStages);
  /// Makes room for the rows of tiles, if lists name them one by one.
  void placeListedRows(int64_t numStages);
  /// Calls `body` with the tiles in the same order at all times: head by head,
  /// and in each range by range. Returns how many there are.
  Value findTiles(llvm::function_ref<void(const Tile &)> body);
  /// The same of rows that lists name one by one, for all threads of a group:
  /// calls `await` before it leaves in shared memory which rows a tile has.
  Value findListedRows(llvm::function_ref<void(const Tile &)> await,
                       llvm::function_ref<void(const Tile &)> body);
  /// Where row `row` of the tile whose rows are from `first` on is stored, -1
  /// for none, and where it stands.
  enum ListedField { StoredRow, Position, NumListedFields };
  Value loadListed(Value first, Value row, ListedField field);
  /// Copies rows of keys or values to where boxes would lie: those that are
  /// listed from `first` on.
  void copyListedRows(Value memref, llvm::ArrayRef<SharedRows> boxes,
                      Value first);
  /// The boxes of a stage, side by side, of what begins at `place`, and those
  /// of what the block has.
  llvm::SmallVector<SharedRows> getBoxes(int64_t place, mlir::FloatType type,
                                         int64_t columns, Value stage);
  llvm::SmallVector<SharedRows> getOwnBoxes(int64_t place, mlir::FloatType type,
                                            int64_t columns);
  /// The same of joined rows, whose tiles count from `number` on.
  Value findJoinedTiles(Value number,
                        llvm::function_ref<void(const Tile &)> body) {
    return forSpan(k.i32(joinedRange), k.toI32(head), number, body);
  }
  void storeTile(const Tile &tile, Value stage);
  /// How many tiles there are is not known before all of them are found: then
  /// there is one that says so.
  bool needsEnd() const { return isListed() && !hasListRows(); }
  Value countTiles();
  Value countJoinedTiles() { return loadNumTiles(k.i32(joinedRange)); }
  void storeEnd(Value stage);
  Value isTile(Value stage);
  Value isCut(Value stage);
  /// The tile with its place.
  Tile loadPlace(const Tile &tile, Value stage);

  // Sums of rows, which several blocks may have parts of (GPUGradientSums.cpp).
  /// Where blocks leave what `result` is the sum of: there, if each has a whole
  /// number of it.
  Value allocateSums(Value result);
  void addUpSums(Value sums, Value result);
  /// Stores sums of the thread's two rows, with those of `earlier` unless it is
  /// null.
  void store(ValueRange sums, Value memref, double factor, Value earlier);
  // What belongs to the log weight of each of the thread's two rows lies in
  // shared memory: sums of columns leave no registers for it.
  enum OwnNumber { LogWeight, ScoreSum, NumOwnNumbers };
  void placeOwnNumbers();
  Values loadOwn(OwnNumber which);
  void storeOwn(OwnNumber which, ValueRange pair);
  /// Adds gradients of scores of a tile to their sums, which are the gradient.
  void addScores(ValueRange gradients);
  void storeScores(Value memref);
  /// Sums of parts lie behind one another.
  Value getPlaceOfSums() {
    if (passes)
      return passes->getPlace(k, batch, part);
    return numParts > 1 ? k.add(k.mul(batch, numParts), part) : batch;
  }

  /// Runs `body` with the numbers of the block from shared memory: they take no
  /// registers of the code between.
  void withKeptNumbers(llvm::function_ref<void()> body);
  void rarely(llvm::function_ref<void()> body) {
    k.rarely([&] { withKeptNumbers(body); });
  }

  /// The log weight of a row, in base 2; that of the last one behind it.
  Value loadLogWeight(Value row);
  /// Whether a term may remove entries which only those see who load it, though
  /// all share what passes. Where all numbers and products are finite, weights
  /// of such entries are 0 by themselves: other tiles are cut. So are all tiles
  /// of gathered rows; who has rows knows their log weights.
  bool hidesByTerm();
  Value addSquares(Value tiles, Value head, Value first, int64_t rows);
  /// Whether a tile is cut, of a block that has these squares.
  Value isCutByTerm(const Tile &tile, Value squares);
  /// The bias of the thread's entries of a tile, in pairs (GPUBiasPairs.h).
  Values loadBias(const Tile &tile);
  Value isMinusInfinity(Value number);

  // Scores of a region (GPUGradientScores.cpp).
  /// Makes what depends on the batch entry and the head alone: here, but for
  /// rows, which queries of several heads pass.
  void enterScores();
  /// The score of an entry, its derivative by the product, null for one, and
  /// whether it is removed, null where none may be.
  struct Score {
    Value score, derivative = {}, isRemoved = {};
  };
  /// Calls `body` with those of the thread's entries of a tile.
  void computeScores(const Tile &tile, ValueRange products,
                     llvm::function_ref<void(size_t, const Score &)> body);
  /// Whether scores alone tell which entries are removed.
  bool mayRemove() const { return score && score->mayRemove(); }
  /// Whether the query and the row of one of the thread's rows and of row
  /// `offset` of a tile belong together, whatever a region says.
  Value reads(const Tile &tile, int64_t half, Value offset);
  /// And whether the region leaves their entry: takes its product once more.
  Value readsEntry(const Tile &tile, int64_t half, Value offset);

  // Rows of tiles of queries (see getTileHeads). `head` is the number of all
  // heads that have rows in a tile.
  Value getQuery(Value row) { return k.div(row, tileHeads); }
  Value getFirstHead(Value head) { return k.mul(head, tileHeads); }
  Value getHeadOfRow(Value head, Value row) {
    return k.add(getFirstHead(head), k.rem(row, tileHeads));
  }
  Value countRows(Value queries) { return k.mul(queries, tileHeads); }
  /// How many queries tiles of so many rows have rows of.
  int64_t countQueries(int64_t rows) const {
    return std::max<int64_t>(rows / tileHeads, 1);
  }

  /// One of the two rows of the thread, of 32 bits.
  Value getOwnRow(int64_t half) {
    Value inGroup = k.add(k.mul(k.warp(), kWarpRows), k.div(k.lane(), 4));
    return k.add(k.add(firstOwn, inGroup), half * 8);
  }
  Value getPairColumn() { return k.mul(k.rem(k.lane(), 4), 2); }
  Value getStage(const Tile &tile) { return k.rem(tile.number, numStages); }
  Value getGroup() { return k.div(k.thread(), kWarpgroupSize); }
  /// The head whose rows or queries the block has.
  Value getOwnHead() { return ofRows && !passes ? keyHead : head; }
  bool isListed() const { return source.rowList != nullptr; }
  /// Whether the block has rows of one list, and what passes are its queries.
  bool hasListRows() const { return ofRows && isScattered; }
  /// Whether threads copy the rows that pass.
  bool passesRows() const { return !ofRows && isScattered; }
  /// Row `row` of the block, of 32 bits, where it is stored or stands.
  Value loadOwnListed(Value row, ListedField field) {
    return loadListed(k.sub(row, firstOwn), k.i32(0), field);
  }
  /// Gathered rows are one range for all of their queries.
  int64_t getNumRanges() const {
    return gathered ? 1 : source.attr.getRanges().size();
  }

  RowBuilder &host;
  StreamBackwardOp op;
  StreamSource source;
  bool ofRows;
  int64_t tileHeads;
  int64_t numConsumers, ownRows, sharedBytes = 0;
  int64_t numStages = 0; // of tiles that pass
  /// Blocks of threads that have the same rows, and sums of their own for a
  /// part of the queries.
  int64_t numParts;
  GPUKernelBuilder k;
  WarpgroupBuilder w;

  /// Whether lists name rows that are copied one by one.
  bool isScattered;
  const GatheredRows *gathered; // which `source` has, or null
  const GatheredRows *joined;   // of another source, or null
  int64_t readersPlace = 0;
  Value ownSquares, passingSquares; // of tiles
  std::optional<ListPasses> passes; // of rows of lists
  std::optional<GradientRanges> ranges;
  Value batch, head, keyHead;     // or the list head for rows of lists
  Value part;                     // of the queries, or a list of the pass
  std::optional<ScoreBody> score; // of the source, with its derivative
  Value firstOwn;                 // of 32 bits

private:
  Value readsByRange(const Tile &tile, Value query, Value row);
  ScoreBody::Result evaluate(ScoreBody &body, const Tile &tile, int64_t half,
                             Value offset, Value product);
  Value removesEntry(const Tile &tile, int64_t half, Value offset);
  /// Whether what is loaded or computed for entries depends on the head of the
  /// queries that pass.
  bool needsHead() const { return ofRows && (source.bias || score); }
  Value clampRow(Value operand, Value row);
  Value viewBias(const Tile &tile);
  Value loadBias(const Tile &tile, int64_t half, Value offset);
  void findSpans();
  void findListRows();
  void findGatheredSpan(const GatheredRows &rows, Value *fields);
  void findSpan(Value range, Value *fields);
  void storeSpan(Value range, ValueRange fields);
  Value loadNumTiles(Value range);
  void keepNumbers();
  Value forSpans(Value head, Value number,
                 llvm::function_ref<void(const Tile &)> body);
  Value forSpan(Value range, Value head, Value number,
                llvm::function_ref<void(const Tile &)> body);

  // Tiles that lists name (GPUGradientLists.cpp).
  Value addListed(Tile tile, const GradientRanges::Span &read,
                  const GradientRanges::Span &common, Value number,
                  llvm::function_ref<void(const Tile &)> body);
  Value forListedRows(Value number,
                      llvm::function_ref<void(const Tile &)> body);
  Value forListedQueries(Value head, Value number,
                         llvm::function_ref<void(const Tile &)> body);

  Values getOwnPlace(OwnNumber which);
  bool standsForAll(Value result, int64_t dim);
  bool isShared(Value result);
  void addBlocks(Value sums, Value result);

  void storeField(Value stage, int64_t field, Value number);
  Value loadField(Value stage, int64_t field);

  int64_t joinedRange;            // behind those of the source
  Value numbers, table, tiles;    // in shared memory
  Value firstHead, endHead;       // that share the rows, of 32 bits
  const ListsOfRows *listsOfRows; // or null
  Value ownNumbers;               // in shared memory
  int64_t ownNumbersPlace = 0;
  Value listedRows; // of all stages, in shared memory
  int64_t listedPlace = 0, numListed = 0;
  int64_t tilesPlace = 0, numTileFields = 0;
  Value readers; // of gathered rows, in shared memory
  int64_t numReaders = 0;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTBLOCK_H
