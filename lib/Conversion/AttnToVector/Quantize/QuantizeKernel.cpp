//===- QuantizeKernel.cpp - Loops of attn.quantize ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizeKernel.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

/// Keys of a task: few enough to give many threads work, but the first block of
/// a task finds nothing prefetched.
static constexpr int64_t kMinTasks = 32, kMaxRun = 2048, kDynamicRun = 512;
/// Keys that are handled one by one: as fast as a vector of them is for four.
static constexpr int64_t kFewKeys = 4;
/// Codewords of a register tile.
static constexpr int64_t kMaxCodes = 8;
/// Prefetches before a tile of products; more would stall its loads.
static constexpr int64_t kMaxPrefetches = 8;
static constexpr int64_t kLineBytes = 64;

QuantizePlan fovea::attn::planQuantize(QuantizeOp op, RegisterFile registers) {
  auto key = cast<MemRefType>(op.getKey().getType());
  QuantizePlan plan;
  plan.lanes =
      registers.vectorBits / getStateType(key.getElementType()).getWidth();
  // As in attn-select-tiles: square, as large as the registers allow, and no
  // wider than there are keys.
  int64_t accumulators = registers.count >= 32 ? 16 : 8;
  plan.vectors = registers.count >= 32 ? 4 : 2;
  int64_t rows = key.getDimSize(2);
  if (!ShapedType::isDynamic(rows))
    plan.vectors = std::clamp<int64_t>(llvm::divideCeil(rows, plan.lanes), 1,
                                       plan.vectors);
  plan.codes = std::min(kMaxCodes, accumulators / plan.vectors);
  int64_t run = kDynamicRun;
  if (key.hasStaticShape())
    run = std::clamp(rows * key.getDimSize(0) * key.getDimSize(1) / kMinTasks,
                     plan.getBlock(), kMaxRun);
  plan.run = llvm::alignTo(run, plan.getBlock());
  plan.fewKeys = !ShapedType::isDynamic(rows) && rows <= kFewKeys &&
                 key.getDimSize(3) % plan.lanes == 0;
  return plan;
}

namespace {
class QuantizeKernel {
public:
  QuantizeKernel(OpBuilder &builder, QuantizeOp op, const QuantizePlan &plan,
                 bool manageCache);
  void emit();

private:
  /// A run of keys of one head.
  struct Run {
    Value batch, head, set, begin, end;
  };
  /// The best score and its code so far, one vector each per vector of keys.
  struct Best {
    Values scores, codes;
  };

  void prepareCodebook();
  void copyCodewords(Value set);
  void computeHalfNorms(Value set);
  void emitRun(const Run &run);
  void packKeys(const Run &run, Value first, Value count);
  Best findNearest(const Run &run, Value first);
  void compareTile(const Run &run, Value code, int64_t numCodes, Best &best);
  void prefetchKeys(const Run &run, Value first, Value tile);
  void storeCodes(const Run &run, Value first, Value count, const Best &best);

  KernelBuilder b;
  QuantizeOp op;
  const QuantizePlan &plan;
  int64_t width, paddedWidth, numCodes;
  bool manageCache;
  VectorType codesType;
  Type elementType;

  /// The codebook, or a copy of it in the state type with a width of whole
  /// vectors; and `-|C_s|^2 / 2`.
  Value codebook, halfNorms;
  bool copiesCodebook;
  // Scratch of a task.
  Value packedKeys, stagedKeys, nearest;
};
} // namespace

QuantizeKernel::QuantizeKernel(OpBuilder &builder, QuantizeOp op,
                               const QuantizePlan &plan, bool manageCache)
    : b(op.getLoc(), builder,
        getStateType(cast<MemRefType>(op.getKey().getType()).getElementType()),
        plan.lanes),
      op(op), plan(plan), manageCache(manageCache) {
  auto key = cast<MemRefType>(op.getKey().getType());
  elementType = key.getElementType();
  width = key.getDimSize(3);
  paddedWidth = llvm::alignTo(width, plan.lanes);
  numCodes = cast<MemRefType>(op.getCodebook().getType()).getDimSize(1);
  codesType = VectorType::get({plan.lanes}, b.getI32Type());
  copiesCodebook = elementType != b.getStateType() || width != paddedWidth;
}

