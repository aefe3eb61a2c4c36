//===- GPUStreamKernel.h - GPU code of one attn.stream ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code of one block of threads for one tile of attn.stream on memrefs. A warp
// has `lanes` (16) queries, a block `vectors` warps. Keys and values pass
// through shared memory in tiles of `key` rows, copied while the tile before is
// multiplied; scores and weights stay in the fragments of the tensor cores.
//
//   per query block
//     collect  ranges -> segments of consecutive rows, and one row table
//     per tile of rows, whatever segment it belongs to
//       score       S = Q K^T, score region, log weight, bias, mask
//       normalise   online soft-max: S = 2^(S - maximum), running sum
//       accumulate  O += S V
//     finish   output = O / sum; lse
//
// All segments of all sources form one list of tiles, so that the copies never
// drain between them. A tile knows its source, its first row, how many rows it
// has and between which rows each query may read.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMKERNEL_H

#include "fovea/Dialect/Attn/IR/SourceScores.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/GPURowCopies.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "fovea/Kernels/ScoreBody.h"
#include "fovea/Kernels/StreamRanges.h"
#include "fovea/Kernels/TileScore.h"
#include "llvm/Support/MathExtras.h"
#include <functional>
#include <optional>

namespace fovea::attn {

/// Farther than any row; the difference of two such numbers fits 32 bits.
constexpr int64_t kFar = 1 << 30;

/// What squared scores are divided by, at least: its inverse and its square are
/// normal numbers.
constexpr double kLeastPeak = 0x1p-60;

/// The type that queries, keys and values of a stream are multiplied in: the
/// narrow one that queries and results have, or else f32. Sources kept in f32
/// beside narrow results are rounded, as weights are.
mlir::FloatType getProductType(StreamOp op);

/// An error for a stream that kernels cannot compute.
mlir::LogicalResult verifyGPUStream(StreamOp op);

/// Shared memory of a block with these tiles: fixed by the shapes.
class GPUStreamLayout {
public:
  explicit GPUStreamLayout(StreamOp op);
  /// Where a warpgroup kernel has its barriers, and what its tiles are.
  int64_t barriers = 0, tiles = 0;
  /// Value columns that are summed at once, and how many times that is done.
  int64_t valueColumns, numPasses;
  // Offsets in bytes.
  int64_t queries, keys, values, weights, hidden, table, places, cuts, keyRows;
  int64_t listedRows; // of warpgroup kernels
  /// Results of warpgroup kernels on their way to memory, where there is room.
  std::optional<int64_t> results;
  int64_t votes; // likewise
  /// What the producer says of values, where blocks of threads stay.
  int64_t search;
  /// Relative keys of warpgroup kernels and their products with queries, where
  /// tensor cores multiply them.
  std::optional<int64_t> relativeKeys, relativeProducts;
  /// Whether scores may say that their entries are not read: they have a bias,
  /// or a region that may remove some.
  static bool scoresHide(StreamOp op);
  int64_t tableRows, bytes = 0;
  /// Whether a tile's rows of keys are found ahead of its copies: where codes
  /// say them and a block is one warp, which would wait for each.
  static bool findsKeyRows(StreamOp op);
  /// Rows of f32 of one tile, as they are in memory, where products are narrow
  /// and a block is one warp: it would wait for what passes through registers.
  std::optional<int64_t> wideKeys, wideValues;
  /// Tiles whose weights and places are there at once.
  int64_t numSlots = 2;

private:
  int64_t place(int64_t size);
  void placeBoxes(int64_t queryRows, int64_t keyRows, int64_t width);
  void placeRelativeKeys(int64_t queryRows, int64_t width);
  void placeResults(int64_t queryRows);
};

/// Whether kernels of sm_90a, whose tiles have warpgroups for lanes, can
/// compute a stream.
bool canUseWarpgroups(StreamOp op);

/// Whether a block of threads stays for several blocks of queries, whose first
/// keys it copies while those before end. Blocks of queries that read several
/// sources have few tiles each, so that it counts. `ptxas` spills registers of
/// a single warpgroup of consumers otherwise.
bool canStay(StreamOp op);

/// Why blocks for two heads of queries cannot share all tiles of keys and
/// values of a stream, as a cluster does; empty if they can. Blocks for the
/// same queries of heads that share keys read the same tiles in the same order.
std::string getClusterProblem(StreamOp op);

/// Keys of the tiles whose products with relative keys tensor cores have.
constexpr int64_t kRelativeTile = 64;
/// Whether they have, with the tiles of the operation. Other kernels multiply
/// relative keys by scalars.
bool multipliesRelativeKeys(StreamOp op);

/// The map of a tensor, a pointer for copies by boxes, and where in it an
/// operand of the kernel begins, in 32 bits. Boxes of the output have the rows
/// of a warp.
struct TensorMap {
  mlir::Value map; // null if threads copy the operand row by row
  llvm::SmallVector<mlir::Value> offsets;
};
struct TensorMaps {
  struct Source {
    TensorMap keys, values, relativeKeys;
    /// From emitRelativeBiases, and of which head; null unless
    /// tensor cores multiply relative keys.
    mlir::Value relativeBiases, relativeHead;
  };
  TensorMap query, output;
  llvm::SmallVector<Source> sources;
  /// Blocks of a cluster, which copy parts of each tile for one another. Boxes
  /// of keys and values have the rows of a part.
  int64_t cluster = 1;
};

/// A buffer of `factor` times the products of biases of queries [H, D] and
/// relative keys [H, R, D], and of what stands for distances that there are
/// not.
mlir::Value emitRelativeBiases(KernelBuilder &host, mlir::Value biases,
                               mlir::Value keys, double factor);

class GPUStreamWarpgroups;

class GPUStreamKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  /// The operation must have tiles and no error from verifyGPUStream.
  GPUStreamKernel(StreamOp op, mlir::OpBuilder &builder, F32Math math);

