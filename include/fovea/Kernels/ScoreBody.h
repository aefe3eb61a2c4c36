//===- ScoreBody.h - Score regions on vectors of entries --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A score region computes one score. Its operations are elementwise, so the
// same body computes a vector of them: what is the same in all lanes stays a
// scalar, a position that goes up or down by one from lane to lane stays a
// first lane and a step, and all else becomes an operation on vectors. What
// depends on the head alone is computed once for it.
//
// A read from a captured tensor is a load where its elements lie next to each
// other, and else a gather. Indices are bounded for each lane: one out of
// bounds reads another element, and the lane's score is NaN.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_SCOREBODY_H
#define FOVEA_KERNELS_SCOREBODY_H

#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

namespace fovea::attn {

class ScoreBody {
public:
  using Value = mlir::Value;

  /// A position: that of lane 0, and by how much it grows from lane to lane.
  struct Place {
    Value first;
    int64_t step = 0;
  };

  /// The body of a region, if there is one, which reads `captures`.
  ScoreBody(ScoreRegions score, mlir::ValueRange captures)
      : ScoreBody(score.empty() ? nullptr : &score.front().front(), captures) {}
  /// A body, or null for none.
  ScoreBody(mlir::Block *block, mlir::ValueRange captures)
      : block(block), captures(captures.begin(), captures.end()) {}

  explicit operator bool() const { return block != nullptr; }

  /// What `evaluate` computes beside the score, a value of the body; may be
  /// null.
  void setDerivative(Value value) { derivative = value; }

  /// Computes what depends on the batch entry and the head alone, here.
  void enterHead(KernelBuilder &builder, Value batch, Value head);

  struct Result {
    Value score, derivative;
  };
  /// The scores of the entries whose products are `product`: a vector, or a
  /// scalar where there are no lanes. Behind `enterHead`.
  Result evaluate(KernelBuilder &builder, Value product, Place query,
                  Place key);

  /// Expands functions of vectors that `evaluate` has emitted, once all code
  /// is.
  mlir::LogicalResult expandMath();

private:
  class Evaluator;
  /// A value of the body. Wide integers, of type `index` or `i64`, have 32 bits
  /// in vectors where their range allows that.
  struct Lanes {
    Value value;
    bool isWide;
    mlir::ConstantIntRanges range;
    enum { Uniform, Ramp, Vector } kind = Uniform;
    int64_t step = 0; // of a ramp, whose first lane `value` is
  };
  /// Values of the body, and in which lanes some read was out of bounds: null
  /// for none.
  struct State {
    llvm::DenseMap<Value, Lanes> lanes;
    Value isOutside;
  };

  mlir::Block *block;
  Value derivative;
  llvm::SmallVector<Value> captures;
  State ofHead;
  llvm::SmallVector<mlir::Operation *> mathOps;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_SCOREBODY_H
