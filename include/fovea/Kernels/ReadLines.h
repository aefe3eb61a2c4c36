//===- ReadLines.h - Entries that read the same number ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Many entries of a head read the same element of a captured tensor: all of
// them a slope of the head, those of a row a temperature of the query, those of
// a diagonal a bias by distance, whatever function of the distance its place
// is. So gradients are summed along such lines first, and there are few left to
// look up places for.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_READLINES_H
#define FOVEA_KERNELS_READLINES_H

#include "fovea/Dialect/Attn/IR/ScoreDerivatives.h"

namespace fovea::attn {

/// The entries of a head for which a score region reads the same element: those
/// of the head, of a query, of a key, or of all queries and keys as far apart;
/// else each may read another one.
enum class ReadLines { Head, Query, Key, Diagonal, None };

ReadLines findReadLines(mlir::tensor::ExtractOp read);

/// Fails for gradients of what a region reads at a place that the score decides
/// on: sums of kernels are looked up by positions alone.
mlir::LogicalResult checkReads(mlir::Operation *op,
                               llvm::ArrayRef<ScoreDerivatives> ofRegions);

/// Whether an index of `read` is that argument of the region itself: the batch
/// entry, or the head. Then others read other elements.
bool isIndexedBy(mlir::tensor::ExtractOp read, unsigned argument);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_READLINES_H
