//===- Buffers.h - What buffers of operations may share ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOVECTOR_BUFFERS_H
#define FOVEA_LIB_CONVERSION_LINALGTOVECTOR_BUFFERS_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace fovea::attn {

/// The buffer that `memref` is a view of.
inline mlir::Value findRoot(mlir::Value memref) {
  while (auto view = memref.getDefiningOp<mlir::ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref;
}

/// Whether no other buffer than a view of `root` has a part of it; what a loop
/// carries may be any.
inline bool isWhole(mlir::Value root) {
  if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(root))
    return llvm::isa<mlir::FunctionOpInterface>(
        argument.getOwner()->getParentOp());
  return llvm::isa_and_nonnull<mlir::memref::AllocOp,
                               mlir::memref::GetGlobalOp>(root.getDefiningOp());
}

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LINALGTOVECTOR_BUFFERS_H
