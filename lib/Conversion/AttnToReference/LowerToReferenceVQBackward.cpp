//===- LowerToReferenceVQBackward.cpp - Its gradient as plain loops -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every query passes something on to every token before it, one by one, but for
// those that came with the state as means.
//
//===----------------------------------------------------------------------===//

#include "ReferenceWalks.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// A query: where it is, and the token at column 0 of its bias, which may lie
/// before the sequence.
struct Query {
  Value batch, head, keyHead, row, biasBegin, delta;
};

/// Something that a query reads: a row of values with its code, and where its
/// gradients go. Buffers of gradients that nobody wants are null.
struct Entry {
  Value code, values, row, dKeys, dValues;
  /// The number of its tokens, null for one.
  Value count = {};
  /// The token, null where it is not read one by one.
  Value token = {};
};

class QuantizedGradient {
  /// What to do with a token that goes to a mean: its code, and the row of the
  /// gradients for values that it has.
  using TakenBody = function_ref<void(Value code, Value row, Value gradients)>;

public:
  QuantizedGradient(ReferenceBuilder &ref, VQBackwardOp op)
      : ref(ref), op(op), zero(ref.index(0)), block(ref.index(op.getBlock())),
        reach(ref.index(op.getMemory() * op.getBlock())),
        kept(ref.index((op.getMemory() + 1) * op.getBlock())),
        numTokens(ref.extent(op.getQuery(), 2)) {
    position = hasState() ? ref.loadIndex(op.getState()[4], {}) : zero;
    firstKept = startOfMemory(position);
  }

  void emit() {
    SmallVector<Value> sums;
    for (Value gradient : op.getDpsInits())
      sums.push_back(ref.allocateZeros(gradient));
    dQuery = sums[0];
    dKey = sums[1];
    dValue = sums[2];
    unsigned next = 3;
    if (op.getDBias())
      dBias = sums[next++];
    if (op.getDRelativeKeys()) {
      dRelativeKeys = sums[next++];
      dRelativeBias = sums[next++];
    }
    if (op.getDDistanceBias())
      dDistanceBias = sums[next++];
    if (!op.getDState().empty())
      dState.assign(sums.end() - 3, sums.end());
    else
      dState.assign(3, Value());
    attend();
    if (!op.getDNextState().empty())
      passNextState();
    for (auto [sum, gradient] : llvm::zip_equal(sums, op.getDpsInits()))
      ref.storeAll(sum, gradient);
  }

private:
  bool hasState() { return !op.getState().empty(); }
  bool isSoftmax() { return op.getWeighting() == Weighting::Softmax; }

  /// `body(code)` for the code at `at`, unless its token is absent.
  void ifPresent(Value codes, ValueRange at, function_ref<void(Value)> body) {
    Value code = ref.loadIndex(codes, at);
    if (!op.getPadded())
      return body(code);
    ref.ifThen(ref.lessOrEqual(zero, code), [&] { body(code); });
  }