  static int64_t getNumThreads(StreamOp op);
  /// Emits the code before the operation.
  void emit();
  /// Emits a launch of tiles whose rows are heads.
  void emitHeads();
  /// What products are multiplied by before terms are added.
  double getScoreScale() const { return scoreScale; }
  /// The same as `emit` for tiles of warpgroups. A loop of a block of threads
  /// around the operation becomes one of each role.
  void emitWarpgroups(const TensorMaps &maps);

private:
  friend class GPUStreamWarpgroups;

  /// A source's operands for one batch entry and head, as 1-d and 2-d views.
  struct SourceView {
    Value keys, values, logWeight, bias, codes, list, rows, tokens;
    Value valueBlock; // of 32 bits; null unless values differ by block
    /// Terms by distance, those of all heads where rows are heads, and the
    /// position of row 0 among the queries, of 32 bits.
    Value relativeKeys, relativeBias, distanceBias, origin;
    SourceAttr attr;

    bool hasTerms() const { return bias || relativeKeys || distanceBias; }
  };

  /// Consecutive rows of a source, entries of the row table, or rows of a list
  /// in order. Query `i` of the block may read rows `lower + i <= row <
  /// max(upper + i, prefix)`; null where no mask says so. With a stride `lower`
  /// and `upper` are positions. Of a list, all bounds are of where rows stand,
  /// and only rows from `begin` to before `end` are read.
  struct Segment {
    unsigned source;
    bool isTable;
    Value low, high, lower, upper, prefix, begin, end;
    Value firstTile;
    Value biasBegin; // the row of column 0 of a local bias
  };

  /// One tile of rows, with positions counted from its first row; those of
  /// listed rows are counted from 0.
  struct Tile {
    Value source;  // null when there is only one
    Value isTable; // null when no segment is a table
    Value row, count, lower, upper;
    Value biasColumn; // of the first row; null without a local bias
    Value prefix;     // null where no source has one
    Value stride;     // likewise
    Value begin, end; // null where no source has lists
  };

  /// A row that a list names: where it is stored, or the nearest row that is,
  /// where it stands, and whether there is such a row.
  struct ListedRow {
    Value row, position, exists;
  };

  /// Sums of one thread: rows `lane / 4` and 8 more of its warp.
  struct State {
    llvm::SmallVector<Values> output; // four numbers for each 8 columns
    Values maximum, sum;              // one for each row
  };

  void placeLane();
  void placeShared();
  /// Runs `body` as code that is rarely run, with positions of its own where
  /// that saves registers.
  void rarely(llvm::function_ref<void()> body);
  void placeTerms();
  void placeQueries(Value number);
  void beginHead(Value batch, Value head);
  void beginQueryBlock(Value query, Value numQueries, Value blockIndex);
  void beginOnlyBlock();
  void emitHead(Value batch, Value head);
  void emitHeadBlock();
  Value viewHeads(Value memref);
  Value getRowHead(Value row);
  Values locateRow(Value row);
  Value getStep(Value row);
  Value countSteps();
  int64_t countMostSteps();
  Value getFirstPosition();
  void leaveEmpty(Value row);

