//===- RowAlignment.cpp - Widest copies of rows ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace fovea::attn;

/// The greatest common divisor of the elements at which rows of a buffer start,
/// 1 when nothing is known.
static int64_t getRowStep(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  if (auto cast = memref.getDefiningOp<memref::CastOp>())
    return getRowStep(cast.getSource());
  // Where a row of a collapsed buffer starts, one of its source does.
  if (auto collapse = memref.getDefiningOp<memref::CollapseShapeOp>())
    return collapse.getSrcType().getRank() > 0 ? getRowStep(collapse.getSrc())
                                               : 1;
  // Rows of an expanded buffer are those of its source, if they are as long.
  if (auto expand = memref.getDefiningOp<memref::ExpandShapeOp>())
    return expand.getSrcType().getRank() > 0 &&
                   expand.getSrcType().getShape().back() ==
                       type.getShape().back()
               ? getRowStep(expand.getSrc())
               : 1;
  if (auto view = memref.getDefiningOp<memref::SubViewOp>()) {
    // Rows of a view start at rows of its source, moved by the offset.
    int64_t rank = view.getSourceType().getRank();
    if (rank == 0 || view.getDroppedDims().test(rank - 1))
      return 1;
    int64_t offset = view.getStaticOffsets().back();
    int64_t step = getRowStep(view.getSource());
    if (ShapedType::isDynamic(offset) || view.getStaticStrides().back() != 1)
      return 1;
    return std::gcd(step, offset);
  }
  // Anything else that is not known to be a whole buffer could start anywhere.
  auto argument = dyn_cast<BlockArgument>(memref);
  bool isWhole = argument || memref.getDefiningOp<memref::AllocOp>() ||
                 memref.getDefiningOp<memref::GetGlobalOp>();
  // Rows of arguments may lie anywhere, but as those of whole buffers do.
  bool isGiven = argument && argument.getOwner()->isEntryBlock() &&
                 isa<func::FuncOp>(argument.getOwner()->getParentOp());
  int64_t width = type.getShape().back();
  if (!isWhole || !(isGiven || type.getLayout().isIdentity()) ||
      ShapedType::isDynamic(width))
    return 1;
  return width;
}

int64_t fovea::attn::getCopyBytes(Value memref, int64_t elementBytes) {
  ArrayRef<int64_t> shape = cast<MemRefType>(memref.getType()).getShape();
  if (shape.empty() || ShapedType::isDynamic(shape.back()))
    return elementBytes;
  int64_t width = shape.back();
  int64_t step = std::gcd(getRowStep(memref), width);
  return std::gcd(step * elementBytes, kChunkBytes);
}

int64_t fovea::attn::getStartBytes(Value memref, int64_t elementBytes) {
  if (memref.getDefiningOp<memref::AllocOp>())
    return kChunkBytes;
  if (isa_and_present<memref::CastOp, memref::ExpandShapeOp,
                      memref::CollapseShapeOp>(memref.getDefiningOp()))
    return getStartBytes(memref.getDefiningOp()->getOperand(0), elementBytes);
  return cast<MemRefType>(memref.getType()).getRank() > 0
             ? std::gcd(getRowStep(memref) * elementBytes, kChunkBytes)
             : elementBytes;
}
