//===- ConvToTeams.cpp - Kernels of convolutions for teams ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvToTeams.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::attachConvToTeams(MLIRContext &context) {
  attachTeamLowerings<ConvRecoverBackwardOp>(context);
}
