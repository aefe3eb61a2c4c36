//===- LowerToReferenceVQBackward.cpp - Its gradient as plain loops -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every query passes something on to every token before it, one by one.
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
class QuantizedGradient {
public:
  QuantizedGradient(ReferenceBuilder &ref, VQBackwardOp op)
      : ref(ref), op(op), zero(ref.index(0)), block(ref.index(op.getBlock())) {}

  void emit() {
    dQuery = allocateZeros(op.getDQuery());
    dKey = allocateZeros(op.getDKey());
    dValue = allocateZeros(op.getDValue());
    if (op.getDBias())
      dBias = allocateZeros(op.getDBias());
    ref.forEach(ref.extent(op.getQuery(), 0), [&](Value b) {
      ref.forEach(ref.extent(op.getQuery(), 1), [&](Value h) {
        Value g = ref.keyHead(op.getQuery(), op.getValue(), h);
        Value tokens = ref.extent(op.getQuery(), 2);
        ref.forEach(tokens, [&](Value i) {
          Value delta = emitDelta(b, h, i);
          Value last = op.getCausal() ? ref.add(i, ref.index(1)) : tokens;
          ref.forEach(zero, last,
                      [&](Value j) { emitEntry(b, h, g, i, j, delta); });
        });
      });
    });
    copy(dQuery, op.getDQuery(), {});
    copy(dKey, op.getDKey(), {});
    copy(dValue, op.getDValue(), {});
    if (op.getDBias())
      copy(dBias, op.getDBias(), {});
  }

private:
  bool isSoftmax() { return op.getWeighting() == Weighting::Softmax; }

  /// A buffer of f64 of the shape of `like`.
  Value allocateZeros(Value like) {
    auto type = cast<MemRefType>(like.getType());
    SmallVector<Value> extents;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      if (type.isDynamicDim(dim))
        extents.push_back(ref.extent(like, dim));
    Value buffer = ref.allocate(type.getShape(), extents);
    forEachElement(buffer, {}, [&](ValueRange at) {
      ref.store(ref.number(0.0), buffer, at);
    });
    return buffer;
  }

  void forEachElement(Value buffer, SmallVector<Value> position,
                      function_ref<void(ValueRange)> body) {
    int64_t dim = position.size();
    if (dim == cast<MemRefType>(buffer.getType()).getRank())
      return body(position);
    ref.forEach(ref.extent(buffer, dim), [&](Value i) {
      SmallVector<Value> next(position);
      next.push_back(i);
      forEachElement(buffer, next, body);
    });
  }

  void copy(Value from, Value to, SmallVector<Value> position) {
    forEachElement(from, position, [&](ValueRange at) {
      ref.store(ref.load(from, at), to, at);
    });
  }

  void addTo(Value buffer, ValueRange at, Value number) {
    ref.store(ref.addNumbers(ref.load(buffer, at), number), buffer, at);
  }

  /// `d_output . output - d_lse`, 0 without a normaliser.
  Value emitDelta(Value b, Value h, Value i) {
    if (!isSoftmax())
      return ref.number(0.0);
    Value delta =
        ref.dot(op.getDOutput(), {b, h, i}, op.getOutput(), {b, h, i});
    if (op.getDLse())
      delta = ref.subNumbers(delta, ref.load(op.getDLse(), {b, h, i}));
    return delta;
  }

  /// P and dS of an entry with that score.
  std::pair<Value, Value> emitWeight(Value score, Value dProduct, Value delta,
                                     Value b, Value h, Value i) {
    if (!isSoftmax()) {
      Value positive = ref.maxNumbers(score, ref.number(0.0));
      Value twice = ref.addNumbers(positive, positive);
      return {ref.mulNumbers(positive, positive),
              ref.mulNumbers(twice, dProduct)};
    }
    Value lse = ref.load(op.getLse(), {b, h, i});
    // A row that reads nothing passes nothing on.
    Value weight = ref.select(ref.isMinusInfinity(lse), ref.number(0.0),
                              ref.exp(ref.subNumbers(score, lse)));
    return {weight, ref.mulNumbers(weight, ref.subNumbers(dProduct, delta))};
  }

  void emitEntry(Value b, Value h, Value g, Value i, Value j, Value delta) {
    bool isShared =
        cast<MemRefType>(op.getCodebook().getType()).getDimSize(0) == 1;
    Value word[] = {isShared ? zero : g,
                    ref.loadIndex(op.getCodes(), {b, g, j})};
    Value scale = ref.number(op.getScale().convertToDouble());
    Value score = ref.mulNumbers(
        scale, ref.dot(op.getQuery(), {b, h, i}, op.getCodebook(), word));
    // Column 0 of the bias is the first token of the block before the query's.
    Value begin = ref.sub(ref.mul(ref.div(i, block), block), block);
    Value column = ref.sub(j, begin);
    Value isNear = op.getCausal() ? ref.lessOrEqual(zero, column) : Value();
    Value clamped = ref.max(column, zero);
    if (op.getBias())
      score = ref.addNumbers(
          score, ref.select(isNear,
                            ref.loadBroadcast(op.getBias(), {b, h, i, clamped}),
                            ref.number(0.0)));
    Value dProduct =
        ref.dot(op.getDOutput(), {b, h, i}, op.getValue(), {b, g, j});
    Value weight, dScore;
    std::tie(weight, dScore) = emitWeight(score, dProduct, delta, b, h, i);

    ref.forEach(ref.extent(op.getValue(), 3), [&](Value e) {
      Value dOutput = ref.load(op.getDOutput(), {b, h, i, e});
      addTo(dValue, {b, g, j, e}, ref.mulNumbers(weight, dOutput));
    });
    Value dProductScale = ref.mulNumbers(scale, dScore);
    Value dKeyScale = isNear
                          ? ref.select(isNear, dProductScale, ref.number(0.0))
                          : ref.number(0.0);
    ref.forEach(ref.extent(op.getQuery(), 3), [&](Value d) {
      Value c = ref.load(op.getCodebook(), {word[0], word[1], d});
      addTo(dQuery, {b, h, i, d}, ref.mulNumbers(dProductScale, c));
      Value q = ref.load(op.getQuery(), {b, h, i, d});
      addTo(dKey, {b, g, j, d}, ref.mulNumbers(dKeyScale, q));
    });
    if (op.getDBias())
      addTo(dBias, ref.broadcastIndices(dBias, {b, h, i, clamped}),
            ref.select(isNear, dScore, ref.number(0.0)));
  }

  ReferenceBuilder &ref;
  VQBackwardOp op;
  Value zero, block;
  Value dQuery, dKey, dValue, dBias;
};
} // namespace

void fovea::attn::lowerToReference(VQBackwardOp op) {
  ReferenceBuilder ref(op);
  QuantizedGradient(ref, op).emit();
  op.erase();
}
