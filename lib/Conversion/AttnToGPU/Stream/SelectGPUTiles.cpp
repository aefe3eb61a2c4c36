//===- SelectGPUTiles.cpp - Choose tile sizes for a GPU -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/HeadRows.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

namespace fovea::attn {
#define GEN_PASS_DEF_SELECTGPUTILESPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Tiles of at most `maxQueries` queries and `keys` keys. Queries beyond the
/// sequence, or the block that ranges depend on, would be wasted.
static TilesAttr makeTiles(StreamOp op, int64_t maxQueries, int64_t keys) {
  int64_t rows = cast<ShapedType>(op.getQuery().getType()).getDimSize(2);
  int64_t block = op.getBlock();
  int64_t useful = ShapedType::isDynamic(rows) ? maxQueries : rows;
  if (block)
    useful = std::min(useful, block);
  if (hasHeadRows(op)) {
    // Tiles of about the same number of rows.
    useful = getKeyGroup(op) * getPackedQueries(op);
    useful = llvm::divideCeil(useful, llvm::divideCeil(useful, maxQueries));
    block = 0;
  }
  int64_t warps =
      llvm::divideCeil(std::clamp<int64_t>(useful, 1, maxQueries), kWarpRows);
  int64_t queries = warps * kWarpRows;
  // A block of threads that does not divide the block of queries works through
  // it part by part.
  int64_t task = block && block % queries != 0 ? block : queries;
  return TilesAttr::get(op.getContext(), task, keys, /*lanes=*/kWarpRows,
                        /*vectors=*/warps, /*keys=*/8, /*columns=*/8);
}

/// The rows of a tile of keys, at most `mostKeys`, that a block of warpgroups
/// takes the least time with: tiles that are filled badly cost as much as full
/// ones, and each costs what is not products: by the cycle model, as much as 48
/// keys. Ranges of unknown lengths fill tiles of any size.
static int64_t chooseKeys(StreamOp op, int64_t mostKeys) {
  constexpr int64_t kTileCost = 48, kStep = 16;
  RangeAnalysis ranges(op);
  // Of tiles of their own: a table is one list, whatever its ranges.
  SmallVector<int64_t> lengths;
  for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
    int64_t listed = 0;
    for (size_t number = 0; number < source.attr.getRanges().size(); ++number) {
      std::optional<int64_t> length = ranges.getMaxLength(index, number);
      if (!length)
        return mostKeys;
      if (ranges.getKind(index, number) == RangeKind::Table)
        listed += *length;
      else
        lengths.push_back(*length);
    }
    lengths.push_back(listed);
  }
  int64_t best = mostKeys, least = std::numeric_limits<int64_t>::max();
  for (int64_t keys = mostKeys; keys >= std::min<int64_t>(mostKeys, 48);
       keys -= kStep) {
    int64_t cost = 0;
    for (int64_t length : lengths)
      cost += llvm::divideCeil(length, keys) * (keys + kTileCost);
    if (cost < least) {
      least = cost;
      best = keys;
    }
  }
  return best;
}

std::string fovea::attn::getClusterProblem(StreamOp op) {
  if (!op.getLogWeights().empty() || !op.getBiases().empty() ||
      !op.getRelativeKeys().empty() || !op.getDistanceBiases().empty() ||
      !op.getScores().empty())
    return "terms or functions of scores";
  auto getHeads = [](Value operand) {
    return cast<ShapedType>(operand.getType()).getDimSize(1);
  };
  // By ptxas, which spills some of the registers of wider ones.
  for (Value rows : {op.getQuery(), op.getOutput()})
    if (cast<ShapedType>(rows.getType()).getDimSize(3) > 128)
      return "more than 128 columns";
  RangeAnalysis ranges(op);
  int64_t heads = getHeads(op.getQuery());
  for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
    if (source.codes || source.rowList)
      return "keys that codes or lists name";
    for (size_t number = 0; number < source.attr.getRanges().size(); ++number)
      if (ranges.getKind(index, number) == RangeKind::Table)
        return "ranges of a few rows, which are listed";
    for (Value operand : {source.keys, source.values})
      if (cast<ShapedType>(operand.getType()).getElementType() !=
          getProductType(op))
        return "keys or values of another type than products";
    int64_t keyHeads = getHeads(source.values);
    if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(keyHeads))
      return "a number of heads that is not known";
    if (heads % (2 * keyHeads) != 0)
      return llvm::formatv("{0} heads of queries for {1} of keys", heads,
                           keyHeads);
  }
  return "";
}

