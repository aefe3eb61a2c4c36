//===- StreamRowsKernel.h - Few query rows of attn.stream -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decoding has one query for each head, or a few, on many keys: reading keys
// and values is what takes the time. All query rows that read the same ones,
// the queries of all heads that share a key head, are one set of rows and go
// through keys and values together, once:
//
//   per set of rows and part of the keys
//     pack          the rows, times scale * log2(e)
//     per tile of keys
//       score         S = keys . rows
//       exponentiate  S = 2^(S - maximum); outputs are rescaled only where a
//                     tile raises the maximum, which is rare after the first
//       accumulate    O[row][columns] += S value[columns]
//   merge the parts in their order
//
// Scores of up to eight rows, with AMX four, in lanes 24, have vectors of
// columns, whose products are added up across lanes for several keys and rows
// at once, and then lie as S[row][key]. Scores of more rows have vectors of
// rows, S[key][row], as blocks of queries have, and so have their outputs
// (StreamRowsColumns.cpp), unless pairs of bf16 are multiplied
// (StreamRowsPairs.cpp). Outputs of few rows have vectors of columns.
//
// The number of parts depends on extents alone, so that results are the same
// for any number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMROWSKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMROWSKERNEL_H

#include "PairProduct.h"
#include "fovea/Dialect/Attn/IR/SourceScores.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "fovea/Kernels/StreamRanges.h"
#include "fovea/Kernels/TileScore.h"
#include <memory>

namespace fovea::attn {

class StreamRowsKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  struct Options {
    bool manageCache;     // add prefetches
    int64_t numRegisters; // of vectors; half of them accumulate
    bool splitVectors;    // half a vector in half the time
    bool bf16Pairs;       // multiply bf16 by the CPU's dot product of pairs
    bool amx;             // or by its AMX
  };
  StreamRowsKernel(StreamOp op, const KernelBuilder &builder, Options options);

  /// Emits the code before the operation.
  mlir::LogicalResult emit();

private:
  /// Queries that read the same ranges, and the rows of all sets of them: every
  /// chunk is one set for each batch entry and key head, or several where they
  /// are more than a set may have.
  struct Sets {
    Value chunkQueries; // of a chunk, but for the last one
    Value chunks, setsPerChunk, number;
    /// Sets of so many key heads are one task, but for the last one.
    Value taskHeads, headTasks;
    /// The heads that may be one task, and the number of sets if they are:
    /// wherever rows of heads lie, keys have the same parts.
    Value partHeads, partNumber;
  };
  /// Keys that several sources name by their rows, with their scores.
  struct KeyTable {
    Value operand, scores;
    int64_t numRows;
  };
  /// A source's operands for one batch entry and key head. The bias is that of
  /// all heads.
  struct SourceView {
    Value keys, values, logWeight, bias, codes, rows, tokens;
    Value list; // of rows, null without
    /// Whether values are columns of the keys, of latent attention; null where
    /// that is not asked.
    Value valuesAreKeys;
    const KeyTable *keyTable;
    TileScore *score = nullptr; // without a region
    SourceAttr attr;
    StreamSource operands;
    /// What is known of the region for the queries of the set, if it has tiles
    /// that are skipped.
    std::optional<ScoreAdmission::State> admission = std::nullopt;
  };
  /// Rows of a source that the queries of a chunk read: `[low, high)` some of
  /// them and `[innerLow, innerHigh)` all, and the row that column 0 of the
  /// bias belongs to.
  struct Interval {
    Value low, high, innerLow, innerHigh, biasBegin;
  };
  /// Rows of a source whose scores are kept at once.
  struct Tile {
    const SourceView &source;
    const Interval &interval;
    Value low, count;
    Value isCut; // whether a mask cuts single entries; null where none does
    /// Its rows are those of `listedRows`, and so many are known there, those
    /// of the next tile too; null for consecutive rows.
    Value numListed = {};
    /// Whether the region admits all of it; null where that is not asked.
    Value admitsAll = {};
    /// Whether some entry is removed; null where none can be.
    Value removesAny = {};
  };
  /// Rows of keys or values, `count` from `first` on, or copies of them, or
  /// those with these numbers, of which more may be known.
  struct Rows {
    Value memref, first, count;
    bool isStaged = false;
    Value numbers = {}, numNumbers = {};
    /// The operand, with rows of all heads, where a task has several; or null.
    Value ofHeads = {};
    /// Whether the `keys` are the values, too, whose lines the products with
    /// either ask for; null where that is not asked.
    Value areShared = {}, keys = {};
    /// The row behind those of the head. Lines from there on are asked for so
    /// many elements further: they are of the next head. Null where none is.
    Value end = {}, toNextHead = {};

