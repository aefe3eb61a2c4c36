//===- RecoverKernel.cpp - Loops of attn.conv_recover ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (batch, head)
//     columns where bases begin, by binary search         `window` entries each
//   forall (batch, head, chunk of rows)
//     scores of the rows with the keys of all these columns, each stored where
//     its basis has that lag
//   forall (batch, head, chunk of lags)
//     differences of each basis and the sum of those before it
//
// A search needs the first entries of the basis before only, so all searches
// come first, and queries are read once for all bases.
//
//===----------------------------------------------------------------------===//

#include "RecoverKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows, and lags, of one task; bases of a register tile.
static constexpr int64_t kTaskRows = 512, kTaskLags = 2048, kTileBases = 4;

static MemRefType typeOf(Value memref) {
  return cast<MemRefType>(memref.getType());
}

namespace {
class RecoverKernel {
public:
  using Values = KernelBuilder::Values;

  RecoverKernel(OpBuilder &builder, ConvRecoverOp op, RegisterFile registers)
      : op(op), width(typeOf(op.getKey()).getDimSize(3)),
        numBases(typeOf(op.getBasis()).getDimSize(2)),
        state(getStateType(typeOf(op.getKey()).getElementType())),
        lanes(registers.vectorBits / state.getWidth()),
        vectors(registers.count >= 32 ? 4 : 2),
        padded(llvm::alignTo(width, lanes)),
        b(op.getLoc(), builder, state, lanes) {}

  void emit();

private:
  void beginTask(ValueRange ivs);
  void emitSearches();
  Value emitSearch(Value low, Value last);
  Value isNew(Value column);
  Value score(Value row);
  void accept(Value basis, Value column);

  void emitScores(Value firstRow, Value lastRow);
  void packQueries(Value firstRow, Value lastRow);
  void copyQuery(Value row, Value lastRow, Value to);
  void emitTile(Value basis, Value firstRow);
  void storeScores(Value basis, Value firstRow, ArrayRef<Value> scores);
  Value startOf(Value basis) {
    return b.sub(numRows, b.loadIndex(op.getSizes(), {batch, head, basis}));
  }

  void emitDifferences(Value firstLag, Value lastLag);

  ConvRecoverOp op;
  int64_t width, numBases;
  FloatType state;
  int64_t lanes, vectors, padded;
  RowBuilder b;
  // The present task.
  Value batch, head, keyHead, numRows;
  Value queryRow, keyRow, profile, rows, transposed, edge, found;
};
} // namespace

void RecoverKernel::beginTask(ValueRange ivs) {
  batch = ivs[0];
  head = ivs[1];
  Value heads = b.extent(op.getQuery(), 1), keyHeads = b.extent(op.getKey(), 1);
  keyHead = b.div(head, b.div(heads, keyHeads));
}

//===----------------------------------------------------------------------===//
// Search
//===----------------------------------------------------------------------===//

/// Finds where the bases of one head begin (algorithms 2 and 3).
void RecoverKernel::emitSearches() {
  Value zero = b.index(0), none = b.index(-1);
  queryRow = b.scratch({1, padded}, state);
  keyRow = b.scratch({1, padded}, state);
  profile = b.scratch({int64_t(op.getWindow())}, state);
  b.loop(zero, b.index(numBases), 1, [&](Value basis) {
    b.storeIndex(zero, op.getSizes(), {batch, head, basis});
  });
  b.storeIndex(zero, op.getFound(), {batch, head});
  Value exists = b.less(zero, numRows);
  b.ifThen(exists, [&] { accept(zero, zero); });
  Value last = b.sub(numRows, b.index(op.getWindow()));
  b.loop(b.index(1), b.index(numBases), 1, {zero, exists},
         [&](Value basis, ValueRange before) -> Values {
           Value low = b.add(before[0], 1);
           Value canSearch = b.both(before[1], b.less(before[0], last));
           Value column = b.select(
               canSearch, b.getIndexType(),
               [&] { return emitSearch(low, last); }, [&] { return none; });
           Value isFound = b.less(none, column);
           b.ifThen(isFound, [&] { accept(basis, column); });
           return {b.select(isFound, column, before[0]), isFound};
         });
}

/// The first new one of columns `low .. last`, or -1.
Value RecoverKernel::emitSearch(Value low, Value last) {
  // Halves of at most 2^31 columns.
  constexpr int64_t kMaxSteps = 32;
  std::optional<int64_t> known = getConstantIntValue(numRows);
  int64_t steps =
      known ? llvm::Log2_64_Ceil(std::max<int64_t>(*known, 1)) + 1 : kMaxSteps;
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  Values range =
      b.loop(b.index(0), b.index(steps), 1, {low, last},
             [&](Value, ValueRange range) -> Values {
               Value isOpen = b.less(range[0], range[1]);
               Value middle = b.div(b.add(range[0], range[1]), 2);
               Value isHit = b.select(
                   isOpen, no.getType(), [&] { return isNew(middle); },
                   [&] { return no; });
               Value isMiss = b.less(b.select(isHit, b.index(1), b.index(0)),
                                     b.select(isOpen, b.index(1), b.index(0)));
               return {b.select(isMiss, b.add(middle, 1), range[0]),
                       b.select(isHit, middle, range[1])};
             });
  return b.select(isNew(range[0]), range[0], b.index(-1));
}