void QuantizeKernel::emit() {
  prepareCodebook();
  auto sets = cast<MemRefType>(op.getCodebook().getType());
  Value rows = b.extent(op.getKey(), 2);
  SmallVector<OpFoldResult> bounds = {
      getAsOpFoldResult(b.extent(op.getKey(), 0)),
      getAsOpFoldResult(b.extent(op.getKey(), 1)),
      getAsOpFoldResult(b.ceilDiv(rows, plan.run))};
  scf::ForallOp::create(
      b, bounds, /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
      [&](OpBuilder &, Location, ValueRange ivs) {
        Run run = {ivs[0], ivs[1], ivs[1], b.mul(ivs[2], plan.run), Value()};
        if (sets.getDimSize(0) == 1)
          run.set = b.index(0);
        run.end = b.min(b.add(run.begin, plan.run), rows);
        emitRun(run);
        scf::InParallelOp::create(b);
      });
  memref::DeallocOp::create(b, halfNorms);
  if (copiesCodebook)
    memref::DeallocOp::create(b, codebook);
}

//===----------------------------------------------------------------------===//
// Codebook
//===----------------------------------------------------------------------===//

void QuantizeKernel::prepareCodebook() {
  Value sets = b.extent(op.getCodebook(), 0);
  int64_t staticSets =
      cast<MemRefType>(op.getCodebook().getType()).getDimSize(0);
  auto allocate = [&](ArrayRef<int64_t> shape) -> Value {
    SmallVector<int64_t> full = {staticSets};
    llvm::append_range(full, shape);
    SmallVector<Value> dynamicExtents;
    if (ShapedType::isDynamic(staticSets))
      dynamicExtents.push_back(sets);
    return memref::AllocOp::create(b, MemRefType::get(full, b.getStateType()),
                                   dynamicExtents, b.getI64IntegerAttr(64));
  };
  halfNorms =
      allocate({static_cast<int64_t>(llvm::alignTo(numCodes, plan.lanes))});
  codebook = copiesCodebook ? allocate({numCodes, paddedWidth})
                            : Value(op.getCodebook());
  scf::ForallOp::create(b, SmallVector<OpFoldResult>{getAsOpFoldResult(sets)},
                        /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
                        [&](OpBuilder &, Location, ValueRange ivs) {
                          if (copiesCodebook)
                            copyCodewords(ivs[0]);
                          computeHalfNorms(ivs[0]);
                          scf::InParallelOp::create(b);
                        });
}

/// Copies one set, with zeros past the width.
void QuantizeKernel::copyCodewords(Value set) {
  b.loop(b.index(0), b.index(numCodes), 1, [&](Value code) {
    int64_t column = 0;
    for (; column + plan.lanes <= width; column += plan.lanes)
      b.storeVector(
          b.loadVector(op.getCodebook(), {set, code, b.index(column)}),
          codebook, {set, code, b.index(column)});
    if (column == width)
      return;
    b.storeVector(b.splat(0.0), codebook, {set, code, b.index(column)});
    b.loop(b.index(column), b.index(width), 1, [&](Value tail) {
      b.storeScalar(b.loadScalar(op.getCodebook(), {set, code, tail}), codebook,
                    {set, code, tail});
    });
  });
}