    Value at(KernelBuilder &b, Value key) const;
    /// The row to ask for `key` rows behind the first one.
    Value atAhead(KernelBuilder &b, Value key) const;
  };
  /// A matrix of scores or terms: [row][key] of scores with vectors along the
  /// columns, else [key][row].
  struct Plane {
    Value memref, pitch;
    bool alongColumns;
    Value origin = {}; // where it begins, if not at 0

    Value at(KernelBuilder &b, Value key, Value row) const;
  };
  /// Vectors of a register tile, and how many columns each has: one, or two of
  /// half as many rows.
  struct RowVectors {
    int64_t number, columns = 1;

    int64_t getSlots(int64_t lanes) const {
      return llvm::divideCeil(number, columns) * lanes;
    }
  };
  /// What one vector of scores belongs to: of consecutive keys and one row, or
  /// of one key and consecutive rows.
  struct Place {
    Value at, key, row;
  };

  // Sets of rows, and parts of their keys.
  Sets makeSets();
  Value countHeadTasks(Value heads);
  Value countSets(const Sets &sets, Value headTasks);
  void assignHeads(Sets &sets, Value numParts);
  Value orderHeads(const Sets &sets, Value number);
  void viewSet(const Sets &sets, Value number);
  Value getNumParts(const Sets &sets);
  SourceLength getLength(const StreamSource &source);
  llvm::SmallVector<Interval> getIntervals(const StreamSource &source,
                                           Value firstQuery, Value numQueries);

  // Keys that score regions remove (StreamRowsAdmission.cpp).
  bool skipsTiles(unsigned source);
  ScoreAdmission::Interval getQueryPositions(const StreamSource &source,
                                             Value firstQuery,
                                             Value numQueries);
  void encloseKeys();
  void enclose(unsigned source, llvm::MutableArrayRef<Interval> intervals);
  void enterAdmission(unsigned source, SourceView &view);
  void attendAdmitted(Tile tile);

  // Key heads of a task (StreamRowsHeads.cpp).
  void chooseHeadBlock();
  int64_t countHeads(mlir::MemRefType values) const;
  bool mayInterleave();
  Value areInterleaved();
  /// Whether code is emitted for several heads of a task.
  bool hasSeveralHeads() const {
    return headBlock != 1 &&
           (isPaged ? alongColumns || usesPairs : goesTogether);
  }
  /// Keys of a tile that several heads go through.
  int64_t getHeadsTile() const {
    return alongColumns ? kHeadsTile : kShortPairTile;
  }
  void enterHead(Value head);
  void forHeads(llvm::function_ref<void()> body);
  void forPieces(const Tile &tile, llvm::function_ref<void(const Tile &)> body);
  Value getScoresOfHead();
  void attendTogether(const Tile &tile);

  SourceView view(const StreamSource &source);
  void emitSet(Value part, Value numParts);
  Value shareOf(Value length, Value numParts);

  // The state of a set (StreamRowsState.cpp).
  int64_t getRowCapacity();
  /// Elements from a vector of rows to the next one in buffers of columns.
  int64_t getRowPitch();
  void allocateState();
  void allocateScratch();
  void startState(Value isFirstPart);
  double getScoreScale();
  void packRows();
  void orderColumns();
  void clearRow(Value memref, Value row);
  void finishRow(Value row);
  void storePart(Value base);
  void mergeParts(Value base, Value numParts, Value rowsPerPart);
  /// Head and query of a row.
  std::pair<Value, Value> locate(Value row);

