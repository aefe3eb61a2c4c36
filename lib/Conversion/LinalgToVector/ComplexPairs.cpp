//===- ComplexPairs.cpp - Complex operands as pairs of numbers ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rotary embedding by complex numbers reads a table of these for every head.
// There are no vectors of complex numbers, but of their parts:
//
//   generic(..., %table[i], %table[i])    of [.., n, 2], as (.., i, 0), (.., i,
//   1)
//
// where the table is written, or copied, as pairs. NeighbourPairs.cpp says what
// becomes of these.
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Complex/IR/Complex.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace fovea::attn;

static ComplexType getComplexType(Value value) {
  return dyn_cast<ComplexType>(getElementTypeOrSelf(value));
}

/// `[.., n, 2]`, of complex `[.., n]`, written where `value` is there.
static Value writePairs(Value value) {
  OpBuilder b(value.getContext());
  b.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, value);
  unsigned rank = sizes.size();
  sizes.push_back(b.getIndexAttr(2));
  Value empty = tensor::EmptyOp::create(b, loc, sizes,
                                        getComplexType(value).getElementType());
  AffineMap whole = b.getMultiDimIdentityMap(rank + 1);
  SmallVector<utils::IteratorType> loops(rank + 1,
                                         utils::IteratorType::parallel);
  auto pairs = linalg::GenericOp::create(
      b, loc, empty.getType(), value, empty,
      ArrayRef{whole.dropResult(rank), whole}, loops,
      [&](OpBuilder &inner, Location loc, ValueRange arguments) {
        Value part = linalg::IndexOp::create(inner, loc, rank);
        Value zero = arith::ConstantIndexOp::create(inner, loc, 0);
        Value isReal = arith::CmpIOp::create(
            inner, loc, arith::CmpIPredicate::eq, part, zero);
        Value real = complex::ReOp::create(inner, loc, arguments[0]);
        Value imaginary = complex::ImOp::create(inner, loc, arguments[0]);
        Value chosen =
            arith::SelectOp::create(inner, loc, isReal, real, imaginary);
        linalg::YieldOp::create(inner, loc, chosen);
      });
  return pairs.getResult(0);
}

/// Whether `op`, which has no complex results, should read the parts of
/// `input`: those who made it can write them, or it is read more than once.
static bool isWorthPairing(linalg::GenericOp op, OpOperand &input) {
  AffineMap map = op.getMatchingIndexingMap(&input);
  return getComplexType(input.get()) && map.getNumSymbols() == 0 &&
         (input.get().getDefiningOp<linalg::GenericOp>() ||
          map.getNumResults() + 1 < op.getNumLoops());
}

void fovea::attn::pairComplexOperands(Operation *root) {
  SmallVector<linalg::GenericOp> ops;
  root->walk([&](linalg::GenericOp op) {
    if (op.hasPureTensorSemantics() &&
        op.getNumParallelLoops() == op.getNumLoops() &&
        llvm::none_of(op.getDpsInits(), getComplexType))
      ops.push_back(op);
  });
  llvm::DenseMap<Value, Value> pairs;
  for (linalg::GenericOp op : ops) {
    SmallVector<Value> inputs = op.getDpsInputs();
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    Block *body = op.getBody();
    OpBuilder b = OpBuilder::atBlockBegin(body);
    // From the last one, so that those before it keep their numbers.
    for (unsigned number = inputs.size(); number-- > 0;) {
      if (!isWorthPairing(op, *op.getDpsInputOperand(number)))
        continue;
      Value &written = pairs[inputs[number]];
      if (!written)
        written = writePairs(inputs[number]);
      BlockArgument whole = body->getArgument(number);
      Type type = getComplexType(inputs[number]).getElementType();
      Value imaginary = body->insertArgument(number + 1, type, whole.getLoc());
      Value real = body->insertArgument(number + 1, type, whole.getLoc());
      whole.replaceAllUsesWith(complex::CreateOp::create(
          b, whole.getLoc(), whole.getType(), real, imaginary));
      body->eraseArgument(number);
      auto part = [&](int64_t which) {
        SmallVector<AffineExpr> results(maps[number].getResults());
        results.push_back(b.getAffineConstantExpr(which));
        return AffineMap::get(op.getNumLoops(), /*symbolCount=*/0, results,
                              op.getContext());
      };
      AffineMap first = part(0), second = part(1);
      maps[number] = first;
      maps.insert(maps.begin() + number + 1, second);
      inputs[number] = written;
      inputs.insert(inputs.begin() + number + 1, written);
    }
    op.getInputsMutable().assign(inputs);
    op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
  }
}
