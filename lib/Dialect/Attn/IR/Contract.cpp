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
    for (auto [dim, extent] : llvm::enumerate(operand.getExtents()))
      if (extent.symbol == spec.symbol && !extent.mayBroadcast)
        return OperandExtent{&operand, static_cast<unsigned>(dim)};
  }
  return std::nullopt;
}

void ContractOperands::forEachEqual(
    function_ref<void(OperandExtent, OperandExtent)> visit) const {
  for (const ShapedOperand &operand : operands) {
    for (auto [dim, extent] : llvm::enumerate(operand.getExtents())) {
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
  auto get = [&](StringRef name, int64_t otherwise) {
    return name.empty() ? std::optional(otherwise) : getAttribute(name);
  };
  std::optional<int64_t> addend = get(spec.addend, 0),
                         attribute = get(spec.attribute, 1);
  int64_t sum, product;
  if (!addend || !attribute || llvm::AddOverflow(*spec.factor, *addend, sum) ||
      llvm::MulOverflow(sum, *attribute, product))
    return ShapedType::kDynamic;
  return product;
}

//===----------------------------------------------------------------------===//
// Mismatches
//===----------------------------------------------------------------------===//

/// Compares `own` with the first extent of its symbol that is known, which need
/// not be that of the first operand.
static std::optional<Mismatch> compare(ArrayRef<ShapedOperand> operands,
                                       const ExtentSpec &extent,
                                       OperandExtent own) {
  for (const ShapedOperand &other : operands) {
    if (&other == own.operand && !extent.mayBroadcast)
      break;
    if ((extent.isLocal() && other.index != own.operand->index) ||
        other.shape.size() != other.getExtents().size())
      continue;
    for (auto [dim, otherExtent] : llvm::enumerate(other.getExtents())) {
      if (otherExtent.symbol != extent.symbol || otherExtent.mayBroadcast)
        continue;
      OperandExtent needed = {&other, static_cast<unsigned>(dim)};
      if (isKnown(needed.get()) && needed.get() != own.get())
        return Mismatch{Mismatch::Extent,
                        own,
                        needed,
                        needed.get(),
                        extent.mayBroadcast,
                        attn::describe(needed)};
    }
  }
  return std::nullopt;
}

std::optional<Mismatch>
ContractOperands::findWrongExtent(const ShapedOperand &operand) const {
  const OperandSpec &spec = *operand.spec;
  if (!spec.hasExtents)
    return std::nullopt;
  ArrayRef<ExtentSpec> extents = operand.getExtents();
  if (operand.shape.size() != extents.size())
    return Mismatch{Mismatch::Rank,
                    {&operand, 0},
                    {},
                    static_cast<int64_t>(extents.size())};
  for (auto [dim, extent] : llvm::enumerate(extents)) {
    OperandExtent own = {&operand, static_cast<unsigned>(dim)};
    if (extent.isStatic && !isKnown(own.get()))
      return Mismatch{Mismatch::Dynamic, own};
    if (extent.isStatic && own.get() == 0)
      return Mismatch{Mismatch::Zero, own};
    if (!isKnown(own.get()) || (extent.mayBroadcast && own.get() == 1))
      continue;
    if (extent.factor) {
      int64_t needed = getNumber(extent);
      if (isKnown(needed) && own.get() != needed)
        return Mismatch{Mismatch::Extent,
                        own,
                        {},
                        needed,
                        false,
                        extent.attribute.empty() ? "" : extent.getText()};
      continue;
    }
    if (!extent.symbol.empty())
      if (auto mismatch = compare(operands, extent, own))
        return mismatch;
  }
  return std::nullopt;
}

std::optional<Mismatch>
ContractOperands::findWrongLikeness(const ShapedOperand &operand) const {
  if (operand.spec->like.empty())
    return std::nullopt;
  const ShapedOperand *like = find(operand.spec->like, operand.index);
  if (!like)
    return Mismatch{Mismatch::Missing, {&operand, 0}, {}, 0, false,
                    operand.spec->like};
  if (operand.shape.size() != like->shape.size())
    return Mismatch{Mismatch::Rank,
                    {&operand, 0},
                    {like, 0},
                    static_cast<int64_t>(like->shape.size())};
  for (auto [dim, found, needed] :
       llvm::enumerate(operand.shape, like->shape)) {
    // Where an extent of 1 broadcasts, both have to say so.
    auto number = static_cast<unsigned>(dim);
    if ((found == 1) != (needed == 1) ||
        (isKnown(found) && isKnown(needed) && found != needed))
      return Mismatch{
          Mismatch::Shape, {&operand, number}, {like, number}, needed};
  }
  return std::nullopt;
}

/// Compares numbers of summaries.
static std::optional<Mismatch>
compareSummaries(const ContractOperands::Relation &relation) {
  int64_t rows = relation.second.get(), count;
  if (llvm::MulOverflow<int64_t>(llvm::divideCeil(rows, relation.interval),
                                 relation.rank, count))
    return Mismatch{Mismatch::Overflow,
                    relation.first,
                    relation.second,
                    0,
                    false,
                    llvm::formatv("{0} for each {1} of {2} rows", relation.rank,
                                  relation.interval, rows)};
  if (isKnown(relation.first.get()) && relation.first.get() != count)
    return Mismatch{Mismatch::Extent,
                    relation.first,
                    relation.second,
                    count,
                    false,
                    "the summaries of " + attn::describe(relation.second)};
  return std::nullopt;
}

static std::optional<Mismatch>
compare(const ContractOperands::Relation &relation) {
  int64_t found = relation.first.get();
  if (relation.kind == ConditionSpec::MultipleOfNumber) {
    if (isKnown(found) && found % relation.number != 0)
      return Mismatch{
          Mismatch::MultipleOfNumber, relation.first, {}, relation.number};
    return std::nullopt;
  }
  int64_t second = relation.second.get();
  if (!isKnown(second))
    return std::nullopt;
  if (relation.kind == ConditionSpec::Summaries)
    return compareSummaries(relation);
  if (!isKnown(found))
    return std::nullopt;
  if (relation.kind == ConditionSpec::Broadcast) {
    if (found != 1 && found != second)
      return Mismatch{
          Mismatch::Extent, relation.first, relation.second,
          second,           true,           attn::describe(relation.second)};
    return std::nullopt;
  }
  if (second == 0 ? found != 0 : found % second != 0)
    return Mismatch{Mismatch::Multiple, relation.first, relation.second,
                    second};
  return std::nullopt;
}

std::optional<Mismatch> ContractOperands::findMismatch() const {
  for (const ShapedOperand &operand : operands) {
    if (auto mismatch = findWrongExtent(operand))
      return mismatch;
    if (auto mismatch = findWrongLikeness(operand))
      return mismatch;
  }
  std::optional<Mismatch> mismatch;
  forEachRelation([&](const Relation &relation) {
    if (!mismatch)
      mismatch = compare(relation);
  });
  return mismatch;
}
