//===- ScoreDerivative.h - Derivatives of score regions ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIFFERENTIATE_SCOREDERIVATIVE_H
#define FOVEA_DIFFERENTIATE_SCOREDERIVATIVE_H

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

/// Writes the derivatives of what a score region yields, before the yield: by
/// its first argument, and by all floating-point numbers that it reads if
/// `ofReads`. None without a region; an operation that has no derivative is an
/// error.
mlir::FailureOr<ScoreDerivatives> appendScoreDerivatives(ScoreRegions score,
                                                         bool ofReads);

} // namespace fovea::attn

#endif // FOVEA_DIFFERENTIATE_SCOREDERIVATIVE_H
