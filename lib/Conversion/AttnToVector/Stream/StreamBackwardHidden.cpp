//===- StreamBackwardHidden.cpp - Entries that score regions remove -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A region may remove entries of any tile, if only because a product is minus
// infinity. Their weights are zeros, which leave sums as they are unless the
// rows that they are multiplied with hold a NaN or an infinity. The rows of a
// tile and of a block of queries are looked through for these once: looking at
// each sum, as other tiles that hide entries do, would take a tenth of the
// products.
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

Value StreamBackwardKernel::hasSpecial(Value rows, int64_t columns, Value begin,
                                       Value end,
                                       function_ref<Value(Value)> rowOf) {
  int64_t numVectors = llvm::divideCeil(columns, lanes);
  // Zero times what is not finite is NaN. Chains, so that none is waited for.
  constexpr int64_t kChains = 8;
  Values chains(std::min(kChains, numVectors), b.splat(0.0));
  chains = b.loop(begin, end, 1, chains, [&](Value offset, ValueRange running) {
    Values next(running);
    Value row = rowOf(offset);
    for (int64_t c = 0; c < numVectors; ++c) {
      Value &chain = next[c % next.size()];
      chain = b.fma(b.loadVector(rows, {row, b.index(c * lanes)}), b.splat(0.0),
                    chain);
    }
    return next;
  });
  Value total = chains.front();
  for (Value chain : ArrayRef(chains).drop_front())
    total = b.fadd(total, chain);
  return vector::ReductionOp::create(
      b, vector::CombiningKind::OR,
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, total, total));
}

void StreamBackwardKernel::findSpecialQueries() {
  if (!hasScores())
    return;
  auto own = [](Value row) { return row; };
  queriesAreSpecial =
      hasSpecial(queryTile, width, b.index(0), blockQueries, own);
  gradientsAreSpecial =
      hasSpecial(gradientTile, valueWidth, b.index(0), blockQueries, own);
}

void StreamBackwardKernel::findSpecialKeys(const Segment &tile) {
  keysAreSpecial = Value();
  if (hasScores() && mayHide(tile))
    keysAreSpecial =
        hasSpecial(tile.keys, width, tile.skip, tile.count, [&](Value offset) {
          return rowsOf(tile, offset, 1).front();
        });
}

StreamBackwardKernel::Values
StreamBackwardKernel::sumVisible(const Segment &tile, Value areSpecial,
                                 ValueRange sums,
                                 function_ref<Values()> again) {
  if (!mayHide(tile))
    return Values(sums);
  if (!areSpecial)
    return softmax::unlessFinite(b, sums, again);
  auto choice = scf::IfOp::create(b, TypeRange(sums), areSpecial,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(b, softmax::unlessFinite(b, sums, again));
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, sums);
  return Values(choice.getResults());
}
