//===- StreamBackwardKernel.h - Vector code of stream_backward --*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for one attn.stream_backward on memrefs, vectorised over queries like
// the forward, whose packing, segments and scores it uses. For every block of
// L = lanes * vectors queries and every tile of the rows that it reads:
//
//   P[row][L]  = 2^(score - lse)
//   dS[row][L] = P (values . dOT - delta)
//   dQ[L][D]  += dS^T keys         of the block, stored behind the last tile
//   dV[row]   += P dO              in memory, where the rows lie
//   dK[row]   += dS Q
//
// All five products are register tiles, and the last three are added to their
// sums only when they are complete: one chain of additions over a long
// sequence would lose a factor of four.
//
// Rows are shared by the blocks of queries, and by the query heads of a key
// head: such a *chain* adds in one order, whatever the number of threads. Where
// every block goes through all rows in order, blocks are tasks that follow each
// other down the rows; where ranges follow the queries, chunks of blocks are
// (StreamBackwardChunks.cpp), or else a chain is one task.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMBACKWARDKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMBACKWARDKERNEL_H

#include "StreamKernel.h"
#include "fovea/Kernels/Turns.h"

namespace fovea::attn {

class StreamBackwardKernel : StreamKernel {
public:
  /// `forward` is the operation whose gradient `backward` is, and `derivatives`
  /// those of its scores, in its region: none without one.
  StreamBackwardKernel(StreamBackwardOp backward, StreamOp forward,
                       llvm::ArrayRef<ScoreDerivatives> derivatives,
                       mlir::OpBuilder &builder, mlir::ModuleOp module,
                       Options options);

  /// Emits the code before the operation.
  mlir::LogicalResult emit();

private:
  /// Rows of a register tile of the products that give gradients.
  static constexpr int64_t kRows = 4;

  /// Sums for terms that are the same for all keys of a source: their gradients
  /// are no rows, and taken down the rows they would have no order. Null where
  /// not wanted.
  struct TermSums {
    Value logWeight; // [1]
    Value bias;      // [queries of a block], or [1] where rows broadcast, too
  };
  /// What the tasks of the parallel loop are.
  struct Schedule {
    Value chainHeads;             // chains of one batch entry
    Value spanBatches, spanHeads; // batch entries and query heads of a chain
    Value tasks;                  // of one query head
    int64_t taskQueries;          // queries of one, where there are several
    Value numChains, numItems;    // items of a chain, which follow each other
  };
  /// Sums of gradients of listed rows, for the chunk of a task.
  struct Window {
    unsigned source;
    llvm::SmallVector<unsigned> ranges;
    int64_t rows, start = 0; // the most rows, and the first one in the scratch
    Value low = {}, high = {}; // rows of the source
  };
  /// The gradients of one source for one batch entry and head.
  struct GradientView {
    Value keys, values, logWeight, bias;
    Value firstRow;    // number of the first row among those of all sources
    Value streamsBias; // whether the bias's can be stored past the caches
  };

  Schedule makeSchedule();
  void clearDestinations();
  /// Zeros to all columns of a destination at the leading indices `at`.
  void clearRow(Value destination, mlir::ValueRange at);
  /// Zeros to the gradients of keys and values before `row`, unless they are
  /// there already: just before they are added to, where a chain is one task.
  void clearRowsBefore(unsigned source, Value row);
  void allocateScratch();
  void emitItem(const Schedule &schedule, Value item, Value chain);
  void emitHead(Value batch, Value head, Value begin, Value end);
  void viewGradients(Value batch, Value head);
  bool isChunked() const { return chunkBlocks != 0; }

  // Chunks of blocks (StreamBackwardChunks.cpp).
  void divideHeads();
  void makeWindows(llvm::ArrayRef<StaticRanges> facts, int64_t blocks);
  RangeBounds boundsOf(unsigned source, llvm::ArrayRef<unsigned> numbers,
                       Value block);
  RangeBounds placedBounds(Value block);
  void beginChunk(Value query, Value end, Value starts);
  void forEachWindowRow(const Window &window,
                        llvm::function_ref<void(Value, Value)> body);
  void waitForBlock(Value block);
  void endChunk();

  void emitQueryBlock(Value query, Value numQueries, Value blockIndex);
  void emitTile(Segment tile);
  /// What will be read soon, one line in every turn of a product: more at once
  /// than the first cache level can wait for would stall its loads.
  using Lookaheads = llvm::SmallVector<Lookahead>;
  struct TileLookaheads {
    Lookaheads scores, scoreGradients, queries, values, keys;
  };
  TileLookaheads lookAheadOf(const Segment &tile);
  void lookAheadInTable(const Segment &segment);

