//===- VerifyContract.cpp - Contracts of operations -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// All contracts
//===----------------------------------------------------------------------===//

template <typename OpTy>
static void addContract(llvm::StringMap<const Contract *> &contracts) {
  if constexpr (std::is_base_of_v<ContractOpInterface::Trait<OpTy>, OpTy>)
    contracts[OpTy::getOperationName()] = &OpTy::getContract();
}

template <typename... OpTys> static auto collectContracts() {
  llvm::StringMap<const Contract *> contracts;
  (addContract<OpTys>(contracts), ...);
  return contracts;
}

const Contract *attn::findContract(StringRef operation) {
  static const auto contracts = collectContracts<
#define GET_OP_LIST
#include "fovea/Dialect/Attn/IR/AttnOps.cpp.inc"
      >();
  return contracts.lookup(operation);
}

//===----------------------------------------------------------------------===//
// Numbers of operands
//===----------------------------------------------------------------------===//

/// The generic form can give a group any number of operands, and neither the
/// generated verifier nor the accessors notice.
static LogicalResult verifyNumOperands(ContractOpInterface op,
                                       const OperandSpec &spec, unsigned group,
                                       unsigned found) {
  if (!spec.parts.empty() && found != 0 && found != spec.parts.size()) {
    auto names = llvm::map_range(
        spec.parts, [](const OperandSpec &part) { return part.name; });
    return op->emitOpError()
           << "expects " << spec.parts.size() << " operands of " << spec.name
           << " (" << llvm::join(names, ", ") << "), but got " << found;
  }
  if (!spec.isOptional && !spec.isList && found != 1)
    return op->emitOpError() << "expects one operand in segment " << group
                             << " of operandSegmentSizes, but got " << found;
  return success();
}

