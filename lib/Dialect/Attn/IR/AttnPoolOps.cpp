//===- AttnPoolOps.cpp - Pooled summaries, and their choice ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"

using namespace mlir;
using namespace fovea::attn;

MutableOperandRange PoolBackwardOp::getDpsInitsMutable() {
  unsigned numInits = getDPositionBias() ? 3 : 2;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

MaskAttr TopKOp::getMaskOrNone() {
  return getMask() ? *getMask() : MaskAttr::get(getContext(), false, 0);
}
