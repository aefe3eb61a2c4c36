//===- LowerToReferenceVQ.cpp - Quantized attention as plain loops --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every query reads every token before it, one by one, but for those that came
// with the state as means.
//
//===----------------------------------------------------------------------===//

#include "ReferenceWalks.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Means and counts of old tokens, and the tokens kept.
struct State {
  explicit State(ValueRange parts)
      : mean(parts[0]), count(parts[1]), codes(parts[2]), values(parts[3]),
        position(parts[4]) {}
  Value mean, count, codes, values, position;
};

/// attn.vq or attn.vq_decode.
struct Quantized {
  Value query, codes, values, codebook, bias, output, lse;
  std::optional<State> before, after;
  int64_t block, memory;
  bool causal, padded;
  double scale;
  Weighting weighting;
  DistanceTerms distances = {};
};

class QuantizedReference {
public:
  QuantizedReference(ReferenceBuilder &ref, const Quantized &op)
      : ref(ref), op(op) {
    block = ref.index(op.block);
    reach = ref.index(op.memory * op.block);
    kept = ref.index((op.memory + 1) * op.block);
    position =
        op.before ? ref.loadIndex(op.before->position, {}) : ref.index(0);
    numTokens = ref.extent(op.values, 2);
    end = ref.add(position, numTokens);
    firstKept = startOfMemory(position);
  }

  void emit() {
    attend();
    if (op.after)
      update();
  }

private:
  /// The first token that a query at `position` reads one by one.
  Value startOfMemory(Value position) {
    Value start = ref.mul(ref.div(position, block), block);
    return ref.max(ref.sub(start, reach), ref.index(0));
  }
  /// The row that keeps token `token`.
  Value keptRow(Value token) {
    return ref.sub(token, ref.mul(ref.div(token, kept), kept));
  }
  Value codebookSet(Value keyHead) {
    bool isShared = cast<MemRefType>(op.codebook.getType()).getDimSize(0) == 1;
    return isShared ? ref.index(0) : keyHead;
  }

  void attend() {
    int64_t width = cast<MemRefType>(op.output.getType()).getDimSize(3);
    Value row = ref.allocate({width});
    ref.forEach(ref.extent(op.query, 0), [&](Value b) {
      ref.forEach(ref.extent(op.query, 1), [&](Value h) {
        Value g = ref.keyHead(op.query, op.values, h);
        ref.forEach(numTokens, [&](Value i) {
          if (op.padded)
            isPresent = hasCodeword(ref.loadIndex(op.codes, {b, g, i}));
          auto walk = [&](Value state, EntryVisitor visit) {
            return walkTokens(b, h, g, i, state, visit);
          };
          if (op.weighting == Weighting::SquaredRelu) {
            emitSquaredReluRow(ref, walk, row);
            ref.storeRow(row, op.output, {b, h, i});
            return;
          }
          Value sum = emitSoftmaxRow(ref, walk, row);
          ref.storeRow(row, op.output, {b, h, i});
          if (op.lse)
            ref.store(sum, op.lse, {b, h, i});
        });
      });
    });
  }

  Value hasCodeword(Value code) { return ref.lessOrEqual(ref.index(0), code); }

  /// Visits what query `i` of the window reads, which is nothing where it is
  /// absent.
  Value walkTokens(Value b, Value h, Value g, Value i, Value state,
                   EntryVisitor visit) {
    auto walk = [&] { return walkPresent(b, h, g, i, state, visit); };
    return op.padded ? ref.when(isPresent, walk, state) : walk();
  }

