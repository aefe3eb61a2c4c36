//===- CallIR.cpp - The function of a call --------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Types and attributes
//===----------------------------------------------------------------------===//

Type functions::convertType(MLIRContext *context, ElementType type) {
  switch (type) {
  case ElementType::F16:
    return Float16Type::get(context);
  case ElementType::BF16:
    return BFloat16Type::get(context);
  case ElementType::F32:
    return Float32Type::get(context);
  case ElementType::F64:
    return Float64Type::get(context);
  case ElementType::Index:
    return IndexType::get(context);
  case ElementType::I1:
    return IntegerType::get(context, 1);
  default:
    return IntegerType::get(context, 8 * getByteWidth(type));
  }
}

namespace {
/// The attribute of a value.
struct AttributeBuilder {
  OpBuilder &b;
  MLIRContext *context = b.getContext();

  Attribute operator()(int64_t value) { return b.getI64IntegerAttr(value); }
  Attribute operator()(double value) { return b.getF64FloatAttr(value); }
  Attribute operator()(bool value) { return b.getBoolAttr(value); }
  Attribute operator()(Present) { return b.getUnitAttr(); }
  Attribute operator()(const MaskValue &mask) {
    return attn::MaskAttr::get(context, mask.causal, mask.window, mask.prefix);
  }
  Attribute operator()(const TreeValue &tree) {
    return attn::TreeAttr::get(context, tree.ratio, tree.levels);
  }
  Attribute operator()(attn::Weighting value) {
    return attn::WeightingAttr::get(context, value);
  }
  Attribute operator()(attn::Reduction value) {
    return attn::ReductionAttr::get(context, value);
  }
  Attribute operator()(attn::ConvAlgorithm value) {
    return attn::ConvAlgorithmAttr::get(context, value);
  }
  Attribute operator()(attn::RowMask value) {
    return attn::RowMaskAttr::get(context, value);
  }
  Attribute operator()(attn::RopeStyle value) {
    return attn::RopeStyleAttr::get(context, value);
  }
  Attribute operator()(const SmallVector<double> &values) {
    return b.getDenseF64ArrayAttr(values);
  }
};
} // namespace

/// key_weights[0] is %key_weights_0.
static Location getLocation(MLIRContext *context, StringRef name) {
  std::string text;
  for (char c : name)
    if (c != ']')
      text += llvm::isAlnum(c) ? c : '_';
  return NameLoc::get(StringAttr::get(context, text));
}

/// That of contiguous rows anywhere.
static StridedLayoutAttr getRowLayout(MLIRContext *context, size_t rank) {
  SmallVector<int64_t> strides(rank, ShapedType::kDynamic);
  strides.back() = 1;
  return StridedLayoutAttr::get(context, /*offset=*/0, strides);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// An operation of the dialect whose results have the types of `inits`.
static Operation *buildOp(OpBuilder &b, StringRef op, ValueRange operands,
                          ArrayRef<int32_t> segments, ValueRange inits,
                          ArrayRef<NamedAttribute> attributes,
                          Region *region = nullptr) {
  OperationState state(b.getUnknownLoc(), ("attn." + op).str());
  state.addOperands(operands);
  state.addOperands(inits);
  state.addTypes(inits.getTypes());
  state.addAttributes(attributes);
  if (state.name.hasTrait<OpTrait::AttrSizedOperandSegments>())
    state.addAttribute("operandSegmentSizes", b.getDenseI32ArrayAttr(segments));
  if (region)
    state.addRegion()->takeBody(*region);
  return b.create(state);
}

llvm::Expected<OwningOpRef<ModuleOp>>
Call::parseScoreRegion(MLIRContext *context) const {
  if (!scoreBody)
    return OwningOpRef<ModuleOp>();
  std::string text;
  llvm::raw_string_ostream os(text);
  Type sums =
      attn::getStateType(convertType(context, arguments.front().elementType));
  os << "func.func @score(%score: " << sums
     << ", %batch: index, %head: index, %query: index, %key: index";
  auto [first, count] = scoreCaptures;
  for (auto [index, value] :
       llvm::enumerate(ArrayRef(values).slice(first, count))) {
    const Argument &capture = arguments[value];
    os << ", %capture" << index << ": "
       << getType(context, /*isOpen=*/true, argumentSpecs[value],
                  capture.elementType, capture.shape);
  }
  os << ") -> " << sums << " {\n" << *scoreBody << "\n}\n";
  std::string message;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    if (message.empty())
      message = diagnostic.str();
    return success();
  });
  // It is verified as the region that it becomes.
  auto module = parseSourceString<ModuleOp>(
      text, ParserConfig(context, /*verifyAfterParse=*/false));
  if (!module)
    return llvm::createStringError(
        std::make_error_code(std::errc::invalid_argument),
        "score: found a body that does not parse: " + message);
  return module;
}

RankedTensorType Call::getType(MLIRContext *context, bool isOpen,
                               const attn::OperandSpec *spec,
                               ElementType elementType,
                               ArrayRef<int64_t> shape) const {
  Shape open(shape);
  for (auto [dim, extent] : llvm::enumerate(open))
    if (leavesOpen(isOpen, spec, shape, dim))
      extent = ShapedType::kDynamic;
  return RankedTensorType::get(open, convertType(context, elementType));
}

