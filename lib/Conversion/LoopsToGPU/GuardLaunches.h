//===- GuardLaunches.h - Kernels behind failed checks -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LOOPSTOGPU_GUARDLAUNCHES_H
#define FOVEA_LIB_CONVERSION_LOOPSTOGPU_GUARDLAUNCHES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fovea::attn {

/// In a function that checks numbers on the device, no kernel does anything
/// once a failure is told: none indexes with what is out of bounds.
void guardLaunches(mlir::func::FuncOp function);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LOOPSTOGPU_GUARDLAUNCHES_H