  Value walkPresent(Value b, Value h, Value g, Value i, Value state,
                    EntryVisitor visit) {
    auto score = [&](Value code) {
      Value product =
          ref.dot(op.query, {b, h, i}, op.codebook, {codebookSet(g), code});
      return ref.mulNumbers(ref.number(op.scale), product);
    };
    // Column 0 of the bias is the first token of the memory, which may lie
    // before the sequence.
    Value query = ref.add(position, i);
    Value biasBegin = ref.sub(ref.mul(ref.div(query, block), block), reach);
    auto visitToken = [&](Value token, Value codes, Value values, Value row,
                          Value state) -> Value {
      auto visitPresent = [&](Value bias) -> Value {
        Value total = score(ref.loadIndex(codes, {b, g, row}));
        if (bias)
          total = ref.addNumbers(total, bias);
        auto value = [&](Value column) {
          return ref.load(values, {b, g, row, column});
        };
        return visit({total, /*logWeight=*/Value(), value}, state);
      };
      auto visitUnlessAbsent = [&](Value bias) -> Value {
        if (!op.padded)
          return visitPresent(bias);
        return ref.when(
            hasCodeword(ref.loadIndex(codes, {b, g, row})),
            [&] { return visitPresent(bias); }, state);
      };
      if (!op.bias && !op.distances)
        return visitUnlessAbsent(Value());
      Value column = ref.sub(token, biasBegin);
      Value isNear = ref.lessOrEqual(ref.index(0), column);
      Value bias = ref.when(
          isNear,
          [&]() -> Value {
            Value term;
            if (op.distances)
              term = op.distances.load(ref, op.query, b, h, i,
                                       ref.sub(query, token));
            if (!op.bias)
              return term;
            Value given = ref.loadBroadcast(op.bias, {b, h, i, column});
            return term ? ref.addNumbers(given, term) : given;
          },
          ref.number(0.0));
      return ref.when(
          ref.isNotMinusInfinity(bias), [&] { return visitUnlessAbsent(bias); },
          state);
    };

    if (op.before) {
      Value codes = ref.extent(op.codebook, 1);
      state =
          ref.accumulate(ref.index(0), codes, state, [&](Value s, Value state) {
            Value count = ref.loadIndex(op.before->count, {b, g, s});
            auto value = [&](Value column) {
              return ref.load(op.before->mean, {b, g, s, column});
            };
            return ref.when(
                ref.less(ref.index(0), count),
                [&] { return visit({score(s), ref.log(count), value}, state); },
                state);
          });
      state = ref.accumulate(
          firstKept, position, state, [&](Value token, Value state) {
            return visitToken(token, op.before->codes, op.before->values,
                              keptRow(token), state);
          });
    }
    Value last = op.causal ? ref.add(i, ref.index(1)) : numTokens;
    return ref.accumulate(
        ref.index(0), last, state, [&](Value token, Value state) {
          return visitToken(ref.add(position, token), op.codes, op.values,
                            token, state);
        });
  }

  void update() {
    const State &after = *op.after;
    bool isSame = op.before && op.before->mean == after.mean;
    auto type = cast<MemRefType>(after.mean.getType());
    Value means = ref.allocate({type.getDimSize(2), type.getDimSize(3)});
    Value columns = ref.extent(op.values, 3);
    auto initial = [&](auto load) {
      return op.before ? load() : ref.number(0.0);
    };
    ref.forEach(ref.extent(op.values, 0), [&](Value b) {
      ref.forEach(ref.extent(op.values, 1), [&](Value g) {
        ref.forEach(ref.extent(op.codebook, 1), [&](Value s) {
          if (!isSame) {
            Value count = op.before ? ref.loadIndex(op.before->count, {b, g, s})
                                    : ref.index(0);
            ref.storeIndex(count, after.count, {b, g, s});
          }
          ref.forEach(columns, [&](Value e) {
            Value mean = initial(
                [&] { return ref.load(op.before->mean, {b, g, s, e}); });
            ref.store(mean, means, {s, e});
          });
        });
        takeOldTokens(b, g, means);
        ref.forEach(ref.extent(op.codebook, 1), [&](Value s) {
          ref.forEach(columns, [&](Value e) {
            ref.store(ref.load(means, {s, e}), after.mean, {b, g, s, e});
          });
        });
        keepTokens(b, g, isSame);
      });
    });
    ref.storeIndex(end, after.position, {});
  }

  /// Takes the tokens that are older than those kept from now on.
  void takeOldTokens(Value b, Value g, Value means) {
    auto take = [&](Value codes, Value values, Value row) {
      Value s = ref.loadIndex(codes, {b, g, row});
      if (op.padded)
        return ref.ifThen(hasCodeword(s),
                          [&] { takeToken(b, g, means, s, values, row); });
      takeToken(b, g, means, s, values, row);
    };
    Value limit = startOfMemory(end);
    if (op.before)
      ref.forEach(firstKept, ref.min(position, limit), [&](Value token) {
        take(op.before->codes, op.before->values, keptRow(token));
      });
    ref.forEach(position, limit, [&](Value token) {
      take(op.codes, op.values, ref.sub(token, position));
    });
  }