  // Rows of keys and values, and scores (StreamRowsScores.cpp).
  Rows stage(const Rows &rows, Value staged, int64_t width, bool asks);
  bool isStaged(Value memref, int64_t width);
  Value rowOf(const Rows &rows, Value key);
  /// The vectors of columns that are loaded together, and their number: of bf16
  /// the even and the odd ones where that is possible, whose order the rows and
  /// the outputs of vectors along the columns have, too.
  Values loadColumns(Value memref, mlir::ValueRange at);
  int64_t getColumnVectors() {
    return alternates && (alongColumns || usesPairs) ? 2 : 1;
  }
  static int64_t getLinesPerRow(Value memref);
  /// How many rows ahead lines are asked for where each is multiplied by
  /// `numRows` rows, or 0 for none.
  int64_t getAhead(const Rows &rows, int64_t numRows);
  void askLine(const Rows &rows, Value row, Value line);
  std::pair<Rows, Value> orderByRows(const Rows &rows, Value key);
  /// Asks for the lines of one row, or some of them.
  void askRow(const Rows &rows, Value key);
  void askRow(const Rows &rows, Value key, Value firstLine, int64_t count);
  void askSharedTurn(const Rows &keys, mlir::ValueRange rows, Value turn);
  void askSharedRest(const Rows &keys, Value row);
  /// How many lines of keys, which are values, too, their own product asks for.
  static int64_t getSharedLines(Value keys) {
    return getLinesPerRow(keys) / 2 + 1;
  }
  /// Asks for lines `firstLine ...` of the rows from `key` on.
  void ask(const Rows &rows, Value key, Value firstLine, int64_t count);
  /// Rows that a loop asks for: `count` of them from the `first` on, if `asks`,
  /// which is null where nothing is asked for.
  struct NextRows {
    const Rows &rows;
    Value first, count, asks;
  };
  /// How many turns of a loop there are for so many rows.
  struct TurnsOfRows {
    int64_t turns, rows;
  };
  void askShare(const NextRows &next, Value turn, TurnsOfRows ratio);

  void scoreKeys(const Rows &keys, const Plane &target);
  void scoreAlongColumns(const Rows &keys, const Plane &target, int64_t rows);
  /// Whether lines are asked for one by one. Rows of lists took longer so, but
  /// on a Zen 4; with 16 registers nobody has measured it.
  bool asksEvenly(const Rows &rows) const {
    return splitVectors || (!hasFewRegisters && !rows.numbers);
  }
  bool spreadsLines(const Rows &keys, int64_t turns);
  int64_t unrollSingleRow(int64_t turns) const;
  // With four rows in each vector (StreamRowsLanes.cpp).
  /// Whether the rows are eight, or several groups of them.
  Value areEights() { return b.less(b.index(kColumnRows / 2), paddedRows); }
  Value placeInLanes(Value row, Value column);
  void packLanes();
  void scoreInLanes(const Rows &keys, const Plane &target);
  void scoreInLanes(const Rows &keys, const Plane &target, Value key,
                    Value firstRow);
  void scoreAlongRows(const Rows &keys, const Rows &asked, const Plane &target);
  void scoreAlongRows(const Rows &keys, const Rows &asked, const Plane &target,
                      Value key, Value row, int64_t numKeys,
                      RowVectors vectors);
  Values loopOverColumns(
      const NextRows &next, int64_t numKeys, mlir::ValueRange inits,
      llvm::function_ref<Values(Value, mlir::ValueRange)> addColumn);
  void scoreTables(llvm::ArrayRef<SourceView> views);
  Plane getTableScores(const KeyTable &table);
  /// Rows of the scores of a table, with those that whole tiles write.
  static int64_t padTable(int64_t numRows);
  void lookUp(const Tile &tile);

