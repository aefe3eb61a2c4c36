//===- CausalSumKernel.cpp - Low-rank attention under a causal mask -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (batch, head)
//     C = 0, z = 0
//     for each segment
//       for each of its chunks, of rows and the keys on their diagonal
//         S = lower triangle of left right^T                [chunk][chunk]
//         L, l = those of the chunk before + right^T V, + the sum of the keys
//       C0, z0 = C, z
//       C, z += L, l
//       for each chunk, with L and l of the one before it
//         totals = left (z0 + l + the keys of the chunk up to each row's)
//         output = left (C0 + L) + S V, divided by the totals
//
// C and the sums of keys z are running sums of segments, compensated. Keys
// before the first diagonal only go to them. Under the transposed mask rows and
// keys come in the opposite order: row i from the end reads the keys up to key
// i from the end.
//
// Where there are few heads, segments are the tasks, and take turns to read and
// add to C and z. That is a small part of their work, so several go on side by
// side; what they compute is the same.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "Turns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of a chunk. The triangle costs half a chunk of products for every row,
/// rounded up to vectors; its sums cost an addition for every chunk.
static constexpr int64_t kChunk = 16;

namespace {
class CausalSumKernel : LowRankKernel {
public:
  CausalSumKernel(OpBuilder &builder, Location loc, const LowRankSum &sum,
                  const LowRankTarget &target);

  void emit();

private:
  /// Rows from number `row` on that will be read, from column `first` on.
  struct Ahead {
    Value memref, head, row, total, first;
    int64_t columns;
  };
  /// Sums that go on from segment to segment, and what they lost: outer
  /// products of all panels, and keys.
  struct State {
    Value sums, carries, keySums, keyCarries;
  };

  /// Where row number `row` of `total` lies.
  Value position(Value row, Value total) {
    return sum.transposed ? b.sub(b.sub(total, b.index(1)), row) : row;
  }
  /// Row i reads keys up to i + diagonal, which may be negative.
  Value diagonal() {
    return sum.transposed ? b.index(0) : b.sub(numColumns(), numRows());
  }

  void emitHeads();
  void emitSegments();
  void allocateScratch();
  void startHead();
  void emitSegment(Value first, Value turn);
  void emitSums(Value slot, Value first);
  void emitOutputs(Value slot, Value first);
  void forPanels(llvm::function_ref<void(Value)> body);

  void packRows(const PackedRows &source, Value head, Value first, Value total,
                Value from, Value target, int64_t columns);
  void packKeys(Value slot, Value first);
  void emitScores(Value slot, Value first);
  void addKeys(Value slot);
  void addToState(Value slot);

  void emitTotals(Value slot);
  void emitRows(Value slot, Value panelNumber, Value first, Value row,
                bool isFirst);
  Value emitResult(Value value, Value total, Value factor);
  void prefetchRows(const Ahead &ahead, int64_t rows, Value turn,
                    int64_t turns);
  void storeRow(ValueRange at, ArrayRef<Value> vectors);

  /// Panels of value columns, the columns of one, and the chunks of a segment.
  int64_t numPanels, panel, numChunks;
  bool hasTurns;
  Turns turns;
  // The present task.
  Value batch, rowHead, queryHead, keyHead, isFirstHead;
  State running;
  /// Packed rows and triangles of the chunks of a segment.
  Value left, right, values, scores, rightTransposed;
  /// The sums of the segment before each chunk, and those before the segment.
  Value locals, keyLocals, bases, keyBases;
  /// The sums before a chunk, the totals of its rows and one over them.
  Value before, totals, inverses, edge;
  // The present panel.
  Value firstColumn;
};
} // namespace

