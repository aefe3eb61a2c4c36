//===- StreamRowsPairs.cpp - Products of many query rows in bf16 ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where keys, values and rows are bf16, and too many for vectors of columns:
//
//   S[key][row]      = keys[key][D]       rowPairs[D / 2][row][2]
//   O[row][column]  += weights[row][keys] valuePairs[keys / 2][column][2]
//
// Keys are read in place where they lie one behind the other. Values are copied
// in pairs, and zeros fill up whole tiles. Weights are rounded and transposed.
// Without AMX eight rows with vectors of columns have the second product, too:
// their weights need no transposition, and values become pairs in registers.
//
// The passes over a tile divide the lines of the tiles to come among them: as
// many as wait at once keep memory busy while others compute. The two products,
// which take the longest, ask for half of the keys and of the values; the four
// other passes ask for a quarter of either each time, a row at every fourth
// key.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// A buffer as rows of so many elements.
static Value asRows(KernelBuilder &b, Value buffer, Value rows, Value pitch) {
  constexpr int64_t kAny = ShapedType::kDynamic;
  MLIRContext *context = b.getContext();
  auto type = MemRefType::get(
      {kAny, kAny}, cast<MemRefType>(buffer.getType()).getElementType(),
      StridedLayoutAttr::get(context, /*offset=*/0, {kAny, 1}));
  return memref::ReinterpretCastOp::create(
      b, type, buffer, /*offset=*/b.getIndexAttr(0),
      ArrayRef<OpFoldResult>{rows, pitch},
      ArrayRef<OpFoldResult>{pitch, b.getIndexAttr(1)});
}

/// Asks for a row of one quarter of the next tile's, at every fourth key.
void StreamRowsKernel::askQuarter(const Rows &rows, int64_t quarter,
                                  Value key) {
  if (int64_t ahead = getAhead(rows, lanes))
    askRow(rows, b.add(b.add(b.div(key, kQuarters), ahead),
                       b.mul(b.div(tileKeys, kQuarters), quarter)));
}

/// Asks for half as many lines of the rows from `key` on as are read: `count`
/// from the `read`-th on. Listed rows are asked for whole, so that the place of
/// each is computed once.
void StreamRowsKernel::askHalf(const Rows &rows, Value key, Value read,
                               int64_t count) {
  if (!rows.numbers)
    return ask(rows, key, b.div(read, 2), count / 2);
  int64_t lines = getLinesPerRow(rows.memref);
  b.loop(b.div(read, 2 * lines), b.div(b.add(read, count), 2 * lines), 1,
         [&](Value i) { askRow(rows, b.add(key, i)); });
}

void StreamRowsKernel::allocatePairs() {
  Type bf16 = b.getBF16Type();
  int64_t rows = getRowCapacity();
  pairRows = b.scratch({rows * width}, bf16);
  wholeKeys = b.scratch({kPairTile, width}, bf16);
  valuePairs = b.scratch({kPairTile / 2, 2 * valueWidth}, bf16);
  // Rows are an odd number of cache lines apart: those of a tile lie in
  // different sets of the cache.
  narrowWeights = b.scratch({rows, kPairTile + kAMXDepth}, bf16);
}

/// The rows of all heads of the task in pairs, a head's behind another's.
StreamRowsKernel::Value StreamRowsKernel::viewRowPairs() {
  return asRows(b, pairRows, b.mul(taskHeads, width / 2), b.mul(paddedRows, 2));
}

StreamRowsKernel::Value StreamRowsKernel::getFirstPair() {
  return b.mul(headOfTask, width / 2);
}

PairProduct StreamRowsKernel::startProduct() const {
  PairProduct product;
  product.byAMX = hasAMX;
  return product;
}

/// The rows as they are, one after the other.
void StreamRowsKernel::copyNarrowRows() {
  b.loop(b.index(0), paddedRows, 1, [&](Value row) {
    auto [head, query] = locate(row);
    Value at[] = {batch, head, query, Value()};
    b.loop(b.index(0), b.index(width), lanes, [&](Value column) {
      at[3] = column;
      Value part = vector::LoadOp::create(b, getNarrow(b, lanes), op.getQuery(),
                                          ValueRange(at));
      vector::StoreOp::create(b, part, packed,
                              b.add(b.mul(row, width), column));
    });
  });
}