/// The score of query `row` with the packed key.
Value RecoverKernel::score(Value row) {
  Value zero = b.index(0);
  b.packRow(op.getQuery(), {batch, head, row}, zero, queryRow, zero, padded);
  Value product = b.dotPacked(queryRow, zero, keyRow, zero, padded);
  return b.fmul(product, b.scalar(op.getScaleOrDefault()));
}

/// Whether the first entries of a column differ from the profile.
Value RecoverKernel::isNew(Value column) {
  Value zero = b.index(0);
  b.packRow(op.getKey(), {batch, keyHead, column}, zero, keyRow, zero, padded);
  Value distance =
      b.loop(zero, b.index(op.getWindow()), 1, b.scalar(0.0),
             [&](Value t, ValueRange sum) -> Values {
               Value difference =
                   b.fsub(score(b.add(column, t)), b.loadScalar(profile, t));
               return {
                   b.fadd(sum.front(), math::AbsFOp::create(b, difference))};
             })
          .front();
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, distance,
                               b.scalar(op.getThreshold()));
}

/// Records that a basis begins at `column`, whose first entries become the
/// profile.
void RecoverKernel::accept(Value basis, Value column) {
  Value zero = b.index(0);
  b.storeIndex(b.sub(numRows, column), op.getSizes(), {batch, head, basis});
  b.storeIndex(b.add(basis, 1), op.getFound(), {batch, head});
  b.packRow(op.getKey(), {batch, keyHead, column}, zero, keyRow, zero, padded);
  Value count = b.min(b.sub(numRows, column), op.getWindow());
  b.loop(zero, count, 1,
         [&](Value t) { b.storeScalar(score(b.add(column, t)), profile, t); });
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Transposes a block of queries; those that do not exist are zero. Whole
/// vectors of existing rows are read where they lie.
void RecoverKernel::packQueries(Value firstRow, Value lastRow) {
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

void RecoverKernel::copyQuery(Value row, Value lastRow, Value to) {
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
void RecoverKernel::emitScores(Value firstRow, Value lastRow) {
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

void RecoverKernel::emitTile(Value basis, Value firstRow) {
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
void RecoverKernel::storeScores(Value basis, Value firstRow,
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

//===----------------------------------------------------------------------===//
// Differences
//===----------------------------------------------------------------------===//

/// Makes scores of a chunk of lags differences: every basis adds to the sum of
/// those before it, which is kept in f64 as attn.conv_apply will have it, so
/// that rounding errors do not add up.
void RecoverKernel::emitDifferences(Value firstLag, Value lastLag) {
  Value sums = b.scratch({kTaskLags}, b.getF64Type());
  KernelBuilder single(b.getLoc(), b, b.getF64Type(), /*lanes=*/1);
  single.loop(firstLag, lastLag, 1, [&](Value lag) {
    single.storeScalar(single.scalar(0.0), sums, single.sub(lag, firstLag));
  });
  b.loop(b.index(0), b.index(numBases), 1, [&](Value basis) {
    Value size = b.loadIndex(op.getSizes(), {batch, head, basis});
    Value end = b.clamp(size, firstLag, lastLag);
    auto at = [&](Value lag) { return Values{batch, head, basis, lag}; };
    b.forColumns(firstLag, end, [&](KernelBuilder &k, Value lag) {
      KernelBuilder wide(k.getLoc(), k, k.getF64Type(), k.getLanes());
      Value place = k.sub(lag, firstLag);
      Value sum = wide.loadVector(sums, place);
      Value difference =
          wide.fsub(wide.loadVector(op.getBasis(), at(lag)), sum);
      wide.storeVector(difference, op.getBasis(), at(lag));
      if (!k.getStateType().isF64()) {
        difference = arith::TruncFOp::create(k, k.getVectorType(), difference);
        difference =
            arith::ExtFOp::create(wide, wide.getVectorType(), difference);
      }
      wide.storeVector(wide.fadd(sum, difference), sums, place);
    });
    b.forColumns(end, lastLag, [&](KernelBuilder &k, Value lag) {
      k.storeVector(k.splat(0.0), op.getBasis(), at(lag));
    });
  });
}

void RecoverKernel::emit() {
  Value batches = b.extent(op.getQuery(), 0),
        heads = b.extent(op.getQuery(), 1);
  numRows = b.extent(op.getQuery(), 2);
  b.forAll({batches, heads}, [&](ValueRange ivs) {
    beginTask(ivs);
    emitSearches();
    b.freeScratch();
  });
  b.forAll({batches, heads, b.ceilDiv(numRows, kTaskRows)},
           [&](ValueRange ivs) {
             beginTask(ivs);
             Value first = b.mul(ivs[2], kTaskRows);
             emitScores(first, b.min(b.add(first, kTaskRows), numRows));
             b.freeScratch();
           });
  b.forAll({batches, heads, b.ceilDiv(numRows, kTaskLags)},
           [&](ValueRange ivs) {
             beginTask(ivs);
             Value first = b.mul(ivs[2], kTaskLags);
             emitDifferences(first, b.min(b.add(first, kTaskLags), numRows));
             b.freeScratch();
           });
}

void fovea::attn::emitConvRecover(OpBuilder &builder, ConvRecoverOp op,
                                  RegisterFile registers) {
  RecoverKernel(builder, op, registers).emit();
}