/// Tiles of warpgroups, of 64 queries each: two of them share a tile of keys.
/// The sums of a thread, the scores of a tile and the narrow weights of another
/// fit its 240 registers, 224 with terms, for at most as many keys as here, 16
/// fewer with places of listed rows; more are spilled. A score region is
/// computed for all scores at once, and biases are there before these.
/// At most `maxCluster` blocks share what they copy.
static TilesAttr chooseWarpgroupTiles(StreamOp op, int64_t sharedBytes,
                                      int64_t maxCluster) {
  // Blocks of threads begin where blocks of the sequence do.
  if (!canUseWarpgroups(op) || (op.getFirstRow() && op.getBlock()) ||
      hasHeadRows(op))
    return {};
  auto query = cast<ShapedType>(op.getQuery().getType());
  auto output = cast<ShapedType>(op.getOutput().getType());
  int64_t width = std::max(query.getDimSize(3), output.getDimSize(3));
  bool hasWeights = !op.getLogWeights().empty();
  int64_t mostKeys = width <= 128 ? 128 : (hasWeights ? 64 : 80);
  bool hasTerms = hasWeights || !op.getBiases().empty() ||
                  !op.getRelativeKeys().empty() ||
                  !op.getDistanceBiases().empty();
  bool isPlain = !hasTerms && op.getRowLists().empty();
  // By the cycle model better than 128, 144 and 176.
  if (width <= 64 && isPlain && op.getSourceList().size() == 1)
    mostKeys = 160;
  if (!op.getRowLists().empty())
    mostKeys -= 16;
  auto atMost = [&](int64_t keys, int64_t keysOfWide) {
    mostKeys = std::min(mostKeys, width <= 128 ? keys : keysOfWide);
  };
  // Biases are loaded ahead of the scores, two numbers for each row of keys,
  // or one where they are the same for all queries.
  if (llvm::any_of(op.getBiases(), [](Value bias) {
        return cast<ShapedType>(bias.getType()).getDimSize(2) != 1;
      }))
    atMost(112, 64);
  if (!op.getRelativeKeys().empty())
    atMost(kRelativeTile, 32);
  if (!op.getScores().empty())
    atMost(80, 48);
  int64_t rows = query.getDimSize(2), block = op.getBlock();
  bool isShort = !ShapedType::isDynamic(rows) && rows <= kWarpgroupRows;
  for (int64_t vectors : {2, 1}) {
    int64_t queries = vectors * kWarpgroupRows;
    // A block of threads has one block of queries.
    if ((vectors > 1 && isShort) || block % queries != 0)
      continue;
    auto setTiles = [&](int64_t keys, int64_t cluster = 1) {
      op.setTilesAttr(TilesAttr::get(op.getContext(), queries, keys,
                                     /*lanes=*/kWarpgroupRows, vectors,
                                     /*keys=*/8, /*columns=*/8, cluster));
    };
    setTiles(mostKeys);
    if (!multipliesRelativeKeys(op))
      setTiles(chooseKeys(op, mostKeys));
    if (GPUStreamLayout(op).bytes > sharedBytes)
      continue;
    if (maxCluster > 1 && getClusterProblem(op).empty())
      setTiles(op.getTiles()->getKey(), maxCluster);
    return *op.getTiles();
  }
  op.removeTilesAttr();
  return {};
}

/// The cost model. A warp keeps the sums of 16 queries in registers: half a
/// register for each value column, and the scores of a tile of keys beside
/// them. More warps share each tile of keys, which is copied once for all.
/// Registers allow 64 keys for heads of 128 columns, and 32 for wider ones or
/// f32, whose fragments are cut in two. Of rows that are heads, two blocks of
/// 64 wait less than one of 128, and blocks of one warp have 32 keys: twice as
/// many of them hide more of what each waits for. Shared memory that does not
/// suffice takes first queries, then keys.
static TilesAttr chooseTiles(StreamOp op, int64_t sharedBytes) {
  auto query = cast<ShapedType>(op.getQuery().getType());
  auto output = cast<ShapedType>(op.getOutput().getType());
  int64_t width = std::max(query.getDimSize(3),
                           std::min(output.getDimSize(3), kMaxHeadWidth));
  bool isNarrow = width <= 128 && !getProductType(op).isF32();
  for (int64_t keys : {64, 32, 16})
    for (int64_t queries : {128, 64, 32, 16}) {
      if (!isNarrow && (keys > 32 || queries > 64))
        continue;
      TilesAttr tiles = makeTiles(op, queries, keys);
      if (hasHeadRows(op) &&
          (queries > 64 || (tiles.getVectors() == 1 && keys > 32)))
        continue;
      op.setTilesAttr(tiles);
      if (GPUStreamLayout(op).bytes <= sharedBytes)
        return tiles;
    }
  return {};
}

