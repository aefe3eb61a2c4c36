//===- KnownData.cpp - Elements of tensors that are known -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/KnownData.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fovea;

Attribute KnownData::lookup(Value value) const {
  while (auto cast = value.getDefiningOp<tensor::CastOp>())
    value = cast.getSource();
  if (Attribute elements = computed.lookup(value))
    return elements;
  Attribute constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant;
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && argument.getOwner() == entry &&
      argument.getArgNumber() < arguments.size())
    return arguments[argument.getArgNumber()];
  return {};
}
