//===- ConvGradientToeplitz.cpp - Gradients, pair by pair -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients of values are products of register tiles of keys and columns, like
// the forward ones of queries and columns. Those of profiles are sums along
// diagonals of g value^T: a task has the blocks of queries and keys at one
// distance, vectors of queries, and adds each tile to the lags of its keys. A
// lag has as many terms as there are tokens, so that sums of more than a few
// are in f64.
//
//===----------------------------------------------------------------------===//

#include "ConvGradient.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Queries and keys of a block, and keys of a register tile.
static constexpr int64_t kBlock = 64, kTileKeys = 4;
/// Keys whose terms for a lag are added up in the type of sums.
static constexpr int64_t kSummedKeys = 32;

namespace {
class ConvGradientToeplitz : public ConvProduct {
public:
  explicit ConvGradientToeplitz(ConvGradientTables &tables);

private:
  void emit() override;
  Value judgeBlock(Value, Value first, Value end) override {
    return t.marks.mark(first, end);
  }

  void addValues(Value firstKey, Value column);
  void addQueries(Value firstKey, Value tile, Value column, Value firstRow,
                  Value endRow, Value sums);

  void packPanel(Value block);
  void emitDistance(Value distance);
  void addSegment(Value segment, Value low, Value high, Value keyBlock,
                  Value distance, Value sums);
  void addKeys(Value key, int64_t numKeys, Value keyBlock, Value queryBlock,
               Value sums);
  KernelBuilder wide() { return {b.getLoc(), b, b.getF64Type(), lanes}; }
  Value rowOf(Value segment, Value distance) {
    return b.add(b.mul(segment, b.add(numBlocks, 1)), distance);
  }

  ConvGradientTables &g;
  ConvTables &t;
  ConvBuilder &b;
  const ConvPlan &plan;
  int64_t lanes;
  Value numBlocks;
  /// g by block, transposed: [blocks, paddedWidth, queries].
  Value panels;
  /// Sums for the lags of two blocks at a distance, by segment and distance, in
  /// f64: entry kBlock + (i - j), for the rows i and j within the blocks.
  Value lagSums;
};
} // namespace

ConvGradientToeplitz::ConvGradientToeplitz(ConvGradientTables &tables)
    : g(tables), t(g.t), b(g.b), plan(b.plan), lanes(plan.lanes),
      numBlocks(b.ceilDiv(b.numTokens, kBlock)) {
  Type state = b.getStateType();
  panels =
      b.allocate(state, {numBlocks, b.index(b.paddedWidth), b.index(kBlock)});
  lagSums = b.allocate(b.getF64Type(), {b.mul(b.numBases, b.add(numBlocks, 1)),
                                        b.index(2 * kBlock)});
}