  // Products of pairs of bf16 (StreamRowsPairs.cpp).
  bool dotsPairs() const { return usesPairs && !hasAMX; }
  /// Whether the present layout leaves sums of products to `PairProduct`.
  bool multipliesPairs() const { return usesPairs && !alongColumns; }
  PairProduct startProduct() const;
  void allocatePairs();
  void packRowPairs();
  void copyNarrowRows();
  void scoreByPairs(const Rows &keys, const Plane &target);
  std::pair<Value, Value> rowsOfPair(const Rows &values, Value key);
  std::pair<Value, Value> pairValues(const Rows &values,
                                     std::pair<Value, Value> rows, Value column,
                                     bool onlyFinite);
  void packValuePairs(const Rows &values, bool onlyFinite);
  void packWeights(const Rows &values);
  void roundWeights(Value count);
  void accumulatePairs(const Rows &values, bool onlyFinite);
  void askQuarter(const Rows &rows, int64_t quarter, Value key);
  void askHalf(const Rows &rows, Value key, Value read, int64_t count);
  Value viewRowPairs();
  Value getFirstPair();
  void multiplyPairs(const Rows &values, bool onlyFinite);
  void accumulateByPairs(const Tile &tile);

  // Rows that lists name (StreamRowsLists.cpp).
  void attendList(const SourceView &source, const Interval &interval,
                  Value part, Value numParts);
  Values enterRows(const SourceView &source, const Interval &interval,
                   Value low, Value high, Value place);

  // Tiles of keys (StreamRowsTile.cpp).
  bool isLatent();
  int64_t getColumnTile();
  void startTiles();
  Values forTiles(Value low, Value high, mlir::ValueRange inits,
                  llvm::function_ref<Values(Value, mlir::ValueRange)> body);
  void attendRows(const SourceView &source, const Interval &interval, Value low,
                  Value high);
  Rows rowsOf(const Tile &tile, Value memref);
  Value rowOfKey(const Tile &tile, Value key);
  void attendTile(Tile tile);
  void weigh(const Tile &tile);
  mlir::LogicalResult finish();
  void computeScores(const Tile &tile);
  void stageTerms(const Tile &tile);
  void forScores(const Tile &tile,
                 llvm::function_ref<void(const Place &)> body);
  Value forScores(const Tile &tile, Value init,
                  llvm::function_ref<Value(const Place &, Value)> body);
  Values
  forScores(const Tile &tile, mlir::ValueRange inits,
            llvm::function_ref<Values(const Place &, mlir::ValueRange)> body);
  Value loadOfKeys(Value memref, const Place &place);
  bool mayRemove(const SourceView &source);
  bool hasRemovals(const SourceView &source);
  Value isRemoved(const Tile &tile, const Place &place);
  Value isCut(const Tile &tile, const Place &place);
  Value addTerms(const Tile &tile);
  void markHidden(const Tile &tile);

  void rescaleOutput(Value row, Value factor);
  void exponentiateAlongKeys(const Tile &tile);
  void exponentiateAlongRows(const Tile &tile);
  void squarePositive(const Tile &tile);

  // The product with the values (StreamRowsValues.cpp).
  void accumulate(const Tile &tile);
  void accumulateWeighted(const Tile &tile);
  Value areFinite(const Rows &values, Value isNeeded);
  /// Keys of a block, whose values are added to one panel of the outputs after
  /// the other.
  int64_t getValueRows(const Rows &values, int64_t numRows);
  /// Panels of the outputs of so many rows.
  int64_t getNumPanels(int64_t numRows);
  void accumulateRows(const Rows &values, int64_t numRows);
  void accumulatePanel(const Rows &values, Value firstKey, Value endKey,
                       Value row, int64_t numRows, Value column,
                       int64_t numVectors, bool readsMemory);
  /// A turn of `numKeys` keys of the loop of one of `panels` panels, which has
  /// `blockTurns` for the block of keys from `firstKey` on. The first rows ask
  /// for lines.
  struct PanelTurn {
    Value key, firstKey, panel, isFirst, blockTurns;
    int64_t panels, numKeys;
  };
  void askOfPanel(const Rows &values, const PanelTurn &turn, int64_t ahead);
  Value isFinite(Value values);
  void accumulateVisible(const Rows &values, bool onlyInfinite = false);

