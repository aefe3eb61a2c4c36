//===- LowerToReferenceTokens.cpp - Lists of tokens as plain loops --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"

using namespace mlir;
using namespace fovea::attn;

/// How many tokens are present before each one: of all pairs, no running count.
static void lowerListTokens(ListTokensOp op) {
  ReferenceBuilder ref(op);
  Value mask = op.getMask(), zero = ref.index(0), one = ref.index(1),
        none = ref.index(-1), numTokens = ref.extent(mask, 1);
  ref.forEach(ref.extent(mask, 0), [&](Value b) {
    auto countBefore = [&](Value end) {
      return ref.accumulate(zero, end, zero, [&](Value n, Value count) {
        return ref.select(ref.loadCondition(mask, {b, n}), ref.add(count, one),
                          count);
      });
    };
    ref.forEach(numTokens,
                [&](Value r) { ref.storeIndex(none, op.getTokens(), {b, r}); });
    ref.forEach(numTokens, [&](Value n) {
      ref.storeIndex(none, op.getPlaces(), {b, n});
      ref.ifThen(ref.loadCondition(mask, {b, n}), [&] {
        Value place = countBefore(n);
        ref.storeIndex(place, op.getPlaces(), {b, n});
        ref.storeIndex(n, op.getTokens(), {b, place});
      });
    });
    ref.storeIndex(countBefore(numTokens), op.getCounts(), b);
  });
  op.erase();
}

static void lowerTakeRows(TakeRowsOp op) {
  ReferenceBuilder ref(op);
  Value input = op.getInput();
  ref.forEachElement(op.getOutput(), [&](ValueRange at) {
    Value row = ref.loadIndex(op.getRows(), {at[0], at[2]});
    Value isThere = ref.both(ref.lessOrEqual(ref.index(0), row),
                             ref.less(row, ref.extent(input, 2)));
    Value number = ref.when(
        isThere, [&] { return ref.load(input, {at[0], at[1], row, at[3]}); },
        ref.number(0.0));
    ref.store(number, op.getOutput(), at);
  });
  op.erase();
}

void fovea::attn::attachTokensToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerListTokens, lowerTakeRows>(context);
}
