//===- VectorOperands.cpp - What vector code asks of operands -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/VectorOperands.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

LogicalResult fovea::attn::detail::verifyVectorOperands(Operation *op) {
  for (Value operand : op->getOperands())
    if (auto type = dyn_cast<MemRefType>(operand.getType()))
      if (type.getRank() != 0 && !type.isLastDimUnitStride())
        return op->emitOpError("expects unit stride along the width, but got ")
               << type;
  return success();
}
