//===- SinkLoads.h - Numbers that kernels read themselves -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LOOPSTOGPU_SINKLOADS_H
#define FOVEA_LIB_CONVERSION_LOOPSTOGPU_SINKLOADS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fovea::attn {

/// Makes stores of the host, of 64 bits or of what it has loaded, loops of one
/// iteration: a graph cannot hold them.
void wrapHostStores(mlir::func::FuncOp function);

/// Where the host loads a number from the device only for places and extents
/// of what kernels read and write, or to decide on a launch, kernels load it
/// instead: the host does not wait, and a graph can hold the launches. What
/// cannot be treated so stays as it is.
void sinkHostLoads(mlir::func::FuncOp function);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LOOPSTOGPU_SINKLOADS_H
