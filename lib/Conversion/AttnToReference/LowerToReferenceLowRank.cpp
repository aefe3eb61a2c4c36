//===- LowerToReferenceLowRank.cpp - Low-rank ops as plain loops ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceLowRank.h"

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// RopeOp
//===----------------------------------------------------------------------===//

/// Turns pairs of columns of `input` by their angles; back if `sign` is -1.
template <typename OpTy>
static void emitTurns(OpTy op, Value input, Value output, double sign) {
  ReferenceBuilder ref(op);
  int64_t columns = cast<MemRefType>(input.getType()).getDimSize(3);
  int64_t pairs = op.getTurnedWidth() / 2;
  bool isHalf = op.getStyle() == RopeStyle::Half;
  Value frequencies = ref.allocate({pairs});
  for (int64_t i = 0; i < pairs; ++i)
    ref.store(ref.number(sign * double(op.getFrequency(i))), frequencies,
              ref.index(i));
  Value magnitude = ref.number(op.getMagnitude().convertToDouble());
  forEachRow(ref, input, [&](Value b, Value h, Value n) {
    Value positions = op.getPositions();
    Value position = ref.toNumber(
        ref.loadIndex(positions, ref.broadcastIndices(positions, {b, h, n})));
    ref.forEach(ref.index(pairs), [&](Value i) {
      Value angle = ref.mulNumbers(position, ref.load(frequencies, i));
      Value cosine = ref.mulNumbers(magnitude, ref.cos(angle));
      Value sine = ref.mulNumbers(magnitude, ref.sin(angle));
      Value first = isHalf ? i : ref.mul(i, ref.index(2));
      Value second = ref.add(first, ref.index(isHalf ? pairs : 1));
      Value x = ref.load(input, {b, h, n, first});
      Value y = ref.load(input, {b, h, n, second});
      ref.store(
          ref.subNumbers(ref.mulNumbers(x, cosine), ref.mulNumbers(y, sine)),
          output, {b, h, n, first});
      ref.store(
          ref.addNumbers(ref.mulNumbers(x, sine), ref.mulNumbers(y, cosine)),
          output, {b, h, n, second});
    });
    ref.forEach(ref.index(columns - 2 * pairs), [&](Value i) {
      Value column = ref.add(i, ref.index(2 * pairs));
      ref.store(ref.load(input, {b, h, n, column}), output, {b, h, n, column});
    });
  });
  op.erase();
}

static void lowerRope(RopeOp op) {
  emitTurns(op, op.getInput(), op.getOutput(), /*sign=*/1.0);
}

static void lowerRopeBackward(RopeBackwardOp op) {
  emitTurns(op, op.getDOutput(), op.getDInput(), /*sign=*/-1.0);
}

//===----------------------------------------------------------------------===//
// PolynomialFeaturesOp
//===----------------------------------------------------------------------===//

namespace {
/// The monomials of one row, as nested loops over columns that do not decrease.
struct Monomials {
  ReferenceBuilder &ref;
  Value width, scale;
  llvm::function_ref<Value(Value)> column;
  llvm::function_ref<void(Value, Value)> store;

  /// Stores the products of `product` with `missing` more columns from `low`
  /// on, the last of which it has `run` times already. Takes and returns where
  /// the next feature lies.
  Value emit(int64_t missing, Value product, Value low, Value run,
             Value position) const {
    if (missing == 0) {
      store(product, position);
      return ref.add(position, ref.index(1));
    }
    return ref.accumulate(low, width, position, [&](Value i, Value position) {
      Value isSame = ref.lessOrEqual(i, low);
      Value one = ref.index(1);
      Value times = ref.select(isSame, ref.add(run, one), one);
      // x sqrt(scale / times): over a run of equal columns, the root of
      // scale^times / times!.
      Value factor = ref.mulNumbers(
          column(i), ref.sqrt(ref.divNumbers(scale, ref.toNumber(times))));
      return emit(missing - 1, ref.mulNumbers(product, factor), i, times,
                  position);
    });
  }
};
} // namespace

static void lowerPolynomialFeatures(PolynomialFeaturesOp op) {
  ReferenceBuilder ref(op);
  Value input = op.getInput();
  forEachRow(ref, input, [&](Value b, Value h, Value n) {
    auto column = [&](Value i) { return ref.load(input, {b, h, n, i}); };
    auto store = [&](Value feature, Value position) {
      ref.store(feature, op.getOutput(), {b, h, n, position});
    };
    Monomials monomials = {ref, ref.extent(input, 3),
                           ref.number(op.getScale().convertToDouble()), column,
                           store};
    Value zero = ref.index(0), position = zero;
    for (int64_t degree = 0; degree <= int64_t(op.getDegree()); ++degree)
      position =
          monomials.emit(degree, ref.number(1.0), zero, /*run=*/zero, position);
  });
  op.erase();
}

//===----------------------------------------------------------------------===//
// LowRankOp
//===----------------------------------------------------------------------===//

static void lowerLowRank(LowRankOp op) {
  ReferenceBuilder ref(op);
  Value u1 = op.getU1(), u2 = op.getU2(), value = op.getValue();
  int64_t width = cast<MemRefType>(value.getType()).getDimSize(3);
  Value sums = ref.allocate({width}), zero = ref.number(0.0);
  MaskRows mask(ref, op);
  ref.forEach(ref.extent(u1, 0), [&](Value b) {
    ref.forEach(ref.extent(u1, 1), [&](Value h) {
      mask.beginHead(b, h);
      Value g = ref.keyHead(u1, u2, h);
      ref.forEach(ref.extent(u1, 2), [&](Value i) {
        mask.beginRow(i);
        ref.forEach(ref.index(width),
                    [&](Value e) { ref.store(zero, sums, e); });
        Value total = ref.accumulate(
            ref.index(0), ref.extent(u2, 2), zero, [&](Value j, Value total) {
              return ref.when(
                  mask.keeps(j),
                  [&] {
                    Value weight = ref.dot(u1, {b, h, i}, u2, {b, g, j});
                    ref.forEach(ref.index(width), [&](Value e) {
                      Value entry =
                          ref.poisonInfinity(ref.load(value, {b, g, j, e}));
                      Value sum = ref.addNumbers(ref.load(sums, e),
                                                 ref.mulNumbers(weight, entry));
                      ref.store(sum, sums, e);
                    });
                    return ref.addNumbers(total, weight);
                  },
                  total);
            });
        Value isZero = ref.equalNumber(total, zero);
        ref.forEach(ref.index(width), [&](Value e) {
          Value mean = ref.divNumbers(ref.load(sums, e), total);
          ref.store(ref.select(isZero, zero, mean), op.getOutput(),
                    {b, h, i, e});
        });
      });
    });
  });
  op.erase();
}

void fovea::attn::attachLowRankToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerRope, lowerRopeBackward,
                  lowerPolynomialFeatures, lowerLowRank>(context);
}
