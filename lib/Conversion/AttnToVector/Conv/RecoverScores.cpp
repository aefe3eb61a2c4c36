//===- RecoverScores.cpp - Product of attn.conv_recover -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RecoverScores.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of one task; bases of a register tile.
static constexpr int64_t kTaskRows = 512, kTileBases = 4;

static MemRefType typeOf(Value memref) {
  return cast<MemRefType>(memref.getType());
}

namespace {
class RecoverScores {
public:
  using Values = KernelBuilder::Values;

  RecoverScores(OpBuilder &builder, ConvRecoverOp op, FloatType state,
                RegisterFile registers)
      : op(op), width(typeOf(op.getKey()).getDimSize(3)), state(state),
        lanes(registers.vectorBits / state.getWidth()),
        vectors(registers.count >= 32 ? 4 : 2),
        padded(llvm::alignTo(width, lanes)),
        b(op.getLoc(), builder, state, lanes),
        numRows(b.extent(op.getQuery(), 2)) {}

  void emit();

private:
  void emitScores(Value firstRow, Value lastRow);
  void packQueries(Value firstRow, Value lastRow);
  void copyQuery(Value row, Value lastRow, Value to);
  void emitTile(Value basis, Value firstRow);
  void storeScores(Value basis, Value firstRow, ArrayRef<Value> scores);
  Value startOf(Value basis) {
    return b.sub(numRows, b.loadIndex(op.getSizes(), {batch, head, basis}));
  }

  ConvRecoverOp op;
  int64_t width;
  FloatType state;
  int64_t lanes, vectors, padded;
  RowBuilder b;
  Value numRows;
  // The present task.
  Value batch, head, keyHead, rows, transposed, edge, found;
};
} // namespace

/// Transposes a block of queries; those that do not exist are zero. Whole
/// vectors of existing rows are read where they lie.
void RecoverScores::packQueries(Value firstRow, Value lastRow) {
  bool isPacked =
      padded == width && typeOf(op.getQuery()).getElementType() == state;
  b.loop(b.index(0), b.index(vectors * lanes), lanes, [&](Value first) {
    Value begin = b.add(firstRow, first);
    auto transpose = [&](function_ref<Value(Value i, Value d)> load) {
      b.loop(b.index(0), b.index(padded), lanes, [&](Value d) {
        Values square;
        for (int64_t i = 0; i < lanes; ++i)
          square.push_back(load(b.index(i), d));
        for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
          b.storeVector(vector, transposed, {b.add(d, i), first});
      });
    };
    auto copyAndTranspose = [&] {
      b.loop(b.index(0), b.index(lanes), 1,
             [&](Value i) { copyQuery(b.add(begin, i), lastRow, i); });
      transpose([&](Value i, Value d) { return b.loadVector(rows, {i, d}); });
    };
    if (!isPacked)
      return copyAndTranspose();
    b.ifThenElse(
        b.less(b.add(begin, lanes - 1), lastRow),
        [&] {
          transpose([&](Value i, Value d) {
            Value row = b.add(begin, i);
            return b.loadVector(op.getQuery(), {batch, head, row, d});
          });
        },
        copyAndTranspose);
  });
}

void RecoverScores::copyQuery(Value row, Value lastRow, Value to) {
  b.ifThenElse(
      b.less(row, lastRow),
      [&] {
        b.packRow(op.getQuery(), {batch, head, row}, b.index(0), rows, to,
                  padded);
      },
      [&] {
        b.loop(b.index(0), b.index(padded), lanes, [&](Value column) {
          b.storeVector(b.splat(0.0), rows, {to, column});
        });
      });
}

