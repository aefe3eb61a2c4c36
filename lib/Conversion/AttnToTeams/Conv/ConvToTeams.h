//===- ConvToTeams.h - Kernels of convolutions for teams --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOTEAMS_CONV_CONVTOTEAMS_H
#define FOVEA_LIB_CONVERSION_ATTNTOTEAMS_CONV_CONVTOTEAMS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

llvm::LogicalResult lowerToTeams(ConvRecoverBackwardOp op,
                                 TeamBuilder &builder);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOTEAMS_CONV_CONVTOTEAMS_H
