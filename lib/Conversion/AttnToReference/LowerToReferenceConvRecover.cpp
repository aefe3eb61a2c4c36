//===- LowerToReferenceConvRecover.cpp - The search as plain loops --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Algorithms 2 and 3 for one head.
class Search {
public:
  Search(ReferenceBuilder &ref, ConvRecoverOp op)
      : ref(ref), op(op), numRows(ref.extent(op.getQuery(), 2)),
        sum(ref.allocate(ShapedType::kDynamic, numRows)),
        range(ref.allocate({2})) {}

  void run(Value b, Value h, Value g);

private:
  Value entry(Value row, Value column) {
    Value score = ref.dot(op.getQuery(), {batch, head, row}, op.getKey(),
                          {batch, keyHead, column});
    return ref.mulNumbers(score, ref.number(op.getScaleOrDefault()));
  }
  Value isNew(Value column);
  Value findNew(Value low, Value last);
  void addBasis(Value basis, Value column);
  Value bound(int64_t which) {
    return ref.toIndex(ref.load(range, ref.index(which)));
  }
  void setBound(int64_t which, Value index) {
    ref.store(ref.toNumber(index), range, ref.index(which));
  }

  ReferenceBuilder &ref;
  ConvRecoverOp op;
  Value numRows;
  /// The sum of the bases so far, and the columns that are left.
  Value sum, range;
  /// The head, and how many tokens there are.
  Value batch, head, keyHead, length;
};
} // namespace

/// Whether a column differs from the bases so far, as a number: 1 or 0.
Value Search::isNew(Value column) {
  Value distance = ref.accumulate(
      ref.index(0), ref.index(op.getWindow()), ref.number(0.0),
      [&](Value t, Value distance) {
        Value difference =
            ref.subNumbers(entry(ref.add(column, t), column), ref.load(sum, t));
        return ref.addNumbers(distance, ref.absolute(difference));
      });
  Value threshold = ref.number(op.getThreshold());
  Value isAt = ref.equalNumber(distance, threshold);
  return ref.select(ref.either(isAt, ref.lessNumber(threshold, distance)),
                    ref.number(1.0), ref.number(0.0));
}

/// The first new column of `low .. last`, by halves; -1 without one.
Value Search::findNew(Value low, Value last) {
  Value half = ref.number(0.5);
  setBound(0, low);
  setBound(1, last);
  // Halves of at most 2^31 columns, of which the last ones change nothing.
  std::optional<int64_t> known = getConstantIntValue(numRows);
  int64_t steps = known ? llvm::Log2_64_Ceil(std::max<int64_t>(*known, 1)) : 31;
  ref.forEach(ref.index(steps + 1), [&](Value) {
    Value isOpen = ref.less(bound(0), bound(1));
    Value middle = ref.div(ref.add(bound(0), bound(1)), ref.index(2));
    Value result =
        ref.when(isOpen, [&] { return isNew(middle); }, ref.number(-1.0));
    Value isHit = ref.lessNumber(half, result);
    Value isMiss = ref.equalNumber(result, ref.number(0.0));
    Value after = ref.add(middle, ref.index(1));
    setBound(0, ref.select(isMiss, after, bound(0)));
    setBound(1, ref.select(isHit, middle, bound(1)));
  });
  Value column = bound(0);
  return ref.select(ref.lessNumber(half, isNew(column)), column, ref.index(-1));
}

/// Stores a basis that begins at `column`, rounded, and adds it to the sum.
void Search::addBasis(Value basis, Value column) {
  Value size = ref.sub(numRows, column), one = ref.index(1);
  ref.storeIndex(size, op.getSizes(), {batch, head, basis});
  ref.storeIndex(ref.add(basis, one), op.getFound(), {batch, head});
  ref.forEach(ref.sub(length, column), [&](Value lag) {
    Value at[] = {batch, head, basis, lag};
    Value old = ref.load(sum, lag);
    ref.store(ref.subNumbers(entry(ref.add(column, lag), column), old),
              op.getBasis(), at);
    ref.store(ref.addNumbers(old, ref.load(op.getBasis(), at)), sum, lag);
  });
}

