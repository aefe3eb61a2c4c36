//===- SourceScores.h - Functions of scores by source -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_SOURCESCORES_H
#define FOVEA_DIALECT_ATTN_IR_SOURCESCORES_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// Gives every source of a stream in `root`, or of its gradient, one score
/// region where some source has its own: it does what that did, and behind that
/// what the region of all entries did. So a stream has one region for all
/// sources, one for each of them, or none.
void giveSourcesScores(mlir::Operation *root);

/// Of what there is for each region of such a stream, that for a source.
template <typename List> auto &getOfSource(List &&ofRegions, unsigned source) {
  return ofRegions[ofRegions.size() == 1 ? 0 : source];
}

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_SOURCESCORES_H
