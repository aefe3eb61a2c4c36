//===- LinalgContraction.cpp - Register-tiled products --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for each block of the reduction
//     pack panel[block][columns] of the right operand
//     for each register tile of rows
//       sums += left . panel, from zero
//
// The panel is contiguous, so that rows a power of two apart do not compete for
// a few sets of the caches, and so that it does not matter how the right
// operand is laid out. Few rows would not pay for it (FewRows.cpp).
//
//===----------------------------------------------------------------------===//

#include "ContractionKernel.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of one task, and steps of the reduction whose packed panel (64 columns
/// of f32: 64 KB) is read again for every register tile.
static constexpr int64_t kTaskRows = 120, kBlock = 256;
/// More rows than this in a register tile would outrun the loads of the panel.
static constexpr int64_t kMaxTileRows = 8;

namespace {
class PanelKernel : public ContractionKernel {
public:
  PanelKernel(const Contraction &contraction, OpBuilder &builder,
              RegisterFile registers);

private:
  void emitProducts() override;
  void emitBlock(Value low, Value count);
  void packPanel(Value low, Value count);
  void emitTile(Value firstRow, int64_t numRows, Value low, Value count);

  void forEachTile(function_ref<void(Value, int64_t)> emit);

  int64_t tileRows;
  /// The rows that whole tiles leave, where they are known: of the last chunk.
  std::optional<int64_t> restRows;
  Value panel, leftRows;
};
} // namespace

PanelKernel::PanelKernel(const Contraction &contraction, OpBuilder &builder,
                         RegisterFile registers)
    : ContractionKernel(contraction, builder, registers) {
  // 24 sums of 32 registers leave room for a row of the panel and a factor.
  int64_t accumulators = registers.count >= 32 ? 24 : 12;
  setTaskColumns(/*maxVectors=*/registers.count >= 32 ? 4 : 2);
  tileRows = std::min(kMaxTileRows, accumulators / vectors);
  taskRows = kTaskRows / tileRows * tileRows;
  if (!rowLoop) {
    tileRows = taskRows = 1;
    restRows = 0;
  } else if (int64_t rows = op.getStaticLoopRanges()[*rowLoop];
             !ShapedType::isDynamic(rows) && rows > 0) {
    // Chunks of equal length.
    int64_t chunks = llvm::divideCeil(rows, taskRows);
    taskRows = llvm::alignTo(llvm::divideCeil(rows, chunks), tileRows);
    restRows = rows % tileRows;
  }
}

void PanelKernel::emitProducts() {
  panel = b.scratch({kBlock, vectors * lanes}, state);
  // Narrow factors are converted once, not in every product.
  bool converts = getElementTypeOrSelf(left.memref) != state;
  leftRows = converts ? b.scratch({taskRows, kBlock}, state) : Value();
  std::function<void(ArrayRef<unsigned>)> reduce =
      [&](ArrayRef<unsigned> loops) {
        if (!loops.empty())
          return b.loop(b.index(0), extentOf(b, loops.front()), 1,
                        [&](Value iv) {
                          position[loops.front()] = iv;
                          reduce(loops.drop_front());
                        });
        Value depth = extentOf(b, depthLoop);
        b.loop(b.index(0), depth, kBlock, [&](Value low) {
          emitBlock(low, isMultiple(depthLoop, kBlock)
                             ? b.index(kBlock)
                             : b.min(b.sub(depth, low), kBlock));
        });
      };
  reduce(outerDepthLoops);
}

/// Packs rows `low...` of the right operand.
void PanelKernel::packPanel(Value low, Value count) {
  auto packScalars = [&](Value depth, Value from, Value to) {
    position[depthLoop] = b.add(low, depth);
    b.loop(from, to, 1, [&](Value column) {
      setColumn(column);
      b.storeScalar(b.loadScalar(right.memref, indices(right)), panel,
                    {depth, column});
    });
  };
  Value zero = b.splat(0.0);
  if (!isMultiple(columnLoop, vectors * lanes))
    b.loop(b.index(0), count, 1, [&](Value depth) {
      for (int64_t v = 0; v < vectors; ++v)
        b.storeVector(zero, panel, {depth, b.index(v * lanes)});
    });
  if (right.isContiguousAlong(columnLoop)) {
    b.loop(b.index(0), count, 1, [&](Value depth) {
      position[depthLoop] = b.add(low, depth);
      forEachColumn(
          [&](Value column) {
            setColumn(column);
            b.storeVector(b.loadVector(right.memref, indices(right)), panel,
                          {depth, column});
          },
          [&](Value column) {
            setColumn(column);
            b.storeScalar(b.loadScalar(right.memref, indices(right)), panel,
                          {depth, column});
          });
    });
    return;
  }
  if (!right.isContiguousAlong(depthLoop))
    return b.loop(b.index(0), count, 1, [&](Value depth) {
      packScalars(depth, b.index(0), numColumns);
    });
  // Whole squares are transposed in registers.
  Value wholeDepth = b.roundDown(count, lanes);
  Value wholeColumns = b.roundDown(numColumns, lanes);
  b.loop(b.index(0), wholeDepth, lanes, [&](Value depth) {
    position[depthLoop] = b.add(low, depth);
    b.loop(b.index(0), wholeColumns, lanes, [&](Value column) {
      Values tile;
      for (int64_t i = 0; i < lanes; ++i) {
        setColumn(b.add(column, i));
        tile.push_back(b.loadVector(right.memref, indices(right)));
      }
      for (auto [i, vector] : llvm::enumerate(b.transpose(tile)))
        b.storeVector(vector, panel, {b.add(depth, i), column});
    });
  });
  b.loop(wholeDepth, count, 1,
         [&](Value depth) { packScalars(depth, b.index(0), wholeColumns); });
  b.loop(b.index(0), count, 1,
         [&](Value depth) { packScalars(depth, wholeColumns, numColumns); });
}