CausalSumKernel::CausalSumKernel(OpBuilder &builder, Location loc,
                                 const LowRankSum &sum,
                                 const LowRankTarget &target)
    : LowRankKernel(builder, loc, sum, target.registers),
      turns(b, builder.getInsertionBlock()
                   ->getParentOp()
                   ->getParentOfType<ModuleOp>()) {
  int64_t numVectors = llvm::divideCeil(width, lanes);
  numPanels = llvm::divideCeil(numVectors, vectors);
  panel = numPanels ? llvm::divideCeil(numVectors, numPanels) * lanes : 0;

  // The sums of a segment shall stay in the second cache level.
  constexpr int64_t kBytes = 512 << 10, kMaxChunks = 16;
  int64_t bytes = paddedRank() * numPanels * panel * state.getWidth() / 8;
  numChunks =
      std::clamp<int64_t>(kBytes / std::max<int64_t>(bytes, 1), 2, kMaxChunks);
  ArrayRef<int64_t> shape =
      cast<MemRefType>(sum.left.rows.getType()).getShape();
  // With twice as many heads as tasks are wanted, one more or less is no longer
  // felt.
  hasTurns = !ShapedType::isDynamicShape(shape.take_front(2)) &&
             shape[0] * shape[1] < 2 * target.minTasks &&
             (ShapedType::isDynamic(shape[2]) || shape[2] > numChunks * kChunk);
}

void CausalSumKernel::emit() {
  if (hasTurns)
    emitSegments();
  else
    emitHeads();
}

/// A task for every head.
void CausalSumKernel::emitHeads() {
  b.forAll({numBatches(), numRowHeads()}, [&](ValueRange ivs) {
    batch = ivs[0];
    rowHead = ivs[1];
    allocateScratch();
    int64_t padded = paddedRank();
    running.sums = b.scratch({numPanels, padded, panel}, state);
    running.carries = b.scratch({numPanels, padded, panel}, state);
    running.keySums = b.scratch({padded}, state);
    running.keyCarries = b.scratch({padded}, state);
    forQueryHeads(rowHead, [&](Value head, Value isFirst) {
      queryHead = head;
      isFirstHead = isFirst;
      startHead();
      b.loop(b.index(0), numRows(), numChunks * kChunk,
             [&](Value first) { emitSegment(first, /*turn=*/Value()); });
    });
    b.freeScratch();
  });
}

/// A task for every segment.
void CausalSumKernel::emitSegments() {
  int64_t padded = paddedRank();
  Value heads[] = {numBatches(), numQueryHeads()};
  State all;
  all.sums = b.allocate(heads, {numPanels, padded, panel}, state);
  all.carries = b.allocate(heads, {numPanels, padded, panel}, state);
  all.keySums = b.allocate(heads, {padded}, state);
  all.keyCarries = b.allocate(heads, {padded}, state);

  Value numSegments = b.ceilDiv(numRows(), numChunks * kChunk);
  auto emitItem = [&](Value item, Value chain) {
    Value segment = b.sub(b.sub(numSegments, b.index(1)), item);
    batch = b.div(chain, numRowHeads());
    rowHead = b.rem(chain, numRowHeads());
    allocateScratch();
    forQueryHeads(rowHead, [&](Value head, Value isFirst) {
      queryHead = head;
      isFirstHead = isFirst;
      Value at[] = {batch, head};
      running = {b.rowView(all.sums, at), b.rowView(all.carries, at),
                 b.rowView(all.keySums, at), b.rowView(all.keyCarries, at)};
      b.ifThen(b.equal(segment, b.index(0)), [&] { startHead(); });
      // Heads that share a row take one turn after the other.
      Value shared = b.div(numQueryHeads(), numRowHeads());
      Value member = sum.transposed ? b.rem(head, shared) : b.index(0);
      emitSegment(b.mul(segment, numChunks * kChunk), b.add(member, 1));
    });
    turns.end(b.index(Turns::kLast));
    b.freeScratch();
  };
  turns.forAll(numSegments, b.mul(numBatches(), numRowHeads()),
               /*isOrdered=*/true, emitItem);
  for (Value buffer : {all.sums, all.carries, all.keySums, all.keyCarries})
    memref::DeallocOp::create(b, buffer);
}

void CausalSumKernel::allocateScratch() {
  int64_t padded = paddedRank();
  left = b.scratch({numChunks, kChunk, padded}, state);
  right = b.scratch({numChunks, kChunk, padded}, state);
  values = b.scratch({numChunks, numPanels, kChunk, panel}, state);
  scores = b.scratch({numChunks, kChunk, kChunk}, state);
  rightTransposed = b.scratch({padded, kChunk}, state);
  locals = b.scratch({numChunks + 1, numPanels, padded, panel}, state);
  bases = b.scratch({numPanels, padded, panel}, state);
  before = b.scratch({padded, panel}, state);
  keyLocals = b.scratch({numChunks + 1, padded}, state);
  keyBases = b.scratch({padded}, state);
  totals = b.scratch({kChunk}, state);
  inverses = b.scratch({kChunk}, state);
  edge = b.scratch({lanes}, state);
  // Nothing comes before the first chunk of a segment.
  Value zero = b.index(0);
  fillZero(b, keyLocals, zero, padded);
  forPanels([&](Value i) {
    b.loop(zero, b.index(padded), 1,
           [&](Value d) { fillZero(b, locals, {zero, i, d}, panel); });
  });
}

