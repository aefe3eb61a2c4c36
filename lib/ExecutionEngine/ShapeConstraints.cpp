//===- ShapeConstraints.cpp - Extents that go together --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ShapeConstraints.h"
#include "fovea/Analysis/ExtentOrigin.h"
#include "fovea/Dialect/Attn/IR/Contract.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

namespace {
class Collector {
public:
  explicit Collector(FunctionOpInterface function)
      : entry(&function.getFunctionBody().front()) {}

  void visit(Operation *op) {
    attn::forEachExtentRule(op, [&](const attn::ExtentRule &rule) {
      // The number of summaries is checked by the generated code.
      if (rule.kind == attn::ExtentRule::Summaries)
        return;
      auto kind = rule.kind == attn::ExtentRule::Equal
                      ? ShapeConstraint::Equal
                      : ShapeConstraint::Multiple;
      add(op, kind, rule.first.operand, rule.first.dim, rule.second.operand,
          rule.second.dim);
    });
  }

  SmallVector<ShapeConstraint> take() { return std::move(constraints); }

private:
  void add(Operation *op, ShapeConstraint::Kind kind, Value a, unsigned dimA,
           Value b, unsigned dimB) {
    std::optional<ExtentOrigin> first = getExtentOrigin(a, dimA, entry),
                                second = getExtentOrigin(b, dimB, entry);
    if (!first || !second)
      return;
    bool isSymmetric = kind == ShapeConstraint::Equal;
    if (!first->argument && isSymmetric)
      std::swap(first, second);
    // Two constants are the verifier's business. A constant compared with an
    // argument under a one-sided rule is kept with the argument in front.
    if (!first->argument && !second->argument)
      return;
    if (first->argument && second->argument &&
        *first->argument == *second->argument && first->dim == second->dim)
      return;
    ShapeConstraint constraint;
    constraint.kind = kind;
    constraint.op = op->getName().getStringRef().str();
    if (!first->argument) {
      constraint.isReversed = true;
      std::swap(first, second);
    }
    constraint.argument = *first->argument;
    constraint.dim = first->dim;
    constraint.otherArgument = second->argument;
    constraint.otherDim = second->dim;
    constraint.constant = second->constant;
    constraints.push_back(std::move(constraint));
  }

  Block *entry;
  SmallVector<ShapeConstraint> constraints;
};
} // namespace

SmallVector<ShapeConstraint>
fovea::detail::collectShapeConstraints(FunctionOpInterface function) {
  Collector collector(function);
  function->walk([&](Operation *op) { collector.visit(op); });
  return collector.take();
}

llvm::Error ShapeConstraint::check(
    llvm::ArrayRef<TensorRef> inputs,
    llvm::function_ref<std::string(unsigned)> describeArgument) const {
  auto extentOf = [&](unsigned index, unsigned dim) {
    return inputs[index].shape[dim];
  };
  int64_t found = extentOf(argument, dim);
  int64_t other = otherArgument ? extentOf(*otherArgument, otherDim) : constant;
  int64_t first = isReversed ? other : found;
  int64_t second = isReversed ? found : other;
  bool holds = kind == Multiple ? second > 0 ? first % second == 0 : first == 0
                                : first == second;
  if (holds)
    return llvm::Error::success();
  std::string expected;
  if (kind == Multiple)
    expected = isReversed ? "a divisor of " : "a multiple of ";
  expected += std::to_string(other);
  if (otherArgument)
    expected += ", the extent in dimension " + std::to_string(otherDim) +
                " of " + describeArgument(*otherArgument);
  return llvm::createStringError(
      describeArgument(argument) + ": " + op + " expects extent " + expected +
      ", in dimension " + llvm::Twine(dim) + ", but got " + llvm::Twine(found));
}
