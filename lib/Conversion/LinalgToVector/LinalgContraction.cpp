//===- LinalgContraction.cpp - Register-tiled products --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for each block of the reduction
//     for each panel of columns
//       pack panel[block][columns] of the right operand
//       for each register tile of rows
//         sums += left . panel, from zero; the first block writes the sums of
//                 an output that was zero
//
// The panel is contiguous, so that rows a power of two apart do not compete for
// a few sets of the caches, and so that it does not matter how the right
// operand is laid out. It lies in the first cache, and what is next of the
// right operand comes to the second one meanwhile, where the block of the left
// operand stays for all panels. Few rows would not pay for it (FewRows.cpp).
// Constants are in such panels already (PackConstants.cpp), and read there.
//
//===----------------------------------------------------------------------===//

#include "ContractionKernel.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of one task, and bytes of a packed panel, which is read again for every
/// register tile, and the most steps of the reduction that it has.
static constexpr int64_t kTaskRows = 120, kPanelBytes = 32 << 10,
                         kMostSteps = 256;
/// More rows than this in a register tile would outrun the loads of the panel.
static constexpr int64_t kMaxTileRows = 8;
/// The most vectors of columns of one task, as long as there are some tasks,
/// and how many a dimension of unknown extent is taken to make.
static constexpr int64_t kMaxTaskVectors = 16, kMinTasks = 16,
                         kDynamicTasks = 4;
/// Steps in one turn of a tile's loop, the bytes of a line, and the most lines
/// that a turn asks for.
static constexpr int64_t kUnroll = 4, kLine = 64, kMaxAtOnce = 4;

int64_t fovea::attn::getPanelVectors(RegisterFile registers, int64_t lanes,
                                     int64_t columns) {
  int64_t most = registers.count >= 32 ? 4 : 2;
  if (ShapedType::isDynamic(columns))
    return most;
  return std::clamp<int64_t>(llvm::divideCeil(columns, lanes), 1, most);
}

namespace {
class PanelKernel : public ContractionKernel {
public:
  PanelKernel(const Contraction &contraction, OpBuilder &builder,
              RegisterFile registers);

private:
  void emitProducts() override;
  void emitBlock(Value low, Value count);
  void packLeft(Value low, Value count);
  Values findPanel(Value column);
  Values inPanel(Value depth, Value column);
  void packPanel(Value low, Value count);
  void prefetchNext(Value turn);
  void emitTile(Value firstRow, int64_t numRows, Value low, Value count);

  void planTasks();
  int64_t getPanelColumns() const { return panelVectors * lanes; }
  void forEachTile(function_ref<void(Value, int64_t)> emit);

  /// `block` is how many steps of the reduction the panel has.
  int64_t panelVectors, tileRows, block;
  /// The rows that whole tiles leave, where they are known: of the last chunk.
  std::optional<int64_t> restRows;
  /// The panel, or the right operand where that is made of panels.
  Value panel, leftRows;
  /// Where the present panel is in it, and the first step of the block.
  Values panelPlace;
  Value blockLow;
  /// The present panel: its first column in the task, and how many it has.
  Value panelColumn, panelCount;
  /// The panel that is packed next.
  Value nextDepth, nextColumn;
};
} // namespace

PanelKernel::PanelKernel(const Contraction &contraction, OpBuilder &builder,
                         RegisterFile registers)
    : ContractionKernel(contraction, builder, registers) {
  // 24 sums of 32 registers leave room for a row of the panel and a factor.
  int64_t accumulators = registers.count >= 32 ? 24 : 12;
  panelVectors = right.panelColumns
                     ? right.panelColumns / lanes
                     : getPanelVectors(registers, lanes,
                                       op.getStaticLoopRanges()[columnLoop]);
  tileRows = std::min(kMaxTileRows, accumulators / panelVectors);
  block = std::min(kMostSteps, kPanelBytes * 8 / getPanelColumns() /
                                   static_cast<int64_t>(state.getWidth()));
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
  planTasks();
  // There must be a first block.
  writesSums = isFromZero() && outerDepthLoops.empty() &&
               op.getStaticLoopRanges()[depthLoop] > 0;
}

/// Gives tasks several panels, of which all tasks have nearly as many.
void PanelKernel::planTasks() {
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  auto count = [&](unsigned loop, int64_t size) -> int64_t {
    return ShapedType::isDynamic(extents[loop])
               ? kDynamicTasks
               : std::max<int64_t>(llvm::divideCeil(extents[loop], size), 1);
  };
  int64_t others = rowLoop ? count(*rowLoop, taskRows) : 1;
  for (unsigned loop : outerLoops)
    others = std::min(others * count(loop, 1), kMinTasks);
  int64_t most = kMaxTaskVectors / panelVectors;
  int64_t panels = ShapedType::isDynamic(extents[columnLoop])
                       ? kDynamicTasks * most
                       : count(columnLoop, getPanelColumns());
  int64_t width = std::clamp<int64_t>(
      panels / llvm::divideCeil(kMinTasks, others), 1, most);
  vectors =
      llvm::divideCeil(panels, llvm::divideCeil(panels, width)) * panelVectors;
}

