//===- ConvPlan.h - Sizes of the loops of attn.conv_apply -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPLAN_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPLAN_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TargetFacts.h"

namespace fovea::attn {

struct ConvPlan {
  /// Never `Auto`.
  ConvAlgorithm algorithm;
  int64_t lanes;
  /// Toeplitz: vectors of columns and rows of a register tile, which has
  /// `accumulators` vectors.
  int64_t vectors, rows, accumulators;
  /// Partitioned: rows of a block, columns of the longest piece, radices of a
  /// transform of as many rows as both have; of a tile of products, blocks, at
  /// most 4, and groups of columns.
  int64_t block, piece, outputs, productGroups;
  llvm::SmallVector<int64_t> radices;
  /// Pieces, or blocks of results, that lie side by side in the vectors of a
  /// transform, which have as many times the lanes.
  int64_t abreast = 1;
  /// Lanes of a part of a row of columns.
  int64_t columnLanes;
  /// Whether additions of transforms have ports of their own.
  bool separateAdds = false;
  /// Bytes of spectra of values beyond which a gradient stores spectra past the
  /// caches, since these lose them before they are read; with fewer, that takes
  /// longer.
  int64_t mostCached = 1 << 24;
  /// Zeros before lag 0 of a profile, a multiple of the lanes and no fewer; and
  /// what the lags of a profile are padded to a multiple of.
  int64_t front, lagMultiple;
  /// What the width is padded to a multiple of.
  int64_t columnMultiple;
  /// Columns that belong together.
  int64_t getColumns() const { return columnLanes * vectors; }
};

/// Chooses the algorithm of an attn.conv_apply on memrefs, or of its gradient,
/// and plans its loops for a CPU, and sequences of about `tokens` tokens, which
/// may be dynamic.
template <typename OpTy>
ConvPlan planConv(OpTy op, const CPUFacts &cpu, int64_t tokens);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPLAN_H