/// A list of gradients has one for each operand.
static LogicalResult verifyNumGradients(ContractOpInterface op,
                                        const OperandSpec &spec,
                                        unsigned found) {
  if (!spec.isGradient || !spec.isList || (spec.mayBeEmpty && found == 0))
    return success();
  const Contract &contract = op.getContract();
  const OperandSpec *like = contract.find(spec.like);
  unsigned needed =
      op.getOperandGroup(like - contract.getOperands().data()).second;
  if (found == needed)
    return success();
  return op->emitOpError() << "expects " << spec.name
                           << " to have a gradient for each of the " << needed
                           << " " << spec.like << ", but got " << found;
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

static void addOperands(ContractOpInterface op, ContractOperands &operands) {
  for (auto [group, spec] : llvm::enumerate(op.getContract().getOperands())) {
    auto [first, count] = op.getOperandGroup(group);
    for (unsigned i = 0; i < count; ++i) {
      Value operand = op->getOperand(first + i);
      if (!spec.parts.empty())
        operands.add(spec.parts[i], spec.parts[i].name + " of " + spec.name,
                     operand);
      else if (spec.isList)
        operands.add(spec, spec.name + "[" + Twine(i) + "]", operand, i);
      else
        operands.add(spec, spec.name, operand);
    }
  }
  op.addOpenOperands(operands);
}

/// Calls `visit` with the operands of `op`.
template <typename Visitor>
static auto withOperands(ContractOpInterface op, Visitor &&visit) {
  auto getAttribute = [&](StringRef name) -> std::optional<int64_t> {
    auto attribute = op->getAttrOfType<IntegerAttr>(name);
    return attribute ? std::optional(attribute.getInt()) : std::nullopt;
  };
  ContractOperands operands(op.getContract(), getAttribute);
  addOperands(op, operands);
  return visit(operands);
}

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

static Type getElementType(const ShapedOperand &operand) {
  return attn::detail::shaped(operand.value).getElementType();
}

static LogicalResult verifyElements(Operation *op, const ShapedOperand &operand,
                                    ElementRule rule,
                                    const ShapedOperand *reference) {
  Type found = getElementType(operand);
  MLIRContext *context = op->getContext();
  if (rule == ElementRule::I32)
    return attn::detail::verifyElements(op, operand.name, operand.value,
                                        IntegerType::get(context, 32));
  if (rule == ElementRule::I64)
    return attn::detail::verifyElements(op, operand.name, operand.value,
                                        IntegerType::get(context, 64));
  if (rule == ElementRule::Any || !reference)
    return success();
  Type data = getElementType(*reference);
  switch (rule) {
  case ElementRule::Data:
    if (found == data)
      return success();
    return op->emitOpError()
           << "expects " << operand.name << " to have the element type of "
           << reference->name << ", " << data << ", but got " << found;
  case ElementRule::Sum:
    return attn::detail::verifyElements(op, operand.name, operand.value,
                                        getStateType(data));
  case ElementRule::DataOrSum:
    return attn::detail::verifyElementsOrSums(op, operand.name, operand.value,
                                              data);
  case ElementRule::SameSum:
    if (getStateType(found) == getStateType(data))
      return success();
    return op->emitOpError()
           << "expects " << operand.name
           << (data.isF64() ? " to hold f64" : " not to hold f64") << ", since "
           << reference->name << " holds " << data << ", but got " << found;
  default:
    return success();
  }
}

/// The operand whose element type is that of the data.
static const ShapedOperand *findData(ArrayRef<ShapedOperand> operands) {
  for (const ShapedOperand &operand : operands)
    if (operand.spec->elements == ElementRule::Data)
      return &operand;
  return nullptr;
}

static LogicalResult verifyElements(Operation *op,
                                    const ContractOperands &operands) {
  const ShapedOperand *data = findData(operands.getOperands());
  for (const ShapedOperand &operand : operands.getOperands()) {
    const OperandSpec &spec = *operand.spec;
    LogicalResult result =
        spec.isGradient
            ? verifyElements(op, operand, ElementRule::DataOrSum,
                             operands.find(spec.like, operand.index))
            : verifyElements(op, operand, spec.elements, data);
    if (failed(result))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// The whole contract
//===----------------------------------------------------------------------===//

LogicalResult attn::detail::verifyContract(Operation *operation) {
  auto op = cast<ContractOpInterface>(operation);
  for (auto [group, spec] : llvm::enumerate(op.getContract().getOperands())) {
    unsigned found = op.getOperandGroup(group).second;
    if (failed(verifyNumOperands(op, spec, group, found)) ||
        failed(verifyNumGradients(op, spec, found)))
      return failure();
  }
  if (failed(op.verifyOperandCounts()))
    return failure();
  LogicalResult result =
      withOperands(op, [&](const ContractOperands &operands) {
        if (failed(::verifyElements(operation, operands)))
          return failure();
        if (std::optional<Mismatch> mismatch = operands.findMismatch())
          return LogicalResult(operation->emitOpError(mismatch->describe()));
        return success();
      });
  if (failed(result))
    return failure();
  return verifyDestinationStyle(operation);
}

//===----------------------------------------------------------------------===//
// Rules for run time
//===----------------------------------------------------------------------===//

static ExtentRule makeRule(ExtentRule::Kind kind, OperandExtent first,
                           OperandExtent second) {
  return {kind,
          {first.operand->name, first.operand->value, first.dim},
          {second.operand->name, second.operand->value, second.dim}};
}

void attn::forEachExtentRule(Operation *operation,
                             function_ref<void(const ExtentRule &)> visit) {
  auto op = dyn_cast<ContractOpInterface>(operation);
  if (!op)
    return;
  auto visitOpen = [&](const ExtentRule &rule) {
    auto isOpen = [](const ExtentRule::Extent &extent) {
      return detail::shaped(extent.operand).isDynamicDim(extent.dim);
    };
    if (isOpen(rule.first) || isOpen(rule.second))
      visit(rule);
  };
  withOperands(op, [&](const ContractOperands &operands) {
    operands.forEachEqual([&](OperandExtent first, OperandExtent second) {
      visitOpen(makeRule(ExtentRule::Equal, first, second));
    });
    operands.forEachRelation([&](const ContractOperands::Relation &relation) {
      switch (relation.kind) {
      case ConditionSpec::Multiple:
        return visitOpen(
            makeRule(ExtentRule::Multiple, relation.first, relation.second));
      case ConditionSpec::Broadcast:
        if (relation.first.get() != 1)
          visitOpen(
              makeRule(ExtentRule::Equal, relation.first, relation.second));
        return;
      case ConditionSpec::Summaries: {
        ExtentRule rule =
            makeRule(ExtentRule::Summaries, relation.first, relation.second);
        rule.interval = relation.interval;
        rule.rank = relation.rank;
        return visitOpen(rule);
      }
      case ConditionSpec::MultipleOfNumber:
        return;
      }
    });
  });
}
