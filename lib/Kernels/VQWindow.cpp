//===- VQWindow.cpp - Tokens that a window reads one by one ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/VQWindow.h"

using namespace mlir;
using namespace fovea::attn;

VQWindow::VQWindow(RowBuilder &b, VQBackwardOp op) {
  length = numTokens = b.extent(op.getValue(), 2);
  position = numBefore = b.index(0);
  if (op.getState().empty())
    return;
  int64_t block = op.getBlock();
  position = b.loadIndex(op.getState()[4], {});
  // The first block has none before it.
  Value hasOlder = b.less(b.index(block - 1), position);
  numBefore = b.add(b.rem(position, block),
                    b.select(hasOlder, b.index(block), numBefore));
  numTokens = b.add(numBefore, length);
}
