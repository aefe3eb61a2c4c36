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
// block of queries are looked through for these once, and those of a tile of
// keys are told by their products: looking at each sum, as other tiles that
// hide entries do, would take a tenth of the products.
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"

using namespace mlir;
using namespace fovea::attn;

void StreamBackwardKernel::findSpecialQueries() {
  if (!hasScores() && !usesAMX)
    return;
  auto own = [](Value row) { return row; };
  queriesAreSpecial =
      hasSpecial(queryTile, width, b.index(0), blockQueries, own);
  gradientsAreSpecial =
      hasSpecial(gradientTile, valueWidth, b.index(0), blockQueries, own);
}

void StreamBackwardKernel::startSpecialKeys(const Segment &tile) {
  keysAreSpecial = Value();
  bool asks = hasScores() || arithmeticOf(tile) == Arithmetic::AMX;
  keyChain = asks && mayHide(tile) ? b.splat(0.0) : Value();
}

/// The product of a key that is not finite is none with any query.
Value StreamBackwardKernel::addKeyProducts(int64_t numKeys, Value chain) {
  int64_t live = tileProducts.size() / numKeys;
  for (int64_t i = 0; i < numKeys; ++i)
    chain = b.fma(tileProducts[i * live], b.splat(0.0), chain);
  return chain;
}

void StreamBackwardKernel::findSpecialKeys() {
  if (keyChain)
    keysAreSpecial = isAnyNaN(keyChain);
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
