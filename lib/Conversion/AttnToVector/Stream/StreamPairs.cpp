//===- StreamPairs.cpp - Stages on pairs of bf16 --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// vdpbf16ps multiplies pairs of bf16 and adds both products to an f32: twice
// the work of an f32 product where it runs at full rate. Operands are laid out
// so that the two factors to be summed over are neighbours:
//
//   queryPairs[D / 2][L][2]      columns 2k and 2k + 1 of a query
//   weightPairs[keys / 2][L][2]  weights of rows 2j and 2j + 1
//   valuePairs[keys / 2][E][2]   values of rows 2j and 2j + 1
//
// Keys are read in place. The scale would cost bits in bf16: scores take it.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

static Value half(KernelBuilder &b, Value value) { return b.div(value, 2); }

void StreamKernel::clearRow(Value memref, Value row, int64_t column,
                            int64_t width) {
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(getNarrow(b, lanes)));
  b.loop(b.index(llvm::alignDown(column, lanes)), b.index(width), lanes,
         [&](Value at) {
           vector::StoreOp::create(b, zero, memref, ValueRange{row, at});
         });
}

void StreamKernel::packPairs(const RowPack &pack, Value query,
                             Value numQueries) {
  int64_t queries = tiles.getQueryLanes(), pairs = 2 * lanes;
  int64_t width = pack.width, paddedWidth = llvm::alignTo(width, pairs);
  b.loop(b.index(0), numQueries, 1, [&](Value row) {
    if (width % pairs != 0)
      clearRow(pack.staged, row, width, paddedWidth);
    b.copyRow(pack.rows, b.add(query, row), pack.staged, row, width);
  });
  b.loop(numQueries, b.extent(pack.staged, 0), 1,
         [&](Value row) { clearRow(pack.staged, row, 0, paddedWidth); });
  // A pair moves like one f32; shuffles do not look at its bits.
  b.loop(b.index(0), b.index(queries), lanes, [&](Value row) {
    b.loop(b.index(0), b.index(width), pairs, [&](Value column) {
      Values tile;
      for (int64_t i = 0; i < lanes; ++i) {
        Value part = vector::LoadOp::create(b, getNarrow(b, pairs), pack.staged,
                                            ValueRange{b.add(row, i), column});
        tile.push_back(vector::BitCastOp::create(b, b.getVectorType(), part));
      }
      Value pairRow = half(b, column);
      for (auto [i, vector] : llvm::enumerate(b.transpose(tile))) {
        Value part = vector::BitCastOp::create(b, getNarrow(b, pairs), vector);
        vector::StoreOp::create(b, part, pack.packed,
                                ValueRange{b.add(pairRow, i), b.mul(row, 2)});
      }
    });
  });
}

void StreamKernel::packValuePairs(const Segment &segment) {
  Value zero =
      arith::ConstantOp::create(b, b.getFloatAttr(b.getBF16Type(), 0.0));
  auto rowOf = [&](Value offset) {
    return segment.kind == Segment::Table ? tableRow(segment, offset)
                                          : b.add(segment.base, offset);
  };
  // The last row of an odd number is paired with zeros.
  auto packRow = [&](Value offset, bool hasSecond) {
    Value first = rowOf(offset);
    Value second = hasSecond ? rowOf(b.add(offset, 1)) : Value();
    Value target = half(b, b.add(segment.scoreRow, offset));
    b.overVectors(valueWidth, [&](Value column) {
      auto load = [&](Value row) -> Value {
        if (!row)
          return vector::BroadcastOp::create(b, getNarrow(b, lanes), zero);
        return vector::LoadOp::create(b, getNarrow(b, lanes), segment.values,
                                      ValueRange{row, column});
      };
      Value pair = vector::InterleaveOp::create(b, load(first), load(second));
      vector::StoreOp::create(b, pair, valuePairs,
                              ValueRange{target, b.mul(column, 2)});
    });
    int64_t whole = llvm::alignDown(valueWidth, lanes);
    b.loop(b.index(whole), b.index(valueWidth), 1, [&](Value tail) {
      Value at = b.mul(tail, 2);
      auto load = [&](Value row) -> Value {
        if (!row)
          return zero;
        return memref::LoadOp::create(b, segment.values, ValueRange{row, tail});
      };
      memref::StoreOp::create(b, load(first), valuePairs,
                              ValueRange{target, at});
      memref::StoreOp::create(b, load(second), valuePairs,
                              ValueRange{target, b.add(at, 1)});
    });
  };
  Value whole = b.roundDown(segment.count, 2);
  b.loop(b.index(0), whole, 2, [&](Value offset) { packRow(offset, true); });
  b.loop(whole, segment.count, 1,
         [&](Value offset) { packRow(offset, false); });
}

/// The scaled products of entries of a segment with the queries.
StreamKernel::Values StreamKernel::multiplyPairs(const Segment &segment,
                                                 Value offset, ValueRange rows,
                                                 unsigned firstVector) {
  Values products;
  if (arithmeticOf(segment) == Arithmetic::AMX) {
    products = loadRows(scores, b.add(segment.scoreRow, offset), rows.size(),
                        firstVector);
  } else {
    int64_t live = vectors - firstVector;
    Values zeros(rows.size() * live, b.splat(0.0));
    products = b.loop(
        b.index(0), b.index(width), 2, zeros, [&](Value k, ValueRange sums) {
          Values queries, next;
          for (int64_t v = firstVector; v < vectors; ++v)
            queries.push_back(vector::LoadOp::create(
                b, getNarrow(b, 2 * lanes), queryPairs,
                ValueRange{half(b, k), b.index(2 * v * lanes)}));
          for (auto [i, row] : llvm::enumerate(rows)) {
            Value key = broadcastPair(b, lanes, segment.keys, {row, k});
            for (int64_t v = 0; v < live; ++v)
              next.push_back(dotPairs(b, key, queries[v], sums[i * live + v]));
          }
          return next;
        });
  }
  Value scale = b.splat(getScoreScale());
  for (Value &product : products)
    product = b.fmul(product, scale);
  return products;
}

