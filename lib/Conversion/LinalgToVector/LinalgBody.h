//===- LinalgBody.h - The body of a linalg op at a point --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bodies of elementwise operations, on numbers or on vectors that run along a
// loop. What is the same for a whole vector stays a number where that matters:
// positions of other loops, what is read there, and the checks of frontends
// that rows of a table exist.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGBODY_H
#define FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGBODY_H

#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace fovea::attn {

class LinalgBody {
public:
  using Values = KernelBuilder::Values;

  LinalgBody(mlir::linalg::LinalgOp op, KernelBuilder &b, int64_t lanes)
      : position(op.getNumLoops()), op(op), b(b), lanes(lanes) {}

  /// Whether all operations of the body can be emitted, on numbers at least.
  static bool canEmit(mlir::linalg::LinalgOp op);

  /// Whether neighbours along `loop` are neighbours in memory.
  bool isContiguous(mlir::OpOperand &operand, unsigned loop);
  /// Whether pairs of neighbours in memory have one element each, or both by
  /// the loop of pairs, for neighbours along `loop`.
  bool isPaired(mlir::OpOperand &operand, unsigned loop);
  bool isInvariant(mlir::OpOperand &operand, unsigned loop);
  /// Whether the body has vectors along `loop`; operands are not looked at.
  bool hasVectors(unsigned loop);
  /// Whether functions of vectors are in it, which are chains of many steps.
  bool hasFunctions();
  /// Has vectors run along `loop`.
  void setVectorLoop(unsigned loop);
  /// Has the position of `loop`, of extent 2, be a constant whenever something
  /// is emitted: it goes through pairs of neighbours.
  void setPairLoop(std::optional<unsigned> loop) { pairLoop = loop; }
  void setLanes(int64_t count) { lanes = count; }
  std::optional<unsigned> getVectorLoop() const { return vectorLoop; }

  /// Computes what is the same for all vectors of the present row, until
  /// leaveRow(): stores to memory would keep LLVM from doing so.
  /// Checks are made here unless the row `isEmpty`, where that is given.
  void enterRow(mlir::Value isEmpty = {});
  void leaveRow() {
    row.clear();
    inverses.clear();
    checked.clear();
  }

  /// The body at the present position; `old` are the outputs' values. An
  /// operand in `given` has that value, others are loaded.
  Values emit(bool isVector, mlir::ValueRange old);
  /// A vector where the operand varies along the vectors, otherwise a number.
  mlir::Value load(mlir::OpOperand &operand, bool isVector);
  void store(mlir::Value value, mlir::OpOperand &operand, bool isVector);
  /// Stores the first and second elements of pairs at the present position.
  void storePairs(mlir::Value first, mlir::Value second,
                  mlir::OpOperand &operand, bool isVector);
  mlir::Type vectorOf(mlir::Type type) {
    return mlir::VectorType::get({lanes}, type);
  }

  /// Where each loop is.
  Values position;
  llvm::DenseMap<mlir::OpOperand *, mlir::Value> given;

private:
  using ValueSet = llvm::DenseSet<mlir::Value>;

  bool isPairLoad(mlir::memref::LoadOp load, unsigned loop);
  /// Every other element, from `indices` on, whose last is the first or second.
  mlir::Value loadOther(mlir::Type type, mlir::Value memref, Values indices);
  std::optional<ValueSet> findScalars(unsigned loop);
  ValueSet findInvariants(unsigned loop);
  Values indices(mlir::OpOperand &operand);
  mlir::Value spread(mlir::Value value);
  void emitInner(mlir::Operation &inner, bool isVector,
                 mlir::IRMapping &mapping);
  bool isInvariantValue(mlir::Value value) {
    return value.getParentBlock() != op.getBlock() ||
           invariants.contains(value);
  }
  bool isDividedByRow(mlir::Operation &inner);
  void invertDivisor(mlir::Operation &inner);

  mlir::linalg::LinalgOp op;
  KernelBuilder &b;
  int64_t lanes;
  std::optional<unsigned> vectorLoop, pairLoop;
  /// Values of the body that are numbers where others are vectors, and those
  /// that are the same for all vectors of a row.
  ValueSet scalars, invariants;
  /// The latter, in the present row.
  mlir::IRMapping row;
  /// Of divisors that are the same in the row: a power of two, and the inverse
  /// of the product with it.
  llvm::DenseMap<mlir::Operation *, std::pair<mlir::Value, mlir::Value>>
      inverses;
  /// Checks that the present row passed.
  llvm::DenseSet<mlir::Operation *> checked;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGBODY_H
