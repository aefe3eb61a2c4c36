//===- GPUListBackward.h - Gradients of listed rows on a GPU ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTBACKWARD_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTBACKWARD_H

#include "GPUListsOfRows.h"
#include "GPUStreamBackward.h"

namespace fovea::attn {

/// GradientTile for a source with lists of rows. The queries that one list is
/// for, of one head or of all heads that share the list, are numbered: these
/// are its *readers*, and heads vary fastest. A tile has 64 readers and 64
/// rows, either those of entries in order, or 64 that are stored side by side,
/// of which some are listed. For each row all threads know where it is stored
/// and where it stands.
class ListGradientTile : public SquareTile {
public:
  using Of = EntryWeigher::Of;
  using Place = GradientTile::Place;

  /// `sharesHeads` says whether the readers of a list are of all heads of a key
  /// head; see canShareHeads.
  ListGradientTile(GPUKernelBuilder &builder, StreamBackwardOp op,
                   const StreamSource &source, Value deltas,
                   const ScoreDerivatives *score, F32Math math,
                   bool sharesHeads = false);

  static int64_t getSharedBytes() {
    return SquareTile::getSharedBytes() + 2 * kSize * 4;
  }
  /// Whether all heads of a key head read the same lists, and a tile may have
  /// several heads.
  static bool canShareHeads(StreamBackwardOp op, const StreamSource &source);
  /// Queries that one list is for, and how many lists a head has.
  static Value getBlockQueries(KernelBuilder &builder, StreamBackwardOp op);
  static Value countBlocks(KernelBuilder &builder, StreamBackwardOp op);

  /// Chooses the list of a block of queries, for heads from `head` on.
  void enter(Value batch, Value head, Value block);
  Value getNumReaders() { return numReaders; }

  /// Runs `body` for the tiles of rows of the entries that some reader reads.
  Values overEntries(ValueRange sums,
                     llvm::function_ref<Values(ValueRange)> body);
  /// Runs `body` for the 64 stored rows from `firstRow` on, as often as any of
  /// them is listed, with those that are; one may be known to be.
  Values overStored(Value firstRow, ValueRange sums,
                    llvm::function_ref<Values(ValueRange)> body,
                    bool isListed = false);
  /// Chooses all lists of a head that name some of the 64 rows, in turn, and
  /// runs `body` for each 64 of their readers and the rows that are listed.
  Values
  overReaders(const ListsOfRows &listsOfRows, Value batch, Value head,
              Value firstRow, ValueRange sums,
              llvm::function_ref<Values(Value firstReader, ValueRange)> body);

  /// Keeps weights, and gradients times `factor`, of the 64 readers from a
  /// number on, perhaps a negative one.
  void compute(Value firstReader, bool rowsAreQueries, Of gradients,
               double factor = 1.0);
  /// Adds the gradients times 64 columns of the tile's rows, or what is kept
  /// times those of its readers.
  Values addKeptRows(ValueRange sums, Value memref, Value column);
  Values addKeptReaders(Kept kept, ValueRange sums, Value memref,
                        Value firstReader, Value column);
  /// Runs `body` with the place of each sum in `memref`, where there is one,
  /// for 64 readers by columns from `column` on.
  void forEachOfReaders(ValueRange sums, Value memref, Value firstReader,
                        Value column,
                        llvm::function_ref<void(ValueRange, Value)> body);

  /// Where a reader's query and a row of the tile stand, and whether both are
  /// there.
  struct Positions {
    Value query, key, exist;
  };
  Positions findPositions(Value firstReader, Value reader, Value row);

  // As GradientTile has them.
  void setBatch(Value) {}
  Values addScores(Place place, ValueRange sums);

private:
  struct Reader {
    Value exists, head, query, lse, delta, begin, end;
  };
  struct Row {
    Value index, exists, position, logWeight;
  };

  Values overRanges(ValueRange sums,
                    llvm::function_ref<Values(ValueRange)> body);
  Value isIn(Value position);
  Value positionOf(Value number, Value row);
  Value isNamed(Value firstRow);
  Value findNext(Value firstRow, Value &next);
  void storeRow(Value number, Value row, Value position);
  Value positionOfQuery(Value query);
  std::pair<Value, Value> findPlace(Value index);
  Reader findReader(Value firstReader, Value number);
  Reader loadReader(Value firstReader, Value number);
  Row loadRow(Value number);
  Value loadOfReader(Value memref, Value firstReader, Value number,
                     Value column);
  Value loadOfRow(Value memref, Value number, Value column);

  StreamBackwardOp op;
  StreamSource source;
  Value deltas;
  int64_t unit;
  bool hasListedPositions;
  EntryWeigher weigher;
  Value group, keyGroup; // heads of a reader's number, and of a key head
  Value rows, positions; // in shared memory
  // Of the present list.
  Value batch, keyBatch, head, keyHead, block, list;
  Value firstQuery, numQueries, numReaders;
  SourceLength length;
  RangeBounds range;
  Value begin, end; // where rows stand that some reader may read
};

/// The kernels for a source with lists: sums for `dQ`, added to what is there
/// unless `isFirst`, and for `dK` and `dV`, either of which may be null.
void emitListQueries(RowBuilder &builder, StreamBackwardOp op,
                     const StreamSource &source, mlir::Value deltas,
                     const ScoreDerivatives *score, F32Math math,
                     mlir::Value sums, bool isFirst);
void emitListRows(RowBuilder &builder, StreamBackwardOp op,
                  const StreamSource &source, mlir::Value deltas,
                  const ListsOfRows &listsOfRows, const ScoreDerivatives *score,
                  F32Math math, mlir::Value keySums, mlir::Value valueSums);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTBACKWARD_H
