//===- RangeOverlap.h - Rows that two ranges share --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row that two ranges of one source name for a block of queries would count
// twice. Most ranges are apart whatever the extents are; of the others, the
// verifier decides what static extents decide, and a check at run time the
// rest.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_RANGEOVERLAP_H
#define FOVEA_DIALECT_ATTN_IR_RANGEOVERLAP_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Operation.h"
#include <optional>

namespace fovea::attn {

/// What ranges of `attn.stream` depend on; ShapedType::kDynamic where a number
/// is known at run time only. Without blocks, `block` is 0.
struct RangeExtents {
  int64_t block, rows, queries;
};

/// Ranges `first` and `second` of source `source` of an `attn.stream` or its
/// gradient, which are not plainly apart.
struct RangePair {
  unsigned source, first, second;
  mlir::AffineMap firstRange, secondRange;
  /// The operand whose extent 2 counts the rows of the source.
  mlir::Value rowsOperand;
  RangeExtents extents;

  /// True if no block reads a row through both, whatever dynamic extents are.
  bool areApart() const;
  /// A block that reads a row through both, whatever dynamic extents are.
  std::optional<int64_t> findSharingBlock() const;
  /// `ranges 0 and 1 of source 0`
  std::string describe() const;
};

/// The pairs of ranges of the sources of `op`; none of an operation without
/// sources.
llvm::SmallVector<RangePair> getRangePairs(mlir::Operation *op);

/// Checks that no block reads a row twice, as far as static extents tell.
mlir::LogicalResult verifyRangesApart(mlir::Operation *op);

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_RANGEOVERLAP_H
