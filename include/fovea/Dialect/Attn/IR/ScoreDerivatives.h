//===- ScoreDerivatives.h - Derivatives of score bodies ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_SCOREDERIVATIVES_H
#define FOVEA_DIALECT_ATTN_IR_SCOREDERIVATIVES_H

#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace fovea::attn {

/// Values of a body: the derivatives of the score that it yields. Null stands
/// for zero, but for that of a body that there is not.
struct ScoreDerivatives {
  /// By an element that the body reads of a captured tensor.
  struct OfRead {
    mlir::tensor::ExtractOp read;
    mlir::Value value;

    /// The number of the tensor among those captured that have a gradient.
    unsigned getTensorNumber() const {
      mlir::tensor::ExtractOp op = read;
      auto tensor = llvm::cast<mlir::BlockArgument>(op.getTensor());
      unsigned number = 0;
      for (mlir::BlockArgument other : tensor.getOwner()->getArguments())
        number += other.getArgNumber() < tensor.getArgNumber() &&
                  isDifferentiableCapture(other.getType());
      return number;
    }
  };

  /// By its first argument.
  mlir::Value score;
  llvm::SmallVector<OfRead> reads;
};

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_SCOREDERIVATIVES_H
