//===- AttnCanonicalization.cpp - Canonicalization beside upstream's ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Offsets, sizes and strides of a slice; those that are constants as
/// attributes.
struct SliceOperands {
  template <typename OpTy>
  explicit SliceOperands(OpTy op)
      : offsets(op.getMixedOffsets()), sizes(op.getMixedSizes()),
        strides(op.getMixedStrides()) {}

  /// False if there is nothing to fold.
  bool fold() {
    bool anyOffset = succeeded(foldDynamicOffsetSizeList(offsets));
    bool anySize = succeeded(foldDynamicOffsetSizeList(sizes));
    bool anyStride = succeeded(foldDynamicStrideList(strides));
    return anyOffset || anySize || anyStride;
  }

  /// `type`, that of the slice without the extents that it drops.
  RankedTensorType refine(RankedTensorType type,
                          const llvm::SmallBitVector &dropped) const {
    SmallVector<int64_t> shape;
    for (auto [dim, size] : llvm::enumerate(sizes))
      if (!dropped[dim])
        shape.push_back(
            getConstantIntValue(size).value_or(ShapedType::kDynamic));
    return RankedTensorType::get(shape, type.getElementType(),
                                 type.getEncoding());
  }

  SmallVector<OpFoldResult> offsets, sizes, strides;
};
} // namespace

static Value castTo(PatternRewriter &rewriter, Location loc, Value tensor,
                    Type type) {
  return tensor.getType() == type
             ? tensor
             : tensor::CastOp::create(rewriter, loc, type, tensor).getResult();
}

namespace {
/// Replaces operands of slices that are constants by attributes, as upstream
/// does, but drops the extents of one that the slice drops. Upstream's pattern
/// for tensors (as of LLVM 22) drops the first ones that are 1, whatever the
/// type says, and casts a tensor<4x1xf32> to a tensor<1x?xf32>: `mlir-opt
/// --canonicalize` refuses its own result for
///
/// ```
/// func.func @f(%x: tensor<1x?x8xf32>) -> tensor<1x?xf32> {
///   %c4 = arith.constant 4 : index
///   %s = tensor.extract_slice %x[0, 0, 0] [1, %c4, 1] [1, 1, 1]
///     : tensor<1x?x8xf32> to tensor<1x?xf32>
///   return %s : tensor<1x?xf32>
/// }
/// ```
///
/// and crashes if the result is cast to tensor<1x4xf32>, where it looks for the
/// shape that three casts have in common. The regions of `attn.tree_select`
/// have such slices, whose extents are known once they are expanded.
struct FoldConstantsOfSlice : OpRewritePattern<tensor::ExtractSliceOp> {
  // Before upstream's pattern.
  explicit FoldConstantsOfSlice(MLIRContext *context)
      : OpRewritePattern(context, /*benefit=*/10) {}

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op,
                                PatternRewriter &rewriter) const override {
    RankedTensorType type = op.getType();
    if (type.getRank() == op.getSourceType().getRank())
      return failure();
    SliceOperands operands(op);
    if (!operands.fold())
      return failure();
    auto slice = tensor::ExtractSliceOp::create(
        rewriter, op.getLoc(), operands.refine(type, op.getDroppedDims()),
        op.getSource(), operands.offsets, operands.sizes, operands.strides);
    rewriter.replaceOp(op, castTo(rewriter, op.getLoc(), slice, type));
    return success();
  }
};

/// The same of slices that are written.
struct FoldConstantsOfInsertedSlice : OpRewritePattern<tensor::InsertSliceOp> {
  explicit FoldConstantsOfInsertedSlice(MLIRContext *context)
      : OpRewritePattern(context, /*benefit=*/10) {}

  LogicalResult matchAndRewrite(tensor::InsertSliceOp op,
                                PatternRewriter &rewriter) const override {
    RankedTensorType type = op.getSourceType();
    SliceOperands operands(op);
    if (type.getRank() == op.getDestType().getRank() || !operands.fold())
      return failure();
    Value source = castTo(rewriter, op.getLoc(), op.getSource(),
                          operands.refine(type, op.getDroppedDims()));
    rewriter.replaceOpWithNewOp<tensor::InsertSliceOp>(
        op, source, op.getDest(), operands.offsets, operands.sizes,
        operands.strides);
    return success();
  }
};
} // namespace

void AttnDialect::getCanonicalizationPatterns(
    RewritePatternSet &patterns) const {
  patterns.add<FoldConstantsOfSlice, FoldConstantsOfInsertedSlice>(
      patterns.getContext());
}