void StreamKernel::exponentiatePairs(const Segment &segment,
                                     const Values &maximum, Values &sum) {
  auto storePair = [&](Value row, int64_t v, Value first, Value second) {
    Value pair = vector::InterleaveOp::create(b, first, second);
    vector::StoreOp::create(b, pair, weightPairs,
                            ValueRange{half(b, row), b.index(2 * v * lanes)});
  };
  Value hidden = arith::TruncFOp::create(b, getNarrow(b, lanes),
                                         b.splat(softmax::kHidden));
  auto exponentiateRows = [&](Value low, Value high, int64_t rows) {
    sum = b.loop(low, high, rows, sum, [&](Value offset, ValueRange running) {
      Value row = b.add(segment.scoreRow, offset);
      Values next;
      for (int64_t v = 0; v < vectors; ++v) {
        Values narrow;
        Value total = running[v];
        for (int64_t i = 0; i < rows; ++i) {
          Value score =
              b.loadVector(scores, {b.add(row, i), b.index(v * lanes)});
          Value weight = softmax::exp2(b, b.fsub(score, maximum[v]));
          total = b.fadd(total, weight);
          narrow.push_back(
              arith::TruncFOp::create(b, getNarrow(b, lanes), weight));
        }
        // The last row of an odd number is paired with a hidden one.
        if (rows == 1)
          narrow.push_back(hidden);
        storePair(row, v, narrow[0], narrow[1]);
        next.push_back(total);
      }
      return next;
    });
  };
  Value whole = b.roundDown(segment.count, 2);
  exponentiateRows(b.index(0), whole, 2);
  exponentiateRows(whole, segment.count, 1);
  // So are those that fill up a tile.
  int64_t unit = getRowUnit();
  b.loop(b.roundDown(b.add(segment.count, 1), 2),
         b.roundDown(b.add(segment.count, unit - 1), unit), 2,
         [&](Value offset) {
           for (int64_t v = 0; v < vectors; ++v)
             storePair(b.add(segment.scoreRow, offset), v, hidden, hidden);
         });
}

StreamKernel::Values StreamKernel::accumulatePairs(const Segment &segment,
                                                   Value column,
                                                   int64_t numColumns,
                                                   bool onlyVisible) {
  Value low = half(b, segment.scoreRow);
  Value high = b.add(low, half(b, b.add(segment.count, 1)));
  Values zeros(numColumns * vectors, b.splat(0.0));
  return b.loop(low, high, 1, zeros, [&](Value pairRow, ValueRange sums) {
    Values weights, next;
    for (int64_t v = 0; v < vectors; ++v)
      weights.push_back(
          vector::LoadOp::create(b, getNarrow(b, 2 * lanes), weightPairs,
                                 ValueRange{pairRow, b.index(2 * v * lanes)}));
    for (int64_t c = 0; c < numColumns; ++c) {
      Value value = broadcastPair(b, lanes, valuePairs,
                                  {pairRow, b.mul(b.add(column, c), 2)});
      for (int64_t v = 0; v < vectors; ++v) {
        Value factor = value;
        if (onlyVisible)
          factor = clearHiddenHalves(weights[v], value);
        next.push_back(dotPairs(b, factor, weights[v], sums[c * vectors + v]));
      }
    }
    return next;
  });
}

/// The bits of pairs.
static Value getBits(KernelBuilder &b, Value pairs) {
  int64_t elements = cast<VectorType>(pairs.getType()).getNumElements();
  auto type = VectorType::get({elements}, b.getI16Type());
  return vector::BitCastOp::create(b, type, pairs);
}

/// The halves of `values` whose weights are not hidden, 0 for the others.
Value StreamKernel::clearHiddenHalves(Value weights, Value values) {
  Value bits = getBits(b, weights);
  auto splat = [&](const APInt &value) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<VectorType>(bits.getType()), value));
  };
  Value isHidden = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, bits,
                                         splat(APInt::getSignMask(16)));
  Value cleared = arith::SelectOp::create(
      b, isHidden, splat(APInt::getZero(16)), getBits(b, values));
  return vector::BitCastOp::create(b, values.getType(), cleared);
}

/// Gives the weights of hidden entries, which are zero, a sign.
void StreamKernel::markHiddenPairs(const Segment &segment) {
  b.loop(b.index(0), segment.count, 2, [&](Value first) {
    // The last row of an odd number has no second one.
    Value last = b.sub(segment.count, b.index(1));
    Value entries[] = {first, b.min(b.add(first, 1), last)};
    for (int64_t v = 0; v < vectors; ++v) {
      Values signs;
      for (Value entry : entries)
        signs.push_back(arith::TruncFOp::create(
            b, getNarrow(b, lanes),
            softmax::hide(b, hides(segment, entry, v), b.splat(0.0))));
      Value at[] = {half(b, b.add(segment.scoreRow, first)),
                    b.index(2 * v * lanes)};
      Value pairs = vector::LoadOp::create(b, getNarrow(b, 2 * lanes),
                                           weightPairs, ValueRange(at));
      Value sign = vector::InterleaveOp::create(b, signs[0], signs[1]);
      Value marked =
          arith::OrIOp::create(b, getBits(b, pairs), getBits(b, sign));
      vector::StoreOp::create(
          b, vector::BitCastOp::create(b, pairs.getType(), marked), weightPairs,
          ValueRange(at));
    }
  });
}
