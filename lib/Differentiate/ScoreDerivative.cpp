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

static FailureOr<ScoreDerivatives> appendDerivatives(Region &region,
                                                     bool ofReads) {
  ScoreDerivatives derivatives;
  Block &block = region.front();
  Value score = block.getArgument(score_argument::Score);
  Value yielded = getYieldedScore(region);
  Adjoints adjoints;
  adjoints.activate(score);
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    auto read = dyn_cast<tensor::ExtractOp>(op);
    if (!read) {
      adjoints.activateResults(&op);
      ops.push_back(&op);
    } else if (ofReads && isa<FloatType>(read.getType())) {
      adjoints.activate(read);
      derivatives.reads.push_back({read, Value()});
    }
  }
  OpBuilder b(block.getTerminator());
  Location loc = yielded.getLoc();
  Type type = score.getType();
  auto constant = [&](TypedAttr value) -> Value {
    return arith::ConstantOp::create(b, loc, value);
  };
  if (adjoints.isActive(yielded)) {
    adjoints.set(yielded, constant(b.getOneAttr(type)));
    if (failed(adjoints.emitVJPs(b, ops)))
      return failure();
  }
  Value derivative = adjoints.find(score);
  derivatives.score = derivative ? derivative : constant(b.getZeroAttr(type));
  for (ScoreDerivatives::OfRead &each : derivatives.reads)
    each.value = adjoints.find(each.read);
  return derivatives;
}

FailureOr<SmallVector<ScoreDerivatives>>
fovea::attn::appendScoreDerivatives(ScoreRegions scores, bool ofReads) {
  SmallVector<ScoreDerivatives> all;
  for (Region &score : scores) {
    FailureOr<ScoreDerivatives> derivatives = appendDerivatives(score, ofReads);
    if (failed(derivatives))
      return failure();
    all.push_back(*derivatives);
  }
  return all;
}