void PanelKernel::emitBlock(Value low, Value count) {
  packPanel(low, count);
  if (leftRows)
    b.loop(b.index(0), numRows, 1, [&](Value row) {
      setRow(row);
      Value whole = left.isContiguousAlong(depthLoop)
                        ? b.roundDown(count, lanes)
                        : b.index(0);
      b.loop(b.index(0), whole, lanes, [&](Value depth) {
        position[depthLoop] = b.add(low, depth);
        b.storeVector(b.loadVector(left.memref, indices(left)), leftRows,
                      {row, depth});
      });
      b.loop(whole, count, 1, [&](Value depth) {
        position[depthLoop] = b.add(low, depth);
        b.storeScalar(b.loadScalar(left.memref, indices(left)), leftRows,
                      {row, depth});
      });
    });
  forEachTile(
      [&](Value row, int64_t numRows) { emitTile(row, numRows, low, count); });
}

/// Calls `emit` for all rows of the task. Few rows have too few sums to hide
/// the latency of additions, so that what is left is as few tiles as possible.
void PanelKernel::forEachTile(function_ref<void(Value, int64_t)> emit) {
  Value whole = b.roundDown(numRows, tileRows);
  b.loop(b.index(0), whole, tileRows, [&](Value row) { emit(row, tileRows); });
  if (restRows) {
    if (*restRows)
      b.ifThen(b.less(whole, numRows), [&] { emit(whole, *restRows); });
    return;
  }
  int64_t half = tileRows / 2;
  Value halves = b.add(whole, b.roundDown(b.sub(numRows, whole), half));
  b.loop(whole, halves, half, [&](Value row) { emit(row, half); });
  b.loop(halves, numRows, 1, [&](Value row) { emit(row, 1); });
}

/// Adds the products of `tileRows` rows and a block of the panel to the sums.
/// Sums of a block start from zero: many short sums lose less than a long one.
void PanelKernel::emitTile(Value tileRow, int64_t tileRows, Value low,
                           Value count) {
  Values tile(tileRows * vectors, b.splat(0.0));
  auto step = [&](Value depth, ValueRange running, int64_t unroll) {
    Values next(running);
    for (int64_t u = 0; u < unroll; ++u) {
      Value at = b.add(depth, u);
      Values columns;
      for (int64_t v = 0; v < vectors; ++v)
        columns.push_back(b.loadVector(panel, {at, b.index(v * lanes)}));
      position[depthLoop] = b.add(low, at);
      for (int64_t i = 0; i < tileRows; ++i) {
        Value row = b.add(tileRow, i);
        setRow(row);
        Value factor = leftRows ? b.loadScalar(leftRows, {row, at})
                                : b.loadScalar(left.memref, indices(left));
        factor = b.broadcast(factor);
        for (int64_t v = 0; v < vectors; ++v)
          next[i * vectors + v] =
              b.fma(factor, columns[v], next[i * vectors + v]);
      }
    }
    return next;
  };
  constexpr int64_t kUnroll = 2;
  Value whole = b.roundDown(count, kUnroll);
  tile = b.loop(b.index(0), whole, kUnroll, tile,
                [&](Value depth, ValueRange running) {
                  return step(depth, running, kUnroll);
                });
  tile = b.loop(whole, count, 1, tile, [&](Value depth, ValueRange running) {
    return step(depth, running, 1);
  });
  for (int64_t i = 0; i < tileRows; ++i)
    for (int64_t v = 0; v < vectors; ++v) {
      Values at = {b.add(tileRow, i), b.index(v * lanes)};
      Value old = b.loadVector(sums, at);
      b.storeVector(b.fadd(old, tile[i * vectors + v]), sums, at);
    }
}

void fovea::attn::emitContraction(const Contraction &contraction,
                                  OpBuilder &builder, RegisterFile registers) {
  linalg::LinalgOp op = contraction.op;
  KernelBuilder b(op.getLoc(), builder, contraction.state, /*lanes=*/1);
  auto emitPanels = [&] { PanelKernel(contraction, b, registers).emit(); };
  if (isReadableInPlace(contraction))
    b.ifThenElse(
        b.less(contraction.countRows(b), b.index(kMaxRowsInPlace + 1)),
        [&] { emitFewRows(contraction, b, registers); }, emitPanels);
  else
    emitPanels();
  if (contraction.fill)
    linalg::FillOp(contraction.fill).erase();
}

bool fovea::attn::emitLinalgContraction(linalg::LinalgOp op,
                                        RegisterFile registers) {
  std::optional<Contraction> contraction = Contraction::match(op);
  if (!contraction)
    return false;
  OpBuilder builder(op);
  emitContraction(*contraction, builder, registers);
  return true;
}
