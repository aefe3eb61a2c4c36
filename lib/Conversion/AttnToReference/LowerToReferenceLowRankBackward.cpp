//===- LowerToReferenceLowRankBackward.cpp - Low-rank gradients -----------===//
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
// PolynomialFeaturesBackwardOp
//===----------------------------------------------------------------------===//

namespace {
/// The derivative of every monomial of a row in one direction, `column`.
struct MonomialDerivatives {
  ReferenceBuilder &ref;
  PolynomialFeaturesBackwardOp op;
  Value b, h, n, column, sum;

  /// Adds up the products of `product` with `missing` more columns from `low`
  /// on, the last of which it has `run` times already. Takes and returns where
  /// the next feature lies.
  Value emit(int64_t missing, Value product, Value derivative, Value low,
             Value run, Value position) {
    if (missing == 0) {
      Value gradient = ref.load(op.getDOutput(), {b, h, n, position});
      ref.addTo(sum, ref.index(0), ref.mulNumbers(derivative, gradient));
      return ref.add(position, ref.index(1));
    }
    Value width = ref.extent(op.getInput(), 3), one = ref.index(1);
    return ref.accumulate(low, width, position, [&](Value i, Value position) {
      Value times = ref.select(ref.lessOrEqual(i, low), ref.add(run, one), one);
      Value scale = ref.number(op.getScale().convertToDouble());
      Value factor = ref.sqrt(ref.divNumbers(scale, ref.toNumber(times)));
      Value x = ref.mulNumbers(ref.load(op.getInput(), {b, h, n, i}), factor);
      Value isColumn =
          ref.both(ref.lessOrEqual(i, column), ref.lessOrEqual(column, i));
      Value dx = ref.select(isColumn, factor, ref.number(0.0));
      return emit(missing - 1, ref.mulNumbers(product, x),
                  ref.addNumbers(ref.mulNumbers(derivative, x),
                                 ref.mulNumbers(product, dx)),
                  i, times, position);
    });
  }
};
} // namespace

static void lowerPolynomialFeaturesBackward(PolynomialFeaturesBackwardOp op) {
  ReferenceBuilder ref(op);
  Value sum = ref.allocate({1});
  forEachRow(ref, op.getInput(), [&](Value b, Value h, Value n) {
    ref.forEach(ref.extent(op.getInput(), 3), [&](Value column) {
      Value zero = ref.index(0), position = zero;
      ref.store(ref.number(0.0), sum, zero);
      MonomialDerivatives derivatives{ref, op, b, h, n, column, sum};
      for (int64_t degree = 0; degree <= int64_t(op.getDegree()); ++degree)
        position = derivatives.emit(degree, ref.number(1.0), ref.number(0.0),
                                    zero, /*run=*/zero, position);
      ref.store(ref.load(sum, zero), op.getDInput(), {b, h, n, column});
    });
  });
  op.erase();
}

//===----------------------------------------------------------------------===//
// LowRankBackwardOp
//===----------------------------------------------------------------------===//

namespace {
class LowRankGradient {
public:
  LowRankGradient(ReferenceBuilder &ref, LowRankBackwardOp op)
      : ref(ref), op(op), u1(op.getU1()), u2(op.getU2()), value(op.getValue()),
        dOutput(op.getDOutput()), mask(ref, op) {}

  void emit() {
    Value dU1 = ref.allocateZeros(op.getDU1());
    Value dU2 = ref.allocateZeros(op.getDU2());
    Value dValue = ref.allocateZeros(op.getDValue());
    ref.forEach(ref.extent(u1, 0), [&](Value b) {
      ref.forEach(ref.extent(u1, 1), [&](Value h) {
        mask.beginHead(b, h);
        Value g = ref.keyHead(u1, u2, h);
        ref.forEach(ref.extent(u1, 2), [&](Value i) {
          mask.beginRow(i);
          Value row[] = {b, h, i};
          Value inverse = emitInverse(row, g);
          Value delta = ref.dot(dOutput, row, op.getOutput(), row);
          ref.forEach(ref.extent(u2, 2), [&](Value j) {
            ref.ifThen(mask.keeps(j), [&] {
              Value key[] = {b, g, j};
              Value product = ref.dot(dOutput, row, value, key);
              Value dWeight =
                  ref.mulNumbers(inverse, ref.subNumbers(product, delta));
              Value weight = ref.mulNumbers(inverse, ref.dot(u1, row, u2, key));
              addRow(dU1, row, dWeight, u2, key);
              addRow(dU2, key, dWeight, u1, row);
              addRow(dValue, key, weight, dOutput, row);
            });
          });
        });
      });
    });
    ref.storeAll(dU1, op.getDU1());
    ref.storeAll(dU2, op.getDU2());
    ref.storeAll(dValue, op.getDValue());
  }

private:
  /// One over the sum of the weights of a row, or 0 where that is.
  Value emitInverse(ArrayRef<Value> row, Value g) {
    Value zero = ref.number(0.0);
    Value total = ref.accumulate(
        ref.index(0), ref.extent(u2, 2), zero, [&](Value j, Value total) {
          return ref.when(
              mask.keeps(j),
              [&] {
                return ref.addNumbers(total,
                                      ref.dot(u1, row, u2, {row[0], g, j}));
              },
              total);
        });
    Value inverse = ref.divNumbers(ref.number(1.0), ref.poisonInfinity(total));
    return ref.select(ref.equalNumber(total, zero), zero, inverse);
  }

  /// `to[at, :] += factor from[fromAt, :]`.
  void addRow(Value to, ArrayRef<Value> at, Value factor, Value from,
              ArrayRef<Value> fromAt) {
    ref.forEach(ref.extent(from, 3), [&](Value column) {
      SmallVector<Value> target(at), source(fromAt);
      target.push_back(column);
      source.push_back(column);
      ref.addTo(to, target, ref.mulNumbers(factor, ref.load(from, source)));
    });
  }

  ReferenceBuilder &ref;
  LowRankBackwardOp op;
  Value u1, u2, value, dOutput;
  MaskRows mask;
};
} // namespace

static void lowerLowRankBackward(LowRankBackwardOp op) {
  ReferenceBuilder ref(op);
  LowRankGradient(ref, op).emit();
  op.erase();
}

void fovea::attn::attachLowRankBackwardToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerPolynomialFeaturesBackward,
                  lowerLowRankBackward>(context);
}
