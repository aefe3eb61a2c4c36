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
//       S = lower triangle of left right^T                  [chunk][chunk]
//       for each tile of rows
//         output = left C + S V, divided by its sum of weights
//       C += right^T V
//
// C and the sums of keys z, which give the normaliser left z + S 1, are running
// sums of chunks, compensated. Keys before the first diagonal only go to C.
// Under the transposed mask rows and keys come in the opposite order: row i
// from the end reads the keys up to key i from the end.
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
  CausalSumKernel(OpBuilder &builder, Location loc, const LowRankSum &sum,
                  RegisterFile registers)
      : LowRankKernel(builder, loc, sum, registers),
        numPanels(
            std::max<int64_t>(llvm::divideCeil(numVectors(), vectors), 1)),
        panel(llvm::divideCeil(numVectors(), numPanels) * lanes) {}

  void emit();

private:
  /// Rows from number `row` on that will be read, from column `first` on.
  struct Ahead {
    Value memref, head, row, total, first;
    int64_t columns;
  };

  int64_t numVectors() const { return llvm::divideCeil(width, lanes); }
  /// Where row number `row` of `total` lies.
  Value position(Value row, Value total) {
    return sum.transposed ? b.sub(b.sub(total, b.index(1)), row) : row;
  }

  void emitTask(Value batch, Value head, Value firstColumn);
  void emitHead(Value head);
  void packRows(const PackedRows &source, Value head, Value first, Value total,
                Value from, Value target, int64_t columns);
  void packKeys(Value first);
  void emitScores();
  void emitRows(int64_t first, Value row);
  Value emitResult(Value value, Value total, Value factor);
  void prefetchRows(const Ahead &ahead, int64_t rows, Value turn,
                    int64_t turns);
  Value emitTotal(int64_t row);
  void storeRow(ValueRange at, ArrayRef<Value> vectors);
  void addKeys();

  /// Panels of columns that are tasks, and columns of one: none where there is
  /// no value.
  int64_t numPanels, panel;
  // The present task.
  Value batch, rowHead, keyHead, isFirstHead, firstColumn, diagonal;
  Value left, right, rightTransposed, values, scores, sums, carries, keySums,
      keyCarries, edge;
};
} // namespace

void CausalSumKernel::emit() {
  b.forAll(
      {numBatches(), numRowHeads(), b.index(numPanels)},
      [&](ValueRange ivs) { emitTask(ivs[0], ivs[1], b.mul(ivs[2], panel)); });
}

void CausalSumKernel::emitTask(Value batch, Value head, Value firstColumn) {
  this->batch = batch;
  this->firstColumn = firstColumn;
  rowHead = head;
  int64_t padded = paddedRank();
  left = b.scratch({kChunk, padded}, state);
  right = b.scratch({kChunk, padded}, state);
  rightTransposed = b.scratch({padded, kChunk}, state);
  scores = b.scratch({kChunk, kChunk}, state);
  if (panel > 0) {
    values = b.scratch({kChunk, panel}, state);
    sums = b.scratch({padded, panel}, state);
    carries = b.scratch({padded, panel}, state);
  }
  if (sum.hasTotals()) {
    keySums = b.scratch({1, padded}, state);
    keyCarries = b.scratch({1, padded}, state);
  }
  edge = b.scratch({lanes}, state);
  forQueryHeads(head, [&](Value queryHead, Value isFirst) {
    isFirstHead = isFirst;
    emitHead(queryHead);
  });
  b.freeScratch();
}