  // Stages.
  void prepareRows();
  void scoreGradientRows(const Segment &tile, llvm::ArrayRef<Lookahead> ahead,
                         const RowLoop &rows);
  /// Where a loop is, and the constant at which it ends.
  struct Step {
    Value at;
    int64_t end;
  };
  void prefetchInPanel(const Segment &segment, Value row, Step depth,
                       Step column);
  /// The gradients of products of queries and keys: those of the scores where
  /// there is no region, or one that adds to scores.
  Value productGradientsOf(const Segment &tile) {
    return keepsGradient(tile) ? scoreGradients : productGradients;
  }
  bool keepsGradient(const Segment &tile) {
    return !hasScores() || getScore(tile.source).keepsGradient();
  }
  void addQueryGradients(const Segment &tile, llvm::ArrayRef<Lookahead> ahead);
  /// `weights . rows`, times `factor` unless that is null, is added to the rows
  /// of `target` that a tile consists of.
  struct RowProduct {
    Value weights, rows, target;
    int64_t columns;
    llvm::ArrayRef<Lookahead> ahead;
    Value areSpecial; // the rows, or null
    Value factor = {};
    /// Called behind each register tile of rows.
    llvm::function_ref<void(Value)> endRows = {};
  };
  void addRowGradients(const Segment &tile, const RowProduct &product);
  /// Where the gradients of the rows of a tile are summed.
  bool hasWindow(const Segment &tile) const {
    return isChunked() && tile.kind == Segment::Table;
  }
  Value keyTarget(const Segment &tile) {
    return hasWindow(tile) ? windowKeys : views[tile.source].keys;
  }
  Value valueTarget(const Segment &tile) {
    return hasWindow(tile) ? windowValues : views[tile.source].values;
  }
  Value targetRow(const Segment &tile, Value entry);
  void addToRow(Value target, Value row, Value column, int64_t columns,
                mlir::ValueRange sums, Value factor);
  void storeQueryGradients();

  // Products by AMX (StreamBackwardAMX.cpp).
  void allocateForGradients();
  /// Copies the rows of a tile, and keys transposed; zeros fill both up.
  Segment stageForGradients(Segment tile);
  /// The factors of a block of queries, and sums that start with zeros.
  void packForGradients(Value query, Value numQueries,
                        llvm::ArrayRef<Segment> segments);
  void scoreGradientsByAMX(const Segment &tile);
  void narrowGradients(const Segment &tile);
  void multiplyGradients(const Segment &tile);
  void addSumsToRows(const Segment &tile, Value sums, Value target,
                     int64_t columns, Value factor = {});
  void finishQueryGradients();
  /// Whether factors of a tile were cleared of something, which `addSpecials`
  /// adds; null where they are not.
  Value isSpecial(const Segment &tile);
  void addSpecials(Segment tile);

  // Gradients of log weights and biases (StreamBackwardTerms.cpp).
  void allocateTermSums();
  void clearTermSums();
  void addTermGradients(const Segment &tile);
  void storeTermSums();
  void addReadGradients(const Segment &tile);
  void storeReadGradients();
  void addRowSums(const Segment &tile);
  void addColumnSums(const Segment &tile);
  bool hasBiasSquares(const Segment &tile);
  bool spreadsBiasSquares(const Segment &tile);
  void addBiasSquaresAt(const Segment &tile, Value offset);
  void addBiasSquare(const Segment &tile, Value offset, Value query);
  void addBiases(const Segment &tile);
  bool isExclusiveBias(const StreamSourceGradient &source);
  void addTo(Value target, mlir::ValueRange indices, Value scalar);
  Value liveGradients(Value gradients, Value row, Value first);

  // Entries that regions remove (StreamBackwardHidden.cpp).
  void findSpecialQueries();
  /// Around the scores of a tile, which add their products to the chain.
  void startSpecialKeys(const Segment &tile);
  Value addKeyProducts(int64_t numKeys, Value chain);
  void findSpecialKeys();
  /// Sums of products with rows, or `again` where weights of hidden entries
  /// made them something else. `areSpecial` says whether the rows have what
  /// does so; null where that is not known.
  Values sumVisible(const Segment &tile, Value areSpecial,
                    mlir::ValueRange sums, llvm::function_ref<Values()> again);

  /// Calls `body(column, count)` for tiles of `count` vectors of columns.
  void forEachColumns(int64_t columns,
                      llvm::function_ref<void(Value, int64_t)> body);

  StreamBackwardOp backward;
  Turns turns;
  llvm::SmallVector<StreamSourceGradient> gradients;
  int64_t tileRows, columnVectors;
  /// Every block of queries goes through the rows of all sources in order.
  bool isOrdered;
  /// Blocks of a chunk, or 0; the source whose rows chunks have in common, the
  /// windows of the others, and how many rows these have together.
  int64_t chunkBlocks = 0;
  std::optional<unsigned> placedSource;
  llvm::SmallVector<Window> windows;
  int64_t windowRows = 0;

  // Scratch.
  Value stagedGradients, packedGradients, scoreGradients, queryGradients;
  /// Of AMX, in bf16: rows of output gradients and their pairs along columns;
  /// pairs of rows, for products along queries; keys and values of a tile, and
  /// keys transposed; weights and gradients of scores, and pairs of the latter.
  Value stagedGradientPairs, outputGradientPairs, queryRowPairs,
      outputGradientRowPairs, tileKeys, tileValues, tileKeyColumns,
      narrowScores, narrowGradientRows, scoreGradientPairs;
  bool clearsFactors = false; // of what is not finite
  /// And its sums: gradients of rows, and of queries, transposed.
  Value keySums, valueSums, queryGradientColumns;
  /// Gradients of products, where they are not those of scores.
  Value productGradients;
  /// Gradients of what the region reads, a tile for each read.
  Values readGradients;
  Value rowLse, rowDelta, tail, clearedRows, windowKeys, windowValues;
  llvm::SmallVector<TermSums> termSums;

  // The present item, head and query block.
  llvm::SmallVector<GradientView> views;
  Value dOutputRows, dLseRow, dQueryRows, queryTile, gradientTile, chunkEnd;
  /// Whether these, and the keys of the present tile, have numbers that are not
  /// finite; null where nobody asks.
  Value queriesAreSpecial, gradientsAreSpecial, keysAreSpecial;
  /// NaN in some lane where a key of the present tile is.
  Value keyChain;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMBACKWARDKERNEL_H
