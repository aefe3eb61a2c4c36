//===- StreamBackwardChunks.cpp - A head by several tasks -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where ranges follow the queries, a chain is divided into chunks of blocks.
// Two kinds of rows are shared by chunks:
//
// - Rows of the source whose ranges are not listed, the neighbours of the
//   queries: only the last blocks of a chunk read what the first ones of the
//   next chunk have read. They wait until these are further.
// - Listed rows, such as the summaries of all of a sequence: a chunk sums their
//   gradients in *windows* of its own, from the first to the last row that it
//   may read, and adds the windows to the destinations when all later chunks
//   have done so.
//
// How a head is divided follows from its shape, so that sums have one order.
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Queries of a chunk, and how many chunks there are unless they would be
/// smaller or greater.
static constexpr int64_t kMinQueries = 256, kMaxQueries = 4096, kChunks = 16;
/// Windows of keys and values together: in the second-level cache beside what
/// the blocks read.
static constexpr int64_t kMaxWindowBytes = 1 << 20;

/// Divides the ranges of the sources into windows for chunks of `blocks`.
void StreamBackwardKernel::makeWindows(ArrayRef<StaticRanges> facts,
                                       int64_t blocks) {
  windows.clear();
  windowRows = 0;
  for (auto [index, source] : llvm::enumerate(facts)) {
    // Ranges of neighbouring rows share a window.
    SmallVector<Window> ofSource;
    for (unsigned number = 0; number < source.getNumRanges(); ++number) {
      if (ranges.getKind(index, number) != RangeKind::Table)
        continue;
      int64_t alone = source.getMaxRows(number, blocks);
      if (!ofSource.empty()) {
        Window &last = ofSource.back();
        SmallVector<unsigned> both(last.ranges);
        both.push_back(number);
        int64_t together = source.getMaxRows(both, blocks);
        if (together < last.rows + alone) {
          last.ranges = both;
          last.rows = together;
          continue;
        }
      }
      ofSource.push_back({static_cast<unsigned>(index), {number}, alone});
    }
    for (Window &window : ofSource) {
      window.start = windowRows;
      windowRows += window.rows;
      windows.push_back(window);
    }
  }
}

/// Sets `chunkBlocks` where a head can be divided.
void StreamBackwardKernel::divideHeads() {
  if (isOrdered || llvm::any_of(gradients, [](const auto &source) {
        return source.logWeight || source.bias;
      }))
    return;
  SmallVector<StaticRanges> facts;
  for (unsigned index = 0; index < gradients.size(); ++index) {
    std::optional<StaticRanges> source = StaticRanges::get(op, index);
    if (!source || !source->ascend())
      return;
    unsigned listed = 0, present = 0;
    for (unsigned number = 0; number < source->getNumRanges(); ++number) {
      listed += ranges.getKind(index, number) == RangeKind::Table;
      present += ranges.getKind(index, number) != RangeKind::Empty;
    }
    if (listed == 0 && present > 0) {
      // Blocks tell each other how far they are by the rows of one source.
      if (placedSource)
        return;
      placedSource = index;
    } else if (listed != present) {
      return;
    }
    facts.push_back(*source);
  }
  int64_t numBlocks = facts.front().getNumBlocks(), block = op.getBlock();
  auto blocksOf = [&](int64_t queries) {
    return std::max<int64_t>(1, queries / block);
  };
  int64_t least = blocksOf(kMinQueries);
  int64_t blocks =
      std::clamp<int64_t>(llvm::divideCeil(numBlocks, kChunks), least,
                          std::max(least, blocksOf(kMaxQueries)));
  int64_t rowBytes = (width + valueWidth) * b.getStateType().getWidth() / 8;
  makeWindows(facts, blocks);
  while (windowRows * rowBytes > kMaxWindowBytes && blocks > least) {
    blocks = std::max(least, blocks / 2);
    makeWindows(facts, blocks);
  }
  if (blocks < numBlocks)
    chunkBlocks = blocks;
}

