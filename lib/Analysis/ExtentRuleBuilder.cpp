//===- ExtentRuleBuilder.cpp - What rules of extents consist of -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExtentRuleBuilder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fovea;

void ExtentRuleBuilder::addNodeShape(const Named &a, const Named &b) {
  addEqual(a, 0, b, 0);
  addEqual(a, 1, b, 1);
}

void ExtentRuleBuilder::addLike(const Named &a, const Named &b) {
  if (!a.operand || !b.operand)
    return;
  unsigned rank = cast<ShapedType>(a.operand.getType()).getRank();
  addShape(a, b, llvm::to_vector(llvm::seq(rank)));
}

void ExtentRuleBuilder::addSummaries(const Named &output, const Named &input,
                                     int64_t interval, int64_t rank) {
  addEqual(output, 0, input, 0);
  addEqual(output, 1, input, 1);
  visit({ExtentRule::Summaries,
         {output.name, output.operand, 2},
         {input.name, input.operand, 2},
         interval,
         rank});
}

void ExtentRuleBuilder::addGradients(const Named &query, Value output,
                                     Value lse, Value dOutput, Value dLse,
                                     Value dQuery) {
  for (const Named &operand : {Named{"output", output},
                               {"lse", lse},
                               {"d_output", dOutput},
                               {"d_lse", dLse},
                               {"d_query", dQuery}})
    if (operand.operand)
      addShape(operand, query, {0, 1, 2});
}

void ExtentRuleBuilder::addEqual(const Named &a, unsigned dimA, const Named &b,
                                 unsigned dimB) {
  visit({ExtentRule::Equal,
         {a.name, a.operand, dimA},
         {b.name, b.operand, dimB}});
}

void ExtentRuleBuilder::addMultiple(const Named &a, unsigned dimA,
                                    const Named &b, unsigned dimB) {
  visit({ExtentRule::Multiple,
         {a.name, a.operand, dimA},
         {b.name, b.operand, dimB}});
}

void ExtentRuleBuilder::addBroadcast(const Named &a, unsigned dimA,
                                     const Named &b, unsigned dimB) {
  if (cast<ShapedType>(a.operand.getType()).getDimSize(dimA) != 1)
    addEqual(a, dimA, b, dimB);
}

void ExtentRuleBuilder::addShape(const Named &a, const Named &b,
                                 ArrayRef<unsigned> dims) {
  for (unsigned dim : dims)
    addEqual(a, dim, b, dim);
}

void ExtentRuleBuilder::addAttention(const Named &query, const Named &key,
                                     const Named &value) {
  addEqual(key, 0, query, 0);
  addEqual(value, 0, query, 0);
  addMultiple(query, 1, key, 1);
  addEqual(value, 1, key, 1);
  addEqual(value, 2, key, 2);
}

void ExtentRuleBuilder::addDestinations(const Named &query, Value output,
                                        Value lse) {
  for (unsigned dim = 0; dim < 3; ++dim) {
    addEqual({"output", output}, dim, query, dim);
    if (lse)
      addEqual({"lse", lse}, dim, query, dim);
  }
}

void ExtentRuleBuilder::addTerms(const Named &query, const Named &key,
                                 const Named &logWeight, const Named &bias) {
  if (logWeight.operand) {
    addBroadcast(logWeight, 0, query, 0);
    addBroadcast(logWeight, 1, key, 1);
    addBroadcast(logWeight, 2, key, 2);
  }
  if (bias.operand) {
    for (unsigned dim = 0; dim < 3; ++dim)
      addBroadcast(bias, dim, query, dim);
    addBroadcast(bias, 3, key, 2);
  }
}

void ExtentRuleBuilder::addWeights(const Named &summarized, StringRef what,
                                   ValueRange weights, ValueRange biases) {
  for (auto [level, weight] : llvm::enumerate(weights)) {
    Named named = {
        llvm::formatv("{0}_weights of level {1}", what, level + 1).str(),
        weight};
    addMultiple(summarized, 1, named, 0);
    if (biases.empty())
      continue;
    std::string name =
        llvm::formatv("{0}_biases of level {1}", what, level + 1).str();
    addEqual({name, biases[level]}, 0, named, 0);
  }
}