  void takeToken(Value b, Value g, Value means, Value s, Value values,
                 Value row) {
    Value columns = ref.extent(op.values, 3);
    Value count =
        ref.add(ref.loadIndex(op.after->count, {b, g, s}), ref.index(1));
    ref.storeIndex(count, op.after->count, {b, g, s});
    Value divisor = ref.toNumber(count);
    ref.forEach(columns, [&](Value e) {
      Value old = ref.load(means, {s, e});
      Value step = ref.divNumbers(
          ref.subNumbers(ref.load(values, {b, g, row, e}), old), divisor);
      // The mean of nothing is not read: it may be anything.
      Value isFirst = ref.less(count, ref.index(2));
      ref.store(ref.select(isFirst, ref.load(values, {b, g, row, e}),
                           ref.addNumbers(old, step)),
                means, {s, e});
    });
  }

  void keepTokens(Value b, Value g, bool isSame) {
    Value columns = ref.extent(op.values, 3);
    if (!isSame)
      ref.forEach(kept, [&](Value row) {
        ref.storeIndex(op.before ? ref.loadIndex(op.before->codes, {b, g, row})
                                 : ref.index(0),
                       op.after->codes, {b, g, row});
        ref.forEach(columns, [&](Value e) {
          ref.store(op.before ? ref.load(op.before->values, {b, g, row, e})
                              : ref.number(0.0),
                    op.after->values, {b, g, row, e});
        });
      });
    Value first = ref.max(ref.sub(numTokens, kept), ref.index(0));
    ref.forEach(first, numTokens, [&](Value token) {
      Value row = keptRow(ref.add(position, token));
      ref.storeIndex(ref.loadIndex(op.codes, {b, g, token}), op.after->codes,
                     {b, g, row});
      ref.forEach(columns, [&](Value e) {
        ref.store(ref.load(op.values, {b, g, token, e}), op.after->values,
                  {b, g, row, e});
      });
    });
  }

  ReferenceBuilder &ref;
  const Quantized &op;
  Value block, reach, kept, position, numTokens, end, firstKept;
  /// Of the query, where tokens may be absent.
  Value isPresent;
};
} // namespace

static void lowerVQ(VQOp op) {
  ReferenceBuilder ref(op);
  Quantized parts = {op.getQuery(),
                     op.getCodes(),
                     op.getValue(),
                     op.getCodebook(),
                     op.getBias(),
                     op.getOutput(),
                     op.getLse(),
                     std::nullopt,
                     std::nullopt,
                     static_cast<int64_t>(op.getBlock()),
                     static_cast<int64_t>(op.getMemory()),
                     op.getCausal(),
                     op.getPadded(),
                     op.getScale().convertToDouble(),
                     op.getWeighting(),
                     {op.getRelativeKeys(), op.getRelativeBias(),
                      op.getDistanceBias(), op.getScale().convertToDouble()}};
  if (!op.getState().empty())
    parts.before.emplace(op.getState());
  if (!op.getNextState().empty())
    parts.after.emplace(op.getNextState());
  QuantizedReference(ref, parts).emit();
  op.erase();
}

static void lowerVQDecode(VQDecodeOp op) {
  ReferenceBuilder ref(op);
  State state(op.getState());
  Quantized parts = {op.getQuery(),
                     op.getCodes(),
                     op.getValue(),
                     op.getCodebook(),
                     op.getBias(),
                     op.getOutput(),
                     /*lse=*/Value(),
                     state,
                     state,
                     static_cast<int64_t>(op.getBlock()),
                     static_cast<int64_t>(op.getMemory()),
                     /*causal=*/true,
                     op.getPadded(),
                     op.getScale().convertToDouble(),
                     op.getWeighting(),
                     {op.getRelativeKeys(), op.getRelativeBias(),
                      op.getDistanceBias(), op.getScale().convertToDouble()}};
  QuantizedReference(ref, parts).emit();
  op.erase();
}

void fovea::attn::attachVQToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerVQ, lowerVQDecode>(context);
}
