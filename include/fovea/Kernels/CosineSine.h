//===- CosineSine.h - Cosines and sines of small angles ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_COSINESINE_H
#define FOVEA_KERNELS_COSINESINE_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// The cosine and sine of `angle` plus some quarters of a turn: `angle` is at
/// most an eighth of a turn, in radians, and the last two bits of the integer
/// `quarters` for each number count the quarters.
std::pair<mlir::Value, mlir::Value>
emitCosineSine(KernelBuilder &builder, mlir::Value angle, mlir::Value quarters);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_COSINESINE_H
