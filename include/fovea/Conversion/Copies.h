//===- Copies.h - Which copies of buffers are calls -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_COPIES_H
#define FOVEA_CONVERSION_COPIES_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"

namespace fovea::attn {

/// What the conversion to LLVM recognises as memory without gaps.
inline bool isContiguous(mlir::MemRefType type) {
  return type.getLayout().isIdentity() ||
         (type.hasStaticShape() && type.getNumElements() > 0 &&
          mlir::memref::isStaticShapeAndContiguousRowMajor(type));
}

/// Whether `copy` becomes a call of `memcpy`.
inline bool isWholeCopy(mlir::memref::CopyOp copy) {
  auto source = llvm::dyn_cast<mlir::MemRefType>(copy.getSource().getType());
  auto target = llvm::dyn_cast<mlir::MemRefType>(copy.getTarget().getType());
  return source && target && isContiguous(source) && isContiguous(target);
}

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_COPIES_H
