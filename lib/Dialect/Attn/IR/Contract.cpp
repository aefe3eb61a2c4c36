//===- Contract.cpp - What an operation asks of its operands --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/Contract.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

static bool isKnown(int64_t extent) { return !ShapedType::isDynamic(extent); }

static std::string describe(OperandExtent extent) {
  return llvm::formatv("extent {0} of {1}", extent.dim, extent.operand->name);
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

void ContractOperands::add(const OperandSpec &spec, Twine name,
                           ArrayRef<int64_t> shape, unsigned index,
                           Value value) {
  operands.push_back({&spec, name.str(), shape, index, value});
}

void ContractOperands::add(const OperandSpec &spec, Twine name, Value value,
                           unsigned index) {
  if (auto type = dyn_cast<ShapedType>(value.getType()))
    add(spec, name, type.getShape(), index, value);
}

const ShapedOperand *ContractOperands::find(StringRef name,
                                            unsigned index) const {
  for (const ShapedOperand &operand : operands)
    if (operand.spec->name == name &&
        (operand.index == index || !operand.spec->isList))
      return &operand;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Relations
//===----------------------------------------------------------------------===//

std::optional<OperandExtent>
ContractOperands::findExtent(const ExtentSpec &spec, unsigned index) const {
  for (const ShapedOperand &operand : operands) {
    if (spec.isLocal() && operand.index != index)
      continue;
    for (auto [dim, extent] : llvm::enumerate(operand.spec->extents))
      if (extent.symbol == spec.symbol && !extent.mayBroadcast)
        return OperandExtent{&operand, static_cast<unsigned>(dim)};
  }
  return std::nullopt;
}

void ContractOperands::forEachEqual(
    function_ref<void(OperandExtent, OperandExtent)> visit) const {
  for (const ShapedOperand &operand : operands) {
    for (auto [dim, extent] : llvm::enumerate(operand.spec->extents)) {
      OperandExtent own = {&operand, static_cast<unsigned>(dim)};
      if (extent.symbol.empty() || (extent.mayBroadcast && own.get() == 1))
        continue;
      std::optional<OperandExtent> first = findExtent(extent, operand.index);
      if (first && first->operand != &operand)
        visit(own, *first);
      else if (first && first->dim != own.dim)
        visit(own, *first);
    }
    if (const ShapedOperand *like =
            operand.spec->like.empty()
                ? nullptr
                : find(operand.spec->like, operand.index))
      for (unsigned dim = 0, rank = operand.shape.size(); dim < rank; ++dim)
        visit({&operand, dim}, {like, dim});
  }
}

void ContractOperands::forEachRelation(
    function_ref<void(const Relation &)> visit) const {
  // A condition about lists holds for each of their elements.
  unsigned numElements = 1;
  for (const ShapedOperand &operand : operands)
    numElements = std::max(numElements, operand.index + 1);
  for (const ConditionSpec &condition : contract.getConditions()) {
    bool isLocal = condition.first.isLocal() || condition.second.isLocal();
    for (unsigned index = 0; index < (isLocal ? numElements : 1); ++index) {
      auto first = findExtent(condition.first, index);
      auto second = findExtent(condition.second, index);
      if (!first ||
          (!second && condition.kind != ConditionSpec::MultipleOfNumber))
        continue;
      Relation relation = {condition.kind, *first,
                           second.value_or(OperandExtent()), condition.number};
      if (condition.kind == ConditionSpec::Summaries) {
        relation.interval = findExtent(condition.interval, index)->get();
        relation.rank = findExtent(condition.rank, index)->get();
      }
      visit(relation);
    }
  }
}

int64_t ContractOperands::getNumber(const ExtentSpec &spec) const {
  if (spec.attribute.empty())
    return *spec.factor;
  std::optional<int64_t> attribute = getAttribute(spec.attribute);
  int64_t product;
  if (!attribute || llvm::MulOverflow(*spec.factor, *attribute, product))
    return ShapedType::kDynamic;
  return product;
}

//===----------------------------------------------------------------------===//
// Mismatches
//===----------------------------------------------------------------------===//

/// "expects extent 0 of key to be 2 (extent 0 of query), but got 3".
static Mismatch makeMismatch(OperandExtent found, int64_t needed,
                             StringRef origin, bool mayBroadcast = false) {
  return {found,
          llvm::formatv(
              "expects {0} to be {1}{2}{3}, but got {4}", describe(found),
              needed, mayBroadcast && needed != 1 ? " or 1" : "",
              origin.empty() ? "" : (" (" + origin + ")").str(), found.get())};
}

std::optional<Mismatch>
ContractOperands::findWrongExtent(const ShapedOperand &operand) const {
  const OperandSpec &spec = *operand.spec;
  if (!spec.hasExtents)
    return std::nullopt;
  if (operand.shape.size() != spec.extents.size())
    return Mismatch{{&operand, 0},
                    llvm::formatv("expects {0} to have rank {1}, but got {2}",
                                  operand.name, spec.extents.size(),
                                  operand.shape.size())};
  for (auto [dim, extent] : llvm::enumerate(spec.extents)) {
    OperandExtent own = {&operand, static_cast<unsigned>(dim)};
    if (extent.isStatic && !isKnown(own.get()))
      return Mismatch{own, llvm::formatv("expects {0} to be static, but got a "
                                         "dynamic extent",
                                         describe(own))};
    if (extent.isStatic && own.get() == 0)
      return Mismatch{own, llvm::formatv("expects {0} to be at least 1, but "
                                         "got 0",
                                         describe(own))};
    if (!isKnown(own.get()))
      continue;
    if (extent.factor) {
      int64_t needed = getNumber(extent);
      if (isKnown(needed) && own.get() != needed)
        return makeMismatch(own, needed,
                            extent.attribute.empty() ? "" : extent.getText());
      continue;
    }
    if (extent.mayBroadcast && own.get() == 1)
      continue;
    // The first that is known, which need not be the first of the operands.
    for (const ShapedOperand &other : operands) {
      if (&other == &operand && !extent.mayBroadcast)
        break;
      if (extent.isLocal() && other.index != operand.index)
        continue;
      for (auto [otherDim, otherExtent] :
           llvm::enumerate(other.spec->extents)) {
        if (otherExtent.symbol != extent.symbol || extent.symbol.empty() ||
            otherExtent.mayBroadcast ||
            other.shape.size() != other.spec->extents.size())
          continue;
        OperandExtent needed = {&other, static_cast<unsigned>(otherDim)};
        if (isKnown(needed.get()) && needed.get() != own.get())
          return makeMismatch(own, needed.get(), describe(needed),
                              extent.mayBroadcast);
      }
    }
  }
  return std::nullopt;
}

std::optional<Mismatch>
ContractOperands::findWrongLikeness(const ShapedOperand &operand) const {
  if (operand.spec->like.empty())
    return std::nullopt;
  const ShapedOperand *like = find(operand.spec->like, operand.index);
  if (!like)
    return Mismatch{{&operand, 0},
                    llvm::formatv("expects {0} beside {1}", operand.spec->like,
                                  operand.name)};
  if (operand.shape.size() != like->shape.size())
    return Mismatch{
        {&operand, 0},
        llvm::formatv("expects {0} to have rank {1} as {2} has, but got {3}",
                      operand.name, like->shape.size(), like->name,
                      operand.shape.size())};
  for (auto [dim, found, needed] :
       llvm::enumerate(operand.shape, like->shape)) {
    // Where an extent of 1 broadcasts, both have to say so.
    if ((found == 1) == (needed == 1) &&
        (!isKnown(found) || !isKnown(needed) || found == needed))
      continue;
    auto print = [](int64_t extent) {
      return isKnown(extent) ? std::to_string(extent) : std::string("?");
    };
    return Mismatch{{&operand, static_cast<unsigned>(dim)},
                    llvm::formatv("expects {0} to have the shape of {1}: "
                                  "extent {2} to be {3}, but got {4}",
                                  operand.name, like->name, dim, print(needed),
                                  print(found))};
  }
  return std::nullopt;
}

std::optional<Mismatch> ContractOperands::findWrongRelation() const {
  std::optional<Mismatch> mismatch;
  forEachRelation([&](const Relation &relation) {
    int64_t found = relation.first.get();
    if (mismatch ||
        (!isKnown(found) && relation.kind != ConditionSpec::Summaries))
      return;
    if (relation.kind == ConditionSpec::MultipleOfNumber) {
      if (found % relation.number != 0)
        mismatch = {relation.first,
                    llvm::formatv("expects {0} to be a multiple of {1}, but "
                                  "got {2}",
                                  describe(relation.first), relation.number,
                                  found)};
      return;
    }
    int64_t second = relation.second.get();
    if (!isKnown(second))
      return;
    std::string origin = describe(relation.second);
    switch (relation.kind) {
    case ConditionSpec::Multiple:
      if (second == 0 ? found != 0 : found % second != 0)
        mismatch = {relation.first,
                    llvm::formatv("expects {0} to be a multiple of {1}, but "
                                  "got {2} and {3}",
                                  describe(relation.first), origin, found,
                                  second)};
      return;
    case ConditionSpec::Broadcast:
      if (found != 1 && found != second)
        mismatch = makeMismatch(relation.first, second, origin,
                                /*mayBroadcast=*/true);
      return;
    case ConditionSpec::Summaries: {
      int64_t count;
      if (llvm::MulOverflow<int64_t>(
              llvm::divideCeil(second, relation.interval), relation.rank,
              count))
        mismatch = {relation.first,
                    llvm::formatv("expects a number of summaries below 2^63, "
                                  "but got {0} for each {1} of {2} rows",
                                  relation.rank, relation.interval, second)};
      else if (isKnown(found) && found != count)
        mismatch =
            makeMismatch(relation.first, count, "the summaries of " + origin);
      return;
    }
    case ConditionSpec::MultipleOfNumber:
      return;
    }
  });
  return mismatch;
}

std::optional<Mismatch> ContractOperands::findMismatch() const {
  for (const ShapedOperand &operand : operands) {
    if (auto mismatch = findWrongExtent(operand))
      return mismatch;
    if (auto mismatch = findWrongLikeness(operand))
      return mismatch;
  }
  return findWrongRelation();
}