/// Whether there is a kernel for tiles that were written by hand, perhaps for a
/// CPU.
static LogicalResult verifyTiles(StreamOp op, bool warpgroups,
                                 int64_t sharedBytes) {
  TilesAttr tiles = *op.getTiles();
  bool isWarps = tiles.getLanes() == kWarpRows;
  bool isWarpgroups = tiles.getLanes() == kWarpgroupRows && warpgroups &&
                      tiles.getVectors() <= 2 && canUseWarpgroups(op) &&
                      !hasHeadRows(op) &&
                      !(op.getFirstRow() && op.getBlock()) &&
                      tiles.getQuery() == tiles.getQueryLanes() &&
                      op.getBlock() % tiles.getQuery() == 0;
  if (!isWarps && !isWarpgroups)
    return op.emitOpError("has ")
           << tiles << ", but this GPU takes lanes of " << kWarpRows
           << " for this stream"
           << (warpgroups ? ", or of 64 where warpgroups "
                            "can compute it"
                          : "");
  if (tiles.getKeys() != 8 || tiles.getColumns() != 8 || tiles.getKey() % 16)
    return op.emitOpError("has ")
           << tiles
           << ", but GPU kernels take keys = 8, columns = 8 and a "
              "multiple of 16 as key";
  if (tiles.getCluster() > 1 && !isWarpgroups)
    return op.emitOpError("has ")
           << tiles << ", but clusters have tiles of lanes = 64";
  std::string problem = tiles.getCluster() > 1 ? getClusterProblem(op) : "";
  if (!problem.empty())
    return op.emitOpError("has ")
           << tiles << " and " << problem
           << ", but blocks of a cluster share tiles of keys and values alone, "
              "up to 128 columns, for an even number of heads of queries to "
              "each head of keys";
  int64_t bytes = GPUStreamLayout(op).bytes;
  if (bytes > sharedBytes)
    return op.emitOpError("has ")
           << tiles << ", which need " << bytes
           << " bytes of shared memory, but a block has " << sharedBytes;
  return success();
}

namespace {
struct SelectGPUTilesPass
    : fovea::attn::impl::SelectGPUTilesPassBase<SelectGPUTilesPass> {
  using SelectGPUTilesPassBase::SelectGPUTilesPassBase;

  void runOnOperation() override {
    if (cluster != 1 && cluster != 2) {
      getOperation().emitError("expects clusters of 1 or 2 blocks, but got ")
          << cluster.getValue();
      return signalPassFailure();
    }
    // What the GPU path does not know yet is refused before anything else.
    WalkResult known = getOperation().walk([](Operation *op) -> WalkResult {
      // A region is refused with its operation.
      bool isKnown =
          isa<LowerToGPUOpInterface, CheckCodesOp, CheckIntervalsOp, YieldOp>(
              op);
      if (!isa_and_present<AttnDialect>(op->getDialect()) || isKnown)
        return WalkResult::advance();
      return op->emitOpError("has no form for GPUs; compile it for the CPU");
    });
    if (known.wasInterrupted())
      return signalPassFailure();

    GPUFacts gpu = GPUFacts::of(getOperation());
    WalkResult result = getOperation().walk([&](StreamOp op) -> WalkResult {
      if (failed(verifyGPUStream(op)))
        return WalkResult::interrupt();
      if (op.getTiles())
        return verifyTiles(op, gpu.warpgroups, gpu.sharedBytes);
      TilesAttr tiles;
      if (gpu.warpgroups)
        tiles = chooseWarpgroupTiles(op, gpu.sharedBytes, cluster);
      if (!tiles)
        tiles = chooseTiles(op, gpu.sharedBytes);
      if (!tiles)
        return op.emitOpError("needs more shared memory than the ")
               << gpu.sharedBytes
               << " bytes of a block, even for 16 queries and "
               << "16 keys";
      remark::passed(op.getLoc(), remark::RemarkOpts::name("TilesSelected")
                                      .category("attn-select-gpu-tiles"))
          << remark::metric("TaskQueries", tiles.getQuery())
          << remark::metric("BlockQueries", tiles.getQueryLanes())
          << remark::metric("KeyTile", tiles.getKey())
          << remark::metric("Cluster", tiles.getCluster())
          << remark::metric("SharedBytes", GPUStreamLayout(op).bytes);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
