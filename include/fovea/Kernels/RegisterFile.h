//===- RegisterFile.h - Vector registers of a CPU ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_REGISTERFILE_H
#define FOVEA_KERNELS_REGISTERFILE_H

#include "llvm/ADT/bit.h"
#include <algorithm>
#include <cstdint>

namespace fovea::attn {

/// The registers that kernels are planned for.
struct RegisterFile {
  int64_t vectorBits, count;

  /// The most rows of a register tile; rows of products are padded to a
  /// multiple.
  static constexpr int64_t kMaxTileRows = 16;

  /// The accumulators of a register tile, and the most vectors of its columns.
  int64_t getAccumulators() const { return count >= 32 ? 24 : 8; }
  int64_t getTileVectors() const { return count >= 32 ? 6 : 2; }
  /// Rows of a register tile of `vectors` vectors: a power of two.
  int64_t getTileRows(int64_t vectors) const {
    uint64_t rows = std::max<int64_t>(getAccumulators() / vectors, 1);
    return std::min<int64_t>(llvm::bit_floor(rows), kMaxTileRows);
  }
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_REGISTERFILE_H
