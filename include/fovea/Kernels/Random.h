//===- Random.h - Numbers that a seed chooses -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_RANDOM_H
#define FOVEA_KERNELS_RANDOM_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn {

/// Number `number` of the generator SplitMix64 that starts from the seed in
/// `seed`, a memref of one i64, modulo `limit`. The others are indices.
mlir::Value emitRandomBelow(mlir::ImplicitLocOpBuilder &b, mlir::Value seed,
                            mlir::Value number, mlir::Value limit);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_RANDOM_H
