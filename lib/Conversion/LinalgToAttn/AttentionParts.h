//===- AttentionParts.h - An attention operation, taken apart ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTIONPARTS_H
#define FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTIONPARTS_H

#include "fovea/Analysis/SymbolicExtents.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <optional>
#include <string>

namespace fovea::attn::detail {

/// Why an operation stays as it is; none if there is no reason.
using Reason = std::optional<std::string>;

/// A tensor, and which loop each of its dimensions is.
struct LoopOperand {
  mlir::Value value;
  llvm::SmallVector<unsigned> loops;
};

/// What an attention operation computes, softmax(scale q k^T + mask) v, over
/// numbered loops.
struct AttentionParts {
  explicit AttentionParts(mlir::Operation *op) : op(op), b(op->getLoc(), op) {}

  /// Reads what is in the operation; a reason if it says more than the parts.
  Reason readTorchMLIR();
  Reason readIREE();
  Reason readONNX();
  Reason readTorch();

  /// Finds what the loops are, and whether all extents agree.
  Reason check(SymbolicExtents &extents);
  /// Writes the products and the soft-max in the place of the operation.
  void replace();

  /// In place of a loop for a dimension of extent 1, whose number is repeated.
  /// No operation has as many loops.
  static constexpr unsigned kRepeated = 1 << 16;

  mlir::Operation *op;
  mlir::ImplicitLocOpBuilder b;
  LoopOperand query, key, value, result;
  std::optional<LoopOperand> mask;
  /// Dimensions of what is written that are one of the operation's result.
  llvm::SmallVector<mlir::ReassociationIndices> joined;
  /// What other results of the operation are.
  llvm::SmallVector<std::pair<unsigned, mlir::Value>> others;
  /// Whether extents that are not known have to be seen to be the same.
  bool isStrict = false;
  /// What scores are multiplied by: a value, or a number where there is none.
  mlir::Value scale;
  double factor = 1;
  /// Scores are `softCap tanh(s / softCap)` where it is not zero.
  double softCap = 0;
  /// How many keys behind, and before, the position of a query it reads.
  std::optional<int64_t> left, right;
  /// The position of the first query. With lengths, it is that of its batch
  /// entry less the number of queries.
  mlir::OpFoldResult firstPosition;
  /// How many keys each batch entry has, and the loop of batch entries.
  std::optional<LoopOperand> lengths;
  /// The loop of queries, where it is known.
  std::optional<unsigned> rows;
  /// Rows whose keys are all hidden are zeros.
  bool isGuarded = false;
  /// Of scores and sums.
  mlir::FloatType type;
  /// The loops of scores, that over keys last, and the one of columns.
  llvm::SmallVector<unsigned> scoreLoops;
  unsigned depth = 0;

private:
  /// Takes what is written as a tensor with these loops, of which `count` from
  /// `first` on are one dimension.
  void setResult(llvm::ArrayRef<unsigned> loops, unsigned first,
                 unsigned count);
  /// Whether results have the types of what is written.
  Reason checkResults() const;
  Reason checkOutput() const;
  void replaceResult(unsigned number, mlir::Value tensor);

  mlir::Value write();
  mlir::OpFoldResult getExtent(unsigned loop);
  mlir::Value makeTensor(llvm::ArrayRef<unsigned> loops, mlir::Type type);
  mlir::AffineMap getMap(llvm::ArrayRef<unsigned> loops,
                         llvm::ArrayRef<unsigned> order);
  mlir::Value writeProduct(const LoopOperand &lhs, const LoopOperand &rhs,
                           llvm::ArrayRef<unsigned> kept, unsigned reduced);
  mlir::Value writeMask(mlir::Value scores);
  mlir::Value writeScore(mlir::OpBuilder &b, mlir::ValueRange numbers,
                         mlir::Value multiplier);
  mlir::Value writePositions(mlir::OpBuilder &b, mlir::Value length);
  mlir::Value writeGuard(mlir::Value scores, mlir::Value weights);
  mlir::Value convert(mlir::OpBuilder &b, mlir::Value number, mlir::Type type);
};

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTIONPARTS_H
