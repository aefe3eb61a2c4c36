//===- StreamKernel.h - Vector code of one attn.stream ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for one attn.stream on memrefs, vectorised over queries: a vector holds
// one score for each of `lanes` queries, so maxima, exponentials and sums run
// down the keys without crossing lanes, and neither keys nor values need
// packing.
//
//   per block of L = lanes * vectors queries
//     pack      QT[D][L]    = transposed queries times scale * log2(e)
//     score     S[key][L]   = key . QT, with masks, bias and log weight;
//     maximum exponent  S[key][L]   = 2^(S - maximum); sum accumulate OT[E][L]
//     += value^T S finish    output      = transposed OT / sum; lse
//
// Sources whose rows are few (their number bounded at compile time) are scored
// all together, then take one maximum, one exponential and one product with the
// values. Longer ones are streamed in tiles of `key` rows with the running
// maximum of online soft-max.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMKERNEL_H

#include "PairProduct.h"
#include "fovea/Dialect/Attn/IR/SourceScores.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "fovea/Kernels/SkewedRows.h"
#include "fovea/Kernels/StreamRanges.h"
#include "fovea/Kernels/TileScore.h"

namespace fovea::attn {

/// A vector of bf16 with zeros for NaN and infinities.
mlir::Value clearSpecials(KernelBuilder &b, mlir::Value narrow);

class StreamKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  /// Rows of an operand that will be read soon: `row + i` is prefetched while
  /// row `i` of the segment is scored, or as many lines of consecutive rows as
  /// `linesPerTile` says with every register tile.
  struct Lookahead {
    Value memref, row;
    unsigned locality; // 3 keeps it in the first cache level, 2 in the second
    Value column = {}; // first one, and how many: null for whole rows
    int64_t columns = 0;
    Value lastColumn = {}; // no column beyond this one, where it is given
    int64_t linesPerTile = 0;
  };

  /// Rows of one source that are scored by the same loop.
  struct Segment {
    enum Kind {
      Rows,     // consecutive rows, all admitted
      Masked,   // consecutive rows, a mask cuts single entries
      Diagonal, // consecutive rows from the first query's own position on,
                // causal
      Table,    // rows listed one by one
    };
    Kind kind;
    unsigned source;
    Value keys, values; // 2-d views
    Value base;         // first row in `keys` and `values`
    Value row;          // first row in the source: position, weight and bias
    Value biasColumn;   // column of the first row in the bias
    Value count;        // number of rows
    Value skip;         // leading rows of a diagonal that lie before the source
    Value scoreRow;     // first row of S
    Value weights, weightRow; // where weights go, and the first row of them
    Value table;              // first entry of the row table
    bool mayCut = false;      // of a table: a mask cuts single entries
    /// Rows that the score region admits whole, null where that is not known.
    Value admittedBegin, admittedEnd;
    llvm::SmallVector<Lookahead> lookahead;
    /// The bias of a tile of looked-up scores, copied: a row for each query.
    /// Null where it is read in place.
    Value biasRows;
    /// The column of the bias from which on the product with the values copies
    /// that of the next tile; null if it does not. None beyond `lastBias` is
    /// asked for.
    Value nextBias, lastBias;
  };

  struct Options {
    bool manageCache; // add prefetches and streaming stores
    bool bf16Pairs;   // multiply bf16 data by the CPU's dot product of pairs
    bool amx;         // or by its AMX
  };
  StreamKernel(StreamOp op, mlir::OpBuilder &builder, Options options);

  /// Emits the code before the operation.
  mlir::LogicalResult emit();

protected:
  /// Rows of values in one turn of their product, where there is something to
  /// do in every turn.
  static constexpr int64_t kProductUnroll = 4;

  /// How the rows of a source are multiplied.
  enum class Arithmetic {
    InPlace,   // they have the state's type: read where they lie
    Packed,    // with gaps: copied once to rows of the state's type without,
               // or only where a tile reads narrower ones (`PackedRows`)
    Converted, // narrower: copied to rows of the state's type first
    Pairs,     // bf16: products of pairs (StreamPairs.cpp)
    AMX,       // bf16: products of AMX, of the same pairs (StreamAMX.cpp)
  };