/// All rows, for the columns that query head `head` has.
void CausalSumKernel::emitHead(Value head) {
  keyHead = columnHead(head);
  int64_t padded = paddedRank();
  Value zero = b.index(0);
  if (panel > 0)
    b.loop(zero, b.index(padded), 1, [&](Value d) {
      fillZero(b, sums, d, panel);
      fillZero(b, carries, d, panel);
    });
  if (sum.hasTotals()) {
    fillZero(b, keySums, zero, padded);
    fillZero(b, keyCarries, zero, padded);
  }

  // Row i reads keys up to i + diagonal, which may be negative.
  diagonal = sum.transposed ? zero : b.sub(numColumns(), numRows());
  Value before = b.max(diagonal, 0);
  // Keys before row 0's last one, whose number need not be whole chunks: the
  // first chunk begins before key 0.
  Value numBefore = b.mul(b.ceilDiv(before, kChunk), kChunk);
  b.loop(zero, numBefore, kChunk, [&](Value first) {
    packKeys(b.add(first, b.sub(before, numBefore)));
    addKeys();
  });
  b.loop(zero, numRows(), kChunk, [&](Value first) {
    packRows(sum.left, rowHead, first, numRows(), zero, left, padded);
    packKeys(b.add(first, diagonal));
    emitScores();
    int64_t rows = tileRows(std::max<int64_t>(panel / lanes, 1));
    for (int64_t row = 0; row < kChunk; row += rows)
      emitRows(row, b.add(first, row));
    addKeys();
  });
}

/// Packs rows `first .. first + chunk - 1`; those that do not exist are zero.
void CausalSumKernel::packRows(const PackedRows &source, Value head,
                               Value first, Value total, Value from,
                               Value target, int64_t columns) {
  b.loop(b.index(0), b.index(kChunk), 1, [&](Value i) {
    Value row = b.add(first, i);
    Value exists = b.both(b.less(b.index(-1), row), b.less(row, total));
    b.ifThenElse(
        exists,
        [&] {
          packRow(source, {batch, head, position(row, total)}, from, target, i,
                  columns);
        },
        [&] { fillZero(b, target, i, columns); });
  });
}

/// Packs the keys and values of a chunk.
void CausalSumKernel::packKeys(Value first) {
  packRows(sum.right, keyHead, first, numColumns(), b.index(0), right,
           paddedRank());
  if (panel > 0)
    packRows(sum.value, keyHead, first, numColumns(), firstColumn, values,
             panel);
}

