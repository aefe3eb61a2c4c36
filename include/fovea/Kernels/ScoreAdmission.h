//===- ScoreAdmission.h - Tiles that a score region removes -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A score region that yields `select(condition, score, -inf)` says which
// entries there are. Interval arithmetic on what the condition is computed from
// bounds it for all entries of a tile: where it fails for all, the tile need
// not be visited, and where it holds for all, need not be evaluated. The bounds
// are emitted as scalar code: positions are those of the tile, batch entry and
// head are exact, and elements of captured integer tensors lie between the
// least and the largest one of the range that the tile reads.
//
// An entry for which a region reads out of bounds has the score NaN, removed or
// not: nothing is decided for a tile unless all reads are within.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_SCOREADMISSION_H
#define FOVEA_KERNELS_SCOREADMISSION_H

#include "fovea/Dialect/Attn/IR/ScoreDerivatives.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "fovea/Kernels/RunBounds.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

namespace fovea::attn {

class ScoreAdmission {
public:
  using Value = mlir::Value;

  /// Positions, both ends included: of one number, the same value.
  struct Interval {
    Value low, high;
  };

  /// Of a region, which reads `captures`.
  ScoreAdmission(mlir::Region &score, mlir::ValueRange captures);

  /// Whether the region removes entries by some condition.
  explicit operator bool() const { return !removals.empty(); }
  unsigned getNumConditions() const { return removals.size(); }
  /// How many conditions could be bounded, once code for keys is emitted.
  unsigned getNumBounded() const { return numBounded; }

  /// Copies the body without its removals to `region`: what it computes where
  /// all entries are admitted. Returns the copies of its derivatives.
  ScoreDerivatives cloneAdmitted(mlir::Region &region,
                                 const ScoreDerivatives &derivatives) const;

  void enterHead(Value batch, Value head) {
    enterHeads({batch, batch}, {head, head});
  }
  /// For heads of several batch entries at once.
  void enterHeads(Interval batchEntries, Interval queryHeads) {
    batches = batchEntries;
    heads = queryHeads;
  }

  /// Bounds runs of the captured integers that are read by key, those of which
  /// are there, for all queries that look through them. Returns what the caller
  /// frees.
  llvm::SmallVector<Value> boundRuns(KernelBuilder &builder,
                                     llvm::function_ref<bool(Value)> isThere);

  /// What is known of the values of the body.
  struct Bounds;
  using State = llvm::DenseMap<Value, Bounds>;
  /// Bounds what does not depend on the key, here.
  State enterQueries(KernelBuilder &builder, Interval queries);

  /// Rows `[begin, end)` of a tile of keys; others are removed. No entry of
  /// `[admittedBegin, admittedEnd)` is, all rows where it `admitsAll`.
  struct Part {
    Value begin, end, admitsAll, admittedBegin, admittedEnd;
  };
  /// The part of the `count` keys from `first` on that there are entries of, in
  /// units of `unit` keys. Behind `enterQueries`.
  Part trim(KernelBuilder &builder, const State &queries, Value first,
            Value count, int64_t unit);
  /// Keys `[begin, end)` without those at either end that there is no entry of,
  /// found in steps that become smaller. Behind `enterQueries`.
  std::pair<Value, Value> enclose(KernelBuilder &builder, const State &queries,
                                  Value begin, Value end);
  /// Whether there may be entries of `keys`, as far as bounds of whole runs
  /// tell. Behind `enterQueries`.
  Value reads(KernelBuilder &builder, const State &queries, Interval keys) {
    return decide(builder, queries, keys, /*byRuns=*/true).reads;
  }
  /// Whether there are all entries of `keys`; null where nothing is known of
  /// any. Behind `enterQueries`.
  Value admitsAll(KernelBuilder &builder, const State &queries, Interval keys) {
    Decision decision = decide(builder, queries, keys);
    return numBounded ? decision.admitsAll : Value();
  }

private:
  class Evaluator;
  /// A condition under which all that the region yields is minus infinity: when
  /// it equals `removesIf`.
  struct Removal {
    Value condition;
    bool removesIf;
  };
  struct Decision {
    Value reads, admitsAll;
  };

  void findRemovals(Value yielded);
  void inferRanges();
  Decision decide(KernelBuilder &builder, const State &queries, Interval keys,
                  bool byRuns = false);
  /// The arguments of the body of these numbers, and what is computed from
  /// them.
  llvm::DenseSet<Value>
  findDependents(llvm::ArrayRef<unsigned> arguments) const;
  /// What `read` reads.
  Value getMemRef(mlir::tensor::ExtractOp read) const;

  mlir::Block *block;
  llvm::SmallVector<Value> captures;
  llvm::SmallVector<Removal> removals;
  unsigned numBounded = 0;
  /// What integers of the body may be at all, without overflow.
  llvm::DenseMap<Value, mlir::ConstantIntRanges> ranges;
  Interval batches, heads;
  /// Of captured tensors.
  llvm::DenseMap<Value, RunBounds> runs;
};

/// Bounds of an integer, or of a condition: then whether it may hold for some
/// entry and whether it holds for all. Null where nothing is known.
struct ScoreAdmission::Bounds {
  Value low, high;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_SCOREADMISSION_H