void ConvGradientToeplitz::emit() {
  b.forAll({b.index(b.paddedWidth / plan.getColumns()), numBlocks},
           [&](ValueRange task) {
             addValues(b.mul(task[1], kBlock),
                       b.mul(task[0], plan.getColumns()));
           });
  b.forAll({numBlocks}, [&](ValueRange task) { packPanel(task[0]); });
  // One more distance, at which nothing is: the last lags have it beside them.
  b.forAll({b.add(numBlocks, 1)},
           [&](ValueRange task) { emitDistance(task[0]); });
  g.profiles.storeWeighted([&](Value segment, Value lag) {
    Value distance = b.div(lag, kBlock), place = b.rem(lag, kBlock);
    Value later[] = {rowOf(segment, distance), b.add(place, kBlock)};
    Value earlier[] = {rowOf(segment, b.add(distance, 1)), place};
    KernelBuilder w = wide();
    Value sum =
        w.fadd(w.loadVector(lagSums, later), w.loadVector(lagSums, earlier));
    return b.narrow(sum);
  });
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Adds all queries to a block of keys.
void ConvGradientToeplitz::addValues(Value firstKey, Value column) {
  int64_t keys = llvm::alignTo(kBlock, plan.rows);
  Value sums = b.scratch({keys, plan.getColumns()}, b.getStateType());
  b.loop(b.index(0), b.index(keys), 1, [&](Value key) {
    for (int64_t k = 0; k < plan.vectors; ++k)
      b.storeVector(b.splat(0.0), sums, {key, b.index(k * lanes)});
  });
  Value endKey = b.min(b.add(firstKey, kBlock), b.numTokens);
  b.loop(firstKey, b.numTokens, kBlock, [&](Value chunk) {
    Value endRow = b.min(b.add(chunk, kBlock), b.numTokens);
    b.loop(b.index(0), b.sub(endKey, firstKey), plan.rows, [&](Value tile) {
      Value firstRow = b.max(chunk, b.add(firstKey, tile));
      addQueries(firstKey, tile, column, firstRow, endRow, sums);
    });
  });
  b.loop(firstKey, endKey, 1, [&](Value key) {
    for (int64_t k = 0; k < plan.vectors; ++k)
      g.values.add(
          b.loadVector(sums, {b.sub(key, firstKey), b.index(k * lanes)}), key,
          b.add(column, k * lanes));
  });
}

/// Adds queries `[firstRow, endRow)` to a register tile of keys.
void ConvGradientToeplitz::addQueries(Value firstKey, Value tile, Value column,
                                      Value firstRow, Value endRow,
                                      Value sums) {
  // Where the weight of a key and query 0 would be; keys that no basis reaches
  // have the profile of zeros.
  Values origins;
  Value begin = t.segments.first(), last = b.sub(b.numTokens, b.index(1));
  for (int64_t u = 0; u < plan.rows; ++u) {
    Value key = b.add(b.add(firstKey, tile), u);
    Value isReached =
        b.both(b.less(b.sub(begin, b.index(1)), key), b.less(key, b.numTokens));
    Value segment =
        b.select(isReached, t.segments.of(b.min(key, last)), b.numBases);
    origins.push_back(b.sub(t.profiles.weightAt(segment, b.index(0)), key));
  }
  Values tileSums(plan.rows * plan.vectors, b.splat(0.0));
  tileSums =
      b.loop(firstRow, endRow, 1, tileSums, [&](Value row, ValueRange sums) {
        Values next(sums), gradients;
        for (int64_t k = 0; k < plan.vectors; ++k)
          gradients.push_back(
              b.loadVector(g.rows.memref, {row, b.add(column, k * lanes)}));
        for (int64_t u = 0; u < plan.rows; ++u) {
          Value weight = b.broadcast(
              b.loadScalar(t.profiles.weights, b.add(origins[u], row)));
          for (int64_t k = 0; k < plan.vectors; ++k) {
            Value &sum = next[u * plan.vectors + k];
            sum = b.fma(weight, gradients[k], sum);
          }
        }
        return next;
      });
  for (int64_t u = 0; u < plan.rows; ++u)
    for (int64_t k = 0; k < plan.vectors; ++k) {
      Value at[] = {b.add(tile, u), b.index(k * lanes)};
      b.storeVector(
          b.fadd(b.loadVector(sums, at), tileSums[u * plan.vectors + k]), sums,
          at);
    }
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

void ConvGradientToeplitz::packPanel(Value block) {
  Value firstRow = b.mul(block, kBlock), last = b.sub(b.numTokens, b.index(1));
  b.loop(b.index(0), b.index(kBlock), lanes, [&](Value query) {
    b.loop(b.index(0), b.index(b.paddedWidth), lanes, [&](Value column) {
      Values rows;
      for (int64_t t = 0; t < lanes; ++t) {
        Value row = b.add(b.add(firstRow, query), t);
        Value numbers = b.loadVector(g.rows.memref, {b.min(row, last), column});
        rows.push_back(arith::SelectOp::create(b, b.less(row, b.numTokens),
                                               numbers, b.splat(0.0)));
      }
      for (auto [t, numbers] : llvm::enumerate(b.transpose(rows)))
        b.storeVector(numbers, panels, {block, b.add(column, t), query});
    });
  });
}

/// The blocks of keys, and those of queries at a distance behind them.
void ConvGradientToeplitz::emitDistance(Value distance) {
  Value sums = b.scratch({2 * kBlock + lanes}, b.getStateType());
  b.loop(b.index(0), b.numBases, 1, [&](Value segment) {
    b.loop(b.index(0), b.index(2 * kBlock), lanes, [&](Value at) {
      KernelBuilder w = wide();
      w.storeVector(w.splat(0.0), lagSums, {rowOf(segment, distance), at});
    });
  });
  Value begin = t.segments.first();
  b.loop(
      b.div(begin, kBlock), b.sub(numBlocks, distance), 1, [&](Value keyBlock) {
        Value first = b.max(b.mul(keyBlock, kBlock), begin);
        Value end = b.min(b.mul(b.add(keyBlock, 1), kBlock), b.numTokens);
        b.ifThen(b.less(first, end), [&] {
          Value last = t.segments.of(b.sub(end, b.index(1)));
          b.loop(t.segments.of(first), b.add(last, 1), 1, [&](Value segment) {
            Value low = b.max(first, t.segments.first(segment));
            Value high = b.min(end, t.segments.end(segment));
            b.loop(low, high, kSummedKeys, [&](Value key) {
              Value end = b.min(b.add(key, kSummedKeys), high);
              addSegment(segment, key, end, keyBlock, distance, sums);
            });
          });
        });
      });
}

/// A few keys `[low, high)` of a block, which one segment has.
void ConvGradientToeplitz::addSegment(Value segment, Value low, Value high,
                                      Value keyBlock, Value distance,
                                      Value sums) {
  for (int64_t at = 0; at < 2 * kBlock + lanes; at += lanes)
    b.storeVector(b.splat(0.0), sums, b.index(at));
  Value queryBlock = b.add(keyBlock, distance);
  Value whole = b.add(low, b.roundDown(b.sub(high, low), kTileKeys));
  b.loop(low, whole, kTileKeys, [&](Value key) {
    addKeys(key, kTileKeys, keyBlock, queryBlock, sums);
  });
  b.loop(whole, high, 1,
         [&](Value key) { addKeys(key, 1, keyBlock, queryBlock, sums); });
  KernelBuilder w = wide();
  for (int64_t place = 0; place < 2 * kBlock; place += lanes) {
    Value at[] = {rowOf(segment, distance), w.index(place)};
    w.storeVector(w.fadd(w.loadVector(lagSums, at), w.loadVector(sums, at[1])),
                  lagSums, at);
  }
}

/// `g value^T - e` for a few keys and a block of queries.
void ConvGradientToeplitz::addKeys(Value key, int64_t numKeys, Value keyBlock,
                                   Value queryBlock, Value sums) {
  int64_t vectors = plan.accumulators / kTileKeys;
  Value keyPlace = b.sub(key, b.mul(keyBlock, kBlock));
  b.loop(b.index(0), b.index(kBlock), vectors * lanes, [&](Value query) {
    Values tile(numKeys * vectors, b.splat(0.0));
    tile = b.loop(
        b.index(0), b.index(b.width), 1, tile,
        [&](Value column, ValueRange sums) {
          Values next(sums), gradients;
          for (int64_t k = 0; k < vectors; ++k)
            gradients.push_back(b.loadVector(
                panels, {queryBlock, column, b.add(query, k * lanes)}));
          for (int64_t u = 0; u < numKeys; ++u) {
            Value number = b.broadcast(b.loadScalar(
                t.values.memref, {b.batch, b.group, b.add(key, u), column}));
            for (int64_t k = 0; k < vectors; ++k) {
              Value &sum = next[u * vectors + k];
              sum = b.fma(number, gradients[k], sum);
            }
          }
          return next;
        });
    Value firstRow = b.add(b.mul(queryBlock, kBlock), query);
    for (int64_t k = 0; k < vectors; ++k) {
      Value delta = g.rows.loadDeltas(b.add(firstRow, k * lanes));
      for (int64_t u = 0; u < numKeys; ++u) {
        Value place = b.sub(b.add(query, kBlock + k * lanes - u), keyPlace);
        Value sum = b.fsub(tile[u * vectors + k], delta);
        b.storeVector(b.fadd(b.loadVector(sums, place), sum), sums, place);
      }
    }
  });
}

void fovea::attn::conv::emitConvGradientToeplitz(OpBuilder &builder,
                                                 ConvApplyBackwardOp op,
                                                 const ConvPlan &plan) {
  ConvBuilder b(builder, op, op.getBasis(), op.getSizes(), op.getValue(), plan);
  emitConvGradient(b, op, [](ConvGradientTables &tables) {
    return std::make_unique<ConvGradientToeplitz>(tables);
  });
}
