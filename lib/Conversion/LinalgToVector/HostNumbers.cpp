//===- HostNumbers.cpp - Numbers of the host in elementwise operations ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Frontends have tensors without dimensions for numbers, such as those that
// loops count with:
//
//   %t = tensor.from_elements %i : tensor<i32>
//   %u = linalg.generic ins(%t, ...)
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace fovea::attn;

/// The only element of a tensor, if the host has it; or null.
static Value findNumber(Value tensor) {
  auto made = tensor.getDefiningOp<tensor::FromElementsOp>();
  return made && made.getElements().size() == 1 ? made.getElements().front()
                                                : Value();
}

/// Computes what follows from numbers of the host alone there.
static LogicalResult computeOnHost(linalg::GenericOp op,
                                   PatternRewriter &rewriter) {
  if (op.getNumLoops() != 0 || !op.hasPureTensorSemantics() ||
      op.getNumDpsInputs() == 0 ||
      llvm::any_of(op.getDpsInitsMutable(), [&](OpOperand &init) {
        return op.payloadUsesValueFromOperand(&init);
      }))
    return failure();
  SmallVector<Value> numbers;
  for (Value input : op.getDpsInputs()) {
    Value number = input;
    if (isa<RankedTensorType>(input.getType()))
      number = findNumber(input);
    if (!number)
      return failure();
    numbers.push_back(number);
  }
  // What is in place of results is not read.
  for (BlockArgument argument : op.getRegionOutputArgs())
    numbers.push_back(argument);
  auto yield = cast<linalg::YieldOp>(op.getBody()->getTerminator());
  IRMapping mapping;
  mapping.map(op.getBody()->getArguments(), numbers);
  for (Operation &inner : op.getBody()->without_terminator())
    rewriter.clone(inner, mapping);
  SmallVector<Value> results;
  for (auto [value, type] : llvm::zip(yield.getValues(), op.getResultTypes()))
    results.push_back(tensor::FromElementsOp::create(
        rewriter, op.getLoc(), type, mapping.lookupOrDefault(value)));
  rewriter.replaceOp(op, results);
  return success();
}

/// Has an operation read a number of the host where it is.
static LogicalResult readNumber(linalg::GenericOp op,
                                PatternRewriter &rewriter) {
  if (!op.hasPureTensorSemantics())
    return failure();
  for (OpOperand *input : op.getDpsInputOperands()) {
    Value number = findNumber(input->get());
    if (!number)
      continue;
    rewriter.modifyOpInPlace(op, [&] {
      op.getMatchingBlockArgument(input).replaceAllUsesWith(number);
      SmallVector<AffineMap> maps = op.getIndexingMapsArray();
      maps.erase(maps.begin() + input->getOperandNumber());
      op.getBody()->eraseArgument(input->getOperandNumber());
      op.getInputsMutable().erase(input->getOperandNumber());
      op.setIndexingMapsAttr(rewriter.getAffineMapArrayAttr(maps));
    });
    return success();
  }
  return failure();
}

void fovea::attn::populateHostNumberPatterns(RewritePatternSet &patterns,
                                             bool isForGPU) {
  patterns.add(computeOnHost);
  // Vector loops read operands alone.
  if (isForGPU)
    patterns.add(readNumber);
}
