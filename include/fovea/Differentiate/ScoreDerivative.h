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

namespace fovea::attn {

/// Writes the derivative of what a score region yields with respect to its
/// first argument, before the yield. Null without a region; an operation that
/// has no derivative is an error.
mlir::FailureOr<mlir::Value> appendScoreDerivative(ScoreRegions score);

} // namespace fovea::attn

#endif // FOVEA_DIFFERENTIATE_SCOREDERIVATIVE_H
