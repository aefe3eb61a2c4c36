//===- ScoreDerivative.cpp - Derivatives of score regions -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Differentiate/ScoreDerivative.h"
#include "fovea/Differentiate/DifferentiableOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fovea::attn;

FailureOr<Value> fovea::attn::appendScoreDerivative(ScoreRegions regions) {
  if (regions.empty())
    return Value();
  Region &region = regions.front();
  Block &block = region.front();
  Value score = block.getArgument(score_argument::Score);
  Value yielded = getYieldedScore(region);
  SmallVector<Operation *> ops = llvm::map_to_vector(
      block.without_terminator(), [](Operation &op) { return &op; });
  Adjoints adjoints;
  adjoints.activate(score);
  for (Operation *op : ops)
    adjoints.activateResults(op);
  OpBuilder b(block.getTerminator());
  Location loc = yielded.getLoc();
  Type type = score.getType();
  auto constant = [&](TypedAttr value) -> Value {
    return arith::ConstantOp::create(b, loc, value);
  };
  if (!adjoints.isActive(yielded))
    return constant(b.getZeroAttr(type));
  adjoints.set(yielded, constant(b.getOneAttr(type)));
  if (failed(adjoints.emitVJPs(b, ops)))
    return failure();
  Value derivative = adjoints.find(score);
  return derivative ? derivative : constant(b.getZeroAttr(type));
}