  /// Running maximum and sum, one vector each per vector of queries.
  struct State {
    Values maximum, sum;
  };

  /// Keys that several sources read as rows of one table: their scores are
  /// computed once for a query block and looked up (StreamTables.cpp).
  struct KeyTable {
    Value operand; // of the op
    Value keys;    // 2-d view
    Value staged;  // scratch in the state's type, null where `keys` has it
    Value scores;  // scratch [rows][L]
    int64_t numRows;
    /// The source that reads the rows themselves, without a bias, and what is
    /// added to their scores: masked where a block does not read them.
    std::optional<unsigned> reader;
    Value weights; // scratch [rows], null without a reader
  };

  /// The terms by distance of sources that have the same operands, laid out for
  /// a head and a block of queries (StreamDistances.cpp).
  struct DistanceTerms {
    Value relativeKeys, relativeBias, distanceBias; // of the op, null for none
    DistanceRows distances;
    Value keys = {};     // 2-d view of the head's, or `staged`
    Value staged = {};   // scratch in the state's type, where keys have another
    Value bias = {};     // scratch [D], added to the queries
    Value queries = {};  // scratch [D][L], times scale * log2(e)
    Value products = {}; // scratch [rows by distance][L]
    Value numbers = {};  // scratch [rows by distance], times log2(e)
  };

  /// Copies of the rows of a source that is alone, without gaps.
  struct PackedRows {
    /// Scratch [rows][width] in the state's type; for AMX in bf16, widths
    /// filled up, and values transposed.
    Value keys, values;
    Value end; // scratch [1]: one past the last row copied of the window
    /// Whether all rows are: else those of the state's type are read in place,
    /// and narrower ones are copied for each tile. Null for AMX.
    Value areAll = {};
  };

  /// Rows that are copied while all blocks of queries read them.
  struct Window {
    Value begin, end;
    Value shift; // by how much a row's copy comes before the row
    Value isFirst, isLast;
  };

  /// What blocks of queries keep from one window to the next.
  struct SuspendedBlocks {
    Value queries; // scratch [block][..], packed
    Value outputs; // scratch [block][E][L]
    Value state;   // scratch [block][2][L]: maxima and sums
    Value before;  // scratch [E][L]: outputs before the present window
  };

  /// Rows and their copies for AMX.
  struct AMXRows {
    Value keys, values, packedKeys, packedValues;
  };

  /// A source's operands for one batch entry and head, as 1-d and 2-d views.
  struct SourceView {
    Value keys, values, logWeight, bias, codes, rows, tokens;
    Value list; // of rows: one for each block of queries, or for all
    Value spreadKeys, spreadValues; // what `keys` and `values` are copies of
    Value valueBlocks, logWeightBlocks; // with an axis of query blocks
    const KeyTable *keyTable;           // null for keys of the source's own
    const DistanceTerms *distanceTerms; // null without terms by distance
    Value origin;                       // position of row 0 among the queries
    SourceAttr attr;
    Arithmetic arithmetic;
    bool weightBroadcasts, biasRowBroadcasts, biasKeyBroadcasts;
    ScoreAdmission::State admission; // what is known of it for the queries
  };

  /// One factor of a product with rows: the rows to transpose, and where to.
  struct RowPack {
    Value rows, staged, packed;
    int64_t width;
    Value addend = {}; // to every row, null for none
  };
  /// The factors of a product along `width` columns: rows, and what is packed
  /// for the queries of a block.
  struct Factors {
    Value rows, packed;
    int64_t width;
  };

  void allocateScratch();
  void viewHead(Value batch, Value head);
  void emitHead(Value batch, Value head);
  /// Where the queries that exist end, of those from `begin` to `end`.
  Value findEnd(Value begin, Value end);
  /// Calls `body(first query, number of queries, block index)` for the blocks
  /// of queries `[begin, end)`.
  void forEachQueryBlock(Value begin, Value end,
                         llvm::function_ref<void(Value, Value, Value)> body);
  void emitQueryBlock(Value query, Value numQueries, Value blockIndex);

