//===- Recover.h - Search of attn.conv_recover ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_ATTNTOTEAMS_CONV_RECOVER_H
#define FOVEA_CONVERSION_ATTNTOTEAMS_CONV_RECOVER_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

/// Emits the code of attn.conv_recover for teams. Only the product of queries
/// and keys differs by target: `emitScores` stores the scores of all rows with
/// the keys where bases begin, each where its basis has that lag.
void emitConvRecover(TeamBuilder &builder, ConvRecoverOp op,
                     llvm::function_ref<void()> emitScores);

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_ATTNTOTEAMS_CONV_RECOVER_H