/// Scores of a chunk of rows with the first keys of all bases.
void RecoverScores::emitScores(Value firstRow, Value lastRow) {
  rows = b.scratch({lanes, padded}, state);
  transposed = b.scratch({padded, vectors * lanes}, state);
  edge = b.scratch({lanes}, state);
  found = b.loadIndex(op.getFound(), {batch, head});
  b.loop(firstRow, lastRow, vectors * lanes, [&](Value row) {
    packQueries(row, lastRow);
    b.loop(b.index(0), found, kTileBases, [&](Value basis) {
      // Bases begin one after the other.
      b.ifThen(b.less(startOf(basis), b.add(row, vectors * lanes)),
               [&] { emitTile(basis, row); });
    });
  });
}

void RecoverScores::emitTile(Value basis, Value firstRow) {
  Values starts, bases;
  for (int64_t i = 0; i < kTileBases; ++i) {
    // The last one again where there are no more.
    bases.push_back(b.min(b.add(basis, i), b.sub(found, b.index(1))));
    starts.push_back(startOf(bases.back()));
  }
  Values tile(kTileBases * vectors, b.splat(0.0));
  tile = b.loop(
      b.index(0), b.index(width), 1, tile, [&](Value d, ValueRange running) {
        Values next(running), queries;
        for (int64_t v = 0; v < vectors; ++v) {
          queries.push_back(b.loadVector(transposed, {d, b.index(v * lanes)}));
          // A line of the next block, which has as many.
          Value row =
              b.add(firstRow, b.add(b.rem(d, lanes), (vectors + v) * lanes));
          b.prefetch(op.getQuery(), {batch, head, row, b.roundDown(d, lanes)},
                     /*locality=*/2);
        }
        for (int64_t i = 0; i < kTileBases; ++i) {
          Value factor = b.broadcast(
              b.loadScalar(op.getKey(), {batch, keyHead, starts[i], d}));
          for (int64_t v = 0; v < vectors; ++v)
            next[i * vectors + v] =
                b.fma(factor, queries[v], next[i * vectors + v]);
        }
        return next;
      });
  Value scale = b.splat(op.getScaleOrDefault());
  for (int64_t i = 0; i < kTileBases; ++i)
    for (int64_t v = 0; v < vectors; ++v)
      storeScores(bases[i], b.add(firstRow, v * lanes),
                  b.fmul(tile[i * vectors + v], scale));
}

/// Stores the scores of a vector of rows at their lags; rows before the basis
/// and after the last one have none.
void RecoverScores::storeScores(Value basis, Value firstRow,
                                ArrayRef<Value> scores) {
  Value lag = b.sub(firstRow, startOf(basis));
  Value isWhole = b.both(b.less(b.index(-1), lag),
                         b.less(b.add(firstRow, lanes - 1), numRows));
  b.ifThenElse(
      isWhole,
      [&] {
        b.storeVector(scores.front(), op.getBasis(), {batch, head, basis, lag});
      },
      [&] {
        b.storeVector(scores.front(), edge, b.index(0));
        Value end = b.min(b.sub(numRows, firstRow), lanes);
        b.loop(b.max(b.sub(b.index(0), lag), 0), end, 1, [&](Value i) {
          b.storeScalar(b.loadScalar(edge, i), op.getBasis(),
                        {batch, head, basis, b.add(lag, i)});
        });
      });
}

void RecoverScores::emit() {
  Value batches = b.extent(op.getQuery(), 0),
        heads = b.extent(op.getQuery(), 1);
  Value keyHeads = b.extent(op.getKey(), 1);
  b.forAll({batches, heads, b.ceilDiv(numRows, kTaskRows)},
           [&](ValueRange ivs) {
             batch = ivs[0];
             head = ivs[1];
             keyHead = b.div(head, b.div(heads, keyHeads));
             Value first = b.mul(ivs[2], kTaskRows);
             emitScores(first, b.min(b.add(first, kTaskRows), numRows));
             b.freeScratch();
           });
}

void fovea::attn::emitRecoverScores(OpBuilder &builder, ConvRecoverOp op,
                                    FloatType state, RegisterFile registers) {
  RecoverScores(builder, op, state, registers).emit();
}
