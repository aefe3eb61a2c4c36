//===- SummarizeBackwardKernel.h - Gradients of summaries -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All levels of one input together. A *strip* is a coarsest interval of one
// head of one batch entry; rows at the same place of different strips share the
// weights of every level. For a block of strips, chunks of rows go by, each
// inside one interval of every level:
//
//   d_input[strip][row]   += sum_sums   W[sum][row] G[strip][sum]
//   d_weights[sum][row]   += sum_strips X[strip][row] G[strip][sum]
//
// Both are register tiles, 4 rows by 4 strips and 4 rows by 4 sums, vectorised
// over the columns. Whatever they multiply is packed in the order of the tiles.
//
// Rows at the same place of strips, and of the weights of long intervals, are
// powers of two apart and compete for a few sets of the caches: what is asked
// for early is gone before it is used. So nothing is left there: while one
// group of strips is multiplied, the rows of the next one are copied, and the
// row of the strip behind is asked for; likewise the weights of the next chunk,
// during d_weights. Gradients are asked for one row tile ahead.
//
// A task is a set of weights and a part of every finest interval, the same in
// all of them: a row of any weights is met by one task only. So tasks write to
// different places, and sums have one order, however many tasks there are. Rows
// that are very wide or very few are divided, too, by columns.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZEBACKWARDKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZEBACKWARDKERNEL_H

#include "SummarizeKernel.h"
#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

class SummarizeBackwardKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  /// `levels` read and add to one input, with intervals that double. There are
  /// `minTasks` tasks if the shapes allow it.
  SummarizeBackwardKernel(mlir::OpBuilder &builder,
                          llvm::ArrayRef<SummarizeBackwardOp> levels,
                          RegisterFile registers, int64_t minTasks);
  void emit();

private:
  /// Rows, strips and sums of a register tile: 16 accumulators and 8 operands.
  static constexpr int64_t kTile = 4;

  /// Rows that lie in one interval of every level.
  struct Chunk {
    Value number;
    Value start; // inside a coarsest interval
    Value rows;
    Value parity; // which half of what is staged is its own
  };
  /// Strips of a chunk whose rows are staged together.
  struct Group {
    Chunk chunk;
    Value firstStrip;
  };
  /// A strip of the present block, with the end of its head's rows.
  struct Strip {
    Value batch, head, row, end;
  };
  /// Weights whose gradients are one register tile.
  struct WeightTile {
    size_t level;
    int64_t firstSum, count;
    Value firstRow, vector; // in the chunk, in the task
  };

  void divideWork(int64_t minTasks);
  void emitTask(Value set, Value part, Value slice);
  void emitBlock();
  void listStrips(Value first);
  void packWeights(size_t level, const Chunk &chunk, Value number);
  void packGradients(const Chunk &chunk);
  void stageRow(const Group &group, Value number);
  void stageWeights(size_t level, const Chunk &next, Value number,
                    int64_t share);
  void addToInput(const Group &group, int64_t tiles, const Group &next,
                  Value vector);
  void multiplyTile(Value left, mlir::ValueRange leftAt, Value right,
                    mlir::ValueRange rightAt, int64_t count, int64_t stride,
                    Values &sums);
  void addInputTile(const Group &group, Value vector, Value rowTile,
                    Value stripTile, mlir::ValueRange sums);
  void prefetchTile(const Group &group, const Group &next, Value number,
                    Value stripTile, Value turn, int64_t perTurn);
  void addToWeights(const Chunk &chunk, const Chunk &next, Value isCut,
                    Value vector);
  Value cutsStrip(const Chunk &chunk);
  Values sumPresent(const WeightTile &tile, const Chunk &chunk, Value isCut,
                    mlir::ValueRange sums);
  void forEachWeight(
      const WeightTile &tile, const Chunk &chunk,
      llvm::function_ref<void(int64_t, Value, mlir::ValueRange)> body);
  void addToBiases(Value vector);

  Strip getStrip(Value number);
  Chunk getChunk(Value number);
  Values rowOf(const Strip &strip, Value start, Value row, Value vector);
  Value isPresent(const Strip &strip, Value row);
  bool isLong(size_t level);
  Value getColumn(Value vector);
  void forEachVector(llvm::function_ref<void(Value)> body);
  void addVector(Value vector, Value memref, mlir::ValueRange indices);

  KernelBuilder b;
  llvm::SmallVector<SummarizeBackwardOp> levels;
  Value input, dInput;
  int64_t rank, sets, finest, coarsest, numSums, chunkRows, rowTiles;
  int64_t vectorsPerTask, numVectors, groupStrips;
  /// Parts of a finest interval that are tasks, and their chunks.
  int64_t parts, chunksPerPart;
  /// There are whole tiles of strips, and no strip and no chunk ends early.
  bool allPresent;

  // Values of the enclosing function.
  Value rows, headsPerSet, stripsPerHead, numStrips;
  // Values of the task and of the block of strips.
  Value set, firstVector, firstRow, numChunks, blockStrips;
  /// Batch entry, head, first row and end of every strip of the block.
  Value strips;
  Value stagedInput, packedGradients, packedWeights;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZEBACKWARDKERNEL_H
