//===- VectorOperands.cpp - What vector code asks of operands -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

static MemRefType getBufferType(Value value) {
  if (auto type = dyn_cast<MemRefType>(value.getType()))
    return type;
  if (auto op = value.getDefiningOp<bufferization::ToTensorOp>())
    return getBufferType(op.getBuffer());
  // Tensors that operations compute get contiguous buffers.
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return {};
  auto function =
      dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function)
    return {};
  auto layout = function.getArgAttrOfType<MemRefLayoutAttrInterface>(
      argument.getArgNumber(),
      bufferization::BufferizationDialect::kBufferLayoutAttrName);
  auto type = cast<RankedTensorType>(value.getType());
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

bool fovea::attn::hasRowGaps(Value rows) {
  MemRefType type = getBufferType(rows);
  if (!type || type.getLayout().isIdentity())
    return false;
  SmallVector<int64_t> strides;
  int64_t offset;
  return failed(type.getStridesAndOffset(strides, offset)) ||
         strides[type.getRank() - 2] != type.getShape().back();
}

LogicalResult fovea::attn::detail::verifyVectorOperands(Operation *op) {
  for (Value operand : op->getOperands())
    if (auto type = dyn_cast<MemRefType>(operand.getType()))
      if (type.getRank() != 0 && !type.isLastDimUnitStride())
        return op->emitOpError("expects unit stride along the width, but got ")
               << type;
  return success();
}
