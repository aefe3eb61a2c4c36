//===- AttentionOfOthers.cpp - Attention operations of others -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both are softmax(scale q k^T + mask) v. That of IREE says by maps which
// dimensions are keys, rows and so on; torch-mlir's has them in a fixed order.
//
//===----------------------------------------------------------------------===//

#include "AttentionOfOthers.h"
#include "AttentionParts.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn::detail;

using Reader = Reason (AttentionParts::*)();

/// Null if it is none.
static Reader getReader(Operation *op) {
  StringRef name = op->getName().getStringRef();
  // An operation that torch-mlir has no name for has it as an attribute.
  if (name == "torch.operator")
    if (auto given = op->getAttrOfType<StringAttr>("name"))
      name = given.getValue();
  return llvm::StringSwitch<Reader>(name)
      .Case("tm_tensor.attention", &AttentionParts::readTorchMLIR)
      .Case("iree_linalg_ext.attention", &AttentionParts::readIREE)
      .Case("onnx.Attention", &AttentionParts::readONNX)
      .Case("torch.aten.scaled_dot_product_attention",
            &AttentionParts::readTorch)
      .Default(nullptr);
}

bool fovea::attn::detail::isAttentionOfOthers(Operation *op) {
  return getReader(op) != nullptr;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

Reason AttentionParts::readTorchMLIR() {
  unsigned count = op->getNumOperands();
  if (count != 4 && count != 5)
    return "needed queries, keys, values, a mask if any, and an output";
  auto type = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  if (!type || type.getRank() < 3)
    return "the queries are no tensor of at least three dimensions";
  // The batch, rows, depth, keys and columns.
  SmallVector<unsigned> batch =
      llvm::to_vector(llvm::seq<unsigned>(type.getRank() - 2));
  unsigned next = batch.size();
  auto get = [&](unsigned operand, unsigned first, unsigned second) {
    SmallVector<unsigned> loops = batch;
    loops.append({next + first, next + second});
    return LoopOperand{op->getOperand(operand), loops};
  };
  query = get(0, 0, 1);
  key = get(1, 2, 1);
  value = get(2, 2, 3);
  if (count == 5)
    mask = get(3, 0, 2);
  result = get(count - 1, 0, 3);
  if (auto given = op->getAttrOfType<FloatAttr>("scale"))
    factor = given.getValueAsDouble();
  else if (!type.isDynamicDim(type.getRank() - 1))
    factor = 1 / std::sqrt(double(type.getShape().back()));
  else
    return "the width of heads, of which the scale is made, is not known";
  return checkOutput();
}

Reason AttentionParts::readIREE() {
  unsigned count = op->getNumOperands();
  auto maps = op->getAttrOfType<ArrayAttr>("indexing_maps");
  if ((count != 5 && count != 6) || !maps || maps.size() != count)
    return "needed queries, keys, values, a scale, a mask if any, and an "
           "output, each with a map";
  SmallVector<LoopOperand> operands;
  for (auto [number, map] : llvm::enumerate(maps)) {
    auto given = dyn_cast<AffineMapAttr>(map);
    if (!given || !given.getValue().isProjectedPermutation())
      return "a map does more than permute loops";
    LoopOperand operand{op->getOperand(number), {}};
    for (AffineExpr expr : given.getValue().getResults())
      operand.loops.push_back(cast<AffineDimExpr>(expr).getPosition());
    operands.push_back(operand);
  }
  // A function of scores that yields them.
  if (op->getNumRegions() == 1 && !op->getRegion(0).empty()) {
    Block &body = op->getRegion(0).front();
    if (!llvm::hasSingleElement(body) || body.getNumArguments() < 1 ||
        body.front().getNumOperands() != 1 ||
        body.front().getOperand(0) != body.getArgument(0))
      return "its region computes other scores";
  }
  query = operands[0];
  key = operands[1];
  value = operands[2];
  scale = operands[3].value;
  if (!isa<FloatType>(scale.getType()))
    return "the scale is no number of floating point";
  if (count == 6)
    mask = operands[4];
  result = operands.back();
  return checkOutput();
}

/// Their outputs say what the results are.
Reason AttentionParts::checkOutput() const {
  if (op->getNumResults() != 1 ||
      op->getResult(0).getType() != result.value.getType())
    return "the result has another type than the output";
  return std::nullopt;
}

Reason fovea::attn::detail::writeAsLinalg(Operation *op, Operation *root) {
  Operation *before = op->getPrevNode();
  AttentionParts parts(op);
  Reason reason = (parts.*getReader(op))();
  if (!reason) {
    SymbolicExtents extents(root);
    reason = parts.check(extents);
  }
  if (!reason) {
    parts.replace();
    return std::nullopt;
  }
  // What reading has written.
  while (Operation *written = op->getPrevNode()) {
    if (written == before)
      break;
    written->erase();
  }
  return reason;
}
