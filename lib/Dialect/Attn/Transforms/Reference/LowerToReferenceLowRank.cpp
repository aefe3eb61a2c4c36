//===- LowerToReferenceLowRank.cpp - Low-rank ops as plain loops ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Calls `body` for every row `[b, h, n]` of `rows`.
static void forEachRow(ReferenceBuilder &ref, Value rows,
                       llvm::function_ref<void(Value, Value, Value)> body) {
  ref.forEach(ref.extent(rows, 0), [&](Value b) {
    ref.forEach(ref.extent(rows, 1), [&](Value h) {
      ref.forEach(ref.extent(rows, 2), [&](Value n) { body(b, h, n); });
    });
  });
}

//===----------------------------------------------------------------------===//
// RopeOp
//===----------------------------------------------------------------------===//

/// Turns pairs of columns of `input` by their angles; back if `sign` is -1.
template <typename OpTy>
static void emitTurns(OpTy op, Value input, Value output, double sign) {
  ReferenceBuilder ref(op);
  int64_t width = cast<MemRefType>(input.getType()).getDimSize(3);
  double base = op.getBase().convertToDouble();
  Value frequencies = ref.allocate({width / 2});
  for (int64_t i = 0; i < width / 2; ++i)
    ref.store(ref.number(sign * std::pow(base, -2.0 * i / width)), frequencies,
              ref.index(i));
  forEachRow(ref, input, [&](Value b, Value h, Value n) {
    Value positions = op.getPositions();
    Value position = ref.toNumber(
        ref.loadIndex(positions, ref.broadcastIndices(positions, {b, h, n})));
    ref.forEach(ref.index(width / 2), [&](Value i) {
      Value angle = ref.mulNumbers(position, ref.load(frequencies, i));
      Value cosine = ref.cos(angle), sine = ref.sin(angle);
      Value even = ref.mul(i, ref.index(2)), odd = ref.add(even, ref.index(1));
      Value x = ref.load(input, {b, h, n, even});
      Value y = ref.load(input, {b, h, n, odd});
      ref.store(
          ref.subNumbers(ref.mulNumbers(x, cosine), ref.mulNumbers(y, sine)),
          output, {b, h, n, even});
      ref.store(
          ref.addNumbers(ref.mulNumbers(x, sine), ref.mulNumbers(y, cosine)),
          output, {b, h, n, odd});
    });
  });
  op.erase();
}

void fovea::attn::lowerToReference(RopeOp op) {
  emitTurns(op, op.getInput(), op.getOutput(), /*sign=*/1.0);
}

void fovea::attn::lowerToReference(RopeBackwardOp op) {
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

void fovea::attn::lowerToReference(PolynomialFeaturesOp op) {
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

namespace {
/// Says which columns the rows of one head keep, row after row.
class MaskRows {
public:
  MaskRows(ReferenceBuilder &ref, LowRankOp op)
      : ref(ref), op(op), numRows(ref.extent(op.getU1(), 2)),
        numColumns(ref.extent(op.getU2(), 2)) {
    if (op.getMask() == RowMask::RowChange) {
      auto type = cast<MemRefType>(op.getU2().getType());
      SmallVector<Value> dynamicExtents;
      if (type.isDynamicDim(2))
        dynamicExtents.push_back(numColumns);
      present = ref.allocate({type.getDimSize(2)}, dynamicExtents);
    }
  }

  void beginHead(Value b, Value h) {
    batch = b;
    head = h;
    if (present)
      ref.forEach(numColumns,
                  [&](Value j) { ref.store(ref.number(0.0), present, j); });
  }

  /// Rows begin in their order.
  void beginRow(Value i) {
    row = i;
    if (!present)
      return;
    Value one = ref.index(1), zero = ref.index(0);
    Value before = ref.max(ref.sub(i, one), zero);
    Value begin = ref.select(ref.less(zero, i), loadPart(0, before), zero);
    ref.forEach(begin, loadPart(0, i), [&](Value change) {
      Value column = loadPart(1, change);
      Value old = ref.load(present, column);
      ref.store(ref.subNumbers(ref.number(1.0), old), present, column);
    });
  }

  /// Whether the present row keeps column `j`.
  Value keeps(Value j) {
    switch (op.getMask()) {
    case RowMask::Causal:
      return ref.lessOrEqual(ref.add(j, numRows), ref.add(row, numColumns));
    case RowMask::RowChange:
      return ref.lessNumber(ref.number(0.5), ref.load(present, j));
    case RowMask::RowInterval:
      return ref.both(ref.lessOrEqual(loadPart(0, row), j),
                      ref.lessOrEqual(j, loadPart(1, row)));
    case RowMask::DistinctRows:
      return loadEntry(loadPart(0, row), j);
    case RowMask::DistinctColumns:
      return loadEntry(loadPart(0, j), row);
    }
    llvm_unreachable("unknown mask");
  }

private:
  Value loadPart(unsigned part, Value position) {
    Value buffer = op.getMaskParts()[part];
    SmallVector<Value> at =
        ref.broadcastIndices(buffer, ValueRange{batch, head});
    at.push_back(position);
    return ref.loadIndex(buffer, at);
  }
  Value loadEntry(Value group, Value position) {
    Value buffer = op.getMaskParts()[1];
    SmallVector<Value> at =
        ref.broadcastIndices(buffer, ValueRange{batch, head});
    at.append({group, position});
    return ref.loadCondition(buffer, at);
  }

  ReferenceBuilder &ref;
  LowRankOp op;
  Value numRows, numColumns, batch, head, row;
  /// 1 for every column that is there, under row_change.
  Value present;
};
} // namespace

void fovea::attn::lowerToReference(LowRankOp op) {
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