/// Sets the state of a query head to the sums of the keys before row 0's last
/// one.
void CausalSumKernel::startHead() {
  Value zero = b.index(0), padded = b.index(paddedRank());
  keyHead = columnHead(queryHead);
  if (sum.hasTotals()) {
    fillZero(b, running.keySums, {}, paddedRank());
    fillZero(b, running.keyCarries, {}, paddedRank());
  }
  forPanels([&](Value i) {
    b.loop(zero, padded, 1, [&](Value d) {
      fillZero(b, running.sums, {i, d}, panel);
      fillZero(b, running.carries, {i, d}, panel);
    });
  });
  // Their number need not be whole chunks: the first chunk begins before key 0.
  Value numKeys = b.max(diagonal(), 0);
  Value padding = b.sub(b.mul(b.ceilDiv(numKeys, kChunk), kChunk), numKeys);
  b.loop(zero, b.add(numKeys, padding), kChunk, [&](Value first) {
    packKeys(zero, b.sub(first, padding));
    addKeys(zero);
    addToState(b.index(1));
  });
}

/// Calls `body` with the number of each panel.
void CausalSumKernel::forPanels(llvm::function_ref<void(Value)> body) {
  if (panel == 0)
    return;
  b.loop(b.index(0), b.index(numPanels), 1, [&](Value i) {
    firstColumn = b.mul(i, panel);
    body(i);
  });
}

/// The segment of rows from `first` on, which adds to the state at `turn`.
void CausalSumKernel::emitSegment(Value first, Value turn) {
  keyHead = columnHead(queryHead);
  Value zero = b.index(0);
  Value count = b.min(b.ceilDiv(b.sub(numRows(), first), kChunk), numChunks);
  auto rowOf = [&](Value slot) { return b.add(first, b.mul(slot, kChunk)); };
  b.loop(zero, count, 1, [&](Value slot) { emitSums(slot, rowOf(slot)); });
  if (turn)
    turns.wait(turn);
  addToState(count);
  if (turn)
    turns.end(turn);
  b.loop(zero, count, 1, [&](Value slot) { emitOutputs(slot, rowOf(slot)); });
}

/// What the chunk of rows from `first` on has to be multiplied with, but for
/// what comes before its segment.
void CausalSumKernel::emitSums(Value slot, Value first) {
  packRows(sum.left, rowHead, first, numRows(), b.index(0),
           b.rowView(left, slot), paddedRank());
  packKeys(slot, b.add(first, diagonal()));
  if (panel > 0)
    emitScores(slot, first);
  addKeys(slot);
}

