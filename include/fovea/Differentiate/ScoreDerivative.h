//===- ScoreDerivative.h - Derivatives of score regions ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIFFERENTIATE_SCOREDERIVATIVE_H
#define FOVEA_DIFFERENTIATE_SCOREDERIVATIVE_H

#include "fovea/Dialect/Attn/IR/ScoreDerivatives.h"

namespace fovea::attn {

/// Writes the derivatives of what each region yields, before the yield: by its
/// first argument, and by all floating-point numbers that it reads if
/// `ofReads`. An operation that has no derivative is an error.
mlir::FailureOr<llvm::SmallVector<ScoreDerivatives>>
appendScoreDerivatives(ScoreRegions scores, bool ofReads);

} // namespace fovea::attn

#endif // FOVEA_DIFFERENTIATE_SCOREDERIVATIVE_H
