//===- LowerToReferenceConv.cpp - Sums of convolutions as plain loops -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// The scores of one head that bases add up to.
class ConvScores {
public:
  ConvScores(ReferenceBuilder &ref, Value basis, Value sizes, Value b, Value h)
      : ref(ref), basis(basis), sizes(sizes), b(b), h(h),
        numBases(ref.extent(basis, 2)), numTokens(ref.extent(basis, 3)) {}

  /// Whether basis r reaches key j.
  Value reaches(Value r, Value j) {
    return ref.lessOrEqual(numTokens,
                           ref.add(ref.loadIndex(sizes, {b, h, r}), j));
  }

  /// Visits the keys that query i reads; entries have scores and rows.
  Value walk(Value i, Value state, EntryVisitor visit) {
    auto visitKey = [&](Value j, Value state) {
      Value score = sum(i, j);
      Value counts =
          ref.both(reaches(ref.index(0), j), ref.isNotMinusInfinity(score));
      ReferenceEntry entry = {score, /*logWeight=*/Value(), /*value=*/nullptr,
                              j};
      return ref.when(counts, [&] { return visit(entry, state); }, state);
    };
    return ref.accumulate(ref.index(0), ref.add(i, ref.index(1)), state,
                          visitKey);
  }

private:
  Value sum(Value i, Value j) {
    auto addBasis = [&](Value r, Value sum) {
      auto add = [&] {
        return ref.addNumbers(sum, ref.load(basis, {b, h, r, ref.sub(i, j)}));
      };
      return ref.when(reaches(r, j), add, sum);
    };
    return ref.accumulate(ref.index(0), numBases, ref.number(0.0), addBasis);
  }

  ReferenceBuilder &ref;
  Value basis, sizes, b, h, numBases, numTokens;
};
} // namespace

static void lowerConvApply(ConvApplyOp op) {
  ReferenceBuilder ref(op);
  Value basis = op.getBasis(), value = op.getValue();
  Value row = ref.allocate({cast<MemRefType>(value.getType()).getDimSize(3)});
  ref.forEach(ref.extent(basis, 0), [&](Value b) {
    ref.forEach(ref.extent(basis, 1), [&](Value h) {
      Value g = ref.keyHead(basis, value, h);
      ref.storeIndex(ref.index(0), op.getRecomputed(), {b, h});
      ConvScores scores(ref, basis, op.getSizes(), b, h);
      ref.forEach(ref.extent(basis, 3), [&](Value i) {
        auto walk = [&](Value state, EntryVisitor visit) {
          auto visitEntry = [&](const ReferenceEntry &entry, Value state) {
            auto valueOf = [&](Value column) {
              return ref.load(value, {b, g, entry.row, column});
            };
            return visit({entry.score, entry.logWeight, valueOf}, state);
          };
          return scores.walk(i, state, visitEntry);
        };
        emitSoftmaxRow(ref, walk, row);
        ref.storeRow(row, op.getOutput(), {b, h, i});
      });
    });
  });
  op.erase();
}

static void lowerConvApplyBackward(ConvApplyBackwardOp op) {
  ReferenceBuilder ref(op);
  Value basis = op.getBasis(), value = op.getValue(), dOutput = op.getDOutput();
  Value dBasis = ref.allocateZeros(op.getDBasis()),
        dValue = ref.allocateZeros(op.getDValue());
  Value none = ref.number(0.0);
  ref.forEach(ref.extent(basis, 0), [&](Value b) {
    ref.forEach(ref.extent(basis, 1), [&](Value h) {
      Value g = ref.keyHead(basis, value, h);
      ConvScores scores(ref, basis, op.getSizes(), b, h);
      ref.forEach(ref.extent(basis, 3), [&](Value i) {
        Value delta = ref.dot(dOutput, {b, h, i}, op.getOutput(), {b, h, i});
        Value top = scores.walk(i, ref.minusInfinity(),
                                [&](const ReferenceEntry &entry, Value top) {
                                  return ref.maxNumbers(entry.score, top);
                                });
        auto exponential = [&](const ReferenceEntry &entry) {
          return ref.exp(ref.subNumbers(entry.score, top));
        };
        Value normaliser =
            scores.walk(i, none, [&](const ReferenceEntry &entry, Value sum) {
              return ref.addNumbers(sum, exponential(entry));
            });
        scores.walk(i, none, [&](const ReferenceEntry &entry, Value state) {
          Value j = entry.row;
          Value weight = ref.divNumbers(exponential(entry), normaliser);
          ref.forEach(ref.extent(value, 3), [&](Value e) {
            Value gradient = ref.load(dOutput, {b, h, i, e});
            ref.addTo(dValue, {b, g, j, e}, ref.mulNumbers(weight, gradient));
          });
          Value product = ref.dot(dOutput, {b, h, i}, value, {b, g, j});
          Value dScore = ref.mulNumbers(weight, ref.subNumbers(product, delta));
          ref.forEach(ref.extent(basis, 2), [&](Value r) {
            Value share = ref.select(scores.reaches(r, j), dScore, none);
            ref.addTo(dBasis, {b, h, r, ref.sub(i, j)}, share);
          });
          return state;
        });
      });
    });
  });
  ref.storeAll(dBasis, op.getDBasis());
  ref.storeAll(dValue, op.getDValue());
  op.erase();
}

void fovea::attn::attachConvToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerConvApply, lowerConvApplyBackward>(
      context);
}