  // Several blocks of threads for one query (GPUStreamParts.cpp).
  void allocateParts();
  void takePart(Value part, Value pack, Value tile,
                llvm::function_ref<void()> body);
  void storePart(const State &state, Value column);
  void mergeParts();

  void emitSources(Value blockIndex);
  void emitQueryBlock(Value query, Value numQueries, Value blockIndex);
  void emitPasses();
  void emitPass(Value column);
  Values lookUp(Value number, Values (GPUStreamKernel::*find)(const Tile &));

  // Segments and tiles (GPUStreamTiles.cpp).
  void collectSegments(Value blockIndex);
  void addSegment(unsigned source, Value low, Value high);
  void addTable(unsigned source, llvm::ArrayRef<unsigned> ranges,
                Value blockIndex);
  Tile getTile(Value number);
  Values pack(const Tile &tile);
  Tile unpack(mlir::ValueRange values);
  /// Of what pack returns.
  llvm::SmallVector<mlir::Type> getTileTypes();
  /// Where `offset` rows into the tile lie in the source.
  Value getRow(const Tile &tile, Value offset);
  Value selectBySource(const Tile &tile,
                       llvm::function_ref<Value(const SourceView &)> view);
  /// `then()` where a tile is of source `index`, and `otherwise` elsewhere.
  Value whereSource(const Tile &tile, unsigned index, Value otherwise,
                    llvm::function_ref<Value()> then);

  // Tiles that score regions leave (GPUStreamAdmission.cpp).
  /// A tile that is read, and where to look for the next one: among the 32
  /// tiles from `group` on are those whose bit is set in `later`.
  struct Turn {
    Value number, group, later;

    Values pack() const { return {number, group, later}; }
  };
  bool skipsTiles();
  /// Whether rows of a tile of `segment` may stand anywhere.
  bool standsApart(const Segment &segment);
  Value isRead(Value number);
  Value voteOn(Value group);
  /// The first tile that is read. All lanes of a warp take turns together.
  Turn startTurns();
  Turn takeTurn(Turn turn);
  /// How many tiles are read.
  Value countTurns();
  void remarkOnAdmission();

  // Rows that lists name (GPUStreamLists.cpp).
  void addListed(unsigned source, Value blockIndex);
  Value countEntries(const SourceView &source, const Segment &segment);
  ListedRow findListed(const SourceView &source, Value number);
  /// Where row `offset` of a tile stands among those of its source.
  Value getPosition(const Tile &tile, Value offset);
  void loadPlaces(const Tile &tile, Value stage);
  Value loadPlace(Value stage, Value offset);

  // Copies to shared memory (GPUStreamCopies.cpp).
  void loadQueries();
  void loadTile(const Tile &tile, Value stage, Value column);
  void copyTile(const Tile &tile, Value SourceView::*view,
                const SharedMatrix &shared, const SharedMatrix &wide,
                Value stage, const ColumnRange &columns,
                llvm::function_ref<Value(Value, Value)> toRow);
  void copyToBoxes(const Tile &tile, const SourceView &source,
                   Value SourceView::*view, const SharedMatrix &boxes,
                   Value stage, Value slot, int64_t columns,
                   int64_t numColumns);
  Value isWide(const Tile &tile, Value SourceView::*view);
  void roundTile(const Tile &tile, Value stage);
  std::pair<Value, Value> findRow(const Tile &tile, Value row);
  Value getKeyRow(const Tile &tile, Value row);
  /// Whether a block is one warp, which has nothing to do while it waits for
  /// memory but to attend to a tile.
  bool looksAhead() const { return b.getNumThreads() == kWarpSize; }
  Values findKeyRows(const Tile &tile);
  void storeKeyRows(llvm::ArrayRef<Value> found);
  Values findWeights(const Tile &tile);
  void storeWeights(llvm::ArrayRef<Value> found, Value stage);

