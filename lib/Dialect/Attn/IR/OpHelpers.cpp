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

bool attn::detail::extentsMatch(int64_t a, int64_t b) {
  return ShapedType::isDynamic(a) || ShapedType::isDynamic(b) || a == b;
}

LogicalResult attn::detail::verifyExtent(Operation *op, StringRef name,
                                         Value operand, int64_t dim,
                                         int64_t expected, StringRef what,
                                         bool mayBroadcast) {
  int64_t found = cast<ShapedType>(operand.getType()).getDimSize(dim);
  if (extentsMatch(found, expected) || (mayBroadcast && found == 1))
    return success();
  return op->emitOpError() << "expects extent " << dim << " of " << name
                           << " to be " << expected
                           << (mayBroadcast && expected != 1 ? " or 1" : "")
                           << " (" << what << "), but got " << found;
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

LogicalResult attn::detail::verifyShape(Operation *op, StringRef name,
                                        Value operand,
                                        ArrayRef<int64_t> expected,
                                        StringRef what) {
  for (auto [dim, size] : llvm::enumerate(expected))
    if (failed(verifyExtent(op, name, operand, dim, size, what)))
      return failure();
  return success();
}

LogicalResult attn::detail::verifyWidth(Operation *op, StringRef name,
                                        Value operand) {
  int64_t width = cast<ShapedType>(operand.getType()).getShape().back();
  if (ShapedType::isDynamic(width))
    return op->emitOpError() << "expects a static width of " << name;
  if (width == 0)
    return op->emitOpError()
           << "expects a width of " << name << " of at least 1";
  return success();
}

LogicalResult attn::detail::verifyHeads(Operation *op, int64_t heads,
                                        int64_t keyHeads) {
  if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(keyHeads) ||
      heads == 0 || (keyHeads != 0 && heads % keyHeads == 0))
    return success();
  return op->emitOpError()
         << "expects the query heads to be a multiple of the key heads, but "
            "got "
         << heads << " query heads and " << keyHeads << " key heads";
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

LogicalResult attn::detail::verifyScoreTerm(Operation *op, StringRef name,
                                            Value term, ArrayRef<int64_t> shape,
                                            Type elementType) {
  auto type = cast<ShapedType>(term.getType());
  Type state = getStateType(elementType);
  if (type.getElementType() != state && type.getElementType() != elementType)
    return op->emitOpError()
           << "expects " << name << " to hold " << state
           << (state == elementType ? Twine() : Twine(" or the data type"))
           << ", but got " << type.getElementType();
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (failed(verifyExtent(op, name, term, dim, extent, "from query and key",
                            /*mayBroadcast=*/true)))
      return failure();
  return success();
}

LogicalResult attn::detail::verifyAttention(
    Operation *op, Value query, Value key, Value value, Value output, Value lse,
    std::optional<APFloat> scale, ElementTypes types, StringRef outputName) {
  auto q = cast<ShapedType>(query.getType());
  auto k = cast<ShapedType>(key.getType());
  auto v = cast<ShapedType>(value.getType());
  Type elementType = q.getElementType();
  struct Named {
    StringRef name;
    Value operand;
  };
  for (Named other :
       {Named{"key", key}, {"value", value}, {outputName, output}}) {
    Type found = cast<ShapedType>(other.operand.getType()).getElementType();
    if (types == ElementTypes::SameAsQuery && found != elementType)
      return op->emitOpError() << "expects " << other.name
                               << " to have the element type of query, "
                               << elementType << ", but got " << found;
    if (getStateType(found) != getStateType(elementType))
      return op->emitOpError()
             << "expects " << other.name
             << (elementType.isF64() ? " to hold f64" : " not to hold f64")
             << ", since query holds " << elementType << ", but got " << found;
  }
  int64_t width = q.getDimSize(3), valueWidth = v.getDimSize(3);
  for (Value operand : {query, key, value, output})
    if (cast<ShapedType>(operand.getType()).isDynamicDim(3))
      return op->emitOpError("expects static head and value widths");
  if (width == 0 || valueWidth == 0)
    return op->emitOpError("expects head and value widths of at least 1");

  if (failed(verifyExtent(op, "key", key, 0, q.getDimSize(0), "batch")) ||
      failed(verifyExtent(op, "value", value, 0, q.getDimSize(0), "batch")) ||
      failed(verifyExtent(op, "key", key, 3, width, "head width of query")) ||
      failed(verifyExtent(op, "value", value, 1, k.getDimSize(1),
                          "heads of key")) ||
      failed(
          verifyExtent(op, "value", value, 2, k.getDimSize(2), "rows of key")))
    return failure();

  if (failed(verifyHeads(op, q.getDimSize(1), k.getDimSize(1))))
    return failure();
  return verifyDestinations(op, query, valueWidth, output, lse, scale,
                            outputName);
}

LogicalResult attn::detail::verifyDestinations(Operation *op, Value query,
                                               int64_t valueWidth, Value output,
                                               Value lse,
                                               std::optional<APFloat> scale,
                                               StringRef outputName) {
  auto q = cast<ShapedType>(query.getType());
  Type elementType = q.getElementType();
  for (int64_t dim : {0, 1, 2})
    if (failed(verifyExtent(op, outputName, output, dim, q.getDimSize(dim),
                            "from query")))
      return failure();
  if (failed(verifyExtent(op, outputName, output, 3, valueWidth,
                          "width of value")))
    return failure();
  if (lse) {
    Type found = cast<ShapedType>(lse.getType()).getElementType();
    if (found != getStateType(elementType))
      return op->emitOpError()
             << "expects lse to hold " << getStateType(elementType)
             << ", but got " << found;
    for (int64_t dim : {0, 1, 2})
      if (failed(verifyExtent(op, "lse", lse, dim, q.getDimSize(dim),
                              "from query")))
        return failure();
  }
  if (scale && !scale->isFinite())
    return op->emitOpError("expects a finite scale");
  return verifyDestinationStyle(op);
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

double attn::detail::getScaleOrDefault(std::optional<APFloat> scale,
                                       Value query) {
  if (scale)
    return scale->convertToDouble();
  int64_t width = cast<ShapedType>(query.getType()).getDimSize(3);
  return 1.0 / std::sqrt(static_cast<double>(width));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Checks that `operand` has the shape of `like`. Where an extent of 1 would
/// broadcast, both have to say so.
static LogicalResult verifySameShape(Operation *op, StringRef name,
                                     Value operand, StringRef likeName,
                                     Value like) {
  auto type = cast<ShapedType>(operand.getType());
  auto likeType = cast<ShapedType>(like.getType());
  if (type.getRank() != likeType.getRank())
    return op->emitOpError()
           << "expects " << name << " to have rank " << likeType.getRank()
           << " as " << likeName << " has, but got " << type.getRank();
  for (int64_t dim = 0, rank = type.getRank(); dim < rank; ++dim) {
    int64_t expected = likeType.getDimSize(dim);
    if ((expected == 1) != (type.getDimSize(dim) == 1) ||
        !attn::detail::extentsMatch(expected, type.getDimSize(dim)))
      return op->emitOpError()
             << "expects " << name << " to have the shape of " << likeName
             << ", " << likeType << ", but got " << type;
  }
  return success();
}

LogicalResult attn::detail::verifyResultGradients(Operation *op, Value output,
                                                  Value lse, Value dOutput,
                                                  Value dLse) {
  struct Pair {
    StringRef name;
    Value gradient, result;
  };
  for (auto [name, gradient, result] :
       {Pair{"output", dOutput, output}, Pair{"lse", dLse, lse}}) {
    if (!gradient)
      continue;
    std::string gradientName = ("d_" + name).str();
    Type found = cast<ShapedType>(gradient.getType()).getElementType();
    Type expected = cast<ShapedType>(result.getType()).getElementType();
    if (getStateType(found) != getStateType(expected))
      return op->emitOpError()
             << "expects " << gradientName
             << (expected.isF64() ? " to hold f64" : " not to hold f64")
             << ", since " << name << " holds " << expected << ", but got "
             << found;
    if (failed(verifySameShape(op, gradientName, gradient, name, result)))
      return failure();
  }
  return success();
}

LogicalResult attn::detail::verifyGradients(Operation *op, StringRef name,
                                            ValueRange gradients,
                                            ValueRange operands, bool isList) {
  if (gradients.size() != operands.size())
    return op->emitOpError()
           << "expects d_" << name << " to have a gradient for each of the "
           << operands.size() << " " << name << ", but got "
           << gradients.size();
  for (auto [index, gradient, operand] : llvm::enumerate(gradients, operands)) {
    std::string operandName = name.str();
    if (isList)
      operandName += "[" + std::to_string(index) + "]";
    std::string gradientName = "d_" + operandName;
    if (failed(verifyElementsOrSums(op, gradientName, gradient,
                                    shaped(operand).getElementType())) ||
        failed(
            verifySameShape(op, gradientName, gradient, operandName, operand)))
      return failure();
  }
  return success();
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
