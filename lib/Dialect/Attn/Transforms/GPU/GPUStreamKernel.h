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
//       score       S = Q K^T, bias, log weight, mask
//       normalise   online soft-max: S = 2^(S - maximum), running sum
//       accumulate  O += S V
//     finish   output = O / sum; lse
//
// All segments of all sources form one list of tiles, so that the copies never
// drain between them. A tile knows its source, its first row, how many rows it
// has and between which rows each query may read.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPUSTREAMKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPUSTREAMKERNEL_H

#include "GPUKernelBuilder.h"
#include "Stream/StreamRanges.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// Query rows of the fragments of one warp.
constexpr int64_t kWarpRows = 16;
/// The widest head, and the most value columns that a block keeps sums of.
constexpr int64_t kMaxHeadWidth = 256;

/// The type of a stream's data, f16, bf16 or f32; an error for others.
mlir::LogicalResult verifyGPUStream(StreamOp op);

/// Shared memory of a block with these tiles: fixed by the shapes.
class GPUStreamLayout {
public:
  explicit GPUStreamLayout(StreamOp op);
  /// Value columns that are summed at once, and how many times that is done.
  int64_t valueColumns, numPasses;
  int64_t queries, keys, values, weights, table; // offsets in bytes
  int64_t tableRows, bytes;
};

class GPUStreamKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  /// The operation must have tiles and no error from verifyGPUStream.
  GPUStreamKernel(StreamOp op, mlir::OpBuilder &builder, F32Math math);

  static int64_t getNumThreads(StreamOp op);
  /// Emits the code before the operation.
  void emit();

private:
  /// A source's operands for one batch entry and head, as 1-d and 2-d views.
  struct SourceView {
    Value keys, values, logWeight, bias, rows;
    SourceAttr attr;
  };

  /// Consecutive rows of a source, or entries of the row table. Query `i` of
  /// the block may read rows `lower + i <= row < upper + i`; null where no mask
  /// says so.
  struct Segment {
    unsigned source;
    bool isTable;
    Value low, high, lower, upper;
    Value firstTile;
  };

  /// One tile of rows, with positions counted from its first row.
  struct Tile {
    Value source;  // null when there is only one
    Value isTable; // null when no segment is a table
    Value row, count, lower, upper;
  };

  /// Sums of one thread: rows `lane / 4` and 8 more of its warp.
  struct State {
    llvm::SmallVector<Values> output; // four numbers for each 8 columns
    Values maximum, sum;              // one for each row
  };

  void emitHead(Value batch, Value head);
  void emitQueryBlock(Value query, Value numQueries, Value blockIndex);
  void emitPass(Value column);

  // Segments and tiles (GPUStreamTiles.cpp).
  void collectSegments(Value blockIndex);
  void addSegment(unsigned source, Value low, Value high);
  void addTable(unsigned source, llvm::ArrayRef<unsigned> ranges,
                Value blockIndex);
  Tile getTile(Value number);
  Values pack(const Tile &tile);
  Tile unpack(mlir::ValueRange values);
  /// Where `offset` rows into the tile lie in the source.
  Value getRow(const Tile &tile, Value offset);
  Value selectBySource(const Tile &tile,
                       llvm::function_ref<Value(const SourceView &)> view);

  // Copies to shared memory (GPUStreamCopies.cpp).
  void clearPadding();
  void loadQueries();
  void loadTile(const Tile &tile, Value stage, Value column);
  void copyRows(Value source, const SharedMatrix &shared, Value sharedRow,
                int64_t numRows, Value firstColumn, int64_t numColumns,
                int64_t width, int64_t bytes,
                llvm::function_ref<std::pair<Value, Value>(Value)> getRow);
  void loadWeights(const Tile &tile, Value stage);

  // Stages (GPUStreamStages.cpp).
  Values loadQueryFragment(int64_t step);
  llvm::SmallVector<Values> score(const Tile &tile, Value stage);
  void addTerms(const Tile &tile, Value stage,
                llvm::SmallVectorImpl<Values> &scores);
  void addBias(const Tile &tile, llvm::SmallVectorImpl<Values> &scores);
  void applyMask(const Tile &tile, llvm::SmallVectorImpl<Values> &scores);
  void normalise(llvm::SmallVectorImpl<Values> &scores, State &state);
  void accumulate(const llvm::SmallVectorImpl<Values> &weights, Value stage,
                  State &state);
  void accumulateF32(const llvm::SmallVectorImpl<Values> &weights, Value stage,
                     State &state);
  void attend(const Tile &tile, Value stage, State &state);
  void finish(const State &state, Value column);
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
  int64_t queryBytes, keyBytes, valueBytes; // of one copy
  bool hasWeights, hasBias;
  /// Scores are multiplied by the scale before terms are added to them;
  /// otherwise the scale goes into the exponential.
  bool scalesScores;
  double scale, masked;

  // Shared memory.
  SharedMatrix sharedQueries, sharedKeys, sharedValues;
  Value sharedWeights, table;

  // Positions of this thread in fragments.
  Value lane8, lane16, group, pairColumn; // l % 8, l % 16, l / 4, l % 4 * 2
  Value warpRow;
  Value querySwizzle, keySwizzle, valueSwizzle;

  // The present head and query block.
  llvm::SmallVector<SourceView> sources;
  llvm::SmallVector<Segment> segments;
  llvm::SmallVector<Values> queryFragments;
  Value queryRows, outputView, lseView;
  Value firstRow, numRows, queryStart, queryCount; // indices
  Value blockQuery, blockQueries, numTiles;        // of 32 bits
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPUSTREAMKERNEL_H