/// One chain of multiply-adds for each codeword, as many side by side as a
/// vector has lanes.
void QuantizeKernel::computeHalfNorms(Value set) {
  b.loop(b.index(0), b.index(numCodes), plan.lanes, [&](Value first) {
    Values rows;
    for (int64_t i = 0; i < plan.lanes; ++i)
      rows.push_back(b.min(b.add(first, i), numCodes - 1));
    Values sum =
        b.loop(b.index(0), b.index(paddedWidth), plan.lanes, {b.splat(0.0)},
               [&](Value column, ValueRange sums) {
                 Values tile;
                 for (Value row : rows)
                   tile.push_back(b.loadVector(codebook, {set, row, column}));
                 Value sum = sums[0];
                 for (Value part : b.transpose(tile))
                   sum = b.fma(part, part, sum);
                 return Values{sum};
               });
    b.storeVector(b.fmul(sum[0], b.splat(-0.5)), halfNorms, {set, first});
  });
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

void QuantizeKernel::emitRun(const Run &run) {
  int64_t block = plan.getBlock();
  packedKeys = b.scratch({paddedWidth, block}, b.getStateType());
  stagedKeys = b.scratch({block, paddedWidth}, b.getStateType());
  nearest = b.scratch({block}, b.getI32Type());
  b.loop(run.begin, run.end, block, [&](Value first) {
    Value count = b.min(b.sub(run.end, first), block);
    packKeys(run, first, count);
    storeCodes(run, first, count, findNearest(run, first));
  });
  b.freeScratch();
}

/// Transposes the keys of a block. Narrow types, ragged widths and the last
/// keys of a sequence go through a padded copy.
void QuantizeKernel::packKeys(const Run &run, Value first, Value count) {
  int64_t block = plan.getBlock(), lanes = plan.lanes;
  Value key = op.getKey();
  auto stage = [&] {
    b.loop(b.index(0), count, 1, [&](Value row) {
      b.copyRow(key, {run.batch, run.head, b.add(first, row)}, stagedKeys, row,
                width);
    });
    // Lanes without a key compute too: no subnormal leftovers for them.
    b.loop(count, b.index(block), 1, [&](Value row) {
      b.overVectors(llvm::alignTo(width, lanes), [&](Value column) {
        b.storeVector(b.splat(0.0), stagedKeys, {row, column});
      });
    });
  };
  auto transpose = [&](llvm::function_ref<Value(Value, Value)> load) {
    b.loop(b.index(0), b.index(block), lanes, [&](Value row) {
      b.loop(b.index(0), b.index(width), lanes, [&](Value column) {
        Values tile;
        for (int64_t i = 0; i < lanes; ++i)
          tile.push_back(load(b.add(row, i), column));
        for (auto [i, vector] : llvm::enumerate(b.transpose(tile)))
          b.storeVector(vector, packedKeys, {b.add(column, i), row});
      });
    });
  };
  auto throughCopy = [&] {
    stage();
    transpose([&](Value row, Value column) {
      return b.loadVector(stagedKeys, {row, column});
    });
  };
  if (copiesCodebook)
    return throughCopy();
  b.ifThenElse(
      b.equal(count, b.index(block)),
      [&] {
        transpose([&](Value row, Value column) {
          return b.loadVector(key,
                              {run.batch, run.head, b.add(first, row), column});
        });
      },
      throughCopy);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

QuantizeKernel::Best QuantizeKernel::findNearest(const Run &run, Value first) {
  Value none = b.splat(-std::numeric_limits<double>::infinity());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(codesType));
  int64_t vectors = plan.vectors;
  int64_t whole = numCodes / plan.codes * plan.codes;
  Values carried(vectors, none);
  carried.append(vectors, zero);
  auto unpack = [&](ValueRange values) {
    Best best;
    best.scores.assign(values.begin(), values.begin() + vectors);
    best.codes.assign(values.begin() + vectors, values.end());
    return best;
  };
  carried = b.loop(b.index(0), b.index(whole), plan.codes, carried,
                   [&](Value code, ValueRange values) {
                     Best best = unpack(values);
                     prefetchKeys(run, first, b.div(code, plan.codes));
                     compareTile(run, code, plan.codes, best);
                     Values next = best.scores;
                     next.append(best.codes);
                     return next;
                   });
  Best best = unpack(carried);
  if (whole != numCodes)
    compareTile(run, b.index(whole), numCodes - whole, best);
  // An infinite score is that of an infinite key, far from all codewords.
  Value infinity = b.splat(std::numeric_limits<double>::infinity());
  for (int64_t v = 0; v < vectors; ++v) {
    Value isFinite = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                                           best.scores[v], infinity);
    best.codes[v] = arith::SelectOp::create(b, isFinite, best.codes[v], zero);
  }
  return best;
}