Value Call::makeEmpty(OpBuilder &b, RankedTensorType type,
                      const attn::OperandSpec *spec, ValueRange given) const {
  auto find = [&](StringRef symbol) -> Value {
    for (auto [argument, argumentSpec] :
         llvm::zip_equal(given, argumentSpecs)) {
      auto argumentType = cast<RankedTensorType>(argument.getType());
      for (auto [dim, declared] :
           llvm::enumerate(argumentSpec ? ArrayRef(argumentSpec->extents)
                                        : ArrayRef<attn::ExtentSpec>()))
        if (declared.symbol == symbol && argumentType.isDynamicDim(dim))
          return tensor::DimOp::create(b, b.getUnknownLoc(), argument, dim);
    }
    llvm_unreachable("a length that no argument has");
  };
  SmallVector<Value> extents;
  for (auto [dim, extent] : llvm::enumerate(type.getShape()))
    if (ShapedType::isDynamic(extent))
      extents.push_back(find(spec->extents[dim].symbol));
  return tensor::EmptyOp::create(b, b.getUnknownLoc(), type, extents);
}

SmallVector<Value> Call::buildBody(OpBuilder &b, bool isOpen,
                                   ValueRange functionArguments,
                                   ValueRange inits, Region *region) const {
  if (body)
    return body(b, functionArguments, inits);
  SmallVector<Value> operands;
  for (int value : values) {
    if (value >= 0) {
      operands.push_back(functionArguments[value]);
      continue;
    }
    const Computed &computed = computedValues[~value];
    SmallVector<Value> inputs;
    for (unsigned input : computed.inputs)
      inputs.push_back(functionArguments[input]);
    RankedTensorType type = getType(b.getContext(), isOpen, computed.spec,
                                    computed.elementType, computed.shape);
    Value init = makeEmpty(b, type, computed.spec, functionArguments);
    operands.push_back(
        buildOp(b, computed.producer, inputs, computed.segments, init, {})
            ->getResult(0));
  }
  SmallVector<NamedAttribute> named;
  for (const auto &[name, value] : attributes)
    named.push_back(
        b.getNamedAttr(name, std::visit(AttributeBuilder{b}, value)));
  SmallVector<int32_t, 16> sizes(segments);
  llvm::append_range(sizes, initSegments);
  return llvm::to_vector_of<Value>(
      buildOp(b, op, operands, sizes, inits, named, region)->getResults());
}

llvm::Expected<Kernel> Call::compileFunction(const CompileOptions &options,
                                             bool isOpen) const {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<arith::ArithDialect, attn::AttnDialect,
                      bufferization::BufferizationDialect, func::FuncDialect,
                      linalg::LinalgDialect, math::MathDialect,
                      tensor::TensorDialect>();
  llvm::Expected<OwningOpRef<ModuleOp>> score = parseScoreRegion(&context);
  if (!score)
    return score.takeError();
  Region *region = nullptr;
  if (*score)
    region = &(*score)->getBody()->front().getRegion(0);
  OpBuilder b(&context);
  Location loc = b.getUnknownLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(b, loc);
  b.setInsertionPointToEnd(module->getBody());

  SmallVector<Type> types, returnedTypes;
  SmallVector<Location> locations;
  for (auto [argument, spec] : llvm::zip_equal(arguments, argumentSpecs)) {
    types.push_back(
        getType(&context, isOpen, spec, argument.elementType, argument.shape));
    locations.push_back(getLocation(&context, argument.name));
  }
  SmallVector<RankedTensorType> destinationTypes;
  for (const Destination &destination : destinations) {
    RankedTensorType type = getType(&context, isOpen, destination.spec,
                                    destination.elementType, destination.shape);
    destinationTypes.push_back(type);
    if (!isInBuffer(destination)) {
      returnedTypes.push_back(type);
      continue;
    }
    StridedLayoutAttr layout;
    if (takesStrides(*destination.buffer))
      layout = getRowLayout(&context, destination.shape.size());
    types.push_back(
        MemRefType::get(type.getShape(), type.getElementType(), layout));
    locations.push_back(getLocation(&context, destination.name + "_buffer"));
  }
  auto function =
      func::FuncOp::create(b, loc, op, b.getFunctionType(types, returnedTypes));
  for (auto [index, argument] : llvm::enumerate(arguments))
    if (takesStrides(argument))
      function.setArgAttr(
          index, bufferization::BufferizationDialect::kBufferLayoutAttrName,
          getRowLayout(&context, argument.shape.size()));
  Block *entry = function.addEntryBlock();
  for (auto [argument, location] :
       llvm::zip_equal(entry->getArguments(), locations))
    argument.setLoc(location);
  b.setInsertionPointToEnd(entry);

  auto given = ValueRange(entry->getArguments()).take_front(arguments.size());
  auto buffers = ValueRange(entry->getArguments()).drop_front(arguments.size());
  SmallVector<Value> inits;
  auto buffer = buffers.begin();
  for (auto [destination, type] :
       llvm::zip_equal(destinations, destinationTypes)) {
    Value memory = isInBuffer(destination) ? Value(*buffer++) : Value();
    if (destination.from)
      inits.push_back(given[*destination.from]);
    else if (memory)
      inits.push_back(bufferization::ToTensorOp::create(
          b, loc, type, memory, /*restrict=*/true, /*writable=*/true));
    else
      inits.push_back(makeEmpty(b, type, destination.spec, given));
  }
  SmallVector<Value> returned;
  buffer = buffers.begin();
  for (auto [destination, result] : llvm::zip_equal(
           destinations, buildBody(b, isOpen, given, inits, region))) {
    if (!isInBuffer(destination)) {
      returned.push_back(result);
      continue;
    }
    auto store = bufferization::MaterializeInDestinationOp::create(
        b, loc, result, *buffer++);
    store.setRestrict(true);
    store.setWritable(true);
  }
  func::ReturnOp::create(b, loc, returned);
  return compile(*module, options);
}
