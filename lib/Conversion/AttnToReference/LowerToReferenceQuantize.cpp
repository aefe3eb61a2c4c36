//===- LowerToReferenceQuantize.cpp - Codebook ops as plain loops ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// Runs `body` for every batch entry and head of `tokens`.
static void
forEachHead(ReferenceBuilder &ref, Value tokens,
            llvm::function_ref<void(Value batch, Value head)> body) {
  ref.forEach(ref.extent(tokens, 0), [&](Value b) {
    ref.forEach(ref.extent(tokens, 1), [&](Value g) { body(b, g); });
  });
}

//===----------------------------------------------------------------------===//
// QuantizeOp
//===----------------------------------------------------------------------===//

static void lowerQuantize(QuantizeOp op) {
  ReferenceBuilder ref(op);
  Value key = op.getKey(), codebook = op.getCodebook();
  Value width = ref.extent(key, 3);
  Value least = ref.allocate({1});
  forEachHead(ref, key, [&](Value b, Value g) {
    Value set = cast<MemRefType>(codebook.getType()).getDimSize(0) == 1
                    ? ref.index(0)
                    : g;
    ref.forEach(ref.extent(key, 2), [&](Value n) {
      ref.store(ref.number(std::numeric_limits<double>::infinity()), least,
                ref.index(0));
      Value code = ref.accumulate(
          ref.index(0), ref.extent(codebook, 1), ref.index(0),
          [&](Value s, Value code) {
            Value distance = ref.accumulate(
                ref.index(0), width, ref.number(0.0), [&](Value d, Value sum) {
                  Value difference =
                      ref.subNumbers(ref.load(key, {b, g, n, d}),
                                     ref.load(codebook, {set, s, d}));
                  return ref.addNumbers(sum,
                                        ref.mulNumbers(difference, difference));
                });
            // NaN is less than nothing, infinity no less than the first one.
            Value isLess =
                ref.lessNumber(distance, ref.load(least, ref.index(0)));
            return ref.when(
                isLess,
                [&] {
                  ref.store(distance, least, ref.index(0));
                  return s;
                },
                code);
          });
      ref.storeIndex(code, op.getCodes(), {b, g, n});
      if (Value quantized = op.getQuantized())
        ref.forEach(width, [&](Value d) {
          ref.store(ref.load(codebook, {set, code, d}), quantized,
                    {b, g, n, d});
        });
    });
  });
  op.erase();
}

//===----------------------------------------------------------------------===//
// CodebookAccumulateOp and CodebookScanOp
//===----------------------------------------------------------------------===//

namespace {
/// The state of one head in f64, so that means are rounded once.
class CodebookState {
public:
  /// For states of the shape of `mean [.., S, E]`.
  CodebookState(ReferenceBuilder &ref, Value mean) : ref(ref) {
    auto type = cast<MemRefType>(mean.getType());
    int64_t dim = type.getRank() - 2, numCodes = type.getDimSize(dim);
    SmallVector<Value> dynamicExtents;
    if (type.isDynamicDim(dim))
      dynamicExtents.push_back(ref.extent(mean, dim));
    means = ref.allocate({numCodes, type.getDimSize(dim + 1)}, dynamicExtents);
    counts = ref.allocate({numCodes}, dynamicExtents);
  }

  /// Copies from or to `mean[position, :, :]` and `count[position, :]`.
  void load(Value mean, Value count, ValueRange position) {
    forEachCode(position, [&](Value s, ValueRange code) {
      Value number = ref.toNumber(ref.loadIndex(count, code));
      ref.store(number, counts, s);
      forEachColumn(code, [&](Value e, ValueRange at) {
        ref.store(ref.load(mean, at), means, {s, e});
      });
    });
  }
  void store(Value mean, Value count, ValueRange position) {
    forEachCode(position, [&](Value s, ValueRange code) {
      ref.storeIndex(ref.toIndex(ref.load(counts, s)), count, code);
      forEachColumn(code, [&](Value e, ValueRange at) {
        ref.store(ref.load(means, {s, e}), mean, at);
      });
    });
  }

  /// Takes in tokens `[begin, end)` of one head.
  void take(Value codes, Value values, Value b, Value g, Value begin,
            Value end) {
    ref.forEach(begin, end, [&](Value t) {
      Value s = ref.loadIndex(codes, {b, g, t});
      ref.ifThen(ref.lessOrEqual(ref.index(0), s),
                 [&] { takeToken(values, {b, g, t}, s); });
    });
  }

private:
  void takeToken(Value values, ValueRange token, Value s) {
    Value count = ref.addNumbers(ref.load(counts, s), ref.number(1.0));
    ref.store(count, counts, s);
    Value isFirst = ref.lessNumber(count, ref.number(1.5));
    ref.forEach(ref.extent(means, 1), [&](Value e) {
      Value value = ref.load(values, {token[0], token[1], token[2], e});
      Value old = ref.load(means, {s, e});
      Value step = ref.divNumbers(ref.subNumbers(value, old), count);
      Value next = ref.addNumbers(old, step);
      ref.store(ref.select(isFirst, value, next), means, {s, e});
    });
  }
  void forEachCode(ValueRange position,
                   llvm::function_ref<void(Value, ValueRange)> body) {
    ref.forEach(ref.extent(counts, 0), [&](Value s) {
      SmallVector<Value> at(position);
      at.push_back(s);
      body(s, at);
    });
  }
  void forEachColumn(ValueRange code,
                     llvm::function_ref<void(Value, ValueRange)> body) {
    ref.forEach(ref.extent(means, 1), [&](Value e) {
      SmallVector<Value> at(code);
      at.push_back(e);
      body(e, at);
    });
  }

