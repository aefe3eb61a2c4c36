//===- ConvToeplitz.cpp - Weights times values, pair by pair --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Register tiles of queries and columns. The weights of a tile for one key are
// neighbours in a profile, each broadcast from memory; before lag 0 there are
// zeros, so the diagonal needs no mask.
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Keys whose values stay in the first-level cache while all queries of a task
/// read them.
static constexpr int64_t kKeys = 64;

namespace {
class ConvToeplitz : public ConvProduct {
public:
  ConvToeplitz(ConvTables &tables, Value output)
      : t(tables), b(t.b), plan(b.plan), lanes(plan.lanes), output(output) {}

private:
  void emit() override;
  Value judgeBlock(Value, Value first, Value end) override {
    return t.marks.mark(first, end);
  }
  void emitTask(Value firstRow, Value column);
  void addKeys(Value tile, Value row, Value column, Value firstKey,
               Value endKey, Value sums);

  Value loadSums(Value sums, Value row, int64_t vector) {
    return b.loadVector(sums, {row, b.index(vector * lanes)});
  }

  ConvTables &t;
  ConvBuilder &b;
  const ConvPlan &plan;
  int64_t lanes;
  Value output;
};
} // namespace

void ConvToeplitz::emit() {
  Value rowTasks = b.ceilDiv(b.numTokens, kTaskRows);
  Value columnTasks = b.index(b.paddedWidth / plan.getColumns());
  b.forAll({columnTasks, rowTasks}, [&](ValueRange task) {
    emitTask(b.mul(task[1], kTaskRows), b.mul(task[0], plan.getColumns()));
  });
}

void ConvToeplitz::emitTask(Value firstRow, Value column) {
  int64_t rows = llvm::alignTo(kTaskRows, plan.rows);
  Value sums = b.scratch({rows, plan.getColumns()}, b.getStateType());
  b.loop(b.index(0), b.index(rows), 1, [&](Value row) {
    for (int64_t k = 0; k < plan.vectors; ++k)
      b.storeVector(b.splat(0.0), sums, {row, b.index(k * lanes)});
  });
  Value endRow = b.min(b.add(firstRow, kTaskRows), b.numTokens);
  Value begin = t.segments.first();
  b.loop(b.roundDown(begin, kKeys), endRow, kKeys, [&](Value chunk) {
    Value firstKey = b.max(chunk, begin);
    Value endKey = b.min(b.add(chunk, kKeys), endRow);
    b.ifThen(b.less(firstKey, endKey), [&] {
      b.loop(b.index(0), b.sub(endRow, firstRow), plan.rows, [&](Value tile) {
        addKeys(tile, b.add(firstRow, tile), column, firstKey, endKey, sums);
      });
    });
  });
  b.loop(firstRow, endRow, 1, [&](Value row) {
    Value factor = b.broadcast(t.normalisers.loadReciprocal(row));
    for (int64_t k = 0; k < plan.vectors; ++k) {
      Value sum = loadSums(sums, b.sub(row, firstRow), k);
      b.storeColumns(b.fmul(sum, factor), output, {b.batch, b.head, row},
                     b.add(column, k * lanes));
    }
  });
}

/// Adds keys `[firstKey, endKey)` to the sums of a register tile.
void ConvToeplitz::addKeys(Value tile, Value row, Value column, Value firstKey,
                           Value endKey, Value sums) {
  Values tileSums;
  for (int64_t u = 0; u < plan.rows; ++u)
    for (int64_t k = 0; k < plan.vectors; ++k)
      tileSums.push_back(loadSums(sums, b.add(tile, u), k));
  Value end = b.min(endKey, b.add(row, plan.rows));
  Value firstSegment = t.segments.of(firstKey);
  Value lastSegment = t.segments.of(b.sub(endKey, b.index(1)));
  tileSums = b.loop(
      firstSegment, b.add(lastSegment, 1), 1, tileSums,
      [&](Value segment, ValueRange carried) {
        Value low = b.max(firstKey, t.segments.first(segment));
        Value high = b.min(end, t.segments.end(segment));
        Value origin = b.add(t.profiles.weightAt(segment, b.index(0)), row);
        return b.loop(low, high, 1, carried, [&](Value key, ValueRange sums) {
          Values next(sums), keyValues;
          for (int64_t k = 0; k < plan.vectors; ++k)
            keyValues.push_back(t.values.load(key, b.add(column, k * lanes)));
          Value offset = b.sub(origin, key);
          for (int64_t u = 0; u < plan.rows; ++u) {
            Value weight =
                b.broadcast(b.loadScalar(t.profiles.weights, b.add(offset, u)));
            for (int64_t k = 0; k < plan.vectors; ++k) {
              Value &sum = next[u * plan.vectors + k];
              sum = b.fma(weight, keyValues[k], sum);
            }
          }
          return next;
        });
      });
  for (int64_t u = 0; u < plan.rows; ++u)
    for (int64_t k = 0; k < plan.vectors; ++k)
      b.storeVector(tileSums[u * plan.vectors + k], sums,
                    {b.add(tile, u), b.index(k * lanes)});
}

void fovea::attn::conv::emitConvToeplitz(OpBuilder &builder, ConvApplyOp op,
                                         const ConvPlan &plan) {
  ConvBuilder b(builder, op, op.getBasis(), op.getSizes(), op.getValue(), plan);
  ConvValues values(b, /*findsSpoilt=*/false);
  emitConvApply(b, values, op, [&](ConvTables &tables) {
    return std::make_unique<ConvToeplitz>(tables, op.getOutput());
  });
}
