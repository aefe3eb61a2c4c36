//===- LowerReshapes.cpp - Reshapes with several unknown extents ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERRESHAPESPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

/// Whether the extents of the operation's operands say more than its type and
/// that of its source: upstream computes one unknown extent of a group only.
static bool needsExtents(memref::ExpandShapeOp op) {
  return llvm::any_of(op.getReassociationIndices(),
                      [&](ArrayRef<int64_t> dims) {
                        return llvm::count_if(dims, [&](int64_t dim) {
                                 return op.getResultType().isDynamicDim(dim);
                               }) > 1;
                      });
}

static void lower(memref::ExpandShapeOp op) {
  OpBuilder builder(op);
  ImplicitLocOpBuilder b(op.getLoc(), builder);
  MemRefType type = op.getResultType();
  auto source = memref::ExtractStridedMetadataOp::create(b, op.getSrc());
  SmallVector<OpFoldResult> sizes = op.getMixedOutputShape();
  SmallVector<OpFoldResult> strides(type.getRank());
  auto [knownStrides, knownOffset] = type.getStridesAndOffset();
  for (auto [group, dims] : llvm::enumerate(op.getReassociationIndices())) {
    Value stride = source.getStrides()[group];
    for (int64_t dim : llvm::reverse(dims)) {
      int64_t known = knownStrides[dim];
      strides[dim] = ShapedType::isDynamic(known) ? OpFoldResult(stride)
                                                  : b.getIndexAttr(known);
      Value size = getValueOrCreateConstantIndexOp(b, b.getLoc(), sizes[dim]);
      stride = arith::MulIOp::create(b, stride, size);
    }
  }
  OpFoldResult offset = ShapedType::isDynamic(knownOffset)
                            ? OpFoldResult(source.getOffset())
                            : b.getIndexAttr(knownOffset);
  Value result = memref::ReinterpretCastOp::create(
      b, type, source.getBaseBuffer(), offset, sizes, strides);
  op.replaceAllUsesWith(result);
  op.erase();
}

namespace {
struct LowerReshapesPass
    : fovea::attn::impl::LowerReshapesPassBase<LowerReshapesPass> {
  using LowerReshapesPassBase::LowerReshapesPassBase;

  void runOnOperation() override {
    getOperation()->walk([](memref::ExpandShapeOp op) {
      if (needsExtents(op))
        lower(op);
    });
  }
};
} // namespace
