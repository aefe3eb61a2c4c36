//===- CallIR.cpp - The function of a call --------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "CallText.h"
#include "fovea/Analysis/UsefulFlops.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <limits>

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

  using Built = llvm::Expected<Attribute>;

  Built operator()(int64_t value) { return b.getI64IntegerAttr(value); }
  Built operator()(double value) { return b.getF64FloatAttr(value); }
  Built operator()(bool value) { return b.getBoolAttr(value); }
  Built operator()(Present) { return b.getUnitAttr(); }
  Built operator()(const MaskValue &mask) {
    return attn::MaskAttr::get(context, mask.causal, mask.window, mask.prefix,
                               mask.stride);
  }
  Built operator()(const TreeValue &tree) {
    return attn::TreeAttr::get(context, tree.ratio, tree.levels);
  }
  Built operator()(attn::Weighting value) {
    return attn::WeightingAttr::get(context, value);
  }
  Built operator()(attn::Reduction value) {
    return attn::ReductionAttr::get(context, value);
  }
  Built operator()(attn::ConvAlgorithm value) {
    return attn::ConvAlgorithmAttr::get(context, value);
  }
  Built operator()(attn::RowMask value) {
    return attn::RowMaskAttr::get(context, value);
  }
  Built operator()(attn::RopeStyle value) {
    return attn::RopeStyleAttr::get(context, value);
  }
  Built operator()(const SmallVector<double> &values) {
    return b.getDenseF64ArrayAttr(values);
  }
  Built operator()(const SmallVector<SourceValue, 0> &sources) {
    return buildSources(context, sources);
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
static Operation *
buildOp(OpBuilder &b, StringRef op, ValueRange operands,
        ArrayRef<int32_t> segments, ValueRange inits,
        ArrayRef<NamedAttribute> attributes,
        MutableArrayRef<std::unique_ptr<Region>> regions = {}) {
  OperationState state(b.getUnknownLoc(), ("attn." + op).str());
  state.addOperands(operands);
  state.addOperands(inits);
  state.addTypes(inits.getTypes());
  state.addAttributes(attributes);
  if (state.name.hasTrait<OpTrait::AttrSizedOperandSegments>()) {
    // The last destinations may be left out.
    SmallVector<int32_t> sizes(segments);
    sizes.resize(
        attn::findContract(state.name.getStringRef())->getOperands().size());
    state.addAttribute("operandSegmentSizes", b.getDenseI32ArrayAttr(sizes));
  }
  for (std::unique_ptr<Region> &region : regions)
    state.addRegion(std::move(region));
  return b.create(state);
}

RankedTensorType Call::getType(MLIRContext *context, bool isOpen,
                               Declared declared, ElementType elementType,
                               ArrayRef<int64_t> shape) const {
  Shape open(shape);
  for (auto [dim, extent] : llvm::enumerate(open))
    if (leavesOpen(isOpen, declared, shape, dim))
      extent = ShapedType::kDynamic;
  return RankedTensorType::get(open, convertType(context, elementType));
}

Value Call::makeEmpty(OpBuilder &b, RankedTensorType type, Declared declared,
                      ValueRange given) const {
  SmallVector<Value> extents;
  for (auto [dim, extent] : llvm::enumerate(type.getShape())) {
    if (!ShapedType::isDynamic(extent))
      continue;
    auto length = findLength(
        declared.spec->extents[dim], declared.index, [&](Dimension found) {
          Type argument = given[found.argument].getType();
          return cast<RankedTensorType>(argument).isDynamicDim(found.dim);
        });
    assert(length && "a length that no argument has");
    extents.push_back(tensor::DimOp::create(
        b, b.getUnknownLoc(), given[length->argument], length->dim));
  }
  return tensor::EmptyOp::create(b, b.getUnknownLoc(), type, extents);
}

Value functions::narrowIntegers(OpBuilder &b, Value wide, StringRef failure) {
  Location loc = b.getUnknownLoc();
  auto type = cast<RankedTensorType>(wide.getType());
  if (type.getElementType().isInteger(32))
    return wide;
  Value init = tensor::EmptyOp::create(
      b, loc, tensor::getMixedSizes(b, loc, wide), b.getI32Type());
  SmallVector<AffineMap> maps(2, b.getMultiDimIdentityMap(type.getRank()));
  SmallVector<utils::IteratorType> loops(type.getRank(),
                                         utils::IteratorType::parallel);
  auto bound = [&](OpBuilder &nested, int64_t value) -> Value {
    return arith::ConstantIntOp::create(nested, loc, value, /*width=*/64);
  };
  using Limits = std::numeric_limits<int32_t>;
  return linalg::GenericOp::create(
             b, loc, init.getType(), wide, init, maps, loops,
             [&](OpBuilder &nested, Location, ValueRange elements) {
               Value number = arith::MaxSIOp::create(
                   nested, loc, elements[0], bound(nested, Limits::min()));
               number = arith::MinSIOp::create(nested, loc, number,
                                               bound(nested, Limits::max()));
               if (!failure.empty())
                 cf::AssertOp::create(nested, loc,
                                      arith::CmpIOp::create(
                                          nested, loc, arith::CmpIPredicate::eq,
                                          number, elements[0]),
                                      failure);
               number = arith::TruncIOp::create(nested, loc,
                                                nested.getI32Type(), number);
               linalg::YieldOp::create(nested, loc, number);
             })
      .getResult(0);
}

SmallVector<Value>
Call::buildBody(OpBuilder &b, bool isOpen, ValueRange functionArguments,
                ValueRange inits, ArrayRef<NamedAttribute> named,
                MutableArrayRef<std::unique_ptr<Region>> regions) const {
  if (body)
    return body(b, functionArguments, inits);
  SmallVector<Value> operands;
  for (int value : values) {
    if (value >= 0) {
      Value argument = functionArguments[value];
      const attn::OperandSpec *spec = declarations[value].spec;
      bool isWide = spec && spec->elements == attn::ElementRule::I32 &&
                    arguments[value].elementType == ElementType::I64;
      // Positions have no bounds.
      StringRef failure = arguments[value].name == "positions"
                              ? "positions: found a number of more than 32 bits"
                              : "";
      operands.push_back(isWide ? narrowIntegers(b, argument, failure)
                                : argument);
      continue;
    }
    const Computed &computed = computedValues[~value];
    SmallVector<Value> inputs;
    for (unsigned input : computed.inputs)
      inputs.push_back(functionArguments[input]);
    RankedTensorType type = getType(b.getContext(), isOpen, computed.declared,
                                    computed.elementType, computed.shape);
    Value init = makeEmpty(b, type, computed.declared, functionArguments);
    operands.push_back(
        buildOp(b, computed.producer, inputs, computed.segments, init, {})
            ->getResult(0));
  }
  SmallVector<int32_t, 16> sizes(segments);
  llvm::append_range(sizes, initSegments);
  return llvm::to_vector_of<Value>(
      buildOp(b, op, operands, sizes, inits, named, regions)->getResults());
}

/// The dialects of the functions of calls.
static void loadDialects(MLIRContext &context) {
  context
      .loadDialect<arith::ArithDialect, attn::AttnDialect,
                   bufferization::BufferizationDialect, cf::ControlFlowDialect,
                   func::FuncDialect, linalg::LinalgDialect, math::MathDialect,
                   scf::SCFDialect, tensor::TensorDialect>();
}

llvm::Expected<OwningOpRef<ModuleOp>> Call::buildFunction(MLIRContext &context,
                                                          bool isOpen) const {
  OpBuilder b(&context);
  llvm::Expected<SmallVector<std::unique_ptr<Region>>> regions =
      buildScoreRegions(&context);
  if (!regions)
    return regions.takeError();
  SmallVector<NamedAttribute> named;
  for (const Attribute &attribute : attributes) {
    llvm::Expected<mlir::Attribute> built =
        std::visit(AttributeBuilder{b}, attribute.value);
    if (!built)
      return built.takeError();
    named.push_back(b.getNamedAttr(attribute.name, *built));
  }
  Location loc = b.getUnknownLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(b, loc);
  b.setInsertionPointToEnd(module->getBody());

  SmallVector<Type> types, returnedTypes;
  SmallVector<Location> locations;
  for (auto [argument, declared] : llvm::zip_equal(arguments, declarations)) {
    types.push_back(getType(&context, isOpen, declared, argument.elementType,
                            argument.shape));
    locations.push_back(getLocation(&context, argument.name));
  }
  SmallVector<RankedTensorType> destinationTypes;
  for (const Destination &destination : destinations) {
    RankedTensorType type = getType(&context, isOpen, destination.declared,
                                    destination.elementType, destination.shape);
    destinationTypes.push_back(type);
    if (!destination.buffer) {
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
    Value memory = destination.buffer ? Value(*buffer++) : Value();
    if (destination.from)
      inits.push_back(given[*destination.from]);
    else if (memory)
      inits.push_back(bufferization::ToTensorOp::create(
          b, loc, type, memory, /*restrict=*/true, /*writable=*/true));
    else
      inits.push_back(makeEmpty(b, type, destination.declared, given));
  }
  SmallVector<Value> returned;
  buffer = buffers.begin();
  for (auto [destination, result] : llvm::zip_equal(
           destinations, buildBody(b, isOpen, given, inits, named, *regions))) {
    if (!destination.buffer) {
      returned.push_back(result);
      continue;
    }
    auto store = bufferization::MaterializeInDestinationOp::create(
        b, loc, result, *buffer++);
    store.setRestrict(true);
    store.setWritable(true);
  }
  func::ReturnOp::create(b, loc, returned);
  return std::move(module);
}

llvm::Expected<Kernel> Call::compileFunction(const CompileOptions &options,
                                             bool isOpen) const {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  loadDialects(context);
  llvm::Expected<OwningOpRef<ModuleOp>> module = buildFunction(context, isOpen);
  if (!module)
    return module.takeError();
  return compile(**module, options);
}

llvm::Expected<double> Call::countFlops() const {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  loadDialects(context);
  llvm::Expected<OwningOpRef<ModuleOp>> module =
      buildFunction(context, /*isOpen=*/false);
  if (!module)
    return module.takeError();
  SmallVector<SmallVector<int64_t>> shapes;
  for (const Argument &argument : arguments)
    shapes.emplace_back(argument.shape.begin(), argument.shape.end());
  auto function = *(*module)->getOps<func::FuncOp>().begin();
  return countUsefulFlops(function, shapes).value_or(0);
}