  // Stages, in the order they run.
  State startState();
  /// The position of the block's first query among the tokens of a source: the
  /// last query stands at the last one.
  Value firstPosition(const SourceView &source) {
    return b.add(b.add(firstRow, blockQuery), b.sub(source.tokens, numRows));
  }
  void packQueries(Value query, Value numQueries);
  /// Packs the transposed rows of a block of queries, plus what is to be added,
  /// times `factor` unless that is null. Returns the rows themselves: in place,
  /// or in `staged`, which whole vectors may be read of whatever the width.
  Value packRows(const RowPack &pack, Value query, Value numQueries,
                 Value factor);
  /// What products of queries and keys are multiplied by.
  double getScoreScale();
  void scoreTables(llvm::ArrayRef<Segment> segments, Values &maximum);
  void streamLongRanges(llvm::MutableArrayRef<Segment> segments, State &state);
  /// Whether tiles before the first that the score region of a source leaves
  /// are looked for.
  bool skipsLeadingTiles(unsigned source);
  /// Bounds runs of the integers that score regions capture, for this.
  void boundRuns();
  /// Bounds the score region for the queries of the block.
  void enterAdmission();
  /// Calls `body` for the part of a tile that the score region admits, unless
  /// there is none: then the results are `values`.
  Values ifAdmitted(const Segment &tile, mlir::ValueRange values,
                    llvm::function_ref<Values(const Segment &)> body);
  void attendTile(Segment tile, State &state);
  void attendShortRanges(llvm::MutableArrayRef<Segment> segments, State &state);
  /// Whether a diagonal of short ranges is what the outputs start with.
  bool startsWithDiagonal(llvm::ArrayRef<Segment> shorts);
  /// Rows of short ranges that weights are kept of.
  int64_t getChunkRows();
  void scoreSegments(llvm::MutableArrayRef<Segment> segments, Values &maximum);
  void finish(Value query, Value numQueries, const State &state);

  // The same stages on pairs of bf16 (StreamPairs.cpp).
  /// Packs rows of a block of queries as pairs of columns, through `staged`:
  /// rows of that without a query are zeros.
  void packPairs(const RowPack &pack, Value query, Value numQueries);
  void packValuePairs(const Segment &segment);
  /// Sets whole vectors of a row of bf16 to zero, from that with `column` on.
  void clearRow(Value memref, Value row, int64_t column, int64_t width);
  Values multiplyPairs(const Segment &segment, Value offset,
                       mlir::ValueRange rows, unsigned firstVector);
  void exponentiatePairs(const Segment &segment, const Values &maximum,
                         Values &sum);
  Values accumulatePairs(const Segment &segment, Value column,
                         int64_t numColumns, bool onlyVisible);
  Value clearHiddenHalves(Value weights, Value values);
  void markHiddenPairs(const Segment &segment);

  // Products by AMX (StreamAMX.cpp).
  void allocateForAMX(int64_t rows);
  /// Copies the first `count` of 32 rows, and zeros for the others.
  void packForAMX(const AMXRows &rows, llvm::function_ref<Value(Value)> rowOf,
                  Value count, Value target);
  /// Transposes 32 rows from `row` on: to columns of `packed` from `target` on;
  /// zeros for what is not finite if `clears`.
  void transposeForAMX(Value rows, Value row, int64_t columns, Value packed,
                       Value target, bool clears = false);
  Segment stageForAMX(Segment segment);
  void scoreByAMX(const Segment &segment);
  void accumulateByAMX(const Segment &segment);
  void multiplyVisible(const Segment &segment, PairProduct product);

  // Segments.
  void collectSegments(Value blockIndex, llvm::SmallVectorImpl<Segment> &longs,
                       llvm::SmallVectorImpl<Segment> &shorts);
  Segment buildTable(unsigned source, llvm::ArrayRef<unsigned> ranges,
                     Value blockIndex);
  Segment finishTable(unsigned source, Value start, Value end);
  void storeTableRow(const SourceView &source, Value row, Value entry);
  /// Calls `visit(kind, begin, end, skip)` for the rows of a run that the mask
  /// treats alike.
  void splitByMask(
      unsigned source, Value begin, Value end,
      llvm::function_ref<void(Segment::Kind, Value, Value, Value)> visit);