  // Masks (GPUStreamMasks.cpp).
  /// What is added to a thread's scores, loaded ahead of them; what is not is
  /// empty.
  struct Terms {
    Values pairs;     // of a bias: two for each 8 columns
    Values distances; // by distance: four
    /// What is added to products with relative keys, and the sums of the four
    /// entries of 8 columns, times the scale.
    Values relativeBiases;
    std::function<Values(int64_t number)> relative;
  };
  /// Rows `lower .. lower + length - 1` of a tile.
  struct Bounds {
    Value lower, length;
  };
  void noteHidden(Value stage, Value number, Value weight);
  /// A bit for each of the 32 rows of a tile from a multiple of 32 on, by the
  /// lanes of a warp, and the bits of one word.
  void storeBits(Value bits, Value stage, Value number, Value condition);
  Value loadBits(Value bits, Value stage, Value word);
  Value isAny(Value bits, Value stage);
  Value getQueryPosition(Value row);
  Value getTerms(Value terms, Value row);
  Value getDistance(const Tile &tile, const SourceView &source, Value row,
                    Value offset);
  Values multiplyRelative(const Tile &tile, const SourceView &source,
                          int64_t number);
  Value loadBias(const Tile &tile, const SourceView &source, Value row,
                 Value offset);
  Values loadDistances(const Tile &tile, const SourceView &source,
                       int64_t number);
  Terms loadTerms(const Tile &tile);
  Value addTogether(Value bias, Value distance);
  void addBias(const Tile &tile, const Terms &ahead, double factor,
               llvm::SmallVectorImpl<Values> &scores);
  Value multiply(Value number, double factor);
  /// Whether a score, or what is added to it, removes its entry.
  Value removes(Value term);
  Value computeScore(ScoreBody &body, const Tile &tile, Value row, Value offset,
                     Value product);
  Values computeScores(const Tile &tile, llvm::SmallVectorImpl<Values> &scores);
  Value removesEntry(const Tile &tile, Value row, Value offset);
  void changeScores(Value condition, llvm::SmallVectorImpl<Values> &scores,
                    llvm::function_ref<void()> then);
  Bounds getBounds(const Tile &tile, int64_t half);
  std::pair<Value, Value> getCommonRows(const Tile &tile);
  Value isCut(const Tile &tile, Value stage);
  void mask(const Tile &tile, Value stage, Value isCut,
            llvm::SmallVectorImpl<Values> &scores);
  Value hasMasked(llvm::ArrayRef<Values> scores);
  Values getColumnsFrom(Value row);
  Values getHiddenColumns(Value stage);
  void applyBits(const Tile &tile, Value stage,
                 llvm::SmallVectorImpl<Values> &scores);
  void applyMask(const Tile &tile, Value stage,
                 llvm::SmallVectorImpl<Values> &scores);
  Value readsRow(const Tile &tile, Value stage, int64_t half, Value row);
  void readUnbounded(const Tile &tile, Value stage,
                     llvm::ArrayRef<SharedRows> values, State &state);
  Values clearFound(const Tile &tile, Value stage,
                    llvm::ArrayRef<SharedRows> values, const State &state,
                    llvm::function_ref<void()> publish);
  void clearHidden(const Tile &tile, Value stage, Value isCut,
                   llvm::ArrayRef<SharedRows> values, State &state,
                   llvm::function_ref<void()> await = nullptr,
                   llvm::function_ref<void()> publish = nullptr);

  // Stages (GPUStreamStages.cpp).
  llvm::SmallVector<Values> score(const Tile &tile, Value stage);
  void addTerms(const Tile &tile, Value stage, const Terms &ahead,
                llvm::SmallVectorImpl<Values> &scores);
  Values weigh(const Tile &tile, Value stage, Value &isCut, const Terms &ahead,
               llvm::SmallVectorImpl<Values> &scores, State &state,
               llvm::function_ref<void(Value)> vote = nullptr);
  Value findTop(llvm::ArrayRef<Values> scores, int64_t half);
  Values normalise(llvm::SmallVectorImpl<Values> &scores, State &state);
  Values square(Value stage, llvm::SmallVectorImpl<Values> &scores,
                State &state);
  void rescale(const Values &factors, State &state);
  Value loadWeight(Value stage, int64_t number, int64_t i);
  void accumulate(const llvm::SmallVectorImpl<Values> &weights, Value stage,
                  State &state);
  void accumulateF32(const llvm::SmallVectorImpl<Values> &weights, Value stage,
                     State &state);
  void attend(const Tile &tile, Value stage, State &state);
  void finish(const State &state, Value column);
  void storeColumns(const State &state, int64_t half, Value firstColumn,
                    Value rows, mlir::ValueRange leading,
                    llvm::function_ref<Value(Value)> change);
  Value sumOfRow(const State &state, int64_t half);
  Value isRowWriter(Value firstColumn);
  void storeLse(Value maximum, Value sum, mlir::ValueRange row,
                Value firstColumn);

