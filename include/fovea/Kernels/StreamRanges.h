//===- StreamRanges.h - Static facts about row ranges -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_STREAMRANGES_H
#define FOVEA_KERNELS_STREAMRANGES_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// A range for one block, clamped to the rows that exist. Empty ranges may have
/// their end before their begin. `first` is where it begins before that.
struct RangeBounds {
  mlir::Value low, high, first;
};

RangeBounds emitRangeBounds(KernelBuilder &builder, mlir::AffineMap range,
                            mlir::Value block, mlir::Value rows,
                            mlir::Value numQueries);

/// Whether `range` begins and ends for no block before where it does for an
/// earlier one, whatever the numbers of rows and queries. Some that do are not
/// known to.
bool ascends(mlir::AffineMap range);

/// How many rows a source has for all batch entries: those that are stored, or
/// that are listed where they stand as they are listed.
mlir::Value emitNumRows(KernelBuilder &builder, const StreamSource &source);

/// Which of a source's `lists` of rows a head has: there is one for all heads,
/// for each key head, or for each of the `numHeads`.
mlir::Value emitListHead(KernelBuilder &builder, mlir::Value lists,
                         mlir::Value head, mlir::Value numHeads);

/// The rows that a source has for a batch entry, and the tokens that masks
/// count: as many, unless a row has a stride of them.
struct SourceLength {
  mlir::Value rows, tokens;
};

/// `batch` is null where no batch entry has been chosen: all rows, then.
SourceLength emitLength(KernelBuilder &builder, const StreamSource &source,
                        mlir::Value batch, mlir::Value numQueries);

/// The tokens that rows of a source without lengths stand for.
mlir::Value emitTokens(KernelBuilder &builder, MaskAttr mask, mlir::Value rows,
                       mlir::Value numQueries);
/// The rows that a mask admits for a query, the last one excluded.
std::pair<mlir::Value, mlir::Value>
emitAdmittedRows(KernelBuilder &builder, MaskAttr mask, mlir::Value query,
                 mlir::Value numQueries, const SourceLength &length);

/// The position of a row among tokens.
mlir::Value emitPosition(KernelBuilder &builder, MaskAttr mask,
                         mlir::Value row);
/// The first row whose position is not before `position`.
mlir::Value emitFirstRow(KernelBuilder &builder, MaskAttr mask,
                         mlir::Value position);

/// How the rows of one range of a source are read.
enum class RangeKind {
  Table,  // a handful of rows: listed in the query block's row table
  Short,  // consecutive rows, few enough to be scored with all others at once
  Empty,  // no row for any block
  Long,   // consecutive rows, streamed in tiles
  Listed, // rows that a list names, too: streamed in tiles of its table
};

/// Sorts the ranges of an attn.stream by how many rows they can name. Lengths
/// are known when the numbers of queries and of the source's rows are static:
/// every block index is tried.
class RangeAnalysis {
public:
  explicit RangeAnalysis(StreamOp op);

  RangeKind getKind(unsigned source, unsigned range) const {
    return kinds[source][range];
  }
  /// The most rows that a range names for any block, if that is known.
  std::optional<int64_t> getMaxLength(unsigned source, unsigned range) const {
    return lengths[source][range];
  }
  /// Whether some range of `source` is neither empty nor in a table.
  bool hasRuns(unsigned source) const;
  /// Whether some range of `source` is in a table.
  bool hasTable(unsigned source) const {
    return llvm::is_contained(kinds[source], RangeKind::Table);
  }
  /// Ranges of `source` that are neither empty nor in a table.
  int64_t countOthers(unsigned source) const;
  /// Rows that all short ranges and tables name together, at most.
  int64_t getMaxShortRows() const { return maxShortRows; }
  /// Segments that short ranges and tables become, at most.
  int64_t getNumShortRanges() const { return numShortRanges; }
  /// Rows in all tables, at most, and where the table of `source` starts.
  int64_t getMaxTableRows() const { return maxTableRows; }
  int64_t getTableStart(unsigned source) const { return tableStarts[source]; }
  bool hasLongRanges() const { return anyLong; }

  /// Calls `visit` with the bounds of each run of consecutive rows that a block
  /// reads of source `index`, which `view` has the operands of. Returns the
  /// numbers of the ranges whose rows go to the block's table.
  template <typename SourceView>
  llvm::SmallVector<unsigned> emitRuns(
      KernelBuilder &b, unsigned index, const SourceView &view,
      mlir::Value block, mlir::Value numQueries,
      llvm::function_ref<void(RangeKind, const RangeBounds &)> visit) const {
    llvm::SmallVector<unsigned> listed;
    for (auto [number, range] : llvm::enumerate(view.attr.getRanges())) {
      RangeKind kind = getKind(index, number);
      if (kind == RangeKind::Table)
        listed.push_back(number);
      if (kind == RangeKind::Table || kind == RangeKind::Empty ||
          kind == RangeKind::Listed)
        continue;
      RangeBounds run = emitRangeBounds(b, range, block, view.rows, numQueries);
      // A local bias has columns for rows from the first one on.
      if (view.attr.getHasLocalBias())
        run.high = b.min(run.high, b.add(run.first, b.extent(view.bias, 1)));
      visit(kind, run);
    }
    return listed;
  }

private:
  llvm::SmallVector<llvm::SmallVector<RangeKind>> kinds;
  llvm::SmallVector<llvm::SmallVector<std::optional<int64_t>>> lengths;
  llvm::SmallVector<int64_t> tableStarts;
  int64_t maxShortRows = 0, maxTableRows = 0, numShortRanges = 0;
  bool anyLong = false;
};

/// The ranges of one source, where the numbers of queries, blocks and rows are
/// static: what is the same for all neighbouring blocks.
class StaticRanges {
public:
  static std::optional<StaticRanges> get(StreamOp op, unsigned source);
  /// For blocks of `block` queries, all numbers of which may be dynamic.
  static std::optional<StaticRanges> get(llvm::ArrayRef<mlir::AffineMap> ranges,
                                         int64_t rows,
                                         std::optional<int64_t> numQueries,
                                         int64_t block);

  int64_t getNumBlocks() const { return numBlocks; }
  unsigned getNumRanges() const { return ranges.size(); }
  /// No range begins or ends before where it does for an earlier block.
  bool ascend() const;
  /// The most rows from the first to the last one that the ranges numbered
  /// `numbers` name for `chunk` blocks, if they ascend.
  int64_t getMaxRows(llvm::ArrayRef<unsigned> numbers, int64_t chunk) const;
  /// How many tiles of `size` rows all blocks read, range by range: from the
  /// first row of a range on, or those that begin at a multiple of `size`.
  int64_t countTiles(int64_t size, bool areAligned) const;

private:
  llvm::SmallVector<mlir::AffineMap> ranges;
  int64_t rows, numQueries, numBlocks;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_STREAMRANGES_H
