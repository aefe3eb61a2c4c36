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
// weights of every level. For a chunk of rows, inside one interval of every
// level, and a block of strips:
//
//   pack  X[strip][row], G[strip][sum of any level], W[sum][row]
//   d_input[strip][row]   += sum_sums   W[sum][row] G[strip][sum]
//   d_weights[sum][row]   += sum_strips X[strip][row] G[strip][sum]
//
// Both are register tiles, 4 rows by 4 strips and 4 rows by 4 sums, vectorised
// over the columns. Packing is worth it because rows and whole intervals are
// powers of two apart, and in place compete for a few sets of the caches.
//
// A task is a set of weights and a slice of the columns: so tasks write to
// different places, and sums over heads and batch entries have one order.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SUMMARIZE_SUMMARIZEBACKWARDKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SUMMARIZE_SUMMARIZEBACKWARDKERNEL_H

#include "KernelBuilder.h"
#include "SummarizeKernel.h"

namespace fovea::attn {

class SummarizeBackwardKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  /// `levels` read and add to one input, with intervals that double.
  SummarizeBackwardKernel(mlir::OpBuilder &builder,
                          llvm::ArrayRef<SummarizeBackwardOp> levels,
                          const SummarizeTarget &target);
  void emit();

private:
  /// Rows of a chunk and where they lie.
  struct Chunk {
    Value start; // inside a coarsest interval
    Value rows;
  };
  /// A strip of the present block.
  struct Strip {
    Value batch, head, row;
  };

  void emitTask(Value set, Value slice);
  void emitBlock(Value interval);
  void packGradients(Value interval);
  void packWeights(const Chunk &chunk);
  void packRows(const Chunk &chunk);
  void addToInput(const Chunk &chunk, Value vector);
  void addToWeights(const Chunk &chunk, Value vector);
  void addToBiases(Value vector);

  Strip getStrip(Value number);
  Values rowOfStrip(Value number, Value row, Value column);
  Values
  loopWithPrefetch(Value end, int64_t accumulators, bool prefetches,
                   llvm::function_ref<void(Value)> prefetch,
                   llvm::function_ref<Values(Value, mlir::ValueRange)> body);
  Value getColumn(Value vector);
  /// No strip ends early.
  bool hasWholeStrips() {
    auto type = llvm::cast<mlir::MemRefType>(input.getType());
    return !type.isDynamicDim(2) && type.getDimSize(2) % coarsest == 0;
  }
  /// Calls `body(first, count)` for tiles of `size` numbers below `end`, and
  /// for the rest one by one.
  void forEachTile(Value end, int64_t size,
                   llvm::function_ref<void(Value, int64_t)> body);
  void addVector(Value vector, Value memref, mlir::ValueRange indices);

  KernelBuilder b;
  llvm::SmallVector<SummarizeBackwardOp> levels;
  Value input;
  int64_t rank, sets, finest, coarsest, numSums, chunkRows;
  int64_t vectorsPerTask, numVectors;

  // Values of the enclosing function.
  Value rows, headsPerSet, stripsPerHead, numStrips;
  // Values of the task and of the block of strips.
  Value set, firstVector, taskVectors, firstStrip, blockStrips;
  /// Batch entry, head, first row and present rows of every strip of the block.
  Value strips;
  Value packedInput, packedGradients, packedWeights;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SUMMARIZE_SUMMARIZEBACKWARDKERNEL_H
