//===- SummarizeLoops.h - The nest of attn.summarize ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZELOOPS_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZELOOPS_H

#include "SummarizeKernel.h"
#include <functional>
#include <optional>
#include <utility>

namespace fovea::attn {

/// One operation of the nest.
struct SummarizeLevel {
  SummarizeOp op;
  int64_t interval;
  /// Whole intervals lie inside a chunk; otherwise their sums are carried from
  /// chunk to chunk.
  bool inside;
  /// Strips that belong to one interval; 1 when an interval fits in a strip.
  int64_t strips;
  /// First row of the packed weights, and place among the levels with sums.
  int64_t packedRow, sumsPlace;
};

class SummarizeKernel {
public:
  SummarizeKernel(mlir::OpBuilder &builder, llvm::ArrayRef<SummarizeOp> ops,
                  const SummarizePlan &plan);
  void emit();

private:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = llvm::SmallVector<Value>;

  /// Where the current chunk lies.
  struct Chunk {
    /// First row inside a coarsest interval, number of rows, and whether it is
    /// the last chunk.
    Value start, rows, last;
    /// Number of the vector of columns inside the task, and its first column.
    Value vector, column;
  };
  /// `plan.streams` neighbouring coarsest intervals of one head of one batch
  /// entry, or the only ones of as many heads; `slot` is its place in the task.
  struct Instance {
    Value slot, batch, head;
    /// Number of the first of its coarsest intervals, and of the strip.
    Value stream, strip;
  };

  void divideWork(Value instances);
  void emitTask(Value slice);
  void emitChunks();
  void emitInstance(Chunk chunk, const Instance &instance);
  void packWeights(const SummarizeLevel &level, Value firstRow, Value numRows);
  void pack(const Chunk &chunk, const Instance &instance);
  // Sums of intervals (SummarizeSums.cpp).
  void emitInside(const SummarizeLevel &level, const Chunk &chunk,
                  const Instance &instance, Value firstSum, int64_t numSums);
  using PrefetchFn = std::function<void(Value)>;
  void addToSums(const Chunk &chunk, Value slot, Value place, Value packedRow,
                 Value firstSum, int64_t numSums, PrefetchFn prefetch);
  Value isEdge(const SummarizeLevel &level, const Chunk &chunk,
               const Instance &instance, bool end);
  void resetSums(const SummarizeLevel &level, const Chunk &chunk,
                 const Instance &instance);
  void storeSums(const SummarizeLevel &level, const Chunk &chunk,
                 const Instance &instance);
  void sumPresent(const SummarizeLevel &level, const Chunk &chunk,
                  std::pair<Value, Value> batchAndHead, Value interval,
                  Value firstSum, int64_t numSums);
  Value getBias(const SummarizeLevel &level, const Chunk &chunk, Value sum);
  Values emitTile(const Chunk &chunk, Value firstSum, int64_t numSums,
                  Value from, Value to, Value weightShift, ValueRange initial,
                  PrefetchFn prefetch = nullptr);
  PrefetchFn prefetchNext(const Chunk &chunk, const Instance &instance,
                          Value number);
  Value divideByVectors(Value value);
  Value getInterval(const SummarizeLevel &level, const Chunk &chunk,
                    const Instance &instance, Value stream);
  Value isPresent(const SummarizeLevel &level, Value interval);
  void forEachSums(llvm::function_ref<void(Value, int64_t)> body);

  Instance getInstance(Value slot);
  /// Where the sums of an instance are: of the first strip of an interval.
  Value getSlot(const SummarizeLevel &level, const Instance &instance) {
    return b.mul(b.div(instance.slot, level.strips), level.strips);
  }
  /// Row of the chunk inside a coarsest interval.
  Value getPlace(const Chunk &chunk, const Instance &instance) {
    return b.add(chunk.start, b.mul(instance.strip, stripLength));
  }
  /// The head of a stream, and the number of its coarsest interval there.
  Value getHead(const Instance &instance, Value stream) {
    return plan.streamsAreHeads ? b.add(instance.head, stream) : instance.head;
  }
  Value getNumber(const Instance &instance, Value stream) {
    return plan.streamsAreHeads ? instance.stream
                                : b.add(instance.stream, stream);
  }
  Value getRow(const Chunk &chunk, const Instance &instance, int64_t stream) {
    return b.add(b.mul(getNumber(instance, b.index(stream)), coarsest),
                 getPlace(chunk, instance));
  }
  Value getColumn(Value vector) {
    // The last vector ends at the last column.
    Value column = b.mul(vector, plan.lanes);
    return width % plan.lanes ? b.min(column, width - plan.lanes) : column;
  }
  /// No chunk has fewer rows than `plan.chunk`, and no stream ends early.
  bool isRegular() const {
    return staticRows && *staticRows % (intervalsPerInstance * coarsest) == 0 &&
           plan.unit % plan.chunk == 0;
  }

  KernelBuilder b;
  const SummarizePlan &plan;
  llvm::SmallVector<SummarizeLevel> levels;
  Value input;
  int64_t width, rank, sets, coarsest, stripLength;
  /// Heads, and coarsest intervals of one, that an instance has.
  int64_t headsPerInstance, intervalsPerInstance;
  std::optional<int64_t> staticRows;
  /// Levels without sums come first, then those that fit in a strip, one loop.
  int64_t firstLooped = 0, numLooped = 0;
  // Values of the enclosing function.
  Value rows, headsPerSet, headGroups, groups, instancesPerTask, vectorsPerTask,
      numSlices;
  // Values of the task.
  Value set, firstInstance, numInstances, firstVector, numVectors,
      vectorReciprocal, packed, packedWeights, sums;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZELOOPS_H