  ReferenceBuilder &ref;
  Value means, counts;
};
} // namespace

static void lowerCodebookAccumulate(CodebookAccumulateOp op) {
  ReferenceBuilder ref(op);
  CodebookState state(ref, op.getMean());
  forEachHead(ref, op.getCodes(), [&](Value b, Value g) {
    state.load(op.getMean(), op.getCount(), {b, g});
    state.take(op.getCodes(), op.getValues(), b, g, ref.index(0),
               ref.extent(op.getCodes(), 2));
    state.store(op.getMean(), op.getCount(), {b, g});
  });
  op.erase();
}

static void lowerCodebookScan(CodebookScanOp op) {
  ReferenceBuilder ref(op);
  CodebookState state(ref, op.getInitialMean());
  Value block = ref.index(op.getBlock());
  Value numTokens = ref.extent(op.getCodes(), 2);
  forEachHead(ref, op.getCodes(), [&](Value b, Value g) {
    state.load(op.getInitialMean(), op.getInitialCount(), {b, g});
    ref.forEach(ref.extent(op.getMean(), 2), [&](Value t) {
      state.store(op.getMean(), op.getCount(), {b, g, t});
      Value begin = ref.mul(t, block);
      Value end = ref.min(ref.add(begin, block), numTokens);
      state.take(op.getCodes(), op.getValues(), b, g, begin, end);
    });
  });
  op.erase();
}

//===----------------------------------------------------------------------===//
// LogCountOp
//===----------------------------------------------------------------------===//

static void emitLogCounts(ReferenceBuilder &ref, LogCountOp op,
                          SmallVector<Value> position) {
  int64_t rank = cast<MemRefType>(op.getCount().getType()).getRank();
  int64_t dim = position.size();
  if (dim == rank) {
    Value count = ref.toNumber(ref.loadIndex(op.getCount(), position));
    return ref.store(ref.log(count), op.getLogWeight(), position);
  }
  ref.forEach(ref.extent(op.getCount(), dim), [&](Value i) {
    SmallVector<Value> next(position);
    next.push_back(i);
    emitLogCounts(ref, op, next);
  });
}

static void lowerLogCount(LogCountOp op) {
  ReferenceBuilder ref(op);
  emitLogCounts(ref, op, {});
  op.erase();
}

//===----------------------------------------------------------------------===//
// CodebookUpdateOp
//===----------------------------------------------------------------------===//

static void lowerCodebookUpdate(CodebookUpdateOp op) {
  ReferenceBuilder ref(op);
  Value key = op.getKey(), codes = op.getCodes(), codebook = op.getCodebook();
  auto type = cast<MemRefType>(codebook.getType());
  bool isShared = type.getDimSize(0) == 1;
  Value numCodes = ref.extent(codebook, 1), width = ref.extent(codebook, 2);
  Value newSums = ref.allocate({type.getDimSize(1), type.getDimSize(2)});
  Value newCounts = ref.allocate({type.getDimSize(1)});
  double rate = op.getRate().convertToDouble();
  double minCount = op.getMinCount().convertToDouble();
  auto smooth = [&](Value old, Value added) {
    return ref.addNumbers(ref.mulNumbers(old, ref.number(rate)),
                          ref.mulNumbers(added, ref.number(1.0 - rate)));
  };
  ref.forEach(ref.extent(codebook, 0), [&](Value w) {
    ref.forEach(numCodes, [&](Value s) {
      ref.store(ref.number(0.0), newCounts, s);
      ref.forEach(
          width, [&](Value d) { ref.store(ref.number(0.0), newSums, {s, d}); });
    });
    Value firstHead = isShared ? ref.index(0) : w;
    Value endHead = isShared ? ref.extent(key, 1) : ref.add(w, ref.index(1));
    ref.forEach(ref.extent(key, 0), [&](Value b) {
      ref.forEach(firstHead, endHead, [&](Value g) {
        ref.forEach(ref.extent(key, 2), [&](Value n) {
          Value s = ref.loadIndex(codes, {b, g, n});
          ref.ifThen(ref.lessOrEqual(ref.index(0), s), [&] {
            ref.addTo(newCounts, s, ref.number(1.0));
            ref.forEach(width, [&](Value d) {
              ref.addTo(newSums, {s, d}, ref.load(key, {b, g, n, d}));
            });
          });
        });
      });
    });
    ref.forEach(numCodes, [&](Value s) {
      Value count =
          smooth(ref.load(op.getCounts(), {w, s}), ref.load(newCounts, s));
      ref.store(count, op.getCounts(), {w, s});
      Value divisor =
          minCount > 0 ? ref.maxNumbers(count, ref.number(minCount)) : count;
      Value isEmpty = ref.equalNumber(divisor, ref.number(0.0));
      ref.forEach(width, [&](Value d) {
        Value sum = smooth(ref.load(op.getSums(), {w, s, d}),
                           ref.load(newSums, {s, d}));
        ref.store(sum, op.getSums(), {w, s, d});
        Value codeword = ref.divNumbers(sum, divisor);
        ref.store(ref.select(isEmpty, ref.number(0.0), codeword), codebook,
                  {w, s, d});
      });
    });
  });
  op.erase();
}

void fovea::attn::attachQuantizeToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerQuantize, lowerCodebookAccumulate,
                  lowerCodebookScan, lowerLogCount, lowerCodebookUpdate>(
      context);
}
