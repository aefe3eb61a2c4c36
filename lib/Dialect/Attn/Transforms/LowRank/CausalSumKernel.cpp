//===- CausalSumKernel.cpp - Low-rank attention under a causal mask -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (batch, head, panel of value columns)
//     C = 0
//     for each chunk of rows and the keys on its diagonal
//       S = lower triangle of U1 U2^T                       [chunk][chunk]
//       for each tile of rows
//         output = U1 C + S V, divided by its sum of weights
//       C += U2^T V
//
// C and the sums of keys z, which give the normaliser U1 z + S 1, are running
// sums of chunks, compensated. Keys before the first diagonal only go to C.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of a chunk. The triangle costs half a chunk of products for every row,
/// the compensated sum a few additions for every chunk.
static constexpr int64_t kChunk = 32;

namespace {
class CausalSumKernel : LowRankKernel {
public:
  CausalSumKernel(OpBuilder &builder, LowRankOp op, RegisterFile registers)
      : LowRankKernel(builder, op, registers),
        numPanels(llvm::divideCeil(llvm::divideCeil(width, lanes), vectors)),
        panel(llvm::divideCeil(llvm::divideCeil(width, lanes), numPanels) *
              lanes) {}

  void emit();

private:
  /// Rows from `at` on that will be read, from column `first` on.
  struct Ahead {
    Value memref;
    Values at;
    Value first;
    int64_t columns;
  };

  void emitTask(Value batch, Value head, Value firstColumn);
  void packRows(Value source, Value head, Value first, Value total, Value from,
                Value target, int64_t columns);
  void packKeys(Value first);
  void emitScores();
  void emitRows(int64_t first, Value row);
  void prefetchRows(const Ahead &ahead, int64_t rows, Value turn,
                    int64_t turns);
  Value emitTotal(int64_t row);
  void storeRow(Value row, ArrayRef<Value> vectors);
  void addKeys();

  /// Panels of columns that are tasks, and columns of one.
  int64_t numPanels, panel;
  // The present task.
  Value batch, head, keyHeadIndex, firstColumn, diagonal;
  Value u1, u2, u2Transposed, values, scores, sums, carries, keySums,
      keyCarries, edge;
};
} // namespace

void CausalSumKernel::emit() {
  Value rows = op.getU1();
  b.forAll(
      {b.extent(rows, 0), b.extent(rows, 1),
       b.index(llvm::divideCeil(width, panel))},
      [&](ValueRange ivs) { emitTask(ivs[0], ivs[1], b.mul(ivs[2], panel)); });
}

void CausalSumKernel::emitTask(Value batch, Value head, Value firstColumn) {
  this->batch = batch;
  this->head = head;
  this->firstColumn = firstColumn;
  keyHeadIndex = keyHead(head);
  int64_t padded = paddedRank();
  u1 = b.scratch({kChunk, padded}, state);
  u2 = b.scratch({kChunk, padded}, state);
  u2Transposed = b.scratch({padded, kChunk}, state);
  values = b.scratch({kChunk, panel}, state);
  scores = b.scratch({kChunk, kChunk}, state);
  sums = b.scratch({padded, panel}, state);
  carries = b.scratch({padded, panel}, state);
  keySums = b.scratch({1, padded}, state);
  keyCarries = b.scratch({1, padded}, state);
  edge = b.scratch({lanes}, state);
  Value zero = b.index(0);
  b.loop(zero, b.index(padded), 1, [&](Value d) {
    fillZero(b, sums, d, panel);
    fillZero(b, carries, d, panel);
  });
  fillZero(b, keySums, zero, padded);
  fillZero(b, keyCarries, zero, padded);

  Value numRows = b.extent(op.getU1(), 2), numKeys = b.extent(op.getU2(), 2);
  // Row i reads keys up to i + diagonal, which may be negative.
  diagonal = b.sub(numKeys, numRows);
  Value before = b.max(diagonal, 0);
  // Keys before row 0's last one, whose number need not be whole chunks: the
  // first chunk begins before key 0.
  Value numBefore = b.mul(b.ceilDiv(before, kChunk), kChunk);
  b.loop(zero, numBefore, kChunk, [&](Value first) {
    packKeys(b.add(first, b.sub(before, numBefore)));
    addKeys();
  });
  b.loop(zero, numRows, kChunk, [&](Value first) {
    packRows(op.getU1(), head, first, numRows, zero, u1, padded);
    packKeys(b.add(first, diagonal));
    emitScores();
    for (int64_t row = 0; row < kChunk; row += tileRows(panel / lanes))
      emitRows(row, b.add(first, row));
    addKeys();
  });
  b.freeScratch();
}