void Search::run(Value b, Value h, Value g) {
  batch = b;
  head = h;
  keyHead = g;
  Value zero = ref.index(0), one = ref.index(1), none = ref.index(-1);
  Value numBases = ref.extent(op.getBasis(), 2);
  ref.forEach(numBases, [&](Value r) {
    ref.storeIndex(zero, op.getSizes(), {b, h, r});
    ref.forEach(numRows, [&](Value lag) {
      ref.store(ref.number(0.0), op.getBasis(), {b, h, r, lag});
    });
  });
  ref.forEach(numRows,
              [&](Value lag) { ref.store(ref.number(0.0), sum, lag); });
  ref.storeIndex(zero, op.getFound(), {b, h});
  length = numRows;
  if (op.getLengths())
    length = ref.min(ref.max(ref.loadIndex(op.getLengths(), b), zero), length);
  ref.ifThen(ref.less(zero, length), [&] { addBasis(zero, zero); });
  Value last = ref.sub(length, ref.index(op.getWindow()));
  // After a search without result the next one begins behind the last column.
  ref.accumulate(one, numBases, zero, [&](Value r, Value column) {
    Value found = ref.when(
        ref.less(column, last),
        [&] { return findNew(ref.add(column, one), last); }, none);
    return ref.when(
        ref.lessOrEqual(zero, found),
        [&] {
          addBasis(r, found);
          return found;
        },
        length);
  });
}

static void lowerConvRecover(ConvRecoverOp op) {
  ReferenceBuilder ref(op);
  Value query = op.getQuery(), key = op.getKey();
  Search search(ref, op);
  ref.forEach(ref.extent(query, 0), [&](Value b) {
    ref.forEach(ref.extent(query, 1),
                [&](Value h) { search.run(b, h, ref.keyHead(query, key, h)); });
  });
  op.erase();
}

/// Every entry of every column that a basis begins in, by itself.
static void lowerConvRecoverBackward(ConvRecoverBackwardOp op) {
  ReferenceBuilder ref(op);
  Value query = op.getQuery(), key = op.getKey(), dBasis = op.getDBasis();
  Value dQuery = ref.allocateZeros(op.getDQuery()),
        dKey = ref.allocateZeros(op.getDKey());
  Value numBases = ref.extent(dBasis, 2), numTokens = ref.extent(dBasis, 3);
  Value scale = ref.number(op.getScaleOrDefault());
  auto emitEntry = [&](Value b, Value h, Value g, Value r, Value lag) {
    auto sizeOf = [&](Value r) {
      return ref.loadIndex(op.getSizes(), {b, h, r});
    };
    Value next = ref.add(r, ref.index(1));
    auto loadNext = [&] {
      return ref.when(
          ref.less(lag, sizeOf(next)),
          [&] { return ref.load(dBasis, {b, h, next, lag}); }, ref.number(0.0));
    };
    Value dScore = ref.subNumbers(
        ref.load(dBasis, {b, h, r, lag}),
        ref.when(ref.less(next, numBases), loadNext, ref.number(0.0)));
    dScore = ref.mulNumbers(dScore, scale);
    Value j = ref.sub(numTokens, sizeOf(r)), i = ref.add(j, lag);
    ref.forEach(ref.extent(query, 3), [&](Value d) {
      ref.addTo(dQuery, {b, h, i, d},
                ref.mulNumbers(dScore, ref.load(key, {b, g, j, d})));
      ref.addTo(dKey, {b, g, j, d},
                ref.mulNumbers(dScore, ref.load(query, {b, h, i, d})));
    });
  };
  ref.forEach(ref.extent(query, 0), [&](Value b) {
    ref.forEach(ref.extent(query, 1), [&](Value h) {
      Value g = ref.keyHead(query, key, h);
      ref.forEach(numBases, [&](Value r) {
        ref.forEach(ref.loadIndex(op.getSizes(), {b, h, r}),
                    [&](Value lag) { emitEntry(b, h, g, r, lag); });
      });
    });
  });
  ref.storeAll(dQuery, op.getDQuery());
  ref.storeAll(dKey, op.getDKey());
  op.erase();
}

void fovea::attn::attachConvRecoverToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerConvRecover, lowerConvRecoverBackward>(
      context);
}
