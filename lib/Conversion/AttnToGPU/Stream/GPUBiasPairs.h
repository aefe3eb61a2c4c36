//===- GPUBiasPairs.h - Elements of a bias for a thread ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUBIASPAIRS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUBIASPAIRS_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"

namespace fovea::attn {

/// What a thread reads of a bias [N or 1, M or 1], or [H or 1, N or 1, M or 1],
/// for its part of a tile of scores: pairs of columns beside each other, in two
/// rows.
struct BiasTile {
  using Value = mlir::Value;

  Value bias;
  /// Those of the thread, that exist, by their indices without the column.
  KernelBuilder::Values rows[2];
  Value firstColumn, count; // of the tile, and how many there are from there on
  Value pairColumn;         // of the thread, in the tile
  int64_t columns;          // of the tile
};

/// The indices of a row of a bias for what may stand for all rows.
KernelBuilder::Values broadcastRow(GPUKernelBuilder &b, mlir::Value bias,
                                   mlir::ValueRange row);

/// Loads two elements for each 8 columns and row, both at once where pointer
/// and rows allow it and the tile is whole. Columns that do not exist have
/// those of the last one. Nothing where one column stands for all, or columns
/// do not lie beside each other.
KernelBuilder::Values loadBiasPairs(GPUKernelBuilder &b, const BiasTile &tile);

/// Entry `index` of the thread's, in the order of sums of products.
mlir::Value getBiasEntry(GPUKernelBuilder &b, mlir::ValueRange pairs,
                         size_t index);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUBIASPAIRS_H
