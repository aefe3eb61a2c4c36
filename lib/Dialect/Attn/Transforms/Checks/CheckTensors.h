//===- CheckTensors.h - Checks of linalg and tensor operations --*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_CHECKTENSORS_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_CHECKTENSORS_H

#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fovea::attn {

/// Checks at run time what the operations of linalg and tensor in a function
/// take for granted of extents that are not known.
void emitTensorChecks(mlir::func::FuncOp function, RuntimeCalls &calls);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_CHECKTENSORS_H
