//===- LowRankTeams.h - Loops for rows of low-rank attention ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOTEAMS_LOWRANK_LOWRANKTEAMS_H
#define FOVEA_LIB_CONVERSION_ATTNTOTEAMS_LOWRANK_LOWRANKTEAMS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

// Each emits its code before the operation, on memrefs.

llvm::LogicalResult lowerToTeams(RopeOp op, TeamBuilder &builder);
llvm::LogicalResult lowerToTeams(RopeBackwardOp op, TeamBuilder &builder);
llvm::LogicalResult lowerToTeams(PolynomialFeaturesOp op, TeamBuilder &builder);
llvm::LogicalResult lowerToTeams(PolynomialFeaturesBackwardOp op,
                                 TeamBuilder &builder);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOTEAMS_LOWRANK_LOWRANKTEAMS_H
