//===- UsefulFlops.h - The work that operations ask for ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The convention behind every figure in GFLOP/s. Only the products of matrices
// count, a multiplication and an addition each; soft-max, masks and padding are
// overhead:
//
//   dense, stream          2 (D + E) for every pair of query and key that the
//                          mask admits, per query head
//   fast_multipole         2 (D + E) for every pair of query and near key or
//                          far summary, plus the summaries
//   fast_multipole_linear  the same for level 0; for a level, 2 (D + E) for
//                          every pair of query and key summaries; plus the
//                          summaries of queries, keys and values
//   summarize              2 p N D for every head
//   *_backward             2 (3 D + 2 E) where the forward has 2 (D + E), for
//   the
//                          products that gradients need, and twice the work of
//                          summaries
//   quantize               2 N S D for every head
//   low_rank               2 r E for every row and every key, per query head
//   low_rank_backward      4 r E for every row and 6 r E for every key
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_USEFULFLOPS_H
#define FOVEA_ANALYSIS_USEFULFLOPS_H

#include "fovea/Analysis/Extents.h"
#include <optional>

namespace fovea {

/// Work of one operation. None if it is none of the above, or an extent is not
/// known, which `extents` tells then.
std::optional<double> countUsefulFlops(mlir::Operation *op, Extents &extents);

/// Work of all attention ops in `function`, for arguments of the given shapes:
/// each counts as often as loops around it run, where that is constant, or
/// once. None if there are no such ops, or one of them has an extent that does
/// not follow from the arguments.
std::optional<double>
countUsefulFlops(mlir::FunctionOpInterface function,
                 llvm::ArrayRef<llvm::SmallVector<int64_t>> argumentShapes);

} // namespace fovea

#endif // FOVEA_ANALYSIS_USEFULFLOPS_H