/// The rows as they are, in pairs. A pair moves like one f32.
void StreamRowsKernel::packRowPairs() {
  Value view = viewRowPairs(), firstPair = getFirstPair();
  b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
    b.loop(b.index(0), b.index(width), kAMXDepth, [&](Value column) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i) {
        auto [head, query] = locate(b.add(row, i));
        Value part =
            vector::LoadOp::create(b, getNarrow(b, kAMXDepth), op.getQuery(),
                                   ValueRange{batch, head, query, column});
        square.push_back(vector::BitCastOp::create(b, b.getVectorType(), part));
      }
      for (auto [i, vector] : llvm::enumerate(b.transpose(square))) {
        Value pairs =
            vector::BitCastOp::create(b, getNarrow(b, kAMXDepth), vector);
        vector::StoreOp::create(
            b, pairs, view,
            ValueRange{b.add(b.add(firstPair, b.div(column, 2)), i),
                       b.mul(row, 2)});
      }
    });
  });
}

void StreamRowsKernel::scoreByPairs(const Rows &keys, const Plane &target) {
  PairProduct product = startProduct();
  product.leftColumn = b.index(0);
  product.right = viewRowPairs();
  product.rightRow = getFirstPair();
  product.sums = asRows(b, target.memref, b.index(kPairTile), target.pitch);
  product.numColumns = paddedRows;
  product.depth = b.index(width);
  // While a step reads so many lines of keys, it asks for half as many.
  int64_t ahead = getAhead(keys, lanes), lines = getLinesPerRow(keys.memref);
  Value begin;
  auto askAhead = [&](const PairProduct::Step &step) {
    if (!ahead)
      return;
    b.ifThen(b.equal(step.column, b.index(0)), [&] {
      Value read = b.add(b.mul(b.add(begin, step.row), lines),
                         b.div(b.mul(step.k, step.numRows), kAMXDepth));
      askHalf(keys, b.index(ahead), read, step.numRows);
    });
  };
  // Whole tiles of rows that lie one behind the other are read in place.
  Value whole = b.index(0);
  if (!keys.numbers) {
    whole = b.roundDown(keys.count, kAMXRows);
    product.left = keys.memref;
    product.leftRow = keys.first;
    product.sumsRow = b.index(0);
    product.numRows = whole;
    begin = b.index(0);
    product.emit(b, askAhead);
  }
  b.loop(whole, keys.count, 1, [&](Value key) {
    b.copyRow(keys.memref, keys.at(b, key), wholeKeys, b.sub(key, whole),
              width);
  });
  product.left = wholeKeys;
  product.leftRow = b.index(0);
  product.sumsRow = whole;
  // Rows behind the last one of the tile are those of an earlier one.
  product.numRows =
      b.mul(b.ceilDiv(b.sub(keys.count, whole), kAMXRows), kAMXRows);
  begin = whole;
  product.emit(b, askAhead);
  Value scale = b.splat(getScoreScale());
  b.unrolledLoop(
      b.index(0), keys.count, kQuarters, ValueRange(),
      [&](Value key, ValueRange) -> Values {
        b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
          Value at = target.at(b, key, row);
          b.storeVector(b.fmul(b.loadVector(target.memref, at), scale),
                        target.memref, at);
        });
        return {};
      },
      [&](Value key) { askQuarter(keys, 2, key); });
}

/// Values without those that are not finite: all bits of the exponent are set
/// there.
static Value keepFinite(KernelBuilder &b, Value values) {
  auto type = VectorType::get(cast<VectorType>(values.getType()).getShape(),
                              b.getI16Type());
  auto splat = [&](int16_t bits) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(type, b.getI16IntegerAttr(bits)));
  };
  constexpr int16_t kExponent = 0x7f80;
  Value bits = vector::BitCastOp::create(b, type, values);
  Value isFinite = arith::CmpIOp::create(
      b, arith::CmpIPredicate::ne,
      arith::AndIOp::create(b, bits, splat(kExponent)), splat(kExponent));
  Value kept = arith::SelectOp::create(b, isFinite, bits, splat(0));
  return vector::BitCastOp::create(b, values.getType(), kept);
}

/// The rows of a key's values and the next one's. The last row of an odd number
/// stands beside itself, with no weight.
std::pair<StreamRowsKernel::Value, StreamRowsKernel::Value>
StreamRowsKernel::rowsOfPair(const Rows &values, Value key) {
  return {values.at(b, key), rowOf(values, b.add(key, 1))};
}

