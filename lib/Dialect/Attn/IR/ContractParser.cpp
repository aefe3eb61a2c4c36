//===- ContractParser.cpp - Declarations of operands, parsed --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The grammar is that of Attn_Arg in AttnBase.td.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/Contract.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/ErrorHandling.h"

using namespace fovea::attn;
using llvm::ArrayRef;
using llvm::SmallVector;
using llvm::StringRef;
using llvm::Twine;

/// Begins the symbols of extents that differ from call to call, though their
/// letters may stand for something else in other operations.
static constexpr StringRef kCount = "#";

namespace {
/// Parses what one operation declares.
class Parser {
public:
  explicit Parser(StringRef operation) : operation(operation) {}

  OperandSpec parseOperand(StringRef line) const {
    auto [name, spec] = line.split(':');
    OperandSpec operand;
    operand.isOptional = name.consume_back("?");
    operand.isList = name.consume_back("*");
    operand.name = name.trim().str();
    parseSpec(spec.trim(), operand);
    return operand;
  }

  ConditionSpec parseCondition(StringRef text) const {
    if (text.contains(" in ")) {
      auto [first, rest] = text.split(" in {1, ");
      if (!rest.consume_back("}"))
        fail(text);
      return {ConditionSpec::Broadcast, parseExtent(first), parseExtent(rest),
              /*interval=*/{}, /*rank=*/{}};
    }
    auto [left, right] = text.split(" == ");
    if (right == "0") {
      auto [first, second] = left.split(" % ");
      ConditionSpec condition;
      condition.first = parseExtent(first);
      if (second.getAsInteger(10, condition.number))
        condition.second = parseExtent(second);
      else
        condition.kind = ConditionSpec::MultipleOfNumber;
      return condition;
    }
    if (!right.consume_front("ceil("))
      fail(text);
    auto [quotient, rank] = right.split(") * ");
    auto [rows, interval] = quotient.split(" / ");
    return {ConditionSpec::Summaries, parseExtent(left), parseExtent(rows),
            parseExtent(interval), parseExtent(rank)};
  }

private:
  [[noreturn]] void fail(StringRef text) const {
    llvm::report_fatal_error("malformed declaration of " + operation + ": '" +
                             text + "'");
  }

  void parseSpec(StringRef spec, OperandSpec &operand) const {
    if (spec.empty())
      return;
    if (spec.consume_front("{")) {
      if (!spec.consume_back("}"))
        fail(spec);
      for (StringRef part : llvm::split(spec, ';'))
        operand.parts.push_back(parseOperand(part.trim()));
      return;
    }
    if (spec.consume_front("gradient of ")) {
      operand.mayBeEmpty = spec.consume_back(", or none");
      operand.isGradient = true;
      operand.like = spec.str();
      return;
    }
    auto [elements, extents] = spec.split('[');
    operand.elements = parseElements(elements.trim());
    if (!extents.consume_back("]"))
      fail(spec);
    if (extents.consume_front("= ")) {
      operand.like = extents.str();
      return;
    }
    if (extents == "...")
      return;
    operand.hasExtents = true;
    if (!extents.empty())
      for (StringRef extent : llvm::split(extents, ','))
        operand.extents.push_back(parseExtent(extent.trim()));
  }

  ElementRule parseElements(StringRef text) const {
    auto rule = llvm::StringSwitch<std::optional<ElementRule>>(text)
                    .Case("", ElementRule::Any)
                    .Case("T", ElementRule::Data)
                    .Case("sum", ElementRule::Sum)
                    .Case("T|sum", ElementRule::DataOrSum)
                    .Case("~T", ElementRule::SameSum)
                    .Case("i32", ElementRule::I32)
                    .Case("i64", ElementRule::I64)
                    .Default(std::nullopt);
    if (!rule)
      fail(text);
    return *rule;
  }

