//===- CausalSumChunk.cpp - Rows of a causal low-rank sum -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CausalSumKernel.h"
#include "fovea/Kernels/TileProduct.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Whether rows of one type follow each other in memory like those of another.
static bool hasSameRows(MemRefType type, MemRefType packed) {
  SmallVector<int64_t> strides, packedStrides;
  int64_t offset;
  return type.getElementType() == packed.getElementType() &&
         succeeded(type.getStridesAndOffset(strides, offset)) &&
         succeeded(packed.getStridesAndOffset(packedStrides, offset)) &&
         type.getShape().back() == packed.getShape().back() &&
         ArrayRef(strides).take_back(2) == ArrayRef(packedStrides);
}

/// Packs rows `first .. first + chunk - 1`; those that do not exist are zero.
void CausalSumKernel::packRows(const PackedRows &source, Value head,
                               Value first, Range range, Value from,
                               Value target, int64_t columns) {
  b.loop(b.index(0), b.index(kChunk), 1, [&](Value i) {
    Value row = b.add(first, i);
    Value exists = b.both(b.less(b.sub(range.begin, b.index(1)), row),
                          b.less(row, range.end));
    b.ifThenElse(
        exists,
        [&] {
          packRow(source, {batch, head, position(row, range.end)}, from, target,
                  i, columns);
        },
        [&] { fillZero(b, target, i, columns); });
  });
}

/// The rows of a chunk as packRows has them in `packed`. Where all exist and
/// lie in memory just so, they stay there; others are packed with `pack`, and
/// are packed already without. They can be asked to be aligned as vectors are.
Value CausalSumKernel::chunkRows(const PackedRows &source, Value head,
                                 Value first, Range range, Value from,
                                 Value packed, bool pack, bool areAligned) {
  auto packAll = [&] {
    int64_t columns = cast<MemRefType>(packed.getType()).getDimSize(1);
    if (pack)
      packRows(source, head, first, range, from, packed, columns);
    return packed;
  };
  auto type = cast<MemRefType>(packed.getType());
  if (sum.transposed || !source.isPlain() ||
      !hasSameRows(cast<MemRefType>(source.rows.getType()), type))
    return packAll();
  Value exist = b.both(b.less(b.sub(range.begin, b.index(1)), first),
                       b.less(b.add(first, kChunk - 1), range.end));
  if (areAligned) {
    Value address =
        memref::ExtractAlignedPointerAsIndexOp::create(b, source.rows);
    int64_t bytes = lanes * state.getWidth() / 8;
    exist = b.both(exist, b.equal(b.rem(address, bytes), b.index(0)));
  }
  return b.select(
      exist, type,
      [&]() -> Value {
        SmallVector<OpFoldResult> offsets = {batch, head, first, b.index(0)};
        SmallVector<OpFoldResult> sizes(2, b.getIndexAttr(1));
        SmallVector<OpFoldResult> strides(4, b.getIndexAttr(1));
        for (int64_t extent : type.getShape())
          sizes.push_back(b.getIndexAttr(extent));
        return memref::SubViewOp::create(b, type, source.rows, offsets, sizes,
                                         strides);
      },
      packAll);
}

/// Rows that read no key count as none.
void CausalSumKernel::setRows(Value slot, Value first, bool pack) {
  Value begin = b.max(b.sub(b.index(0), diagonal()), 0);
  Value end = b.select(b.less(b.index(0), numColumns()), numRows(), b.index(0));
  rows = chunkRows(sum.left, rowHead, first, {begin, end}, b.index(0),
                   b.rowView(left, slot), pack);
}

void CausalSumKernel::setValues(Value slot, Value panelNumber, Value first,
                                bool pack) {
  chunkValues = chunkRows(sum.value, keyHead, first, allKeys(), firstColumn,
                          b.rowView(values, {slot, panelNumber}), pack);
}

void CausalSumKernel::packKeys(Value first) {
  keys = chunkRows(sum.right, keyHead, first, allKeys(), b.index(0),
                   b.rowView(right, b.index(0)), /*pack=*/true,
                   /*areAligned=*/true);
}