/// 32 columns of two rows of values as pairs: the even ones and the odd ones,
/// an order that shifts make. The outputs have it, too.
std::pair<StreamRowsKernel::Value, StreamRowsKernel::Value>
StreamRowsKernel::pairValues(const Rows &values, std::pair<Value, Value> rows,
                             Value column, bool onlyFinite) {
  VectorType type = getNarrow(b, kAMXDepth);
  auto bitsType = VectorType::get({lanes}, b.getI32Type());
  auto splat = [&](uint32_t bits) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(bitsType, APInt(32, bits)));
  };
  Value sixteen = splat(16), low = splat(0xffff), high = splat(0xffff0000);
  auto load = [&](Value row) -> Value {
    Value part =
        vector::LoadOp::create(b, type, values.memref, ValueRange{row, column});
    if (onlyFinite)
      part = keepFinite(b, part);
    return vector::BitCastOp::create(b, bitsType, part);
  };
  auto asPairs = [&](Value bits) -> Value {
    return vector::BitCastOp::create(b, type, bits);
  };
  Value one = load(rows.first), other = load(rows.second);
  Value even = arith::OrIOp::create(b, arith::AndIOp::create(b, one, low),
                                    arith::ShLIOp::create(b, other, sixteen));
  Value odd = arith::OrIOp::create(b, arith::ShRUIOp::create(b, one, sixteen),
                                   arith::AndIOp::create(b, other, high));
  return {asPairs(even), asPairs(odd)};
}

/// Copies values in pairs.
void StreamRowsKernel::packValuePairs(const Rows &values, bool onlyFinite) {
  VectorType type = getNarrow(b, kAMXDepth);
  auto pack = [&](Value key) {
    std::pair<Value, Value> rows = rowsOfPair(values, key);
    Value pair = b.div(key, 2);
    for (int64_t column = 0; column < valueWidth; column += kAMXDepth) {
      auto [even, odd] = pairValues(values, rows, b.index(column), onlyFinite);
      vector::StoreOp::create(b, even, valuePairs,
                              ValueRange{pair, b.index(2 * column)});
      vector::StoreOp::create(b, odd, valuePairs,
                              ValueRange{pair, b.index(2 * (column + lanes))});
    }
  };
  b.loop(b.index(0), values.count, kQuarters, [&](Value key) {
    if (!onlyFinite)
      askQuarter(values, 1, key);
    pack(key);
    pack(b.min(b.add(key, 2), b.roundDown(b.sub(values.count, b.index(1)), 2)));
  });
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(type));
  b.loop(b.ceilDiv(values.count, 2), b.div(alignToDepth(b, values.count), 2), 1,
         [&](Value pair) {
           b.loop(b.index(0), b.index(2 * valueWidth), kAMXDepth,
                  [&](Value column) {
                    vector::StoreOp::create(b, zeros, valuePairs,
                                            ValueRange{pair, column});
                  });
         });
}

/// Rounds the weights of `count` keys where scores lie in rows.
void StreamRowsKernel::roundWeights(Value count) {
  b.loop(b.index(0), paddedRows, 1, [&](Value row) {
    b.loop(b.index(0), count, lanes, [&](Value key) {
      Value wide = b.loadVector(scores.memref, scores.at(b, key, row));
      Value narrow = arith::TruncFOp::create(b, getNarrow(b, lanes), wide);
      vector::StoreOp::create(b, narrow, narrowWeights, ValueRange{row, key});
    });
  });
}

