//===- LowerToReferenceQuantize.cpp - Codebook ops as plain loops ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include "fovea/Kernels/Random.h"
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
    auto findNearest = [&](Value n) {
      ref.store(ref.number(std::numeric_limits<double>::infinity()), least,
                ref.index(0));
      return ref.accumulate(
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
    };
    ref.forEach(ref.extent(key, 2), [&](Value n) {
      Value absent = ref.index(-1), code;
      if (op.getMask())
        code = ref.when(
            ref.loadCondition(op.getMask(), {b, n}),
            [&] { return findNearest(n); }, absent);
      else
        code = findNearest(n);
      ref.storeIndex(code, op.getCodes(), {b, g, n});
      if (Value quantized = op.getQuantized())
        ref.forEach(width, [&](Value d) {
          auto load = [&] { return ref.load(codebook, {set, code, d}); };
          Value number = op.getMask() ? ref.when(ref.less(absent, code), load,
                                                 ref.number(0.0))
                                      : load();
          ref.store(number, quantized, {b, g, n, d});
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

namespace {
class CodebookUpdate {
public:
  CodebookUpdate(ReferenceBuilder &ref, CodebookUpdateOp op)
      : ref(ref), op(op), numCodes(ref.extent(op.getCodebook(), 1)),
        width(ref.extent(op.getCodebook(), 2)) {}

  void emit() {
    auto type = cast<MemRefType>(op.getCodebook().getType());
    newSums = ref.allocate({type.getDimSize(1), type.getDimSize(2)});
    newCounts = ref.allocate({type.getDimSize(1)});
    ref.forEach(ref.extent(op.getCodebook(), 0), [&](Value w) {
      Value numKeys = sumKeys(w);
      ref.forEach(numCodes, [&](Value s) {
        moveCodeword(w, s);
        if (op.getSeed())
          ref.ifThen(isDead(w, s, numKeys),
                     [&] { replaceCodeword(w, s, numKeys); });
      });
    });
  }

private:
  /// Runs `body` for the present keys of set `w`, in order, with their numbers,
  /// and returns how many they are.
  Value forEachKey(
      Value w,
      function_ref<void(ValueRange key, Value code, Value number)> body) {
    bool isShared =
        cast<MemRefType>(op.getCodebook().getType()).getDimSize(0) == 1;
    Value zero = ref.index(0), one = ref.index(1), key = op.getKey();
    Value firstHead = isShared ? zero : w;
    Value endHead = isShared ? ref.extent(key, 1) : ref.add(w, one);
    return ref.accumulate(
        zero, ref.extent(key, 0), zero, [&](Value b, Value number) {
          return ref.accumulate(
              firstHead, endHead, number, [&](Value g, Value number) {
                return ref.accumulate(zero, ref.extent(key, 2), number,
                                      [&](Value n, Value number) {
                                        Value code = ref.loadIndex(
                                            op.getCodes(), {b, g, n});
                                        return ref.when(
                                            ref.lessOrEqual(zero, code),
                                            [&] {
                                              body({b, g, n}, code, number);
                                              return ref.add(number, one);
                                            },
                                            number);
                                      });
              });
        });
  }

  /// Sums and counts of the keys of each code. Returns the number of keys.
  Value sumKeys(Value w) {
    Value none = ref.number(0.0);
    ref.forEach(numCodes, [&](Value s) {
      ref.store(none, newCounts, s);
      ref.forEach(width, [&](Value d) { ref.store(none, newSums, {s, d}); });
    });
    return forEachKey(w, [&](ValueRange key, Value code, Value) {
      ref.addTo(newCounts, code, ref.number(1.0));
      forEachColumn(key, [&](Value d, Value number) {
        ref.addTo(newSums, {code, d}, number);
      });
    });
  }

  void forEachColumn(ValueRange key, function_ref<void(Value, Value)> body) {
    ref.forEach(width, [&](Value d) {
      body(d, ref.load(op.getKey(), {key[0], key[1], key[2], d}));
    });
  }

  Value smooth(Value old, Value added) {
    double rate = op.getRate().convertToDouble();
    return ref.addNumbers(ref.mulNumbers(old, ref.number(rate)),
                          ref.mulNumbers(added, ref.number(1.0 - rate)));
  }

  void moveCodeword(Value w, Value s) {
    double minCount = op.getMinCount().convertToDouble();
    Value count =
        smooth(ref.load(op.getCounts(), {w, s}), ref.load(newCounts, s));
    ref.store(count, op.getCounts(), {w, s});
    Value divisor =
        minCount > 0 ? ref.maxNumbers(count, ref.number(minCount)) : count;
    Value isEmpty = ref.equalNumber(divisor, ref.number(0.0));
    ref.forEach(width, [&](Value d) {
      Value sum =
          smooth(ref.load(op.getSums(), {w, s, d}), ref.load(newSums, {s, d}));
      ref.store(sum, op.getSums(), {w, s, d});
      Value codeword = ref.divNumbers(sum, divisor);
      ref.store(ref.select(isEmpty, ref.number(0.0), codeword),
                op.getCodebook(), {w, s, d});
    });
  }

  Value getLimit() {
    return ref.number(op.getReplaceBelow().convertToDouble());
  }
  Value isDead(Value w, Value s, Value numKeys) {
    Value isRare = ref.lessNumber(ref.load(op.getCounts(), {w, s}), getLimit());
    return ref.both(isRare, ref.less(ref.index(0), numKeys));
  }

  void replaceCodeword(Value w, Value s, Value numKeys) {
    Value number = ref.add(ref.mul(w, numCodes), s);
    Value chosen =
        emitRandomBelow(ref.getBuilder(), op.getSeed(), number, numKeys);
    ref.store(getLimit(), op.getCounts(), {w, s});
    forEachKey(w, [&](ValueRange key, Value, Value number) {
      Value isChosen = ref.both(ref.lessOrEqual(number, chosen),
                                ref.lessOrEqual(chosen, number));
      ref.ifThen(isChosen, [&] {
        forEachColumn(key, [&](Value d, Value element) {
          ref.store(element, op.getCodebook(), {w, s, d});
          ref.store(ref.mulNumbers(getLimit(), element), op.getSums(),
                    {w, s, d});
        });
      });
    });
  }

  ReferenceBuilder &ref;
  CodebookUpdateOp op;
  Value numCodes, width, newSums, newCounts;
};
} // namespace

static void lowerCodebookUpdate(CodebookUpdateOp op) {
  ReferenceBuilder ref(op);
  CodebookUpdate(ref, op).emit();
  op.erase();
}

void fovea::attn::attachQuantizeToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerQuantize, lowerCodebookAccumulate,
                  lowerCodebookScan, lowerLogCount, lowerCodebookUpdate>(
      context);
}