/// Scores codewords `code, code + 1, ...` and keeps what is better.
void QuantizeKernel::compareTile(const Run &run, Value code, int64_t count,
                                 Best &best) {
  int64_t vectors = plan.vectors;
  Values sums;
  for (int64_t i = 0; i < count; ++i) {
    Value start = b.loadScalar(halfNorms, {run.set, b.add(code, i)});
    sums.append(vectors, b.broadcast(start));
  }
  int64_t unroll = 4;
  while (width % unroll != 0)
    --unroll;
  sums = b.loop(b.index(0), b.index(width), unroll, sums,
                [&](Value column, ValueRange running) {
                  Values next(running);
                  for (int64_t u = 0; u < unroll; ++u) {
                    Value k = b.add(column, u);
                    Values keys;
                    for (int64_t v = 0; v < vectors; ++v)
                      keys.push_back(b.loadVector(
                          packedKeys, {k, b.index(v * plan.lanes)}));
                    for (int64_t i = 0; i < count; ++i) {
                      Value codeword = b.broadcast(
                          b.loadScalar(codebook, {run.set, b.add(code, i), k}));
                      for (int64_t v = 0; v < vectors; ++v) {
                        Value &sum = next[i * vectors + v];
                        sum = b.fma(codeword, keys[v], sum);
                      }
                    }
                  }
                  return next;
                });
  for (int64_t i = 0; i < count; ++i) {
    Value number =
        arith::IndexCastOp::create(b, b.getI32Type(), b.add(code, i));
    Value codes = vector::BroadcastOp::create(b, codesType, number);
    for (int64_t v = 0; v < vectors; ++v) {
      // Strictly greater: the first of equal codewords wins, and NaN never.
      Value score = sums[i * vectors + v];
      Value isBetter = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                             score, best.scores[v]);
      best.scores[v] =
          arith::SelectOp::create(b, isBetter, score, best.scores[v]);
      best.codes[v] =
          arith::SelectOp::create(b, isBetter, codes, best.codes[v]);
    }
  }
}

/// Asks for a few lines of the next block's keys before every tile.
void QuantizeKernel::prefetchKeys(const Run &run, Value first, Value tile) {
  int64_t rows = cast<MemRefType>(op.getKey().getType()).getDimSize(2);
  if (!manageCache || (!ShapedType::isDynamic(rows) && rows <= plan.getBlock()))
    return;
  int64_t lineElements = kLineBytes * 8 / elementType.getIntOrFloatBitWidth();
  int64_t linesPerRow = llvm::divideCeil(width, lineElements);
  int64_t numTiles = std::max<int64_t>(1, numCodes / plan.codes);
  int64_t perTile = llvm::divideCeil(plan.getBlock() * linesPerRow, numTiles);
  if (perTile > kMaxPrefetches)
    return;
  Value next = b.add(first, plan.getBlock());
  for (int64_t i = 0; i < perTile; ++i) {
    Value line = b.add(b.mul(tile, perTile), i);
    Value column = b.mul(b.rem(line, linesPerRow), lineElements);
    b.prefetch(
        op.getKey(),
        {run.batch, run.head, b.add(next, b.div(line, linesPerRow)), column},
        /*locality=*/2);
  }
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void QuantizeKernel::storeCodes(const Run &run, Value first, Value count,
                                const Best &best) {
  for (int64_t v = 0; v < plan.vectors; ++v)
    vector::StoreOp::create(b, best.codes[v], nearest,
                            ValueRange(b.index(v * plan.lanes)));
  b.loop(b.index(0), count, 1, [&](Value i) {
    Value code = memref::LoadOp::create(b, nearest, i);
    emitCode(b, op, {run.batch, run.head, b.add(first, i)}, run.set,
             arith::IndexCastOp::create(b, b.getIndexType(), code));
  });
}

void fovea::attn::emitCode(KernelBuilder &b, QuantizeOp op, ValueRange key,
                           Value set, Value code) {
  Value narrow = arith::IndexCastOp::create(b, b.getI32Type(), code);
  memref::StoreOp::create(b, narrow, op.getCodes(), key);
  if (!op.getQuantized())
    return;
  int64_t lanes = b.getLanes();
  int64_t width = cast<MemRefType>(op.getKey().getType()).getDimSize(3);
  auto at = [&](Value column) {
    Values indices(key);
    indices.push_back(column);
    return indices;
  };
  if (width < lanes) {
    b.loop(b.index(0), b.index(width), 1, [&](Value column) {
      Value part = b.loadScalar(op.getCodebook(), {set, code, column});
      b.storeScalar(part, op.getQuantized(), at(column));
    });
    return;
  }
  // The last vector ends at the last column.
  b.loop(b.index(0), b.index(width), lanes, [&](Value column) {
    if (width % lanes != 0)
      column = b.min(column, width - lanes);
    Value part = b.loadVector(op.getCodebook(), {set, code, column});
    b.storeVector(part, op.getQuantized(), at(column));
  });
}

void fovea::attn::emitQuantize(OpBuilder &builder, QuantizeOp op,
                               const QuantizePlan &plan, bool manageCache) {
  QuantizeKernel(builder, op, plan, manageCache).emit();
}
