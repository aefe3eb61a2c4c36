//===- SeparateArguments.cpp - Memory that must not overlap ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SeparateArguments.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

/// The buffer of a tensor that stands for one, if it may be written there.
static Value getBuffer(Value value, bool isWritten) {
  auto toTensor = value.getDefiningOp<bufferization::ToTensorOp>();
  return toTensor && (!isWritten || toTensor.getWritable())
             ? toTensor.getBuffer()
             : value;
}

SmallVector<SeparateArguments>
fovea::detail::collectSeparateArguments(FunctionOpInterface function) {
  Block *entry = &function.getFunctionBody().front();
  auto isArgument = [&](Value value) {
    return isa<BlockArgument>(value) && value.getParentBlock() == entry;
  };
  SmallVector<SeparateArguments> found;
  function->walk([&](DestinationStyleOpInterface op) {
    if (!op->hasTrait<attn::SeparateInits>())
      return;
    for (OpOperand &init : op.getDpsInitsMutable()) {
      // A tensor is not written to where it lies.
      Value written = getBuffer(init.get(), /*isWritten=*/true);
      if (!isArgument(written) || !isa<MemRefType>(written.getType()))
        continue;
      for (OpOperand &operand : op->getOpOperands()) {
        // Of two gradients the later one names the earlier one.
        if (op.isDpsInit(&operand) &&
            operand.getOperandNumber() >= init.getOperandNumber())
          continue;
        Value other = getBuffer(operand.get(), /*isWritten=*/false);
        if (isArgument(other) && other != written)
          found.push_back({cast<BlockArgument>(written).getArgNumber(),
                           cast<BlockArgument>(other).getArgNumber(),
                           op->getName().getStringRef().str()});
      }
    }
  });
  return found;
}

std::string SeparateArguments::getMessage(
    llvm::function_ref<std::string(unsigned)> describeArgument) const {
  return describeArgument(written) + ": " + op +
         " expects memory of its own for a gradient, but got memory that "
         "overlaps " +
         describeArgument(other);
}

llvm::Error SeparateArguments::check(
    llvm::ArrayRef<TensorRef> inputs,
    llvm::function_ref<std::string(unsigned)> describeArgument) const {
  if (!overlap(inputs[written], inputs[other]))
    return llvm::Error::success();
  return llvm::createStringError(getMessage(describeArgument));
}