/// Adds all keys of a tile to the outputs of groups of eight rows, with vectors
/// of columns: 32 columns are 16 sums. Values become pairs in registers. The
/// first rows ask for values.
void StreamRowsKernel::accumulatePairs(const Rows &values, bool onlyFinite) {
  constexpr int64_t kPair = 2;
  int64_t ahead = onlyFinite ? 0 : getAhead(values, kColumnRows);
  PanelTurn turn;
  turn.firstKey = b.index(0);
  turn.panels = valueWidth / kAMXDepth;
  turn.numKeys = kPair;
  turn.blockTurns = b.div(tileKeys, kPair);
  auto addPanel = [&](Value column, Value firstRow) {
    turn.panel = b.div(column, kAMXDepth);
    turn.isFirst = b.equal(firstRow, b.index(0));
    Value columns[] = {column, b.add(column, lanes)};
    Values initial;
    for (int64_t row = 0; row < kColumnRows; ++row)
      for (Value at : columns)
        initial.push_back(b.loadVector(outputs, {b.add(firstRow, row), at}));
    auto addPair = [&](Value key, ValueRange running) {
      turn.key = key;
      if (ahead)
        askOfPanel(values, turn, ahead);
      auto [even, odd] =
          pairValues(values, rowsOfPair(values, key), column, onlyFinite);
      Values next;
      for (int64_t row = 0; row < kColumnRows; ++row) {
        Value weights =
            broadcastPair(b, lanes, narrowWeights, {b.add(firstRow, row), key});
        for (Value pairs : {even, odd})
          next.push_back(dotPairs(b, weights, pairs, running[next.size()]));
      }
      return next;
    };
    Values totals = b.loop(b.index(0), values.count, kPair, initial, addPair);
    for (auto [i, total] : llvm::enumerate(totals))
      b.storeVector(total, outputs, {b.add(firstRow, i / 2), columns[i % 2]});
  };
  b.loop(b.index(0), b.index(valueWidth), kAMXDepth, [&](Value column) {
    b.loop(b.index(0), paddedRows, kColumnRows,
           [&](Value row) { addPanel(column, row); });
  });
}

void StreamRowsKernel::packWeights(const Rows &values) {
  Value count = values.count, end = alignToDepth(b, count);
  b.loop(b.mul(count, scores.pitch), b.mul(end, scores.pitch), lanes,
         [&](Value at) { b.storeVector(b.splat(0.0), scores.memref, at); });
  b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
    b.loop(b.index(0), end, lanes, [&](Value key) {
      b.ifThen(b.equal(row, b.index(0)), [&] {
        for (int64_t i = 0; i < lanes; i += kQuarters)
          askQuarter(values, 0, b.add(key, i));
      });
      Values square;
      for (int64_t i = 0; i < lanes; ++i)
        square.push_back(
            b.loadVector(scores.memref, scores.at(b, b.add(key, i), row)));
      for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
        b.storeVector(vector, narrowWeights, {b.add(row, i), key});
    });
  });
}

/// `accumulate` by pairs. Values that are not finite count as zeros first where
/// entries are removed, and are then added where they are read: so all sums
/// add in one order.
void StreamRowsKernel::accumulateByPairs(const Tile &tile) {
  Rows values = rowsOf(tile, tile.source.values);
  alongColumns ? roundWeights(values.count) : packWeights(values);
  auto multiply = [&](bool onlyFinite) {
    if (!alongColumns)
      return multiplyPairs(values, onlyFinite);
    accumulatePairs(values, onlyFinite);
  };
  if (!tile.removesAny)
    return multiply(/*onlyFinite=*/false);
  Value isPlain = areFinite(values, tile.removesAny);
  b.ifThenElse(
      isPlain, [&] { multiply(/*onlyFinite=*/false); },
      [&] {
        multiply(/*onlyFinite=*/true);
        markHidden(tile);
        accumulateVisible(values, /*onlyInfinite=*/true);
      });
}

/// The product of weights and of values that are copied in pairs.
void StreamRowsKernel::multiplyPairs(const Rows &values, bool onlyFinite) {
  packValuePairs(values, onlyFinite);
  Value depth = alignToDepth(b, values.count);
  PairProduct product = startProduct();
  product.left = narrowWeights;
  product.leftRow = product.leftColumn = product.rightRow = b.index(0);
  product.right = valuePairs;
  product.sums = outputs;
  product.sumsRow = b.index(0);
  product.numRows = paddedRows;
  product.numColumns = b.index(valueWidth);
  product.depth = depth;
  product.addsToSums = true;
  // As keys are asked for.
  int64_t ahead = getAhead(values, lanes);
  product.emit(b, [&](const PairProduct::Step &step) {
    if (!ahead)
      return;
    b.ifThen(b.equal(step.row, b.index(0)), [&] {
      Value read = b.div(
          b.add(b.mul(step.column, depth), b.mul(step.k, step.numColumns)),
          kAMXDepth);
      askHalf(values, b.add(b.div(tileKeys, 2), ahead), read, step.numColumns);
    });
  });
}
