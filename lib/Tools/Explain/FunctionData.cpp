//===- FunctionData.cpp - What is known of data in a function -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lists that attn.top_k makes and codes that attn.quantize makes are values of
// the function. The part of it that computes them is compiled and run: shapes
// are known, so that it takes the data of what it reads elements of alone.
//
//===----------------------------------------------------------------------===//

#include "FunctionData.h"
#include "fovea/Analysis/ScoreMatrix.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::explanation;

SmallVector<Value> explanation::getDecidingOperands(Operation *op) {
  SmallVector<Value> found;
  if (!isa<attn::AttnDialect>(op->getDialect()))
    return found;
  ValueRange captures = getScoreCaptures(op);
  for (Value operand : op->getOperands()) {
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    if (type && (type.getElementType().isIntOrIndex() ||
                 llvm::is_contained(captures, operand))) {
      while (auto cast = operand.getDefiningOp<tensor::CastOp>())
        operand = cast.getSource();
      found.push_back(operand);
    }
  }
  return found;
}

/// The elements of a contiguous tensor, as those of a value of type `element`.
static DenseElementsAttr makeElements(const TensorRef &tensor, Type element) {
  auto type = RankedTensorType::get(tensor.shape, element);
  int64_t count = type.getNumElements();
  auto elementAt = [&](int64_t index) {
    return getElement(tensor.data, tensor.elementType, index);
  };
  if (auto floating = dyn_cast<FloatType>(element)) {
    SmallVector<APFloat> elements;
    for (int64_t index : llvm::seq(count)) {
      bool losesInfo;
      elements.emplace_back(elementAt(index));
      elements.back().convert(floating.getFloatSemantics(),
                              APFloat::rmNearestTiesToEven, &losesInfo);
    }
    return DenseElementsAttr::get(type, elements);
  }
  unsigned bits = element.isIndex() ? IndexType::kInternalStorageBitWidth
                                    : element.getIntOrFloatBitWidth();
  SmallVector<APInt> elements;
  for (int64_t index : llvm::seq(count))
    elements.emplace_back(bits, static_cast<int64_t>(elementAt(index)),
                          /*isSigned=*/true, /*implicitTrunc=*/true);
  return DenseElementsAttr::get(type, elements);
}

//===----------------------------------------------------------------------===//
// Parts of functions
//===----------------------------------------------------------------------===//

/// The number of a dimension of an argument whose extent `op` is.
static std::optional<int64_t> getArgumentDim(Operation *op, Block *entry) {
  auto dim = dyn_cast<tensor::DimOp>(op);
  auto argument =
      dim ? dyn_cast<BlockArgument>(dim.getSource()) : BlockArgument();
  if (!argument || argument.getOwner() != entry)
    return std::nullopt;
  return dim.getConstantIndex();
}

namespace {
/// What computes values of a function.
struct Part {
  llvm::SetVector<Operation *> ops; // of the function's own block
  llvm::BitVector arguments;        // whose elements these read
};
} // namespace

static Part findPart(Value value, Block *entry) {
  Part part{{}, llvm::BitVector(entry->getNumArguments())};
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  options.omitUsesFromAbove = false;
  options.inclusive = true;
  llvm::SetVector<Operation *> slice;
  (void)getBackwardSlice(value, &slice, options);
  for (Operation *op : slice) {
    if (op->getBlock() != entry)
      continue;
    part.ops.insert(op);
    if (getArgumentDim(op, entry))
      continue;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (auto argument = dyn_cast<BlockArgument>(operand))
          if (argument.getOwner() == entry)
            part.arguments.set(argument.getArgNumber());
    });
  }
  return part;
}