/// The lower triangle of rows right^T, zero above the diagonal. Meanwhile the
/// operands of the next chunk are brought to the second cache level.
void CausalSumKernel::emitScores(Value slot, Value first) {
  SmallVector<Dots> all;
  for (int64_t row = 0; row < kChunk; ++row)
    for (int64_t key = 0; key < kChunk; key += lanes) {
      if (key <= row)
        all.push_back({row, key, std::min(row + 1 - key, lanes)});
      else
        b.storeVector(b.splat(0.0), scores, {slot, b.index(row), b.index(key)});
    }
  // As many at once as registers allow, long ones with short ones.
  llvm::sort(all, [](const Dots &a, const Dots &b) {
    return std::tie(a.count, a.row, a.key) < std::tie(b.count, b.row, b.key);
  });
  SmallVector<SmallVector<Dots>> groups;
  for (ArrayRef<Dots> open = all; !open.empty();) {
    int64_t count = open.back().count;
    groups.push_back({open.back()});
    open = open.drop_back();
    while (!open.empty() &&
           count + open.front().count <= registers.getAccumulators()) {
      count += open.front().count;
      groups.back().push_back(open.front());
      open = open.drop_front();
    }
  }
  Value next = b.add(first, kChunk), nextKeys = b.add(next, diagonal()),
        zero = b.index(0);
  Ahead operands[] = {
      {sum.left.rows, rowHead, next, numRows(), zero, sum.left.getWidth()},
      {sum.right.rows, keyHead, nextKeys, numColumns(), zero,
       sum.right.getWidth()},
      {sum.value.rows, keyHead, nextKeys, numColumns(), zero, width}};
  int64_t steps = paddedRank() / lanes, turns = groups.size() * steps;
  for (auto [i, dots] : llvm::enumerate(groups))
    emitDots(slot, dots, [&, i = i](Value d) {
      Value turn = b.add(b.div(d, lanes), i * steps);
      for (const Ahead &ahead : operands)
        if (ahead.memref)
          prefetchRows(ahead, kChunk, turn, turns);
    });
}

/// Some dot products, with `ahead` beside each step along the rank.
void CausalSumKernel::emitDots(Value slot, ArrayRef<Dots> dots,
                               function_ref<void(Value)> ahead) {
  int64_t count = 0;
  for (const Dots &each : dots)
    count += each.count;
  Values sums(count, b.splat(0.0));
  sums = b.loop(b.index(0), b.index(paddedRank()), lanes, sums,
                [&](Value d, ValueRange running) {
                  Values next;
                  ahead(d);
                  for (const Dots &each : dots) {
                    Value row = b.loadVector(rows, {b.index(each.row), d});
                    for (int64_t i = 0; i < each.count; ++i) {
                      Value key =
                          b.loadVector(keys, {b.index(each.key + i), d});
                      next.push_back(b.fma(row, key, running[next.size()]));
                    }
                  }
                  return next;
                });
  ArrayRef<Value> rest = sums;
  for (const Dots &each : dots) {
    b.storeVector(b.sumEach(rest.take_front(each.count)), scores,
                  {slot, b.index(each.row), b.index(each.key)});
    rest = rest.drop_front(each.count);
  }
}

/// Packs the values of a chunk of keys, and makes the sums of the segment after
/// it from those before.
void CausalSumKernel::addKeys(Value slot, Value first) {
  Value next = b.add(slot, 1);
  forPanels([&](Value i) {
    setValues(slot, i, first, /*pack=*/true);
    emitOuterProducts(b, registers,
                      {keys, chunkValues, b.index(kChunk),
                       b.rowView(locals, {slot, i}),
                       b.rowView(locals, {next, i}), rank, panel});
  });
  if (numTails > 0)
    packTails(slot, first);
  b.loop(b.index(0), b.index(paddedRank()), lanes, [&](Value d) {
    for (int64_t c = 0; c < numKeySums(); ++c) {
      Value part;
      for (int64_t i = 0; i < kChunk; ++i) {
        Value key = b.loadVector(keys, {b.index(i), d});
        if (isOnes(c)) {
          part = part ? b.fadd(part, key) : key;
          continue;
        }
        Value weight = b.broadcast(b.loadScalar(
            tails, {slot, b.index(c - sum.hasTotals()), b.index(i)}));
        part = part ? b.fma(key, weight, part) : b.fmul(key, weight);
      }
      part = b.fadd(b.loadVector(keyLocals, {slot, b.index(c), d}), part);
      b.storeVector(part, keyLocals, {next, b.index(c), d});
    }
  });
}

