//===- OpHelpers.cpp - Helpers shared by the op families -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

LogicalResult attn::detail::verifyExtent(Operation *op, StringRef name,
                                         Value operand, int64_t dim,
                                         int64_t needed, StringRef what) {
  int64_t found = extent(operand, dim);
  if (ShapedType::isDynamic(found) || found == needed)
    return success();
  return op->emitOpError() << "expects extent " << dim << " of " << name
                           << " to be " << needed << " (" << what
                           << "), but got " << found;
}

LogicalResult attn::detail::verifyElements(Operation *op, StringRef name,
                                           Value operand, Type expected) {
  Type found = cast<ShapedType>(operand.getType()).getElementType();
  if (found == expected)
    return success();
  return op->emitOpError() << "expects " << name << " to hold " << expected
                           << ", but got " << found;
}

LogicalResult attn::detail::verifyElementsOrSums(Operation *op, StringRef name,
                                                 Value operand, Type data) {
  Type found = shaped(operand).getElementType();
  if (found == data || found == getStateType(data))
    return success();
  return op->emitOpError() << "expects " << name << " to hold " << data
                           << (data == getStateType(data) ? "" : " or f32")
                           << ", but got " << found;
}

LogicalResult attn::detail::verifyDestinationStyle(Operation *op) {
  auto dpsOp = cast<DestinationStyleOpInterface>(op);
  bool anyTensor = false, anyMemRef = false;
  for (Value operand : op->getOperands()) {
    anyTensor |= isa<TensorType>(operand.getType());
    anyMemRef |= isa<MemRefType>(operand.getType());
  }
  if (anyTensor && anyMemRef)
    return op->emitOpError("expects all operands to be tensors or all to be "
                           "memrefs, but got both");
  unsigned expected = anyTensor ? dpsOp.getNumDpsInits() : 0;
  if (op->getNumResults() != expected)
    return op->emitOpError()
           << "expects one result for each tensor in outs, that is " << expected
           << ", but got " << op->getNumResults();
  for (auto [init, result] : llvm::zip(dpsOp.getDpsInits(), op->getResults()))
    if (init.getType() != result.getType())
      return op->emitOpError()
             << "expects the result type to be that of its "
                "destination, "
             << init.getType() << ", but got " << result.getType();
  return success();
}

FloatType attn::getStateType(Type type) {
  if (type.isF64())
    return cast<FloatType>(type);
  return Float32Type::get(type.getContext());
}

LogicalResult attn::detail::verifyBlock(Operation *op, ArrayAttr sources,
                                        int64_t block) {
  if (block < 0)
    return op->emitOpError()
           << "expects a block size that is not negative, but got " << block;
  if (block != 0)
    return success();
  for (auto [index, source] : llvm::enumerate(sources.getAsRange<SourceAttr>()))
    for (AffineMap range : source.getRanges())
      if (range.isFunctionOfDim(0))
        return op->emitOpError() << "expects a block size, since a range of "
                                    "source "
                                 << index << " depends on the block index";
  return success();
}

LogicalResult attn::detail::verifyLengths(Operation *op, ArrayAttr sources,
                                          bool hasQueryLengths) {
  for (auto [index, source] : llvm::enumerate(sources.getAsRange<SourceAttr>()))
    if ((source.getHasLengths() || hasQueryLengths) &&
        source.getRanges().size() > 1)
      return op->emitOpError()
             << "expects at most one range of source " << index << " beside "
             << (source.getHasLengths() ? "lengths" : "query_lengths")
             << ", but got " << source.getRanges().size();
  return success();
}

double attn::detail::getScaleOrDefault(std::optional<APFloat> scale,
                                       Value query) {
  if (scale)
    return scale->convertToDouble();
  int64_t width = cast<ShapedType>(query.getType()).getDimSize(3);
  return 1.0 / std::sqrt(static_cast<double>(width));
}

LogicalResult attn::detail::verifyKnownAttributes(
    OperationName name, ArrayRef<NamedAttribute> attributes,
    function_ref<InFlightDiagnostic()> emitError) {
  auto isNamed = [](StringRef known) {
    return [known](StringAttr other) { return other.getValue() == known; };
  };
  for (NamedAttribute attribute : attributes) {
    StringRef found = attribute.getName().getValue();
    // Upstream's old name of the one that no custom form has.
    if (attribute.getNameDialect() || found.contains('.') ||
        found == "operand_segment_sizes" ||
        llvm::any_of(name.getAttributeNames(), isNamed(found)))
      continue;
    InFlightDiagnostic diagnostic = emitError() << "has no attribute '" << found
                                                << "', only ";
    llvm::ListSeparator separator;
    for (StringAttr known : name.getAttributeNames())
      if (known.getValue() != "operandSegmentSizes")
        diagnostic << StringRef(separator) << known;
    return diagnostic;
  }
  return success();
}

LogicalResult attn::detail::verifySeparateInits(Operation *op) {
  auto dpsOp = cast<DestinationStyleOpInterface>(op);
  for (OpOperand &init : dpsOp.getDpsInitsMutable())
    for (OpOperand &other : op->getOpOperands())
      if (&init != &other && init.get() == other.get() &&
          isa<MemRefType>(init.get().getType()))
        return op->emitOpError()
               << "expects buffers of gradients to be apart from all others, "
                  "but operands "
               << other.getOperandNumber() << " and " << init.getOperandNumber()
               << " are one";
  return success();
}

void attn::detail::getDestinationStyleEffects(
    DestinationStyleOpInterface op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    bool isInit = op.isDpsInit(&operand);
    if (!isInit || op->hasTrait<UpdatesInits>())
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
    if (isInit)
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
}

void attn::detail::getCheckEffects(
    Operation *op, ArrayRef<OpOperand *> operands,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  for (OpOperand *operand : operands)
    if (isa<MemRefType>(operand->get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), operand);
  effects.emplace_back(MemoryEffects::Write::get());
}

LogicalResult
attn::detail::reifyInitShapes(OpBuilder &builder,
                              DestinationStyleOpInterface op,
                              ReifiedRankedShapedTypeDims &shapes) {
  for (Value init : op.getDpsInits())
    if (isa<TensorType>(init.getType()))
      shapes.push_back(tensor::getMixedSizes(builder, op.getLoc(), init));
  return success();
}
