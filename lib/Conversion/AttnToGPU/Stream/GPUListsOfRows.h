//===- GPUListsOfRows.h - Which lists name rows on a GPU --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTSOFROWS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTSOFROWS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "fovea/Kernels/StreamRanges.h"

namespace fovea::attn {

/// The blocks of queries whose lists name rows of a tile of 64 that are stored
/// side by side, for each tile: lists of rows, inverted by a counting sort.
/// Kernels that have rows go through these instead of all lists.
class ListsOfRows {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  /// What is there of a list that names a tile: its block once, its block as
  /// often as it does, or the number of each entry that does, counted through
  /// all blocks.
  enum class Of { Blocks, BlocksOfEntries, Entries };

  /// Emits the kernels that sort the lists of `source`. What they leave is in
  /// buffers of the host's code, which `free` gives back.
  ListsOfRows(RowBuilder &host, StreamBackwardOp op, const StreamSource &source,
              Of what);
  void free();

  /// Runs `body` for each block of queries whose list, for a head, names some
  /// of the 64 rows from `firstRow` on, in ascending order.
  Values forBlocks(KernelBuilder &k, Value batch, Value head, Value firstRow,
                   ValueRange sums,
                   llvm::function_ref<Values(Value, ValueRange)> body) const;
  /// The same one by one: which numbers they have, and a block, or an entry, by
  /// its number.
  std::pair<Value, Value> getNumbers(KernelBuilder &k, Value batch, Value head,
                                     Value firstRow) const;
  Value loadBlock(KernelBuilder &k, Value batch, Value head,
                  Value number) const;

  /// Blocks are sorted in chunks of so many, the last one of fewer.
  Value getChunk() const { return chunk; }
  Value getNumChunks() const { return numChunks; }
  /// Of the numbers above, those of some chunks of blocks.
  std::pair<Value, Value> getNumbersOfChunks(KernelBuilder &k, Value batch,
                                             Value head, Value firstRow,
                                             Value firstChunk,
                                             Value endChunk) const;

private:
  std::pair<Value, Value> getListPlace(KernelBuilder &k, Value batch,
                                       Value head) const;
  int64_t getMostTiles();
  /// Goes through the lists of a chunk, in order, and calls `body` for those
  /// tiles of the thread that a list names, with how many lists did before.
  void forChunks(llvm::function_ref<void(GPUKernelBuilder &, ValueRange at,
                                         Value number, Value tile, Value count)>
                     body,
                 bool clears);
  void countLists();
  void addUpChunks();
  void addUpTiles();
  void sortLists();

  RowBuilder &b;
  StreamBackwardOp op;
  StreamSource source;
  Of what;
  Value lists;                   // [B', H', blocks', entries]
  Value batches, heads, blocks;  // of lists
  Value tiles, chunk, numChunks; // of rows; blocks of a chunk
  Value counts, last;            // [B', H', chunks, tiles]
  Value ends;                    // [B', H', 1 + tiles]
  Value sorted;                  // [B', H', ..], numbers by tile
};

/// The list that a head of a block of queries has.
mlir::Value getListOf(KernelBuilder &b, StreamBackwardOp op, mlir::Value lists,
                      mlir::Value batch, mlir::Value head, mlir::Value block);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTSOFROWS_H