/// Packs rows `first .. first + chunk - 1`; those that do not exist are zero.
void CausalSumKernel::packRows(Value source, Value head, Value first,
                               Value total, Value from, Value target,
                               int64_t columns) {
  b.loop(b.index(0), b.index(kChunk), 1, [&](Value i) {
    Value row = b.add(first, i);
    Value exists = b.both(b.less(b.index(-1), row), b.less(row, total));
    b.ifThenElse(
        exists,
        [&] {
          b.packRow(source, {batch, head, row}, from, target, i, columns);
        },
        [&] { fillZero(b, target, i, columns); });
  });
}

/// Packs the keys and values of a chunk.
void CausalSumKernel::packKeys(Value first) {
  Value total = b.extent(op.getU2(), 2);
  packRows(op.getU2(), keyHeadIndex, first, total, b.index(0), u2,
           paddedRank());
  packRows(op.getValue(), keyHeadIndex, first, total, firstColumn, values,
           panel);
}

/// The lower triangle of U1 U2^T, zero above the diagonal.
void CausalSumKernel::emitScores() {
  b.loop(b.index(0), b.index(paddedRank()), lanes, [&](Value d) {
    b.loop(b.index(0), b.index(kChunk), lanes, [&](Value j) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i)
        square.push_back(b.loadVector(u2, {b.add(j, i), d}));
      for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
        b.storeVector(vector, u2Transposed, {b.add(d, i), j});
    });
  });
  // As many rows as registers allow, beside the vectors up to the diagonal.
  int64_t rows = std::min(tileRows(llvm::divideCeil(kChunk, lanes)), kChunk);
  for (int64_t first = 0; first < kChunk; first += rows) {
    // All that a tile of rows will read.
    int64_t count =
        llvm::divideCeil(llvm::alignTo(first + rows, kMaxTileRows), lanes);
    Values tile(rows * count, b.splat(0.0));
    tile = b.loop(
        b.index(0), b.index(rank), 1, tile, [&](Value d, ValueRange running) {
          Values next(running), keys;
          for (int64_t v = 0; v < count; ++v)
            keys.push_back(b.loadVector(u2Transposed, {d, b.index(v * lanes)}));
          for (int64_t i = 0; i < rows; ++i) {
            Value factor =
                b.broadcast(b.loadScalar(u1, {b.index(first + i), d}));
            for (int64_t v = 0; v < count; ++v)
              next[i * count + v] = b.fma(factor, keys[v], next[i * count + v]);
          }
          return next;
        });
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t v = 0; v < count; ++v) {
        SmallVector<bool> isKept;
        for (int64_t lane = 0; lane < lanes; ++lane)
          isKept.push_back(v * lanes + lane <= first + i);
        Value kept = arith::ConstantOp::create(
            b, DenseElementsAttr::get(VectorType::get({lanes}, b.getI1Type()),
                                      ArrayRef<bool>(isKept)));
        Value score =
            arith::SelectOp::create(b, kept, tile[i * count + v], b.splat(0.0));
        b.storeVector(score, scores, {b.index(first + i), b.index(v * lanes)});
      }
  }
}

/// A tile of rows of the chunk from `first` on, which is row `row` of all.
void CausalSumKernel::emitRows(int64_t first, Value row) {
  int64_t count = panel / lanes, rows = tileRows(count);
  Values tile(rows * count, b.splat(0.0));
  auto multiply = [&](Value left, Value right, int64_t low, int64_t high,
                      llvm::function_ref<void(Value)> ahead) {
    auto step = [&](Value j, ValueRange running) {
      Values next(running), rights;
      for (int64_t v = 0; v < count; ++v)
        rights.push_back(b.loadVector(right, {j, b.index(v * lanes)}));
      ahead(j);
      for (int64_t i = 0; i < rows; ++i) {
        Value factor = b.broadcast(b.loadScalar(left, {b.index(first + i), j}));
        for (int64_t v = 0; v < count; ++v)
          next[i * count + v] = b.fma(factor, rights[v], next[i * count + v]);
      }
      return next;
    };
    tile = b.loop(b.index(low), b.index(high), 1, tile, step);
  };
  // Meanwhile the same rows of the next chunk are brought to the second cache
  // level, one operand after the other, a few lines in every turn.
  Value next = b.add(row, kChunk), keys = b.add(next, diagonal);
  Ahead operands[] = {
      {op.getU1(), {batch, head, next}, b.index(0), rank},
      {op.getU2(), {batch, keyHeadIndex, keys}, b.index(0), rank},
      {op.getValue(), {batch, keyHeadIndex, keys}, firstColumn, panel},
      {op.getOutput(), {batch, head, next}, firstColumn, panel}};
  constexpr int64_t kOperands = std::size(operands);
  for (int64_t i = 0; i < kOperands; ++i) {
    int64_t low = rank * i / kOperands, high = rank * (i + 1) / kOperands;
    if (low < high)
      multiply(u1, sums, low, high, [&](Value d) {
        prefetchRows(operands[i], rows, b.sub(d, b.index(low)), high - low);
      });
  }
  multiply(scores, values, 0, first + rows, [](Value) {});
  Value numRows = b.extent(op.getU1(), 2);
  for (int64_t i = 0; i < rows; ++i) {
    Value total = emitTotal(first + i), inverse = invert(total);
    Values means;
    for (int64_t v = 0; v < count; ++v)
      means.push_back(divide(b, tile[i * count + v], total, inverse));
    b.ifThen(b.less(b.add(row, i), numRows),
             [&] { storeRow(b.add(row, i), means); });
  }
}