void PanelKernel::emitProducts() {
  panel = right.panelColumns ? right.memref
                             : b.scratch({block, getPanelColumns()}, state);
  // Narrow factors are converted once, not in every product.
  bool converts = getElementTypeOrSelf(left.memref) != state;
  leftRows = converts ? b.scratch({taskRows, block}, state) : Value();
  std::function<void(ArrayRef<unsigned>)> reduce =
      [&](ArrayRef<unsigned> loops) {
        if (!loops.empty())
          return b.loop(b.index(0), extentOf(b, loops.front()), 1,
                        [&](Value iv) {
                          position[loops.front()] = iv;
                          reduce(loops.drop_front());
                        });
        Value depth = extentOf(b, depthLoop);
        b.loop(b.index(0), depth, block, [&](Value low) {
          emitBlock(low, isMultiple(depthLoop, block)
                             ? b.index(block)
                             : b.min(b.sub(depth, low), block));
        });
      };
  reduce(outerDepthLoops);
}

void PanelKernel::emitBlock(Value low, Value count) {
  if (leftRows)
    packLeft(low, count);
  int64_t columns = getPanelColumns();
  blockLow = low;
  b.loop(b.index(0), numColumns, columns, [&](Value column) {
    panelColumn = column;
    panelCount = isMultiple(columnLoop, columns)
                     ? b.index(columns)
                     : b.min(b.sub(numColumns, column), columns);
    panelPlace = findPanel(panelColumn);
    if (!right.panelColumns)
      packPanel(low, count);
    // After the last panel comes the first one of the next block, and after the
    // last block the next task.
    Value endColumn = b.add(column, columns), endDepth = b.add(low, block);
    Value hasPanel = b.less(endColumn, numColumns);
    Value hasBlock = b.less(endDepth, extentOf(b, depthLoop));
    nextDepth =
        b.select(hasPanel, low, b.select(hasBlock, endDepth, b.index(0)));
    nextColumn = b.select(hasPanel, endColumn,
                          b.select(hasBlock, b.index(0), endColumn));
    forEachTile([&](Value row, int64_t numRows) {
      emitTile(row, numRows, low, count);
    });
  });
}

/// Where the panel that begins at `column` is among those of the operand.
PanelKernel::Values PanelKernel::findPanel(Value column) {
  if (!right.panelColumns)
    return {};
  Values place =
      llvm::map_to_vector(ArrayRef(right.loops).drop_back(3),
                          [&](unsigned loop) { return position[loop]; });
  place.push_back(b.div(b.add(firstColumn, column), getPanelColumns()));
  return place;
}

/// The place of step `depth` of the block, and a column of the panel.
PanelKernel::Values PanelKernel::inPanel(Value depth, Value column) {
  Values place = panelPlace;
  place.push_back(right.panelColumns ? b.add(blockLow, depth) : depth);
  place.push_back(column);
  return place;
}

