//===- GPUGatheredRows.h - Far rows side by side ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGATHEREDROWS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGATHEREDROWS_H

#include "GradientRanges.h"
#include "fovea/Kernels/RowBuilder.h"

namespace fovea::attn {

/// Queries are cut in stretches. The rows that ranges of a source name for a
/// stretch lie side by side in its slots, so that few tiles have all of them:
/// a block of queries reads a few rows each of many parts of a source of
/// summaries. Rows that several ranges or stretches name have several slots.
class GatheredRows {
public:
  using Value = mlir::Value;

  /// How many queries a stretch has, and how many slots, those of each range
  /// one behind the other. Slots are a multiple of 64.
  struct Layout {
    int64_t queries, numStretches, slots;
    llvm::SmallVector<int64_t> firstSlots; // of each range
  };

  /// The layout for tiles of warpgroups: of queries that pass rows, or of rows
  /// that pass queries. None where ranges are not known or tiles of the source
  /// as it lies are few enough.
  static std::optional<Layout> choose(StreamBackwardOp op,
                                      const StreamSource &source, bool ofRows);

  /// Emits the kernels that copy the rows, as numbers of `type`, and if
  /// `addsUp` that says where sums of rows are.
  GatheredRows(RowBuilder &host, StreamBackwardOp op,
               const StreamSource &source, Layout layout, mlir::FloatType type,
               bool addsUp);
  void free();

  const Layout &getLayout() const { return layout; }
  /// The source with the slots of all stretches for rows, and that it was.
  const StreamSource &getSource() const { return gathered; }
  const StreamSource &getOriginal() const { return source; }
  /// The row of each slot of all stretches, of i32: -1 for none.
  Value getRows() const { return rows; }
  /// Which queries read each slot, [stretches, slots, 2] of i32: from the first
  /// number on, up to the second.
  Value getReaders() const { return readers; }
  /// Emits the kernel that adds up the `sums` of slots, [B, G, slots, ..],
  /// stretch by stretch in each range: the order is always the same.
  void addUp(Value sums, Value result) const;

private:
  void findRows();
  Value gather(Value memref, mlir::Type type);
  Value gatherLogWeights();
  void findStretches();

  RowBuilder &host;
  StreamSource source, gathered;
  Layout layout;
  GradientRanges ranges;
  Value rows;
  Value readers;
  Value stretches; // of each row by each range, [rows, ranges, 2] of i32
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGATHEREDROWS_H
