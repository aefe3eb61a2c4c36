//===- LowRankToTeams.cpp - Low-rank attention to teams -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankTeams.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::attachLowRankToTeams(MLIRContext &context) {
  attachTeamLowerings<RopeOp, RopeBackwardOp, PolynomialFeaturesOp,
                      PolynomialFeaturesBackwardOp>(context);
}