/// Asks in turn number `turn` of `turns` for its share of the lines of some
/// rows.
void CausalSumKernel::prefetchRows(const Ahead &ahead, int64_t rows, Value turn,
                                   int64_t turns) {
  constexpr int64_t kLineBits = 512, kMaxLines = 8;
  auto type = cast<MemRefType>(ahead.memref.getType());
  int64_t perLine = kLineBits / type.getElementTypeBitWidth();
  int64_t lines = llvm::divideCeil(ahead.columns, perLine);
  int64_t perTurn =
      std::min<int64_t>(llvm::divideCeil(rows * lines, turns), kMaxLines);
  for (int64_t i = 0; i < perTurn; ++i) {
    Value line = b.add(b.mul(turn, perTurn), i);
    Values at = ahead.at;
    at.back() = b.add(at.back(), b.div(line, lines));
    at.push_back(b.add(ahead.first, b.mul(b.rem(line, lines), perLine)));
    b.prefetch(ahead.memref, at, /*locality=*/2);
  }
}

/// The sum of the weights of row `row` of the chunk.
Value CausalSumKernel::emitTotal(int64_t row) {
  Value total = b.splat(0.0), at = b.index(row);
  for (int64_t d = 0; d < paddedRank(); d += lanes) {
    Value factor = b.loadVector(u1, {at, b.index(d)});
    total =
        b.fma(factor, b.loadVector(keySums, {b.index(0), b.index(d)}), total);
  }
  for (int64_t j = 0; j <= row; j += lanes)
    total = b.fadd(total, b.loadVector(scores, {at, b.index(j)}));
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, total);
}

void CausalSumKernel::storeRow(Value row, ArrayRef<Value> means) {
  auto at = [&](Value column) {
    return Values{batch, head, row, b.add(firstColumn, column)};
  };
  Value available = b.sub(b.index(width), firstColumn);
  for (unsigned v = 0; v < means.size(); ++v) {
    Value mean = means[v];
    int64_t column = v * lanes;
    b.ifThenElse(
        b.less(b.index(column + lanes - 1), available),
        [&] { b.storeVector(mean, op.getOutput(), at(b.index(column))); },
        [&] {
          b.storeVector(mean, edge, b.index(0));
          b.loop(b.index(0), b.sub(available, b.index(column)), 1,
                 [&](Value i) {
                   b.storeScalar(b.loadScalar(edge, i), op.getOutput(),
                                 at(b.add(i, column)));
                 });
        });
  }
}

/// Adds the packed keys to the running sums.
void CausalSumKernel::addKeys() {
  addProducts(u2, values, b.index(kChunk), sums, panel, carries);
  // Sums of keys, several vectors at a time.
  constexpr int64_t kVectors = 8;
  for (int64_t first = 0; first < paddedRank(); first += kVectors * lanes) {
    int64_t count = std::min(kVectors, (paddedRank() - first) / lanes);
    auto column = [&](int64_t v) { return b.index(first + v * lanes); };
    Values parts(count, b.splat(0.0));
    parts = b.loop(b.index(0), b.index(kChunk), 1, parts,
                   [&](Value j, ValueRange running) {
                     Values next;
                     for (int64_t v = 0; v < count; ++v)
                       next.push_back(b.fadd(running[v],
                                             b.loadVector(u2, {j, column(v)})));
                     return next;
                   });
    for (int64_t v = 0; v < count; ++v)
      addCompensated(b, parts[v], keySums, keyCarries, {b.index(0), column(v)});
  }
}

void fovea::attn::emitCausalLowRank(OpBuilder &builder, LowRankOp op,
                                    RegisterFile registers) {
  CausalSumKernel(builder, op, registers).emit();
}
