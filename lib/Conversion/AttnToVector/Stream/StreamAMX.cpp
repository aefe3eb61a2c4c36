//===- StreamAMX.cpp - Products of bf16 by AMX ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums stay transposed, so both right factors of products (PairProduct.h) are
// those of StreamPairs.cpp:
//
//   S[key][L]     = keys[key][D] queryPairs[D / 2][L][2]
//   OT[column][L] = values[column][keys] weightPairs[keys / 2][L][2]
//
// The left factors are copies of rows, 32 at a time: keys as they are, values
// transposed, and zeros where a tile is not full. Blocks of queries of one task
// share them where they read one range. Entries beyond the last row of a
// segment, which may be rows of the next one, have hidden weights.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows are queries, keys or columns of values.
static constexpr int64_t kRows = kAMXRows, kDepth = kAMXDepth;

Value fovea::attn::clearSpecials(KernelBuilder &b, Value narrow) {
  // All ones in the exponent: an infinity or a NaN.
  auto type = cast<VectorType>(narrow.getType()).clone(b.getI16Type());
  Value exponent = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, APInt(16, 0x7f80)));
  Value bits = vector::BitCastOp::create(b, type, narrow);
  Value isFinite =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                            arith::AndIOp::create(b, bits, exponent), exponent);
  return arith::SelectOp::create(
      b, isFinite, narrow,
      arith::ConstantOp::create(b, b.getZeroAttr(narrow.getType())));
}

void StreamKernel::allocateForAMX(int64_t rows) {
  Type bf16 = b.getBF16Type();
  int64_t paddedWidth = llvm::alignTo(width, kDepth);
  int64_t columns = llvm::alignTo(valueWidth, kRows);
  // Rows of transposed values are an odd number of cache lines apart, so that
  // those of a tile lie in different sets of the cache.
  int64_t pitch = llvm::alignDown(rows, 2 * kDepth) + kDepth;
  amxValues = b.scratch({columns, std::max(pitch, rows + kDepth)}, bf16);
  amxRows = b.scratch({kDepth, columns}, bf16);
  amxSums = b.scratch({columns, tiles.getQueryLanes()}, b.getStateType());
  if (!packsRows()) {
    amxKeys = b.scratch({rows, paddedWidth}, bf16);
    return;
  }
  // Tiles reach beyond the last row.
  Value numRows = b.add(
      b.mul(b.ceilDiv(b.add(getNumCopies(), kDepth), 2 * kDepth), 2 * kDepth),
      kDepth);
  packed = {b.scratch(numRows, {paddedWidth}, bf16),
            b.scratch({b.index(columns), numRows}, {}, bf16),
            b.scratch({1}, b.getIndexType())};
}

//===----------------------------------------------------------------------===//
// Left factors
//===----------------------------------------------------------------------===//

void StreamKernel::packForAMX(const AMXRows &rows,
                              function_ref<Value(Value)> rowOf, Value count,
                              Value target) {
  int64_t paddedWidth = llvm::alignTo(width, kDepth);
  int64_t columns = llvm::alignTo(valueWidth, kRows);
  b.loop(b.index(0), count, 1, [&](Value i) {
    Value row = rowOf(i), to = b.add(target, i);
    if (width != paddedWidth)
      clearRow(rows.packedKeys, to, width, paddedWidth);
    b.copyRow(rows.keys, row, rows.packedKeys, to, width);
    b.copyRow(rows.values, row, amxRows, i, valueWidth);
  });
  b.loop(count, b.index(kDepth), 1, [&](Value i) {
    clearRow(rows.packedKeys, b.add(target, i), 0, paddedWidth);
    clearRow(amxRows, i, 0, columns);
  });
  transposeForAMX(amxRows, b.index(0), columns, rows.packedValues, target);
}

void StreamKernel::transposeForAMX(Value rows, Value row, int64_t columns,
                                   Value packed, Value target, bool clears) {
  // A pair moves like one f32; shuffles do not look at its bits.
  b.loop(b.index(0), b.index(columns), lanes, [&](Value column) {
    Values tile;
    for (int64_t i = 0; i < kDepth; i += 2) {
      auto load = [&](int64_t next) -> Value {
        return vector::LoadOp::create(b, getNarrow(b, lanes), rows,
                                      ValueRange{b.add(row, next), column});
      };
      Value pairs = vector::InterleaveOp::create(b, load(i), load(i + 1));
      tile.push_back(vector::BitCastOp::create(b, b.getVectorType(), pairs));
    }
    for (auto [i, vector] : llvm::enumerate(b.transpose(tile))) {
      Value turned = vector::BitCastOp::create(b, getNarrow(b, kDepth), vector);
      vector::StoreOp::create(b, clears ? clearSpecials(b, turned) : turned,
                              packed, ValueRange{b.add(column, i), target});
    }
  });
}

