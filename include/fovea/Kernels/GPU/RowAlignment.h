//===- RowAlignment.h - Widest copies of rows -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_ROWALIGNMENT_H
#define FOVEA_KERNELS_GPU_ROWALIGNMENT_H

#include "mlir/IR/Value.h"

namespace fovea::attn {

/// The most bytes, a power of two up to 16, by which the rows of `memref` can
/// be read or written at aligned addresses: rows start at a multiple of them
/// and are a multiple long. Allocations are aligned to 16 bytes. Rows of
/// arguments of functions, wherever they lie, start at a multiple of the
/// greatest power of two up to 16 that they are a multiple of: the runtime
/// copies others.
int64_t getCopyBytes(mlir::Value memref, int64_t elementBytes);

/// The same for the first element alone: how long rows are does not matter.
int64_t getStartBytes(mlir::Value memref, int64_t elementBytes);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_ROWALIGNMENT_H