  // Outputs with vectors of rows (StreamRowsColumns.cpp).
  bool usesColumns() const { return !usesPairs && !alongColumns; }
  void forRowVectors(llvm::function_ref<void(Value, Value, RowVectors)> body);
  Value columnAt(Value column, Value row);
  void clearColumns();
  void rescaleColumns(Value row, Value factor);
  void accumulateColumns(const Rows &values, const Rows &asked);
  /// Columns of outputs and vectors of rows that are summed in registers: the
  /// first column, and the number of the panel among `numPanels`.
  struct ColumnPanel {
    Value column, row, number;
    int64_t numColumns, numPanels; // of pairs where vectors have two columns
    RowVectors vectors;
  };
  void accumulatePanel(const Rows &values, const Rows &asked,
                       const ColumnPanel &panel);
  void accumulateVisibleColumns(const Rows &values);
  void turnColumns();

  // Vectors of pairs of columns (StreamRowsHalves.cpp).
  bool mayPairColumns() const { return usesColumns() && !hasFewRegisters; }
  void layOutSlots();
  Value rowOfSlot(Value slot);
  Value countSlots();
  void
  forPairedVectors(llvm::function_ref<void(Value, Value, RowVectors)> body);
  void withColumns(Value row, llvm::function_ref<void(int64_t)> body);
  Value vectorAt(Value column, Value row, int64_t vector, int64_t columns);
  Value ofVector(Value rows, int64_t vector, int64_t columns);
  Value loadWeights(Value key, Value row, int64_t vector, int64_t columns);
  Value broadcastColumns(Value memref, mlir::ValueRange at, int64_t columns);
  Values
  loopOverPairs(const NextRows &next, Value key, int64_t numKeys,
                mlir::ValueRange inits,
                llvm::function_ref<Values(Value, mlir::ValueRange)> addPair);
  Values addColumns(mlir::ValueRange sums, int64_t columns);
  void pairColumns();
  void turnPairs(Value memref, int64_t width);
  void mergeSlots();

  /// Rows of one set, at most: their state fills a part of the second cache
  /// level.
  static constexpr int64_t kMaxRows = 128;
  /// Rows whose scores have vectors along the columns, at most: for more,
  /// adding up across lanes is no longer worth what it saves.
  static constexpr int64_t kColumnRows = 8;
  /// Rows of a register tile with vectors of columns, at most.
  static constexpr int64_t kGroupRows = 4;
  /// With AMX, which multiplies 16 rows in the time of one.
  static constexpr int64_t kAMXColumnRows = 4;
  /// In lanes: for fewer than 32 rows groups of eight take less time than
  /// vectors of 16 rows in pairs.
  static constexpr int64_t kLaneGroupRows = 3 * kColumnRows;
  /// Keys of a tile in either layout of the scores, and of pairs: a multiple of
  /// those that all rows are multiplied with in turn.
  static constexpr int64_t kColumnTile = 128, kRowTile = 96, kPairTile = 64;
  /// With AMX and no more rows than that: keys, values, pairs of values and
  /// outputs stay in the first cache level together. Outputs of more do not,
  /// and are read once for each tile.
  static constexpr int64_t kShortPairTile = 32, kShortPairRows = 64;
  /// With 32 registers, of narrow keys that are wider than values, whose
  /// columns latent attention has in them, and scores along the columns: keys
  /// stay in the first cache level until they are read as values.
  static constexpr int64_t kLatentTile = 32;
  /// Every fourth key of a tile asks for a row in each of four passes.
  static constexpr int64_t kQuarters = 4;
  /// Keys of a tile that several heads go through, and of a block of values:
  /// rows of all heads, and as many that have been asked for, stay in the
  /// second cache level meanwhile. Rows of a head may be 4 KB apart, and those
  /// of a block lie in one set of the first level.
  static constexpr int64_t kHeadsTile = 16, kHeadsValueRows = 8;
  /// Keys of a register tile of vectors of rows, at most, with 32 registers and
  /// with 16. Vectors of 512 bits leave no time for addresses of more keys that
  /// are kept in memory.
  static constexpr int64_t kRowStep = 8, kNarrowRowStep = 12;
  /// Keys whose values are added to one panel of the outputs after the other,
  /// at most with 32 registers, and with 16: then a panel reads a line of each
  /// row, and no panel may come to rows that have not been asked for. A panel
  /// of narrower elements reads half a line or less: more rows are asked for
  /// meanwhile.
  static constexpr int64_t kValueRows = 64, kNarrowValueRows = 16,
                           kNarrowValueLines = 128;