/// The lower triangle of left right^T, zero above the diagonal.
void CausalSumKernel::emitScores() {
  b.loop(b.index(0), b.index(paddedRank()), lanes, [&](Value d) {
    b.loop(b.index(0), b.index(kChunk), lanes, [&](Value j) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i)
        square.push_back(b.loadVector(right, {b.add(j, i), d}));
      for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
        b.storeVector(vector, rightTransposed, {b.add(d, i), j});
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
            keys.push_back(
                b.loadVector(rightTransposed, {d, b.index(v * lanes)}));
          for (int64_t i = 0; i < rows; ++i) {
            Value factor =
                b.broadcast(b.loadScalar(left, {b.index(first + i), d}));
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
  int64_t count = panel / lanes, rows = tileRows(std::max<int64_t>(count, 1));
  Values tile(rows * count, b.splat(0.0));
  auto multiply = [&](Value factors, Value vectors, int64_t low, int64_t high,
                      llvm::function_ref<void(Value)> ahead) {
    auto step = [&](Value j, ValueRange running) {
      Values next(running), rights;
      for (int64_t v = 0; v < count; ++v)
        rights.push_back(b.loadVector(vectors, {j, b.index(v * lanes)}));
      ahead(j);
      for (int64_t i = 0; i < rows; ++i) {
        Value factor =
            b.broadcast(b.loadScalar(factors, {b.index(first + i), j}));
        for (int64_t v = 0; v < count; ++v)
          next[i * count + v] = b.fma(factor, rights[v], next[i * count + v]);
      }
      return next;
    };
    tile = b.loop(b.index(low), b.index(high), 1, tile, step);
  };
  if (panel > 0) {
    // Meanwhile the same rows of the next chunk are brought to the second cache
    // level, one operand after the other, a few lines in every turn.
    Value next = b.add(row, kChunk), keys = b.add(next, diagonal);
    Value zero = b.index(0);
    Ahead operands[] = {
        {sum.left.rows, rowHead, next, numRows(), zero, sum.left.getWidth()},
        {sum.right.rows, keyHead, keys, numColumns(), zero,
         sum.right.getWidth()},
        {sum.value.rows, keyHead, keys, numColumns(), firstColumn, panel},
        {sum.output, rowHead, next, numRows(), firstColumn, panel}};
    constexpr int64_t kOperands = std::size(operands);
    for (int64_t i = 0; i < kOperands; ++i) {
      int64_t low = rank * i / kOperands, high = rank * (i + 1) / kOperands;
      if (low < high)
        multiply(left, sums, low, high, [&](Value d) {
          prefetchRows(operands[i], rows, b.sub(d, b.index(low)), high - low);
        });
    }
    multiply(scores, values, 0, first + rows, [](Value) {});
  }
  for (int64_t i = 0; i < rows; ++i) {
    Value total, factor;
    if (sum.hasTotals()) {
      total = emitTotal(first + i);
      factor = invert(total);
    }
    Values means;
    auto scale = [&](Value factor) {
      for (int64_t v = 0; v < count; ++v)
        means.push_back(emitResult(tile[i * count + v], total, factor));
    };
    if (!sum.scale)
      scale(factor);
    b.ifThen(b.less(b.add(row, i), numRows()), [&] {
      Value at[] = {batch, rowHead, position(b.add(row, i), numRows())};
      if (sum.scale)
        scale(b.loadScalar(sum.scale, at));
      if (sum.result == LowRankSum::Result::InverseTotals)
        b.storeScalar(invertOrZero(total), sum.output, at);
      else
        storeRow(at, means);
    });
  }
}

/// What becomes of a sum: its mean, or its product with `factor`, if any.
Value CausalSumKernel::emitResult(Value value, Value total, Value factor) {
  if (total)
    return divide(b, value, total, factor);
  return factor ? b.fmul(value, b.broadcast(factor)) : value;
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
    Value row = b.add(ahead.row, b.div(line, lines));
    b.prefetch(ahead.memref,
               {batch, ahead.head, position(row, ahead.total),
                b.add(ahead.first, b.mul(b.rem(line, lines), perLine))},
               /*locality=*/2);
  }
}

/// The sum of the weights of row `row` of the chunk.
Value CausalSumKernel::emitTotal(int64_t row) {
  Value total = b.splat(0.0), at = b.index(row);
  for (int64_t d = 0; d < paddedRank(); d += lanes) {
    Value factor = b.loadVector(left, {at, b.index(d)});
    total =
        b.fma(factor, b.loadVector(keySums, {b.index(0), b.index(d)}), total);
  }
  for (int64_t j = 0; j <= row; j += lanes)
    total = b.fadd(total, b.loadVector(scores, {at, b.index(j)}));
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, total);
}

void CausalSumKernel::storeRow(ValueRange row, ArrayRef<Value> vectors) {
  Values at(row);
  at.push_back({});
  // The heads that share a row are added one after the other.
  auto add = [&](KernelBuilder &k, Value value, Value column) {
    at.back() = b.add(firstColumn, column);
    k.storeVector(addToOutput(k, value, at, isFirstHead), sum.output, at);
  };
  Value available = b.sub(b.index(width), firstColumn);
  for (unsigned v = 0; v < vectors.size(); ++v) {
    Value vector = vectors[v];
    int64_t column = v * lanes;
    b.ifThenElse(
        b.less(b.index(column + lanes - 1), available),
        [&] { add(b, vector, b.index(column)); },
        [&] {
          b.storeVector(vector, edge, b.index(0));
          Value left = b.max(b.sub(available, b.index(column)), 0);
          b.forColumns(b.index(0), left, [&](KernelBuilder &k, Value i) {
            add(k, k.loadVector(edge, i), b.add(i, column));
          });
        });
  }
}

/// Adds the packed keys to the running sums.
void CausalSumKernel::addKeys() {
  if (panel > 0)
    addProducts(right, values, b.index(kChunk), sums, panel, carries);
  if (!sum.hasTotals())
    return;
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
                       next.push_back(b.fadd(
                           running[v], b.loadVector(right, {j, column(v)})));
                     return next;
                   });
    for (int64_t v = 0; v < count; ++v)
      addCompensated(b, parts[v], keySums, keyCarries, {b.index(0), column(v)});
  }
}

void fovea::attn::emitCausalSum(OpBuilder &builder, Location loc,
                                const LowRankSum &sum, RegisterFile registers) {
  CausalSumKernel(builder, loc, sum, registers).emit();
}
