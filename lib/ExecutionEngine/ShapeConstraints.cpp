//===- ShapeConstraints.cpp - Extents that go together --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ShapeConstraints.h"
#include "fovea/Analysis/ExtentOrigin.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

namespace {
class Collector {
public:
  explicit Collector(FunctionOpInterface function)
      : entry(&function.getFunctionBody().front()) {}

  void visit(attn::DenseOp op) {
    visitAttention(op, op.getQuery(), op.getKey(), op.getValue(),
                   op.getOutput(), op.getLse());
    if (Value weight = op.getLogWeight()) {
      addBroadcast(op, weight, 0, op.getQuery(), 0);
      addBroadcast(op, weight, 1, op.getKey(), 1);
      addBroadcast(op, weight, 2, op.getKey(), 2);
    }
    if (Value bias = op.getBias()) {
      for (unsigned dim = 0; dim < 3; ++dim)
        addBroadcast(op, bias, dim, op.getQuery(), dim);
      addBroadcast(op, bias, 3, op.getKey(), 2);
    }
  }

  void visit(attn::StreamOp op) {
    for (const attn::StreamOp::Source &source : op.getSourceList()) {
      visitAttention(op, op.getQuery(), source.keys, source.values,
                     op.getOutput(), op.getLse());
      if (source.logWeight) {
        addBroadcast(op, source.logWeight, 0, op.getQuery(), 0);
        addBroadcast(op, source.logWeight, 1, source.keys, 1);
        addBroadcast(op, source.logWeight, 2, source.keys, 2);
      }
      if (source.bias) {
        for (unsigned dim = 0; dim < 3; ++dim)
          addBroadcast(op, source.bias, dim, op.getQuery(), dim);
        addBroadcast(op, source.bias, 3, source.keys, 2);
      }
    }
  }

  void visit(attn::SummarizeOp op) {
    addEqual(op, op.getOutput(), 0, op.getInput(), 0);
    addEqual(op, op.getOutput(), 1, op.getInput(), 1);
    addMultiple(op, op.getInput(), 1, op.getWeights(), 0);
    if (Value bias = op.getBias())
      addEqual(op, bias, 0, op.getWeights(), 0);
  }

  void visit(attn::FastMultipoleOp op) {
    visitAttention(op, op.getQuery(), op.getKey(), op.getValue(),
                   op.getOutput(), op.getLse());
    addEqual(op, op.getKey(), 2, op.getQuery(), 2);
    visitWeights(op, op.getKey(), op.getKeyWeights(), op.getKeyBiases());
    visitWeights(op, op.getKey(), op.getValueWeights(), op.getValueBiases());
  }

  void visit(attn::FastMultipoleLinearOp op) {
    visitAttention(op, op.getQuery(), op.getKey(), op.getValue(),
                   op.getOutput(), /*lse=*/nullptr);
    addEqual(op, op.getKey(), 2, op.getQuery(), 2);
    visitWeights(op, op.getQuery(), op.getQueryWeights(), op.getQueryBiases());
    visitWeights(op, op.getKey(), op.getKeyWeights(), op.getKeyBiases());
    visitWeights(op, op.getKey(), op.getValueWeights(), op.getValueBiases());
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

  void addEqual(Operation *op, Value a, unsigned dimA, Value b, unsigned dimB) {
    add(op, ShapeConstraint::Equal, a, dimA, b, dimB);
  }

  /// Only extents of 1 in the type broadcast.
  void addBroadcast(Operation *op, Value a, unsigned dimA, Value b,
                    unsigned dimB) {
    if (cast<ShapedType>(a.getType()).getDimSize(dimA) != 1)
      addEqual(op, a, dimA, b, dimB);
  }

  void addMultiple(Operation *op, Value a, unsigned dimA, Value b,
                   unsigned dimB) {
    add(op, ShapeConstraint::Multiple, a, dimA, b, dimB);
  }

  void visitAttention(Operation *op, Value query, Value key, Value value,
                      Value output, Value lse) {
    addEqual(op, key, 0, query, 0);
    addEqual(op, value, 0, query, 0);
    addMultiple(op, query, 1, key, 1);
    addEqual(op, value, 1, key, 1);
    addEqual(op, value, 2, key, 2);
    for (unsigned dim = 0; dim < 3; ++dim) {
      addEqual(op, output, dim, query, dim);
      if (lse)
        addEqual(op, lse, dim, query, dim);
    }
  }

  void visitWeights(Operation *op, Value summarized, ValueRange weights,
                    ValueRange biases) {
    for (Value weight : weights)
      addMultiple(op, summarized, 1, weight, 0);
    for (auto [weight, bias] : llvm::zip(weights, biases))
      addEqual(op, bias, 0, weight, 0);
  }

  Block *entry;
  SmallVector<ShapeConstraint> constraints;
};
} // namespace

SmallVector<ShapeConstraint>
fovea::detail::collectShapeConstraints(FunctionOpInterface function) {
  Collector collector(function);
  function->walk([&](Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<attn::DenseOp, attn::StreamOp, attn::SummarizeOp,
              attn::FastMultipoleOp, attn::FastMultipoleLinearOp>(
            [&](auto attention) { collector.visit(attention); });
  });
  return collector.take();
}

llvm::Error ShapeConstraint::check(
    llvm::ArrayRef<TensorRef> inputs,
    llvm::function_ref<std::string(unsigned)> describeArgument) const {
  auto extentOf = [&](unsigned index, unsigned dim) {
    return inputs[index].shape[dim];
  };
  int64_t found = extentOf(argument, dim);
  std::string where = describeArgument(argument) + ": ";
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
  return llvm::createStringError(where + op + " expects extent " + expected +
                                 ", in dimension " + llvm::Twine(dim) +
                                 ", but got " + llvm::Twine(found));
}