  // Rows that lists name (StreamLists.cpp).
  void allocateTables();
  void listRows(unsigned source, Value blockIndex,
                llvm::SmallVectorImpl<Segment> &segments);
  Value listRowsBetween(const SourceView &source, Value blockIndex, Value begin,
                        Value end, Value count);
  Value positionOf(const Segment &segment, Value entry);
  Segment stage(Segment segment);
  /// Copies the rows of a segment to rows of the state's type.
  Segment convert(Segment segment);
  void packBias(const Segment &segment);

  // Rows that are copied, a window at a time (StreamWindows.cpp).
  bool packsRows();
  Value isWorthPacking();
  bool areNarrow(const StreamOp::Source &source);
  Value choosePacked(Value copies, Value rows);
  Segment pack(Segment segment);
  int64_t getWindowRows();
  int64_t getMaxWindowRows();
  /// How many rows there are copies of.
  Value getNumCopies();
  void allocateWindows();
  /// Calls `body` for each window of the rows that the first `numQueries` read;
  /// once, without a window, where rows are not copied.
  void forEachWindow(Value numQueries, llvm::function_ref<void()> body);
  void clipToWindow(Segment &segment);
  /// Goes on with a block of queries where the last window left it, or with
  /// `state` and what `packFactors` packs.
  void resume(Value query, State &state,
              llvm::function_ref<void()> packFactors);
  void suspend(const State &state);
  void rewindOutputs();
  void clearOutputs();

  // Prefetching and streaming stores (StreamPrefetch.cpp).
  void lookAhead(Segment &tile);
  void lookAhead(llvm::MutableArrayRef<Segment> segments);
  /// What the next block of queries reads, with how many rows of a table it is
  /// prefetched during.
  llvm::SmallVector<std::pair<int64_t, Lookahead>>
  lookAhead(const Segment &table, int64_t numRows,
            llvm::ArrayRef<Segment> segments);
  int64_t getUnroll(const Segment &segment, int64_t width);
  void prefetch(const Segment &segment, Value offset, Value k, int64_t unroll,
                int64_t width);
  void prefetchLines(const Lookahead &ahead, Value firstRow, Value firstLine,
                     int64_t count);
  int64_t getLineElements(const Segment &segment);
  Value canStream(Value view);
  Value hasAlignedRows(Value view);

  // Keys that are rows of a table (StreamTables.cpp).
  void collectKeyTables();
  void viewKeyTables(Value batch, Value keyHead);
  const KeyTable *findKeyTable(Value keys);
  Value tableRowOf(const SourceView &source, Value row);
  void packTableWeights(const Segment &segment);
  /// Whether scores are read from those of a table when they are needed: there
  /// is nothing to keep but the maximum.
  bool isLookedUp(const Segment &segment) {
    const SourceView &source = sources[segment.source];
    return source.keyTable && !source.bias && !source.distanceTerms;
  }
  /// Whether they were counted in the maximum with the table.
  bool isReaderOfTable(const Segment &segment) {
    const SourceView &source = sources[segment.source];
    return source.keyTable && source.keyTable->reader == segment.source;
  }
  Values lookUp(const Segment &segment, Value offset, int64_t numRows,
                unsigned firstVector);

  // Scores that are looked up and have a bias (StreamBias.cpp).
  bool addsBiasInSquares(const Segment &segment);
  Value lookUpWithBias(const Segment &segment, Values &maximum);
  /// Rows of a tile of scores that are looked up.
  int64_t getLookupTile();
  int64_t getBiasCopiesPerTurn();
  bool copiesBias(const Segment &segment);
  void copyBias(Segment &segment);
  void copyNextBias(const Segment &tile, Value column, Value offset);
  void moveBias(const Segment &tile, Value copy);
  Lookahead lookAheadInBias(const Segment &segment);

  /// What the score region makes of the product of entry `offset + entry`, in
  /// the base of scores.
  Value computeScore(const Segment &segment, Value offset, int64_t entry,
                     unsigned vector, Value product);