RangeBounds StreamBackwardKernel::boundsOf(unsigned source,
                                           ArrayRef<unsigned> numbers,
                                           Value block) {
  RangeBounds all;
  for (unsigned number : numbers) {
    RangeBounds bounds =
        emitRangeBounds(b, sources[source].attr.getRanges()[number], block,
                        sources[source].rows, numRows);
    all.low = all.low ? b.min(all.low, bounds.low) : bounds.low;
    all.high = all.high ? b.max(all.high, bounds.high) : bounds.high;
  }
  return all;
}

RangeBounds StreamBackwardKernel::placedBounds(Value block) {
  auto numbers = llvm::to_vector(
      llvm::seq<unsigned>(sources[*placedSource].attr.getRanges().size()));
  return boundsOf(*placedSource, numbers, block);
}

/// `query` is the first one of the chunk, `starts` whether no other item of the
/// chain adds to the rows of this head and chunk before.
void StreamBackwardKernel::beginChunk(Value query, Value end, Value starts) {
  Value firstBlock = b.div(query, op.getBlock());
  Value lastBlock = b.div(b.sub(end, b.index(1)), op.getBlock());
  Value isLast = b.equal(end, b.extent(backward.getQuery(), 2));
  if (placedSource) {
    // Rows before those of the next chunk are its own to clear.
    Value rows = sources[*placedSource].rows;
    Value next = placedBounds(b.add(lastBlock, 1)).low;
    chunkEnd = b.select(isLast, rows, b.min(next, rows));
    Value first = b.select(b.equal(query, b.index(0)), b.index(0),
                           placedBounds(firstBlock).low);
    memref::StoreOp::create(b, b.select(starts, first, rows), clearedRows,
                            b.index(*placedSource));
  }
  tableShifts.clear();
  for (const StreamSourceGradient &source : gradients)
    tableShifts.emplace_back(source.forward.attr.getRanges().size());
  for (Window &window : windows) {
    window.low = boundsOf(window.source, window.ranges, firstBlock).low;
    window.high = boundsOf(window.source, window.ranges, lastBlock).high;
    for (unsigned number : window.ranges)
      tableShifts[window.source][number] =
          b.sub(b.index(window.start), window.low);
    forEachWindowRow(window, [&](Value row, Value) {
      for (Value rows : {windowKeys, windowValues})
        clearRow(rows, row);
    });
  }
}

/// Calls `body(row of the windows, row of the source)`.
void StreamBackwardKernel::forEachWindowRow(
    const Window &window, function_ref<void(Value, Value)> body) {
  b.loop(window.low, window.high, 1, [&](Value row) {
    body(b.add(b.sub(row, window.low), window.start), row);
  });
}

/// Before the blocks of an index: nothing before its rows will be added to, and
/// everybody else has to be past them.
void StreamBackwardKernel::waitForBlock(Value block) {
  if (!placedSource)
    return;
  RangeBounds bounds = placedBounds(block);
  turns.end(bounds.low);
  turns.wait(bounds.high);
}

void StreamBackwardKernel::endChunk() {
  if (placedSource) {
    clearRowsBefore(*placedSource, chunkEnd);
    turns.end(sources[*placedSource].rows);
  }
  if (windows.empty())
    return;
  turns.wait(b.index(Turns::kLast));
  for (const Window &window : windows) {
    const GradientView &view = views[window.source];
    forEachWindowRow(window, [&](Value from, Value row) {
      for (auto [sums, target] : {std::pair{windowKeys, view.keys},
                                  std::pair{windowValues, view.values}}) {
        Value columns = b.extent(target, 1),
              whole = b.roundDown(columns, lanes);
        b.loop(b.index(0), whole, lanes,
               [&, sums = sums, target = target](Value column) {
                 Value sum = b.loadVector(sums, {from, column});
                 b.storeVector(b.fadd(b.loadVector(target, {row, column}), sum),
                               target, {row, column});
               });
        b.loop(
            whole, columns, 1, [&, sums = sums, target = target](Value column) {
              addTo(target, {row, column}, b.loadScalar(sums, {from, column}));
            });
      }
    });
  }
}