void PanelKernel::packLeft(Value low, Value count) {
  b.loop(b.index(0), numRows, 1, [&](Value row) {
    setRow(row);
    Value whole = left.isContiguousAlong(depthLoop) ? b.roundDown(count, lanes)
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
}

/// Packs rows `low...` of the right operand.
void PanelKernel::packPanel(Value low, Value count) {
  auto setPlace = [&](Value depth, Value column) {
    position[depthLoop] = b.add(low, depth);
    setColumn(b.add(panelColumn, column));
  };
  auto packScalars = [&](Value depth, Value from, Value to) {
    b.loop(from, to, 1, [&](Value column) {
      setPlace(depth, column);
      b.storeScalar(b.loadScalar(right.memref, indices(right)), panel,
                    {depth, column});
    });
  };
  auto packVector = [&](Value depth, Value column) {
    setPlace(depth, column);
    b.storeVector(b.loadVector(right.memref, indices(right)), panel,
                  {depth, column});
  };
  if (!isMultiple(columnLoop, getPanelColumns())) {
    Value zero = b.splat(0.0);
    b.ifThen(b.less(panelCount, b.index(getPanelColumns())), [&] {
      b.loop(b.index(0), count, 1, [&](Value depth) {
        for (int64_t v = 0; v < panelVectors; ++v)
          b.storeVector(zero, panel, {depth, b.index(v * lanes)});
      });
    });
  }
  Value wholeColumns = b.roundDown(panelCount, lanes);
  if (right.isContiguousAlong(columnLoop))
    return b.loop(b.index(0), count, 1, [&](Value depth) {
      b.ifThenElse(
          b.equal(panelCount, b.index(getPanelColumns())),
          [&] {
            for (int64_t v = 0; v < panelVectors; ++v)
              packVector(depth, b.index(v * lanes));
          },
          [&] {
            b.loop(b.index(0), wholeColumns, lanes,
                   [&](Value column) { packVector(depth, column); });
            packScalars(depth, wholeColumns, panelCount);
          });
    });
  if (!right.isContiguousAlong(depthLoop))
    return b.loop(b.index(0), count, 1, [&](Value depth) {
      packScalars(depth, b.index(0), panelCount);
    });
  // Whole squares are transposed in registers.
  Value wholeDepth = b.roundDown(count, lanes);
  b.loop(b.index(0), wholeColumns, lanes, [&](Value column) {
    b.loop(b.index(0), wholeDepth, lanes, [&](Value depth) {
      Values tile;
      for (int64_t i = 0; i < lanes; ++i) {
        setPlace(depth, b.add(column, i));
        tile.push_back(b.loadVector(right.memref, indices(right)));
      }
      for (auto [i, vector] : llvm::enumerate(b.transpose(tile)))
        b.storeVector(vector, panel, {b.add(depth, i), column});
    });
  });
  b.loop(wholeDepth, count, 1,
         [&](Value depth) { packScalars(depth, b.index(0), wholeColumns); });
  b.loop(b.index(0), count, 1,
         [&](Value depth) { packScalars(depth, wholeColumns, panelCount); });
}

/// Asks for the lines of the next panel that are those of turn `turn` among all
/// tiles. Its rows may lie apart, so that packing it would wait for memory.
void PanelKernel::prefetchNext(Value turn) {
  bool isPacked = right.panelColumns;
  bool byDepth = right.isContiguousAlong(depthLoop);
  if (!byDepth && !right.isContiguousAlong(columnLoop))
    return;
  int64_t bits = getElementTypeOrSelf(right.memref).getIntOrFloatBitWidth();
  int64_t elements = kLine * 8 / bits;
  int64_t perRow =
      llvm::divideCeil(byDepth ? block : getPanelColumns(), elements);
  int64_t lines = perRow * (byDepth ? getPanelColumns() : block);
  int64_t turns = llvm::divideCeil(taskRows, tileRows) * (block / kUnroll);
  int64_t together =
      std::min<int64_t>(llvm::divideCeil(lines, turns), kMaxAtOnce);
  Values present = position;
  for (int64_t i = 0; i < together; ++i) {
    Value line = b.min(b.add(b.mul(turn, together), i), lines - 1);
    Value row = b.div(line, perRow);
    Value at = b.mul(b.rem(line, perRow), elements);
    if (isPacked) {
      Values place = findPanel(nextColumn);
      place.append({b.add(nextDepth, row), at});
      b.prefetch(panel, place, /*locality=*/2);
      continue;
    }
    position[depthLoop] = b.add(nextDepth, byDepth ? at : row);
    setColumn(b.add(nextColumn, byDepth ? row : at));
    b.prefetch(right.memref, indices(right), /*locality=*/2);
  }
  position = present;
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
  Values tile(tileRows * panelVectors, b.splat(0.0));
  auto step = [&](Value at, ValueRange running) {
    Values next(running), columns;
    for (int64_t v = 0; v < panelVectors; ++v)
      columns.push_back(b.loadVector(panel, inPanel(at, b.index(v * lanes))));
    position[depthLoop] = b.add(low, at);
    for (int64_t i = 0; i < tileRows; ++i) {
      Value row = b.add(tileRow, i);
      setRow(row);
      Value factor = leftRows ? b.loadScalar(leftRows, {row, at})
                              : b.loadScalar(left.memref, indices(left));
      factor = b.broadcast(factor);
      for (int64_t v = 0; v < panelVectors; ++v) {
        Value &sum = next[i * panelVectors + v];
        sum = b.fma(factor, columns[v], sum);
      }
    }
    return next;
  };
  Value turn = b.mul(b.div(tileRow, this->tileRows), block / kUnroll);
  tile =
      b.unrolledLoop(b.index(0), count, kUnroll, tile, step, [&](Value depth) {
        prefetchNext(b.add(turn, b.div(depth, kUnroll)));
      });
  auto storeSums = [&](bool adds) {
    for (int64_t i = 0; i < tileRows; ++i)
      for (int64_t v = 0; v < panelVectors; ++v) {
        Values at = {b.add(tileRow, i), b.add(panelColumn, v * lanes)};
        Value sum = tile[i * panelVectors + v];
        b.storeVector(adds ? b.fadd(b.loadVector(sums, at), sum) : sum, sums,
                      at);
      }
  };
  if (!writesSums)
    return storeSums(/*adds=*/true);
  b.ifThenElse(
      b.equal(low, b.index(0)), [&] { storeSums(/*adds=*/false); },
      [&] { storeSums(/*adds=*/true); });
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
  std::optional<Contraction> contraction = Contraction::match(op, registers);
  if (!contraction)
    return false;
  OpBuilder builder(op);
  emitContraction(*contraction, builder, registers);
  return true;
}
