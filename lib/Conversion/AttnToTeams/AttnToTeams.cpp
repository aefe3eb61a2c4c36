//===- AttnToTeams.cpp - Lowerings that both targets share ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::registerLowerToTeamsExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    attachConvToTeams(*context);
    attachLowRankToTeams(*context);
    attachPoolToTeams(*context);
    attachQuantizeToTeams(*context);
    attachTokensToTeams(*context);
    attachTreeToTeams(*context);
    attachTreeSplitToTeams(*context);
  });
}
