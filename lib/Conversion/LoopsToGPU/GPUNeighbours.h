//===- GPUNeighbours.h - Kernels of neighbouring elements -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread that loads an element of 16 bits at a time asks for little of a bus
// of 4.8 TB/s. Here it takes neighbours, as many as 16 bytes have, wherever
// addresses and extents are known to allow it, and finds their place once.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LOOPSTOGPU_GPUNEIGHBOURS_H
#define FOVEA_LIB_CONVERSION_LOOPSTOGPU_GPUNEIGHBOURS_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace fovea::attn {

/// Makes one loop of loops of the operation, on memrefs, whose elements all
/// operands have in the same order without gaps. Returns what it is then.
mlir::linalg::LinalgOp joinLoops(mlir::RewriterBase &rewriter,
                                 mlir::linalg::LinalgOp op);

/// What combines two sums of an operation with one result that reduces, and
/// what a sum begins with.
struct Accumulation {
  mlir::Operation *combiner;
  mlir::TypedAttr neutral;

  /// None where the operation does something else.
  static std::optional<Accumulation> match(mlir::linalg::LinalgOp op);
  mlir::Value start(KernelBuilder &b) const;
  mlir::Value combine(KernelBuilder &b, mlir::Value left,
                      mlir::Value right) const;
};

/// What an operation on memrefs does for neighbours along its innermost loop.
class Neighbours {
public:
  using Values = KernelBuilder::Values;

  explicit Neighbours(mlir::linalg::LinalgOp op);

  /// As many as are loaded or stored at once.
  int64_t getCount() const { return count; }
  /// Whether there may be less than that in the end.
  bool hasRest() const { return leavesRest; }
  /// Whether the input's elements lie side by side, or are one, along the
  /// innermost loop, for all inputs.
  bool areAdjacent();
  /// The extents of the loops.
  Values getExtents(KernelBuilder &b);

  /// Stores the results for `number` neighbours from `point` on: of one, or of
  /// all that are stored at once.
  void store(KernelBuilder &b, mlir::ValueRange point, int64_t number);
  /// Adds what such neighbours reduce to to `sum`, by the operation's body.
  mlir::Value reduce(KernelBuilder &b, mlir::ValueRange point, int64_t number,
                     mlir::Value sum);
  /// Adds `sum` to the result of a row, a point of all loops but the innermost.
  void accumulate(KernelBuilder &b, mlir::ValueRange row,
                  const Accumulation &accumulation, mlir::Value sum);

private:
  /// How an operand's elements lie along the innermost loop.
  enum class Access { Same, Adjacent, Other };
  Access getAccess(mlir::OpOperand &operand);
  bool isVector(mlir::OpOperand &operand);
  Values getIndices(KernelBuilder &b, mlir::OpOperand &operand,
                    mlir::ValueRange point);
  Values load(KernelBuilder &b, mlir::OpOperand &operand,
              mlir::ValueRange point, int64_t number);
  Values emitBody(KernelBuilder &b, mlir::ValueRange point,
                  mlir::ValueRange arguments);

  mlir::linalg::LinalgOp op;
  int64_t count = 1;
  bool leavesRest = false;
};

/// Replaces an operation without reductions by a parallel loop over neighbours,
/// if they are several. Returns whether they are.
bool loopOverNeighbours(mlir::linalg::LinalgOp op);

/// Replaces an operation of the host that reduces rows by a kernel in which up
/// to 32 lanes share one. Returns whether it is of that form.
bool launchRows(mlir::linalg::LinalgOp op);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LOOPSTOGPU_GPUNEIGHBOURS_H
