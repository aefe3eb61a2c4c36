//===- SourceDistances.h - Distances of a source's terms --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A source with terms by distance has them for `R` distances, 0 to `R - 1`. Of
// most ranges the largest distance is plain whatever the extents are; of the
// others, the verifier decides what static extents decide, and a check at run
// time the rest.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_SOURCEDISTANCES_H
#define FOVEA_DIALECT_ATTN_IR_SOURCEDISTANCES_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/RangeOverlap.h"

namespace fovea::attn {

/// A range of a source with terms by distance whose distances are not plainly
/// among those that have terms.
struct RangeDistances {
  unsigned source, range;
  StreamSource operands;
  RangeExtents extents;

  mlir::AffineMap getRange() const { return operands.attr.getRanges()[range]; }
  /// How many distances have terms.
  int64_t getNumTerms() const;
  /// The least and the greatest distance that the mask leaves of those from
  /// `least` to `greatest`, where it says; else null.
  std::optional<int64_t> getLeastAdmitted() const;
  std::optional<int64_t> getGreatestAdmitted() const;
  /// `relative of source 0`
  std::string describe() const;
};

/// Those of the sources of `op`; none of an operation without sources.
llvm::SmallVector<RangeDistances> getRangeDistances(mlir::Operation *op);

/// Checks what terms by distance go together with, and that no entry has a
/// distance without a term, as far as static extents tell.
mlir::LogicalResult verifyDistances(mlir::Operation *op);

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_SOURCEDISTANCES_H