  /// The first token that a query at `token` reads one by one.
  Value startOfMemory(Value token) {
    Value start = ref.mul(ref.div(token, block), block);
    return ref.max(ref.sub(start, reach), zero);
  }
  /// The row that keeps token `token`.
  Value keptRow(Value token) {
    return ref.sub(token, ref.mul(ref.div(token, kept), kept));
  }
  void addTo(Value buffer, ValueRange at, Value number) {
    if (buffer)
      ref.addTo(buffer, at, number);
  }
  void attend() {
    ref.forEach(ref.extent(op.getQuery(), 0), [&](Value b) {
      ref.forEach(ref.extent(op.getQuery(), 1), [&](Value h) {
        Value g = ref.keyHead(op.getQuery(), op.getValue(), h);
        ref.forEach(numTokens, [&](Value i) {
          Value start = ref.mul(ref.div(ref.add(position, i), block), block);
          ifPresent(op.getCodes(), {b, g, i}, [&](Value) {
            emitRow({b, h, g, i, ref.sub(start, reach), emitDelta(b, h, i)});
          });
        });
      });
    });
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

  /// All that a query reads.
  void emitRow(const Query &at) {
    Value b = at.batch, g = at.keyHead;
    if (hasState()) {
      OperandRange state = op.getState();
      ref.forEach(ref.extent(op.getCodebook(), 1), [&](Value code) {
        Value count = ref.loadIndex(state[1], {b, g, code});
        // Codewords of no token have no mean.
        ref.ifThen(ref.less(zero, count), [&] {
          emitEntry(at, {code, state[0], code, /*dKeys=*/Value(), dState[0],
                         ref.toNumber(count)});
        });
      });
      ref.forEach(firstKept, position, [&](Value token) {
        Value row = keptRow(token);
        ifPresent(state[2], {b, g, row}, [&](Value code) {
          emitEntry(at, {code, state[3], row, dState[1], dState[2],
                         /*count=*/Value(), token});
        });
      });
    }
    Value last = op.getCausal() ? ref.add(at.row, ref.index(1)) : numTokens;
    ref.forEach(zero, last, [&](Value row) {
      Value token = op.getCausal() ? ref.add(position, row) : Value();
      ifPresent(op.getCodes(), {b, g, row}, [&](Value code) {
        emitEntry(at, {code, op.getValue(), row, dKey, dValue,
                       /*count=*/Value(), token});
      });
    });
  }

  /// P and dS of an entry with that score.
  std::pair<Value, Value> emitWeight(const Query &at, const Entry &entry,
                                     Value score, Value dProduct) {
    Value weight, dScore;
    if (isSoftmax()) {
      Value lse = ref.load(op.getLse(), {at.batch, at.head, at.row});
      // A row that reads nothing passes nothing on.
      weight = ref.select(ref.isMinusInfinity(lse), ref.number(0.0),
                          ref.exp(ref.subNumbers(score, lse)));
      dScore = ref.mulNumbers(weight, ref.subNumbers(dProduct, at.delta));
    } else {
      Value positive = ref.maxNumbers(score, ref.number(0.0));
      weight = ref.mulNumbers(positive, positive);
      dScore = ref.mulNumbers(ref.addNumbers(positive, positive), dProduct);
    }
    if (entry.count) {
      weight = ref.mulNumbers(weight, entry.count);
      dScore = ref.mulNumbers(dScore, entry.count);
    }
    return {weight, dScore};
  }

  void emitEntry(const Query &at, const Entry &entry) {
    if (!op.hasLocalTerms() || !entry.token)
      return emitEntry(at, entry, /*bias=*/Value());
    Value column = ref.sub(entry.token, at.biasBegin);
    Value bias = ref.when(
        ref.lessOrEqual(zero, column),
        [&]() -> Value {
          Value term;
          if (op.hasDistances())
            term = DistanceTerms{op.getRelativeKeys(), op.getRelativeBias(),
                                 op.getDistanceBias(),
                                 op.getScale().convertToDouble()}
                       .load(ref, op.getQuery(), at.batch, at.head, at.row,
                             getDistance(at, entry));
          if (!op.getBias())
            return term;
          Value given = ref.loadBroadcast(op.getBias(),
                                          {at.batch, at.head, at.row, column});
          return term ? ref.addNumbers(given, term) : given;
        },
        ref.number(0.0));
    ref.ifThen(ref.isNotMinusInfinity(bias),
               [&] { emitEntry(at, entry, bias); });
  }

  Value getDistance(const Query &at, const Entry &entry) {
    return ref.sub(ref.add(position, at.row), entry.token);
  }

  /// Adds the gradients of terms by distance, of an entry read one by one.
  void addToDistances(const Query &at, const Entry &entry, Value dScore,
                      Value scaled) {
    Value distance = getDistance(at, entry);
    auto headOf = [&](Value terms) {
      return cast<MemRefType>(terms.getType()).getDimSize(0) == 1 ? zero
                                                                  : at.head;
    };
    if (dDistanceBias)
      ref.addTo(dDistanceBias, {headOf(dDistanceBias), distance}, dScore);
    if (!op.getRelativeKeys())
      return;
    ref.forEach(ref.extent(op.getQuery(), 3), [&](Value d) {
      Value key =
          ref.loadBroadcast(op.getRelativeKeys(), {at.head, distance, d});
      Value change = ref.mulNumbers(scaled, key);
      addTo(dQuery, {at.batch, at.head, at.row, d}, change);
      if (!dRelativeKeys)
        return;
      Value query = ref.addNumbers(
          ref.load(op.getQuery(), {at.batch, at.head, at.row, d}),
          ref.loadBroadcast(op.getRelativeBias(), {at.head, d}));
      ref.addTo(dRelativeKeys, {headOf(dRelativeKeys), distance, d},
                ref.mulNumbers(scaled, query));
      ref.addTo(dRelativeBias, {headOf(dRelativeBias), d}, change);
    });
  }

  /// An entry that is read.
  void emitEntry(const Query &at, const Entry &entry, Value bias) {
    Value b = at.batch, h = at.head, g = at.keyHead, i = at.row;
    bool isShared =
        cast<MemRefType>(op.getCodebook().getType()).getDimSize(0) == 1;
    Value word[] = {isShared ? zero : g, entry.code};
    Value scale = ref.number(op.getScale().convertToDouble());
    Value score = ref.mulNumbers(
        scale, ref.dot(op.getQuery(), {b, h, i}, op.getCodebook(), word));
    Value column, isNear;
    if (entry.token) {
      column = ref.sub(entry.token, at.biasBegin);
      isNear = ref.lessOrEqual(zero, column);
      column = ref.max(column, zero);
    }
    if (bias)
      score = ref.addNumbers(score, bias);
    Value dProduct =
        ref.dot(op.getDOutput(), {b, h, i}, entry.values, {b, g, entry.row});
    auto [weight, dScore] = emitWeight(at, entry, score, dProduct);

    ref.forEach(ref.extent(op.getValue(), 3), [&, weight = weight](Value e) {
      Value dOutput = ref.load(op.getDOutput(), {b, h, i, e});
      addTo(entry.dValues, {b, g, entry.row, e},
            ref.mulNumbers(weight, dOutput));
    });
    Value scaled = ref.mulNumbers(scale, dScore);
    ref.forEach(ref.extent(op.getQuery(), 3), [&](Value d) {
      Value c = ref.load(op.getCodebook(), {word[0], word[1], d});
      addTo(dQuery, {b, h, i, d}, ref.mulNumbers(scaled, c));
    });
    if (!isNear)
      return;
    ref.ifThen(isNear, [&, dScore = dScore] {
      addTo(dBias, {b, h, i, column}, dScore);
      addToDistances(at, entry, dScore, scaled);
      if (!entry.dKeys)
        return;
      ref.forEach(ref.extent(op.getQuery(), 3), [&](Value d) {
        Value q = ref.load(op.getQuery(), {b, h, i, d});
        addTo(entry.dKeys, {b, g, entry.row, d}, ref.mulNumbers(scaled, q));
      });
    });
  }

  /// Adds what the state after the window passes back.
  void passNextState() {
    Value end = ref.add(position, numTokens);
    Value limit = startOfMemory(end);
    Value counts = ref.allocate(
        {cast<MemRefType>(op.getCodebook().getType()).getDimSize(1)});
    ref.forEach(ref.extent(op.getValue(), 0), [&](Value b) {
      ref.forEach(ref.extent(op.getValue(), 1), [&](Value g) {
        // Tokens kept, and those of the window, that go to the means.
        auto forEachTaken = [&](TakenBody body) {
          auto take = [&](Value codes, Value row, Value dValues) {
            ifPresent(codes, {b, g, row},
                      [&](Value code) { body(code, row, dValues); });
          };
          if (hasState())
            ref.forEach(firstKept, ref.min(position, limit), [&](Value token) {
              take(op.getState()[2], keptRow(token), dState[2]);
            });
          ref.forEach(position, limit, [&](Value token) {
            take(op.getCodes(), ref.sub(token, position), dValue);
          });
        };
        passMeans(b, g, counts, forEachTaken);
        passKept(b, g);
      });
    });
  }

  void passMeans(Value b, Value g, Value counts,
                 function_ref<void(TakenBody)> forEachTaken) {
    auto initialCount = [&](Value code) {
      return hasState()
                 ? ref.toNumber(ref.loadIndex(op.getState()[1], {b, g, code}))
                 : ref.number(0.0);
    };
    Value numCodes = ref.extent(op.getCodebook(), 1);
    ref.forEach(numCodes, [&](Value code) {
      ref.store(initialCount(code), counts, {code});
    });
    forEachTaken([&](Value code, Value, Value) {
      ref.addTo(counts, {code}, ref.number(1.0));
    });
    auto pass = [&](Value code, Value tokens, Value row, Value gradient) {
      Value count = ref.maxNumbers(ref.load(counts, {code}), ref.number(1.0));
      Value share = ref.divNumbers(tokens, count);
      ref.forEach(ref.extent(op.getValue(), 3), [&](Value e) {
        Value dMean = ref.load(op.getDNextState()[0], {b, g, code, e});
        addTo(gradient, {b, g, row, e}, ref.mulNumbers(dMean, share));
      });
    };
    forEachTaken([&](Value code, Value row, Value gradient) {
      pass(code, ref.number(1.0), row, gradient);
    });
    if (!dState[0])
      return;
    ref.forEach(numCodes, [&](Value code) {
      Value count = initialCount(code);
      ref.ifThen(ref.lessNumber(ref.number(0.0), count),
                 [&] { pass(code, count, code, dState[0]); });
    });
  }

  /// Rows of the state that the window leaves as they were pass their gradients
  /// on.
  void passKept(Value b, Value g) {
    for (auto [next, window, state] :
         {std::tuple(op.getDNextState()[1], dKey, dState[1]),
          std::tuple(op.getDNextState()[2], dValue, dState[2])}) {
      auto pass = [&, next = next](Value codes, Value gradient, Value row,
                                   Value nextRow) {
        ifPresent(codes, {b, g, row}, [&](Value) {
          ref.forEach(ref.extent(next, 3), [&](Value column) {
            addTo(gradient, {b, g, row, column},
                  ref.load(next, {b, g, nextRow, column}));
          });
        });
      };
      Value first = ref.max(ref.sub(numTokens, kept), zero);
      ref.forEach(first, numTokens, [&, window = window](Value row) {
        pass(op.getCodes(), window, row, keptRow(ref.add(position, row)));
      });
      if (!hasState())
        continue;
      ref.forEach(numTokens, kept, [&, state = state](Value age) {
        Value row = keptRow(ref.add(position, age));
        pass(op.getState()[2], state, row, row);
      });
    }
  }

  ReferenceBuilder &ref;
  VQBackwardOp op;
  Value zero, block, reach, kept, numTokens, position, firstKept;
  Value dQuery, dKey, dValue, dBias, dRelativeKeys, dRelativeBias,
      dDistanceBias;
  SmallVector<Value> dState;
};
} // namespace

static void lowerVQBackward(VQBackwardOp op) {
  ReferenceBuilder ref(op);
  QuantizedGradient(ref, op).emit();
  op.erase();
}

void fovea::attn::attachVQBackwardToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerVQBackward>(context);
}