void CausalSumKernel::emitOutputs(Value slot, Value first) {
  if (sum.hasTotals())
    emitTotals(slot);
  if (sum.result == LowRankSum::Result::InverseTotals)
    return b.loop(first, b.min(b.add(first, kChunk), numRows()), 1,
                  [&](Value row) {
                    Value total = b.loadScalar(totals, b.sub(row, first));
                    b.storeScalar(invertOrZero(total), sum.output,
                                  {batch, rowHead, position(row, numRows())});
                  });
  forPanels([&](Value i) {
    int64_t rows = tileRows(panel / lanes);
    emitRows(slot, i, b.index(0), first, /*isFirst=*/true);
    b.loop(b.index(rows), b.index(kChunk), rows, [&](Value row) {
      emitRows(slot, i, row, b.add(first, row), /*isFirst=*/false);
    });
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
void CausalSumKernel::packKeys(Value slot, Value first) {
  packRows(sum.right, keyHead, first, numColumns(), b.index(0),
           b.rowView(right, slot), paddedRank());
  forPanels([&](Value i) {
    packRows(sum.value, keyHead, first, numColumns(), firstColumn,
             b.rowView(values, {slot, i}), panel);
  });
}

/// The lower triangle of left right^T, zero above the diagonal. Meanwhile the
/// operands of the next chunk are brought to the second cache level.
void CausalSumKernel::emitScores(Value slot, Value first) {
  b.loop(b.index(0), b.index(paddedRank()), lanes, [&](Value d) {
    b.loop(b.index(0), b.index(kChunk), lanes, [&](Value j) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i)
        square.push_back(b.loadVector(right, {slot, b.add(j, i), d}));
      for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
        b.storeVector(vector, rightTransposed, {b.add(d, i), j});
    });
  });
  // As many rows as registers allow, beside the vectors up to the diagonal.
  int64_t rows = std::min(tileRows(llvm::divideCeil(kChunk, lanes)), kChunk);
  for (int64_t low = 0; low < kChunk; low += rows) {
    // All that a tile of rows will read.
    int64_t read = llvm::alignTo(low + rows, tileRows(panel / lanes));
    int64_t count = llvm::divideCeil(std::min(read, kChunk), lanes);
    Value next = b.add(first, kChunk + low);
    Value keys = b.add(next, diagonal()), zero = b.index(0);
    Ahead operands[] = {
        {sum.left.rows, rowHead, next, numRows(), zero, sum.left.getWidth()},
        {sum.right.rows, keyHead, keys, numColumns(), zero,
         sum.right.getWidth()},
        {sum.value.rows, keyHead, keys, numColumns(), zero, width}};
    Values tile(rows * count, b.splat(0.0));
    tile = b.loop(
        b.index(0), b.index(rank), 1, tile, [&](Value d, ValueRange running) {
          Values next(running), keys;
          for (int64_t v = 0; v < count; ++v)
            keys.push_back(
                b.loadVector(rightTransposed, {d, b.index(v * lanes)}));
          for (const Ahead &ahead : operands)
            prefetchRows(ahead, rows, d, rank);
          for (int64_t i = 0; i < rows; ++i) {
            Value factor =
                b.broadcast(b.loadScalar(left, {slot, b.index(low + i), d}));
            for (int64_t v = 0; v < count; ++v)
              next[i * count + v] = b.fma(factor, keys[v], next[i * count + v]);
          }
          return next;
        });
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t v = 0; v < count; ++v) {
        SmallVector<bool> isKept;
        for (int64_t lane = 0; lane < lanes; ++lane)
          isKept.push_back(v * lanes + lane <= low + i);
        Value kept = arith::ConstantOp::create(
            b, DenseElementsAttr::get(VectorType::get({lanes}, b.getI1Type()),
                                      ArrayRef<bool>(isKept)));
        Value score =
            arith::SelectOp::create(b, kept, tile[i * count + v], b.splat(0.0));
        b.storeVector(score, scores,
                      {slot, b.index(low + i), b.index(v * lanes)});
      }
  }
}

/// The sums of the segment after a chunk from those before it.
void CausalSumKernel::addKeys(Value slot) {
  Value next = b.add(slot, 1);
  forPanels([&](Value i) {
    addProducts(b.rowView(right, slot), b.rowView(values, {slot, i}),
                b.index(kChunk), b.rowView(locals, {slot, i}),
                b.rowView(locals, {next, i}), panel);
  });
  if (!sum.hasTotals())
    return;
  b.loop(b.index(0), b.index(paddedRank()), lanes, [&](Value d) {
    Value keys = b.loadVector(right, {slot, b.index(0), d});
    for (int64_t i = 1; i < kChunk; ++i)
      keys = b.fadd(keys, b.loadVector(right, {slot, b.index(i), d}));
    keys = b.fadd(b.loadVector(keyLocals, {slot, d}), keys);
    b.storeVector(keys, keyLocals, {next, d});
  });
}

/// Keeps the state and adds the sums of the segment before chunk `slot` to it.
void CausalSumKernel::addToState(Value slot) {
  forPanels([&](Value i) {
    b.loop(b.index(0), b.index(rank), 1, [&](Value d) {
      b.loop(b.index(0), b.index(panel), lanes, [&](Value column) {
        Value at[] = {i, d, column};
        b.storeVector(b.loadVector(running.sums, at), bases, at);
        addCompensated(b, b.loadVector(locals, {slot, i, d, column}),
                       running.sums, running.carries, at);
      });
    });
  });
  if (!sum.hasTotals())
    return;
  b.loop(b.index(0), b.index(paddedRank()), lanes, [&](Value d) {
    b.storeVector(b.loadVector(running.keySums, d), keyBases, d);
    addCompensated(b, b.loadVector(keyLocals, {slot, d}), running.keySums,
                   running.keyCarries, d);
  });
}

