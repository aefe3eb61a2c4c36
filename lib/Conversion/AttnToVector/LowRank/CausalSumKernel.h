//===- CausalSumKernel.h - Low-rank attention, causal ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (batch, head)
//     C = 0, z = 0
//     for each segment
//       for each of its chunks, of rows and the keys on their diagonal
//         S = lower triangle of left right^T                [chunk][chunk]
//         L, l = those of the chunk before + right^T V, + the sum of the keys
//       C0, z0 = C, z
//       C, z += L, l
//       for each chunk, with L and l of the one before it
//         totals = left (z0 + l) + the sums of the rows of S
//         output = left (C0 + L) + S V, divided by the totals
//
// A few value columns beyond the last whole vector are summed and multiplied
// like the keys for the totals, by vectors along the rank.
//
// C and the sums of keys z are running sums of segments, compensated. Keys
// before the first diagonal only go to them. Under the transposed mask rows and
// keys come in the opposite order: row i from the end reads the keys up to key
// i from the end.
//
// Where there are few heads for the threads that run them, segments are the
// tasks, and take turns to read and add to C and z. That is a small part of
// their work, so several go on side by side; what they compute is the same.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_LOWRANK_CAUSALSUMKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_LOWRANK_CAUSALSUMKERNEL_H

#include "LowRankKernel.h"
#include "fovea/Kernels/Turns.h"

namespace fovea::attn {

/// Emits the loops above: what a chunk needs in CausalSumChunk.cpp, the order
/// of chunks and segments in CausalSumKernel.cpp.
class CausalSumKernel : LowRankKernel {
public:
  CausalSumKernel(mlir::OpBuilder &builder, mlir::Location loc,
                  const LowRankSum &sum, RegisterFile registers);

  void emit();

private:
  /// Rows of a chunk. The triangle costs half a chunk of products for every
  /// row, and its sums an addition for every chunk.
  static constexpr int64_t kChunk = 16;

  /// Rows from number `row` on that will be read, from column `first` on.
  struct Ahead {
    Value memref, head, row, total, first;
    int64_t columns;
  };
  /// Rows, or keys, that exist.
  struct Range {
    Value begin, end;
  };
  /// Dot products of a row of a chunk and keys from `key` on: lanes of a vector
  /// of its triangle.
  struct Dots {
    int64_t row, key, count;
  };
  /// Sums that go on from segment to segment, and what they lost: outer
  /// products of all panels, and those of keys that are columns of C.
  struct State {
    Value sums, carries, keySums, keyCarries;
  };

  /// Where row number `row` of `total` lies.
  Value position(Value row, Value total) {
    return sum.transposed ? b.sub(b.sub(total, b.index(1)), row) : row;
  }
  /// Row i reads keys up to i + diagonal, which may be negative.
  Value diagonal() {
    return sum.transposed ? b.index(0) : b.sub(numColumns(), numRows());
  }

  Range allKeys() { return {b.index(0), numColumns()}; }

  void emitHeads();
  void emitSegments();
  State
  makeState(llvm::function_ref<Value(llvm::ArrayRef<int64_t> shape)> allocate);
  void allocateScratch();
  void startHead();
  void emitSegment(Value first, Value turn);
  void emitSums(Value slot, Value first);
  void emitOutputs(Value slot, Value first);
  void forPanels(llvm::function_ref<void(Value)> body);

  void packRows(const PackedRows &source, Value head, Value first, Range range,
                Value from, Value target, int64_t columns);
  Value chunkRows(const PackedRows &source, Value head, Value first,
                  Range range, Value from, Value packed, bool pack,
                  bool areAligned = false);
  void setRows(Value slot, Value first, bool pack);
  void setValues(Value slot, Value panelNumber, Value first, bool pack);
  void packKeys(Value first);
  void emitScores(Value slot, Value first);
  void emitDots(Value slot, llvm::ArrayRef<Dots> dots,
                llvm::function_ref<void(Value)> ahead);
  /// Columns that are summed by keys: ones if there are totals, then the last
  /// ones of the values.
  int64_t numKeySums() const { return sum.hasTotals() + numTails; }
  /// Rows of buffers for them, which are never empty.
  int64_t keySumRows() const { return std::max<int64_t>(numKeySums(), 1); }
  /// Whether column `c` of those is the ones.
  bool isOnes(int64_t c) const { return sum.hasTotals() && c == 0; }
  void packTails(Value slot, Value first);
  void addKeys(Value slot, Value first);
  void addToState(Value slot);

  Value loadTails(Value slot, int64_t c, int64_t i, int64_t key);
  void emitTotals(Value slot);
  void emitRows(Value slot, Value panelNumber, Value first, Value row,
                bool isFirst);
  Value emitResult(KernelBuilder &k, Value value, Value total, Value factor);
  void prefetchRows(const Ahead &ahead, int64_t rows, Value turn,
                    int64_t turns);
  void storeRow(ValueRange at, llvm::ArrayRef<Value> vectors);
  void storeTails(Value first);

  /// Panels of value columns, the columns of one, and the chunks of a segment.
  int64_t numPanels, panel, numChunks;
  /// Value columns that are not in panels.
  int64_t numTails = 0;
  /// Whether a head may have several segments.
  bool hasSegments;
  mlir::ModuleOp module;
  Turns turns;
  // The present task.
  Value batch, rowHead, queryHead, keyHead, isFirstHead;
  State running;
  /// Packed rows and triangles of the chunks of a segment, and keys of one
  /// chunk.
  Value left, right, values, scores;
  /// Values that are not in panels, as they are packed and turned around.
  Value packedTails, tails;
  /// The sums of the segment before each chunk, and those before the segment.
  Value locals, keyLocals, bases, keyBases;
  /// The sums before a chunk, the totals of its rows and one over them.
  Value before, totals, inverses, edge;
  // The present chunk: its rows and keys, and its values in the present panel.
  Value rows, keys, chunkValues, firstColumn;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_LOWRANK_CAUSALSUMKERNEL_H