  // Terms by distance (StreamDistances.cpp).
  void allocateDistanceTerms();
  const DistanceTerms *findDistanceTerms(const StreamOp::Source &source);
  void layOutDistanceTerms(Value head);
  Value getDistance(const Segment &segment);
  void multiplyDistances(Value query, Value numQueries,
                         llvm::ArrayRef<Segment> segments);
  void packDistances(const Segment &segment);

  // Entries that are not read (StreamHidden.cpp).
  /// Whether single entries of a segment are masked.
  static bool isMasked(const Segment &segment);
  /// Whether a segment may have entries that some query does not read.
  bool mayHide(const Segment &segment);
  /// Whether what is added to scores may be minus infinity.
  bool hasBiasThatHides(const Segment &segment);
  /// The log weight, in every lane, and the bias of an entry; null without.
  Value weightAt(const Segment &segment, Value entry);
  Value biasAt(const Segment &segment, Value entry, unsigned vector);
  /// Which queries of a vector do not read an entry; null for none. `cuts` says
  /// whether the mask may cut it, and `score` is what a region has computed.
  Value hides(const Segment &segment, Value entry, unsigned vector,
              Value weight, Value bias, Value score, bool cuts);
  Value hides(const Segment &segment, Value entry, unsigned vector);
  Value isCut(const Segment &segment, Value entry, unsigned vector);
  void markHidden(const Segment &segment);
  /// Emits `attend`, which fills the outputs: again without hidden entries
  /// where some output is not finite.
  State repeatUnlessFinite(llvm::function_ref<State()> attend);
  /// Whether some number of rows `rowOf(i)` is infinite or NaN.
  Value hasSpecial(Value rows, int64_t columns, Value begin, Value end,
                   llvm::function_ref<Value(Value)> rowOf);
  Value isAnyNaN(Value vector);

  // Parts of a pass over segments.
  /// A loop over rows of a segment, in register tiles of `step` for the vectors
  /// of queries from `firstVector` on.
  struct RowLoop {
    Value low, high;
    int64_t step;
    unsigned firstVector;
    bool masked;
    /// From row `gapBegin` on there are `gap` rows more: null for none.
    Value gapBegin = {}, gap = {};
  };
  void scoreSegment(const Segment &segment, Values &maximum);
  void scoreRows(const Segment &segment, const RowLoop &rows, Values &maximum);
  /// Calls `body` for the loops over whole register tiles of a segment, and for
  /// what is left of its rows.
  void forEachRowTile(const Segment &segment,
                      llvm::function_ref<void(const RowLoop &)> body);
  /// Emits such a loop, whose body gets the first row of a register tile.
  Values loopOverRows(const RowLoop &rows, mlir::ValueRange carried,
                      llvm::function_ref<Values(Value, mlir::ValueRange)> body);
  /// Where entries `offset ...` of a segment lie in its keys and values.
  Values rowsOf(const Segment &segment, Value offset, int64_t count);
  /// Rows of one number for each query, from vector `firstVector` on.
  Values loadRows(Value memref, Value row, int64_t count, unsigned firstVector);
  /// The scores of entry `offset`, kept or looked up.
  Values loadScores(const Segment &segment, Value offset, unsigned firstVector);
  /// The scores of a register tile, masks and terms included.
  Values scoreTile(const Segment &segment, Value offset, mlir::ValueRange rows,
                   unsigned firstVector, bool masked);
  Values multiply(const Segment &segment, Value offset, mlir::ValueRange rows,
                  unsigned firstVector, const Factors &factors);
  void exponentiate(const Segment &segment, const Values &maximum, Values &sum);
  void squarePositive(const Segment &segment);
  /// The product with columns of the values, without hidden entries if
  /// `onlyVisible`, whose weights are marked.
  Values accumulate(const Segment &segment, Value column, int64_t numColumns,
                    bool onlyVisible);
  /// Sets every output to `combine(old, product with the values, vector)`.
  void
  accumulateColumns(const Segment &segment,
                    llvm::function_ref<Value(Value, Value, int64_t)> combine);

  /// Runs `body(low, high, firstVector)` over the parts of a segment's rows
  /// whose live vectors of queries are the same.
  void forEachTriangle(const Segment &segment,
                       llvm::function_ref<void(Value, Value, unsigned)> body);