/// The product of every row of a chunk with the sum of the keys up to its own:
/// the sum of its weights.
void CausalSumKernel::emitTotals(Value slot) {
  Values parts(kChunk, b.splat(0.0));
  parts = b.loop(b.index(0), b.index(paddedRank()), lanes, parts,
                 [&](Value d, ValueRange running) {
                   Values next;
                   Value keys = b.fadd(b.loadVector(keyBases, d),
                                       b.loadVector(keyLocals, {slot, d}));
                   Value here;
                   for (int64_t i = 0; i < kChunk; ++i) {
                     Value at[] = {slot, b.index(i), d};
                     Value key = b.loadVector(right, at);
                     here = here ? b.fadd(here, key) : key;
                     next.push_back(b.fma(b.loadVector(left, at),
                                          b.fadd(keys, here), running[i]));
                   }
                   return next;
                 });
  for (int64_t first = 0; first < kChunk; first += lanes) {
    // A row becomes a lane, and a sum of lanes one of vectors.
    Values rows = b.transpose(ArrayRef(parts).slice(first, lanes));
    for (int64_t half = lanes / 2; half > 0; half /= 2)
      for (int64_t i = 0; i < half; ++i)
        rows[i] = b.fadd(rows[i], rows[i + half]);
    Value total = rows.front();
    b.storeVector(total, totals, b.index(first));
    b.storeVector(arith::DivFOp::create(b, b.splat(1.0), total), inverses,
                  b.index(first));
  }
}

/// The tile of rows from `first` on of a chunk and a panel, which is row `row`
/// of all. The first one makes the sums before the chunk.
void CausalSumKernel::emitRows(Value slot, Value panelNumber, Value first,
                               Value row, bool isFirst) {
  int64_t count = panel / lanes, rows = tileRows(count);
  Value base = b.rowView(bases, panelNumber);
  Value local = b.rowView(locals, {slot, panelNumber});
  Values tile(rows * count, b.splat(0.0));
  auto multiply = [&](Value factors, Value vectors, Value low, Value high,
                      llvm::function_ref<void(Value)> ahead) {
    auto step = [&](Value j, ValueRange running) {
      Values next(running), rights;
      for (int64_t v = 0; v < count; ++v) {
        Value at[] = {j, b.index(v * lanes)};
        if (isFirst && vectors == before) {
          rights.push_back(
              b.fadd(b.loadVector(base, at), b.loadVector(local, at)));
          b.storeVector(rights.back(), before, at);
        } else {
          rights.push_back(b.loadVector(vectors, at));
        }
      }
      ahead(j);
      for (int64_t i = 0; i < rows; ++i) {
        Value at[] = {slot, b.add(first, i), j};
        Value factor = b.broadcast(b.loadScalar(factors, at));
        for (int64_t v = 0; v < count; ++v)
          next[i * count + v] = b.fma(factor, rights[v], next[i * count + v]);
      }
      return next;
    };
    tile = b.loop(low, high, 1, tile, step);
  };
  // Meanwhile the same rows of the next chunk of the output are brought to the
  // second cache level, a line in every turn.
  Ahead output = {sum.output, rowHead,     b.add(row, kChunk),
                  numRows(),  firstColumn, panel};
  int64_t turns = std::min(rank, rows * count);
  multiply(left, before, b.index(0), b.index(turns),
           [&](Value d) { prefetchRows(output, rows, d, turns); });
  multiply(left, before, b.index(turns), b.index(rank), [](Value) {});
  multiply(scores, b.rowView(values, {slot, panelNumber}), b.index(0),
           b.add(first, rows), [](Value) {});
  for (int64_t i = 0; i < rows; ++i) {
    Value total, factor;
    if (sum.hasTotals()) {
      total = b.loadScalar(totals, b.add(first, i));
      factor = b.loadScalar(inverses, b.add(first, i));
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

void fovea::attn::emitCausalSum(OpBuilder &builder, Location loc,
                                const LowRankSum &sum,
                                const LowRankTarget &target) {
  CausalSumKernel(builder, loc, sum, target).emit();
}
