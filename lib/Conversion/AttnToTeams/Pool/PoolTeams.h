//===- PoolTeams.h - Pooled summaries, and their choice ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOTEAMS_POOL_POOLTEAMS_H
#define FOVEA_LIB_CONVERSION_ATTNTOTEAMS_POOL_POOLTEAMS_H

#include "fovea/Conversion/Interfaces/TeamLowering.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

llvm::LogicalResult lowerToTeams(TopKOp op, TeamBuilder &builder);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOTEAMS_POOL_POOLTEAMS_H