  // Results of warpgroups (GPUStreamResults.cpp).
  void finishRows(const State &state, const TensorMap &output);
  void finishBoxes(const State &state, const TensorMap &output);
  void awaitBoxes();
  Value getFinalFactor(Value maximum, Value sum);
  Value getMean(Value total, Value factor);
  State makeState();
  Values flatten(const State &state);
  State unflatten(mlir::ValueRange values);

  StreamOp op;
  TilesAttr tiles;
  GPUKernelBuilder b;
  F32Math math;
  mlir::FloatType type;
  int64_t width, valueWidth, keyTile, queryTile;
  GPUStreamLayout layout;
  RangeAnalysis ranges;
  /// What score regions do: of all sources, of each, or none.
  llvm::SmallVector<ScoreBody, 1> scoreBodies;
  /// Which tiles each of them removes.
  llvm::SmallVector<ScoreAdmission, 1> admissions;
  bool isSoftmax, hasWeights;
  /// Rows are the heads that share a key head, of so many queries.
  bool rowsAreHeads = false;
  int64_t packedQueries = 1;
  bool hasBias; // or terms by distance
  bool hasLocalBias, hasPrefix, hasStride, hasLists;
  /// Scores are multiplied by the scale before terms are added to them;
  /// otherwise the scale goes into the exponential.
  bool scalesScores;
  /// Terms or a region may remove entries: only scores tell which.
  bool scoresHide;
  /// What products, and biases or the scores of regions, are multiplied by
  /// before they are added up, and what the exponential multiplies sums by.
  double scoreScale, termScale, exponentScale;
  double masked;
  /// A block of threads stays for several blocks of queries.
  bool stays = false;
  /// Whether the present threads fill the table of rows.
  bool fillsTable = true;

  // Shared memory.
  SharedMatrix sharedQueries, sharedKeys, sharedValues;
  SharedMatrix wideKeys, wideValues; // null where no rows are rounded there
  Value sharedWeights, sharedHidden, sharedPlaces, sharedCuts, table,
      sharedKeyRows;
  Value sharedListedRows; // -1 for what is not there

  int64_t getStride(const Segment &segment) const {
    return sources[segment.source].attr.getMask().getStride();
  }
  /// The first row of a tile that is not before a position, both counted from
  /// the tile's first row.
  Value getFirstRow(const Tile &tile, Value position) {
    return tile.stride ? b.floorDiv(position, tile.stride) : position;
  }
  /// The row of the block of one of the thread's two queries.
  Value getOwnRow(int64_t half) {
    return b.add(b.add(warpRow, group), half * 8);
  }
  /// Registers with a bit for each row of a tile.
  int64_t getHiddenWords() const {
    return llvm::divideCeil(keyTile, kWarpSize);
  }

  // Positions of this thread in fragments.
  Value lane8, lane16, group, pairColumn; // l % 8, l % 16, l / 4, l % 4 * 2
  Value warpRow;
  Value valueSwizzle;

  // The present head and query block.
  llvm::SmallVector<SourceView> sources;
  llvm::SmallVector<Segment> segments;
  llvm::SmallVector<Values> queryFragments;
  Value queryRows, outputView, lseView;
  // Indices; with heads for rows, the first head, and where the first packed
  // query stands, which is number `firstQuery` of the operand.
  Value batch, head, firstRow, numRows, queryStart, queryCount, firstQuery;
  Value blockQuery, blockQueries, numTiles; // of 32 bits
  /// The tiles that this block of threads reads, from the first to before the
  /// second.
  Value beginTile, endTile;

  /// What blocks for parts of a row's tiles leave: sums of values [B, H, N,
  /// P, E], maxima and sums of weights [B, H, N, P, 2], and how many parts
  /// there are for the tiles of rows of packed queries [B, G, U, T]. Null where
  /// a block has all tiles.
  struct Parts {
    Value count, sums, statistics, used;
    Value sumRows, statisticRows, part; // those of the block
  } parts;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMKERNEL_H
