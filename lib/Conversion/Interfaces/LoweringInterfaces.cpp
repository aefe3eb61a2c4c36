//===- LoweringInterfaces.cpp - Operations that have code -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/TeamLowering.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

#include "fovea/Conversion/Interfaces/LoweringInterfaces.cpp.inc"

FloatType fovea::attn::getComputeType(Operation *op) {
  for (Type type : op->getOperandTypes())
    if (auto element = dyn_cast<FloatType>(getElementTypeOrSelf(type)))
      return getStateType(element);
  // It has indices alone.
  return Float32Type::get(op->getContext());
}

LogicalResult fovea::attn::lowerOps(
    Operation *root, ArrayRef<std::string> names,
    function_ref<bool(OperationName)> hasForm,
    function_ref<LogicalResult(ArrayRef<Operation *>)> lower) {
  for (StringRef name : names)
    if (!hasForm(OperationName(name, root->getContext())))
      return root->emitError("ops: found '")
             << name << "', needed an operation that this pass lowers";
  while (true) {
    SmallVector<Operation *> ops;
    root->walk([&](Operation *op) {
      OperationName name = op->getName();
      if (hasForm(name) &&
          (names.empty() || llvm::is_contained(names, name.getStringRef())))
        ops.push_back(op);
    });
    if (ops.empty())
      return success();
    for (Operation *op : ops)
      if (op->getNumResults() != 0)
        return op->emitOpError(
            "expects operands to be memrefs, but got tensors");
    if (failed(lower(ops)))
      return failure();
  }
}