/// Packs the values of a chunk that are not in panels, a row for each column.
void CausalSumKernel::packTails(Value slot, Value first) {
  packRows(sum.value, keyHead, first, allKeys(), b.index(width - numTails),
           packedTails, lanes);
  for (int64_t c = 0; c < numTails; ++c)
    b.loop(b.index(0), b.index(kChunk), 1, [&](Value i) {
      b.storeScalar(b.loadScalar(packedTails, {i, b.index(c)}), tails,
                    {slot, b.index(c), i});
    });
}

/// Numbers of column `c` of the sums for keys from `key` on; zeros for those
/// that row `i` does not read, whose weights are zero.
Value CausalSumKernel::loadTails(Value slot, int64_t c, int64_t i,
                                 int64_t key) {
  Value numbers =
      b.loadVector(tails, {slot, b.index(c - sum.hasTotals()), b.index(key)});
  if (i + 1 - key >= lanes)
    return numbers;
  Value isRead = vector::CreateMaskOp::create(
      b, VectorType::get({lanes}, b.getI1Type()), b.index(i + 1 - key));
  return arith::SelectOp::create(b, isRead, numbers, b.splat(0.0));
}

/// The sum of the weights of every row of a chunk, its product with the sum of
/// the keys before the chunk and the numbers of its triangle; likewise what
/// becomes of values that are not in panels.
void CausalSumKernel::emitTotals(Value slot) {
  for (int64_t c = 0; c < numKeySums(); ++c) {
    Value column = b.index(c);
    Values parts(kChunk, b.splat(0.0));
    parts = b.loop(b.index(0), b.index(paddedRank()), lanes, parts,
                   [&](Value d, ValueRange running) {
                     Values next;
                     Value keys =
                         b.fadd(b.loadVector(keyBases, {column, d}),
                                b.loadVector(keyLocals, {slot, column, d}));
                     for (int64_t i = 0; i < kChunk; ++i)
                       next.push_back(b.fma(b.loadVector(rows, {b.index(i), d}),
                                            keys, running[i]));
                     return next;
                   });
    for (int64_t i = 0; i < kChunk; ++i)
      for (int64_t key = 0; key <= i; key += lanes) {
        Value weights = b.loadVector(scores, {slot, b.index(i), b.index(key)});
        if (isOnes(c))
          parts[i] = b.fadd(parts[i], weights);
        else
          parts[i] = b.fma(weights, loadTails(slot, c, i, key), parts[i]);
      }
    for (int64_t i = 0; i < kChunk; i += lanes) {
      Value total = b.sumEach(ArrayRef(parts).slice(i, lanes));
      b.storeVector(total, totals, {column, b.index(i)});
      if (isOnes(c))
        b.storeVector(arith::DivFOp::create(b, b.splat(1.0), total), inverses,
                      b.index(i));
    }
  }
}