/// Copies a segment's rows, or those of them that no block has copied before.
StreamKernel::Segment StreamKernel::stageForAMX(Segment segment) {
  const SourceView &source = sources[segment.source];
  if (packsRows()) {
    Value zero = b.index(0);
    Value copied = memref::LoadOp::create(b, packed.end, zero);
    // A later block may read the rows of tiles that this one skips.
    Value begin = skipsTiles() ? copied : b.max(copied, segment.base);
    Value end = b.add(segment.base, alignToDepth(b, segment.count));
    AMXRows rows = {source.spreadKeys, source.spreadValues, packed.keys,
                    packed.values};
    b.loop(begin, end, kDepth, [&](Value row) {
      Value first = b.add(row, window->shift);
      Value count = b.clamp(b.sub(source.rows, first), zero, b.index(kDepth));
      packForAMX(rows, [&](Value i) { return b.add(first, i); }, count, row);
    });
    Value length = b.max(b.sub(end, begin), zero);
    end = b.max(copied, b.add(begin, alignToDepth(b, length)));
    memref::StoreOp::create(b, end, packed.end, zero);
    return segment;
  }
  AMXRows rows = {segment.keys, segment.values, amxKeys, amxValues};
  b.loop(b.index(0), segment.count, kDepth, [&](Value offset) {
    auto rowOf = [&](Value i) {
      Value entry = b.add(offset, i);
      return segment.kind == Segment::Table ? tableRow(segment, entry)
                                            : b.add(segment.base, entry);
    };
    packForAMX(rows, rowOf, b.min(b.sub(segment.count, offset), kDepth),
               b.add(segment.scoreRow, offset));
  });
  segment.keys = amxKeys;
  segment.values = amxValues;
  segment.base = segment.scoreRow;
  return segment;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The products of a segment's keys and the queries.
void StreamKernel::scoreByAMX(const Segment &segment) {
  PairProduct product;
  product.left = segment.keys;
  product.leftRow = segment.base;
  product.leftColumn = product.rightRow = b.index(0);
  product.right = queryPairs;
  product.sums = scores;
  product.sumsRow = segment.scoreRow;
  product.numRows = alignToDepth(b, segment.count);
  product.numColumns = b.index(tiles.getQueryLanes());
  product.depth = b.index(llvm::alignTo(width, kDepth));
  product.emit(b);
}

/// The product with a segment's values.
void StreamKernel::accumulateByAMX(const Segment &segment) {
  PairProduct product;
  product.left = segment.values;
  product.leftRow = product.sumsRow = b.index(0);
  product.leftColumn = segment.base;
  product.right = weightPairs;
  product.rightRow = b.div(segment.scoreRow, 2);
  product.sums = amxSums;
  product.numRows = b.index(llvm::alignTo(valueWidth, kRows));
  product.numColumns = b.index(tiles.getQueryLanes());
  product.depth = alignToDepth(b, segment.count);
  product.emit(b);
  // Rows beyond the last one are zeros, unless they are rows of the source.
  bool hides = mayHide(segment);
  if (!hides && !packsRows())
    return;
  Value isRagged = b.less(segment.count, product.depth);
  auto test = [&] {
    Values sums = b.loop(
        b.index(0), b.index(valueWidth), 1, Values(vectors, b.splat(0.0)),
        [&](Value column, ValueRange running) {
          Values next;
          for (int64_t v = 0; v < vectors; ++v)
            next.push_back(
                b.fma(b.loadVector(amxSums, {column, b.index(v * lanes)}),
                      b.splat(0.0), running[v]));
          return next;
        });
    softmax::unlessFinite(b, sums, [&] {
      if (hides)
        markHidden(segment);
      multiplyVisible(segment, product);
      return sums;
    });
  };
  if (hides)
    test();
  else
    b.ifThen(isRagged, test);
}

//===----------------------------------------------------------------------===//
// Entries that are not read
//===----------------------------------------------------------------------===//

/// The product again, where some value is not finite and hidden weights are
/// marked. The others are multiplied as before: additions have the same order.
/// Those that are not finite make sums NaN where they are read.
void StreamKernel::multiplyVisible(const Segment &segment,
                                   PairProduct product) {
  Value zeros =
      arith::ConstantOp::create(b, b.getZeroAttr(getNarrow(b, 2 * lanes)));
  b.loop(b.index(0), b.index(valueWidth), 1, [&](Value column) {
    Values sums =
        b.loop(b.index(0), product.depth, 2, Values(vectors, b.splat(0.0)),
               [&](Value key, ValueRange running) {
                 Values next;
                 Value pair = broadcastPair(b, lanes, segment.values,
                                            {column, b.add(segment.base, key)});
                 for (int64_t v = 0; v < vectors; ++v) {
                   Value weights = vector::LoadOp::create(
                       b, getNarrow(b, 2 * lanes), weightPairs,
                       ValueRange{b.add(product.rightRow, b.div(key, 2)),
                                  b.index(2 * v * lanes)});
                   next.push_back(dotPairs(b, clearHiddenHalves(weights, pair),
                                           zeros, running[v]));
                 }
                 return next;
               });
    for (int64_t v = 0; v < vectors; ++v)
      b.storeVector(sums[v], amxSums, {column, b.index(v * lanes)});
  });
  b.loop(b.index(0), b.index(valueWidth), 1, [&](Value column) {
    b.loop(b.index(0), product.depth, kDepth, [&](Value key) {
      Value values =
          vector::LoadOp::create(b, getNarrow(b, kDepth), segment.values,
                                 ValueRange{column, b.add(segment.base, key)});
      vector::StoreOp::create(b, clearSpecials(b, values), amxValues,
                              ValueRange{column, b.add(segment.scoreRow, key)});
    });
  });
  product.left = amxValues;
  product.leftColumn = segment.scoreRow;
  product.addsToSums = true;
  product.emit(b);
}