/// A module with a function of the arguments that `part` reads, which returns
/// `values`.
static std::string writePart(FunctionOpInterface function, const Part &part,
                             ArrayRef<Value> values, StringRef name,
                             const ArgumentShapes &shapes) {
  Block &entry = function.getFunctionBody().front();
  SmallVector<Type> types;
  for (unsigned number : part.arguments.set_bits())
    types.push_back(entry.getArgument(number).getType());
  OwningOpRef<Operation *> module =
      function->getParentOfType<ModuleOp>()->clone();
  Operation *whole = SymbolTable::lookupSymbolIn(*module, function.getName());
  OpBuilder b(whole);
  auto copy = func::FuncOp::create(
      b, function.getLoc(), name,
      b.getFunctionType(types, TypeRange(ValueRange(values))));
  b.setInsertionPointToStart(copy.addEntryBlock());
  IRMapping mapping;
  for (auto [argument, number] :
       llvm::zip_equal(copy.getArguments(), part.arguments.set_bits()))
    mapping.map(entry.getArgument(number), argument);
  for (Operation &op : entry) {
    if (!part.ops.contains(&op))
      continue;
    if (std::optional<int64_t> dim = getArgumentDim(&op, &entry)) {
      auto argument = cast<BlockArgument>(cast<tensor::DimOp>(op).getSource());
      Value extent = arith::ConstantIndexOp::create(
          b, op.getLoc(), shapes[argument.getArgNumber()][*dim]);
      mapping.map(op.getResult(0), extent);
      continue;
    }
    b.clone(op, mapping);
  }
  SmallVector<Value> results;
  for (Value value : values)
    results.push_back(mapping.lookup(value));
  func::ReturnOp::create(b, function.getLoc(), results);
  if (SymbolTable::symbolKnownUseEmpty(whole, *module))
    whole->erase();
  std::string text;
  llvm::raw_string_ostream os(text);
  (*module)->print(os);
  return text;
}

/// Makes the elements of `values` known, which `part` computes.
static llvm::Error computePart(FunctionOpInterface function, const Part &part,
                               ArrayRef<Value> values,
                               const ArgumentShapes &shapes,
                               const ExplainOptions &options,
                               KnownData &known) {
  CompileOptions compileOptions;
  if (options.compile.target == Target::Reference)
    compileOptions.target = Target::Reference;
  compileOptions.entry = "explained_data";
  compileOptions.sourceName = options.compile.sourceName;
  llvm::Expected<Kernel> kernel =
      compile(writePart(function, part, values, compileOptions.entry, shapes),
              compileOptions);
  if (!kernel)
    return kernel.takeError();
  SmallVector<TensorRef> inputs;
  for (unsigned number : part.arguments.set_bits())
    inputs.push_back(*options.getData(number));
  SmallVector<OwnedTensor> results;
  if (llvm::Error error = kernel->invoke(inputs, results))
    return error;
  for (auto [value, result] : llvm::zip_equal(values, results))
    known.set(value, makeElements(result.getRef(),
                                  getElementTypeOrSelf(value.getType())));
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

FunctionData explanation::findData(FunctionOpInterface function,
                                   const ArgumentShapes &shapes,
                                   const ExplainOptions &options) {
  FunctionData data;
  data.known.batch = options.batch;
  data.known.head = options.head;
  Block *entry = &function.getFunctionBody().front();
  llvm::SetVector<Value> deciding;
  function->walk([&](Operation *op) {
    for (Value value : getDecidingOperands(op))
      deciding.insert(value);
  });
  auto isGiven = [&](unsigned argument) {
    return options.getData && options.getData(argument).has_value();
  };
  SmallVector<Value> computed;
  Part all{{}, llvm::BitVector(entry->getNumArguments())};
  for (Value value : deciding) {
    if (data.known.lookup(value))
      continue;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      unsigned number = argument.getArgNumber();
      if (argument.getOwner() != entry)
        data.unknown[value].reason = "a loop or a branch computes it";
      else if (!isGiven(number))
        data.unknown[value].arguments.push_back(number);
      else
        data.known.set(value,
                       makeElements(*options.getData(number),
                                    getElementTypeOrSelf(value.getType())));
      continue;
    }
    if (value.getParentBlock() != entry) {
      data.unknown[value].reason = "a loop or a branch computes it";
      continue;
    }
    Part part = findPart(value, entry);
    SmallVector<unsigned> missing;
    for (unsigned number : part.arguments.set_bits())
      if (!isGiven(number))
        missing.push_back(number);
    if (!missing.empty()) {
      data.unknown[value].arguments = missing;
      continue;
    }
    computed.push_back(value);
    all.ops.insert_range(part.ops);
    all.arguments |= part.arguments;
  }
  if (computed.empty())
    return data;
  if (llvm::Error error =
          computePart(function, all, computed, shapes, options, data.known)) {
    std::string reason = llvm::toString(std::move(error));
    for (Value value : computed)
      data.unknown[value].reason = reason;
  }
  return data;
}