  StreamOp op;
  KernelBuilder b;
  int64_t lanes, accumulators, width, valueWidth, paddedWidth, paddedValueWidth;
  /// Of scores with vectors of rows: keys of a tile, and accumulators of a
  /// register tile.
  int64_t rowTile, rowAccumulators;
  bool hasFewRegisters; // 16 of vectors
  bool splitVectors;    // as of Zen 4
  /// Key heads whose sets one task has, at most, and rows of a head of several.
  /// They go through a tile of keys one after the other.
  int64_t headBlock, headRows;
  /// What decides the number of parts: `headBlock`, or what it would be if rows
  /// of heads lay between each other.
  int64_t partHeads;
  bool isPaged; // rows of all sources are those of pages
  bool goesTogether = false;
  /// What score regions do: of all sources, of each, or none.
  llvm::SmallVector<std::unique_ptr<TileScore>, 1> scoreFunctions;
  /// Rows of a set: what a number of heads or queries gives at most, and what
  /// there may be.
  int64_t mostRows, maxRows;
  int64_t columnRows; // whose scores have vectors along the columns, at most
  bool isSoftmax, manageCache, isMasked, alternates;
  /// Whether pairs of bf16 are multiplied for what has vectors of rows, by AMX
  /// or, for what has vectors of columns, too, by vdpbf16ps.
  bool usesPairs, hasAMX;
  /// Whether vectors along the columns have those of four rows where there are
  /// eight, or groups of eight.
  bool usesLanes;
  /// Whether lists differ from query head to query head: then sets have one.
  bool hasListsOfHeads;

  // Scratch.
  Value packed, outputs, maxima, sums, laneSums, rowFactors, queryOf;
  /// The outputs of vectors of rows, [column][row], until all keys are added.
  Value outputColumns;
  Value stagedKeys, stagedValues, biases, weights, factors;
  Value pairRows, wholeKeys, valuePairs, narrowWeights;
  /// Of a tile of listed rows and the next one: their numbers, and their
  /// positions as i32.
  Value listedRows, listedPositions;
  /// What the region has made, in base 2 with a soft-max: it tells what is
  /// removed when weights have replaced the scores.
  Value computed;
  Plane scores;
  llvm::SmallVector<KeyTable, 1> keyTables;
  Value partOutputs, partStates;

  // The operation, and the present set.
  Value keyHeads, setHeads, group, numQueries, firstRow, sequenceRows;
  Value batch, setHead, keyHead, firstQuery, setQueries, setBegin, setRows;
  /// Key heads of the task, and which of them the present one is.
  Value taskHeads, headOfTask;
  /// For each source the keys that regions leave of its ranges, for all sets;
  /// empty where that is not known before there is one.
  llvm::SmallVector<llvm::SmallVector<std::pair<Value, Value>>> enclosed;
  /// The layout of scores that code is emitted for, rows with padding, and how
  /// far apart vectors of rows lie.
  bool alongColumns;
  Value paddedRows, rowPitch;
  /// Of vectors of rows: the first slot of those that have two columns, and of
  /// the last one if it has every row twice, else the end.
  Value pairedBegin, doubledBegin;
  /// Keys of a tile.
  Value tileKeys;
  /// Whether another tile of the same rows follows.
  Value hasNextTile;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMROWSKERNEL_H
