//===- VQWindow.h - Tokens that a window of queries reads -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_VQWINDOW_H
#define FOVEA_KERNELS_VQWINDOW_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/RowBuilder.h"

namespace fovea::attn {

/// The tokens that the queries of a window read one by one: those of the block
/// that it begins in and of the one before it, which the state keeps, and then
/// its own. So blocks of tokens are those of the sequence, and a token is a row
/// of queries plus `numBefore`.
struct VQWindow {
  using Value = mlir::Value;

  VQWindow() = default;
  VQWindow(RowBuilder &builder, VQBackwardOp op);

  /// Of the window in the sequence.
  Value position;
  /// Of queries, of tokens before them, and of all tokens.
  Value length, numBefore, numTokens;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_VQWINDOW_H
