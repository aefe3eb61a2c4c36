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

#include "fovea/Dialect/Attn/IR/ScoreDerivatives.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

namespace fovea::attn {

class ScoreBody {
public:
  using Value = mlir::Value;

  /// A position: that of lane 0, `base + offset`, and by how much it grows from
  /// lane to lane. What is computed from the bases alone is shared by entries.
  struct Place {
    Value base;
    int64_t step = 0;
    int64_t offset = 0;
    Value getFirst(KernelBuilder &b) const {
      return offset ? b.add(base, offset) : base;
    }
  };

  /// The body of a region, which reads `captures`.
  ScoreBody(mlir::Region &score, mlir::ValueRange captures)
      : ScoreBody(&score.front(), captures) {}
  /// That of these derivatives, which `evaluate` computes beside the score.
  ScoreBody(const ScoreDerivatives &values, mlir::ValueRange captures)
      : ScoreBody(mlir::Value(values.score).getParentBlock(), captures) {
    setDerivatives(values);
  }
  /// A body, or null for none.
  ScoreBody(mlir::Block *block, mlir::ValueRange captures)
      : block(block), captures(captures.begin(), captures.end()) {}

  /// Whether some score may be minus infinity, or as far below zero: such an
  /// entry is removed. Not, for example, behind a soft-cap.
  bool mayRemove() const;

  /// Another body that reads the same.
  void setBlock(mlir::Block &other) { block = &other; }

  /// What `evaluate` computes beside the score.
  void setDerivatives(const ScoreDerivatives &values) { derivatives = values; }

  /// Computes what depends on the batch entry and the head alone, here.
  void enterHead(KernelBuilder &builder, Value batch, Value head);

  /// Derivatives by what is read are in the order of those that were set, in
  /// the type of sums.
  struct Result {
    Value score, derivative;
    llvm::SmallVector<Value> readDerivatives;
  };
  /// The scores of the entries whose products are `product`: a vector, or a
  /// scalar where there are no lanes. Behind `enterHead`.
  Result evaluate(KernelBuilder &builder, Value product, Place query,
                  Place key);

  // Gradients of what is read (CaptureSums.cpp). Each read has sums of its own
  // for a head: an element for every place that its index may have within the
  // head, or a vector of them where that is one. Where queries and keys as far
  // apart read the same (ReadLines.h), there are sums for these first. Behind
  // `enterHead`.

  unsigned getNumReads() const { return derivatives.reads.size(); }
  /// Which element number `read` reads for an entry, counted in the order of
  /// memory without gaps, and whether there is one.
  std::pair<Value, Value> placeRead(KernelBuilder &builder, unsigned read,
                                    Value query, Value key);
  /// Scratch for the sums. Positions, those of lanes without a query as well,
  /// are less than `numPositions`, and queries stand `numQueries` before the
  /// first key at most; null where keys do not move on with the queries.
  void allocateSums(KernelBuilder &builder, Value numPositions,
                    Value numQueries);
  void clearSums(KernelBuilder &builder);
  /// Adds the gradients of what number `read` reads, one for each lane.
  void addToSums(KernelBuilder &builder, unsigned read, Value gradients,
                 Place query, Place key);
  /// Adds the sums to `destinations`, one for each captured tensor of
  /// floating-point numbers.
  void storeSums(KernelBuilder &builder, mlir::ValueRange destinations);

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
    /// Of an integer that is no vector, `value` is `base + offset`; null for
    /// `value` itself.
    Value base = {};
    int64_t offset = 0;
    Value getBase() const { return base ? base : value; }
  };
  /// Values of the body, and in which lanes some read was out of bounds: null
  /// for none.
  struct State {
    llvm::DenseMap<Value, Lanes> lanes;
    Value isOutside;
  };

  mlir::Block *block;
  ScoreDerivatives derivatives;
  llvm::SmallVector<Value> captures;
  State ofHead;

  /// The sums of a read: of the elements along the dimensions `free`, in which
  /// its index differs within a head; and of diagonals, of which number
  /// `ownDiagonal` has keys at the positions of their queries, or null.
  struct Sums {
    llvm::SmallVector<unsigned> free;
    Value values, diagonals;
  };
  void addToElements(KernelBuilder &builder, unsigned read, Value gradients,
                     Place query, Place key);
  void addRun(KernelBuilder &builder, Value sums, Value first, Value gradients,
              bool isReversed);
  void foldDiagonals(KernelBuilder &builder, unsigned read);
  void setPlaces(KernelBuilder &builder, Evaluator &evaluator, Place query,
                 Place key);
  Value getMemRef(mlir::tensor::ExtractOp read) const;
  /// The indices of a read.
  llvm::SmallVector<Lanes> locate(KernelBuilder &builder,
                                  mlir::tensor::ExtractOp read, Place query,
                                  Place key);
  bool differsInHead(Value value) const;
  Value toVector(KernelBuilder &builder, const Lanes &lanes, unsigned bits);
  llvm::SmallVector<Sums> sums;
  Value ownDiagonal;
  /// Indices and gradients of the lanes of a vector.
  llvm::SmallVector<Value> laneIndices;
  Value laneGradients;
  llvm::SmallVector<mlir::Operation *> mathOps;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_SCOREBODY_H