/// The tile of rows from `first` on of a chunk and a panel, which is row `row`
/// of all. The first one makes the sums before the chunk.
void CausalSumKernel::emitRows(Value slot, Value panelNumber, Value first,
                               Value row, bool isFirst) {
  int64_t count = panel / lanes, numRows = registers.getTileRows(count);
  Value base = b.rowView(bases, panelNumber);
  Value local = b.rowView(locals, {slot, panelNumber});
  // Adds row j of `vectors` times the factors of the tile from row `low` on.
  auto multiply = [&](ValueRange running, Value factors, Value j, int64_t low,
                      ArrayRef<Value> vectors) {
    Values next(running);
    for (int64_t i = low; i < numRows; ++i) {
      Value factor = b.broadcast(b.loadScalar(factors, {b.add(first, i), j}));
      for (int64_t v = 0; v < count; ++v)
        next[i * count + v] = b.fma(factor, vectors[v], next[i * count + v]);
    }
    return next;
  };
  auto loadRow = [&](Value from, Value j) {
    Values vectors;
    for (int64_t v = 0; v < count; ++v)
      vectors.push_back(b.loadVector(from, {j, b.index(v * lanes)}));
    return vectors;
  };
  auto multiplySums = [&](Value d, ValueRange running) {
    if (!isFirst)
      return multiply(running, rows, d, 0, loadRow(before, d));
    Values sums;
    for (auto [v, pair] :
         llvm::enumerate(llvm::zip(loadRow(base, d), loadRow(local, d)))) {
      sums.push_back(b.fadd(std::get<0>(pair), std::get<1>(pair)));
      if (numRows < kChunk)
        b.storeVector(sums.back(), before, {d, b.index(v * lanes)});
    }
    return multiply(running, rows, d, 0, sums);
  };
  // Meanwhile the same rows of the next chunk of the output are brought to the
  // second cache level, a line in every turn.
  Ahead output = {sum.output,      rowHead,     b.add(row, kChunk),
                  this->numRows(), firstColumn, panel};
  int64_t turns = std::min(rank, numRows * count);
  Values tile(numRows * count, b.splat(0.0));
  tile = b.loop(b.index(0), b.index(turns), 1, tile,
                [&](Value d, ValueRange running) {
                  prefetchRows(output, numRows, d, turns);
                  return multiplySums(d, running);
                });
  tile = b.loop(b.index(turns), b.index(rank), 1, tile, multiplySums);
  // Keys before the first row of the tile, and its own triangle.
  Value weights = b.rowView(scores, slot);
  tile = b.loop(b.index(0), first, 1, tile, [&](Value j, ValueRange running) {
    return multiply(running, weights, j, 0, loadRow(chunkValues, j));
  });
  for (int64_t i = 0; i < numRows; ++i) {
    Value j = b.add(first, i);
    tile = multiply(tile, weights, j, i, loadRow(chunkValues, j));
  }
  for (int64_t i = 0; i < numRows; ++i) {
    Value total, factor;
    if (sum.hasTotals()) {
      total = b.loadScalar(totals, {b.index(0), b.add(first, i)});
      factor = b.loadScalar(inverses, b.add(first, i));
    }
    Values means;
    auto scale = [&](Value factor) {
      for (int64_t v = 0; v < count; ++v)
        means.push_back(emitResult(b, tile[i * count + v], total, factor));
    };
    if (!sum.scale)
      scale(factor);
    b.ifThen(b.less(b.add(row, i), this->numRows()), [&] {
      Value at[] = {batch, rowHead, position(b.add(row, i), this->numRows())};
      if (sum.scale)
        scale(b.loadScalar(sum.scale, at));
      storeRow(at, means);
    });
  }
}

/// What becomes of a sum: its mean, or its product with `factor`, if any.
Value CausalSumKernel::emitResult(KernelBuilder &k, Value value, Value total,
                                  Value factor) {
  if (total)
    return divideByTotal(k, value, total, factor);
  return factor ? k.fmul(value, k.broadcast(factor)) : value;
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

void CausalSumKernel::storeRow(ValueRange row, ArrayRef<Value> vectors) {
  Values at(row);
  at.push_back({});
  // The heads that share a row are added one after the other.
  auto add = [&](KernelBuilder &k, Value value, Value column) {
    at.back() = b.add(firstColumn, column);
    k.storeVector(addToOutput(k, value, at, isFirstHead), sum.output, at);
  };
  Value available = b.sub(b.index(width - numTails), firstColumn);
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

/// Stores the columns that are not in panels, of a chunk of rows from `first`
/// on.
void CausalSumKernel::storeTails(Value first) {
  Value end = b.min(b.add(first, kChunk), numRows());
  b.loop(first, end, 1, [&](Value row) {
    KernelBuilder k(b.getLoc(), b, state, /*lanes=*/1);
    Value i = b.sub(row, first), total, factor;
    Values at = {batch, rowHead, position(row, numRows())};
    if (sum.hasTotals()) {
      total = b.loadScalar(totals, {b.index(0), i});
      factor = b.loadScalar(inverses, i);
    } else if (sum.scale) {
      factor = b.loadScalar(sum.scale, at);
    }
    at.push_back({});
    for (int64_t c = 0; c < numTails; ++c) {
      at.back() = b.index(width - numTails + c);
      Value value = k.loadVector(totals, {b.index(sum.hasTotals() + c), i});
      value = emitResult(k, value, total, factor);
      k.storeVector(addToOutput(k, value, at, isFirstHead), sum.output, at);
    }
  });
}
