//===- SelectTiles.cpp - Choose tile sizes --------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CopyingTasks.h"
#include "PairProduct.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TargetFacts.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

namespace fovea::attn {
#define GEN_PASS_DEF_SELECTTILESPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Key rows of a streamed tile. The scores of 64 queries and 128 keys are 32
/// KB, and the accumulators are rescaled once for every 128 keys.
static constexpr int64_t kKeyTile = 128;
/// The same for AMX, beside whose products it takes more of the time to rescale
/// outputs: 128 rows take 1.04 to 1.1 of the time, 512 take as long and up to
/// 1.2 with wide heads.
static constexpr int64_t kAMXKeyTile = 256;
/// The same for gradients, whose five products go through the scores twice.
static constexpr int64_t kGradientKeyTile = 64;
/// Queries of one task when ranges depend on the block of queries: the first
/// block of a task finds nothing prefetched. Longer tasks where there are
/// enough of them for many threads: 2048 instead of 512 are worth 2 points of
/// peak.
static constexpr int64_t kMinRun = 512, kMaxRun = 2048, kMinTasks = 32;
/// Queries of a task that copies keys and values. Copies for 2, 4 and 8 blocks
/// of 64 queries on 4096 keys take 1.24, 1.15 and 1.11 of the time without
/// gaps, reading in place 1.3.
static constexpr int64_t kMinCopyingRun = 256, kMaxCopyingRun = 1024;
/// Key rows of a register tile whose queries fill only one or two vectors: more
/// would not be covered by the loads of the queries.
static constexpr int64_t kMaxKeys = 8;
/// The widest heads and values: code is written out for every vector of a row,
/// and takes seconds to compile long before.
static constexpr int64_t kMaxWidth = 1 << 20;

/// Whether sources of bf16 are multiplied by AMX.
static bool usesAMX(StreamOp op, const CPUFacts &cpu) {
  return cpu.amx && op.getCodes().empty() &&
         getElementTypeOrSelf(op.getQuery()).isBF16() &&
         getElementTypeOrSelf(op.getOutput()).isBF16();
}

/// Whether keys and values are copied, for AMX or because rows have gaps.
static bool copiesRows(StreamOp op, const CPUFacts &cpu) {
  return llvm::any_of(op.getSourceList(), [&](const StreamOp::Source &source) {
    return usesAMX(op, cpu) || hasRowGaps(source.keys) ||
           hasRowGaps(source.values);
  });
}
/// Tasks of gradients wait for each other, so they stay short.
static bool copiesRows(StreamBackwardOp, const CPUFacts &) { return false; }

/// Vectors of queries, where no product keeps sums in vectors: each block of
/// queries reads all rows, and adds to their gradients.
static constexpr int64_t kAMXGradientVectors = 8;
static bool multipliesByAMX(StreamOp, const CPUFacts &) { return false; }
static bool multipliesByAMX(StreamBackwardOp op, const CPUFacts &cpu) {
  auto query = cast<ShapedType>(op.getQuery().getType());
  auto isNarrow = [](Value rows) {
    return getElementTypeOrSelf(rows).isBF16();
  };
  return cpu.amx && cpu.vectorBits == 512 && isNarrow(op.getQuery()) &&
         isNarrow(op.getOutput()) && query.getShape().back() % kAMXRows == 0 &&
         llvm::all_of(op.getKeys(), isNarrow) &&
         llvm::all_of(op.getValues(), isNarrow);
}

/// The cost model. A register tile of `keys` x `vectors` accumulators loads
/// `keys + vectors` operands for `keys * vectors` products, so it is square and
/// as large as the register file allows with room for the operands: 16
/// accumulators of 32 registers, 8 of 16. Queries beyond the sequence, or the
/// block that ranges depend on, would be wasted lanes.
template <typename OpTy>
static TilesAttr chooseTiles(OpTy op, const CPUFacts &cpu, int64_t maxKeyTile) {
  auto query = cast<ShapedType>(op.getQuery().getType());
  int64_t lanes = cpu.vectorBits / (query.getElementType().isF64() ? 64 : 32);
  int64_t accumulators = cpu.numRegisters >= 32 ? 16 : 8;
  int64_t vectors = multipliesByAMX(op, cpu) ? kAMXGradientVectors
                    : cpu.numRegisters >= 32 ? 4
                                             : 2;

  int64_t rows = query.getDimSize(2), block = op.getBlock();
  int64_t useful = ShapedType::isDynamic(rows) ? lanes * vectors : rows;
  if (block)
    useful = std::min(useful, block);
  vectors = std::clamp<int64_t>(llvm::divideCeil(useful, lanes), 1, vectors);
  int64_t keys = std::min(kMaxKeys, accumulators / vectors);

  // A task is one block of queries. Patterns whose ranges follow the queries
  // touch new memory at every block: their tasks are runs of blocks, so that
  // one block can prefetch what the next one reads.
  int64_t queries = lanes * vectors, task = queries;
  if (block) {
    int64_t run = kMinRun;
    if (!ShapedType::isDynamic(rows))
      run = std::clamp(rows / kMinTasks, kMinRun, kMaxRun);
    task = block * llvm::divideCeil(run, block);
  }
  // Copies of keys and values are for all queries of a task.
  bool isShort = !ShapedType::isDynamic(rows) && rows <= kMinCopyingRun;
  if (!block && !isShort && copiesRows(op, cpu)) {
    task = kMaxCopyingRun;
    if (!ShapedType::isDynamic(rows)) {
      AffineExpr share = getCopyingShare(
          getAffineConstantExpr(rows, op.getContext()), queries);
      task = std::min(task, cast<AffineConstantExpr>(share).getValue());
    }
  }
  int64_t keyTile = maxKeyTile / keys * keys;
  return TilesAttr::get(op.getContext(), task, keyTile, lanes, vectors, keys,
                        /*columns=*/accumulators / vectors);
}

namespace {
struct SelectTilesPass
    : fovea::attn::impl::SelectTilesPassBase<SelectTilesPass> {
  void runOnOperation() override {
    FailureOr<CPUFacts> found = CPUFacts::of(getOperation());
    if (failed(found))
      return signalPassFailure();
    cpu = *found;
    WalkResult walk = getOperation().walk([&](Operation *op) -> WalkResult {
      if (auto stream = dyn_cast<StreamOp>(op))
        return select(stream, usesAMX(stream, cpu) ? kAMXKeyTile : kKeyTile);
      if (auto gradient = dyn_cast<StreamBackwardOp>(op))
        return select(gradient, kGradientKeyTile);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }

private:
  template <typename OpTy> LogicalResult select(OpTy op, int64_t maxKeyTile) {
    for (Value rows : {Value(op.getQuery()), Value(op.getValues().front())}) {
      int64_t width = cast<ShapedType>(rows.getType()).getShape().back();
      if (!ShapedType::isDynamic(width) && width > kMaxWidth)
        return op.emitOpError("has rows of ")
               << width << " columns, but the CPU's kernels take at most "
               << kMaxWidth;
    }
    if (op.getTiles())
      return success();
    TilesAttr tiles = chooseTiles(op, cpu, maxKeyTile);
    op.setTilesAttr(tiles);
    remark::passed(
        op.getLoc(),
        remark::RemarkOpts::name("TilesSelected").category("attn-select-tiles"))
        << remark::metric("TaskQueries", tiles.getQuery())
        << remark::metric("KeyTile", tiles.getKey())
        << remark::metric("Lanes", tiles.getLanes())
        << remark::metric("Vectors", tiles.getVectors())
        << remark::metric("Keys", tiles.getKeys())
        << remark::metric("Columns", tiles.getColumns());
    return success();
  }

  CPUFacts cpu;
};
} // namespace