  ExtentSpec parseExtent(StringRef text) const {
    ExtentSpec extent;
    extent.isOptional = text.consume_back("?");
    extent.mayBroadcast = text.consume_back("~");
    extent.isStatic = text.consume_back("!");
    if (text == "_")
      return extent;
    int64_t factor;
    StringRef rest = text;
    // The number is alone or behind an attribute, as in "(memory + 1) * block".
    if (rest.consume_front("(")) {
      std::tie(text, rest) = rest.split(" + ");
      extent.addend = text.str();
    }
    if (!rest.consumeInteger(10, factor)) {
      extent.factor = factor;
      if (extent.addend.empty() != !rest.consume_front(")"))
        fail(text);
      if (rest.consume_front(" * "))
        extent.attribute = rest.str();
      else if (!rest.empty())
        fail(text);
      return extent;
    }
    extent.symbol = text.str();
    text.consume_front(kCount);
    if (text.empty() || !llvm::all_of(text, llvm::isAlpha))
      fail(text);
    return extent;
  }

  StringRef operation;
};
} // namespace

bool ExtentSpec::isLength() const {
  // Calls ask for every extent before they find their kernel.
  char first = symbol.empty() ? '\0' : symbol.front();
  return first == kCount.front() ||
         (symbol.size() == 1 &&
          llvm::is_contained({'B', 'N', 'M', 'm'}, first));
}

bool ExtentSpec::isLocal() const {
  return !symbol.empty() && llvm::isLower(symbol.front());
}

ArrayRef<ExtentSpec> OperandSpec::getExtents(size_t rank) const {
  size_t count = extents.size();
  while (count > rank && extents[count - 1].isOptional)
    --count;
  return ArrayRef(extents).take_front(count);
}

std::string ExtentSpec::getText() const {
  if (!factor)
    return symbol;
  std::string number = std::to_string(*factor);
  if (!addend.empty())
    number = "(" + addend + " + " + number + ")";
  return attribute.empty() ? number : number + " * " + attribute;
}

/// Whether an operand has the letters of `extent`, and does not only broadcast
/// to them.
static bool isDeclared(ArrayRef<OperandSpec> operands,
                       const ExtentSpec &extent) {
  return extent.symbol.empty() ||
         llvm::any_of(operands, [&](const OperandSpec &operand) {
           return llvm::any_of(operand.extents, [&](const ExtentSpec &other) {
             return other.symbol == extent.symbol && !other.mayBroadcast;
           });
         });
}

/// Ends the process where a rule is about nothing: it would never be checked.
static void verify(const Contract &contract) {
  auto fail = [&](const Twine &what) {
    llvm::report_fatal_error("malformed declaration of " +
                             contract.getOperation() + ": " + what);
  };
  for (const OperandSpec &operand : contract.getOperands())
    if (!operand.like.empty() && !contract.find(operand.like))
      fail("no operand '" + operand.like + "'");
  // Lists without a declaration get theirs from code.
  if (llvm::any_of(contract.getOperands(), [](const OperandSpec &operand) {
        return operand.isList && !operand.hasExtents && operand.like.empty() &&
               operand.parts.empty();
      }))
    return;
  for (const ConditionSpec &condition : contract.getConditions())
    for (const ExtentSpec *extent : {&condition.first, &condition.second,
                                     &condition.interval, &condition.rank})
      if (!isDeclared(contract.getOperands(), *extent))
        fail("no extent '" + extent->symbol + "'");
}

Contract::Contract(StringRef operation, StringRef operandLines,
                   StringRef conditionLines)
    : operation(operation) {
  Parser parser(operation);
  SmallVector<StringRef> lines;
  operandLines.split(lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef line : lines)
    operands.push_back(parser.parseOperand(line));
  lines.clear();
  conditionLines.split(lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef line : lines)
    conditions.push_back(parser.parseCondition(line));
  verify(*this);
}

const OperandSpec *Contract::find(StringRef name) const {
  const auto *found = llvm::find_if(
      operands, [&](const OperandSpec &spec) { return spec.name == name; });
  return found == operands.end() ? nullptr : found;
}