  /// Rows `[offset, offset + size)` of a segment, or as many as it has of them.
  Segment slice(const Segment &segment, Value offset, int64_t size);
  Value tableRow(const Segment &segment, Value entry);
  Value sourceRow(const Segment &segment, Value entry);
  Value logWeightAt(const SourceView &source, Value row);
  Value getTermScale();

  bool hasScores() { return !op.getScores().empty(); }
  /// What the score region of a source does, of which there is one then.
  TileScore &getScore(unsigned source) {
    return *getOfSource(scoreFunctions, source);
  }
  /// Whether what the score region makes of an entry may remove it.
  bool scoresRemove(const Segment &segment);
  /// Whether some source has tiles that are skipped.
  bool skipsTiles();
  mlir::LogicalResult expandMath();
  /// Says which conditions of the region skip tiles.
  void remarkOnAdmission();

  Arithmetic getArithmetic(const StreamOp::Source &source);
  /// Whether rows are multiplied as pairs of bf16.
  bool hasPairs(const StreamOp::Source &source);
  /// What the first rows of segments are multiples of.
  int64_t getRowUnit() { return usesAMX ? kAMXDepth : usesPairs ? 2 : 1; }
  bool isAny(Arithmetic arithmetic);
  Arithmetic arithmeticOf(const Segment &segment) {
    return sources[segment.source].arithmetic;
  }
  /// Whether weights are kept as pairs.
  static bool isOfPairs(Arithmetic arithmetic) {
    return arithmetic == Arithmetic::Pairs || arithmetic == Arithmetic::AMX;
  }

  StreamOp op;
  TilesAttr tiles;
  KernelBuilder b;
  int64_t lanes, vectors, width, valueWidth;
  bool hasBias, manageCache;
  bool isSoftmax;   // or weights are squared positive scores
  ScoreBase base;   // of what score regions are given and give
  bool allowsPairs; // bf16 query and output: pairs for sources of bf16
  bool usesPairs;   // and some source is
  bool usesAMX;     // multiplies them
  /// Whether rows of keys are read as vectors, so that ragged ones need a copy.
  bool padsRows = false;
  /// How many columns before it is packed a bias is asked for, and the cache
  /// level it goes to.
  int64_t biasAhead;
  unsigned biasLocality = 3;
  RangeAnalysis ranges;
  /// One for all sources, one for each, or none.
  llvm::SmallVector<std::unique_ptr<TileScore>> scoreFunctions;
  /// Whether scores are those of entries that the region admits.
  bool admitsAll = false;
  /// Products of the last register tile, of queries and keys.
  Values tileProducts;
  /// Derivatives of its scores, of a gradient.
  Values scoreDerivatives;
  /// The same by what the region reads, a list for each vector.
  llvm::SmallVector<Values> readDerivatives;

  // Scratch.
  Value packedQueries, stagedQueries, scores, outputs, outputRows, factors;
  Value chunkWeights;
  Value stagedKeys, stagedValues, table, tableWeights, packedBias, biasRows;
  /// Positions of rows of the table, where some stand as they are listed; and
  /// where the tables of lists start, by source.
  Value tablePositions;
  Values listStarts;
  /// Where gradients of listed rows go: rows of windows (StreamBackwardKernel),
  /// so much further than in the source, by source and range.
  Value tableTargets;
  llvm::SmallVector<Values> tableShifts;
  Value stagedPairs, queryPairs, weightPairs, valuePairs;
  Value amxKeys, amxValues, amxRows, amxSums;

  // The present head and query block.
  llvm::SmallVector<SourceView> sources;
  PackedRows packed;
  SuspendedBlocks suspended;
  std::optional<Window> window; // none where rows are not copied
  Value blockState;             // of the present block
  llvm::SmallVector<KeyTable, 1> keyTables;
  llvm::SmallVector<DistanceTerms, 1> distanceTerms;
  Value queryRows, outputView, lseView;
  Value sink; // of the present head, null without
  Value firstRow, numRows, blockQuery, blockQueries, streamsOutput;
  /// Whether the block's sums are taken without hidden entries; null where no
  /// segment has any.
  Value isRepeated;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMKERNEL_H
