//===- ExpandConv.h - Pairs of groups of attn.conv --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_EXPANDCONV_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_EXPANDCONV_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn::detail {

/// What expansions of attn.conv and of its gradient share.
class ConvExpander {
protected:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;

  ConvExpander(mlir::Operation *op, Value query)
      : b(op->getLoc(), op),
        numTokens(mlir::cast<mlir::ShapedType>(query.getType()).getDimSize(2)) {
  }

  /// Lists the tokens that `mask` says are present, unless it is null.
  void listTokens(Value mask);
  bool isPacked() const { return tokens != nullptr; }
  /// The rows of the tokens that are present, one after the other and before
  /// zeros; all where there is no mask.
  Value pack(Value rows) { return isPacked() ? takeRows(rows, tokens) : rows; }
  /// The opposite, in the memory of `init`: zeros for the others.
  Value unpack(Value rows, Value init);

  /// The bases of all rows of `query` and `key`, sizes and the number found.
  /// Row 0 is row `first` of all that are packed; there are none unless one
  /// behind the first `skipped` rows is there.
  template <typename OpTy>
  ConvRecoverOp recover(OpTy op, Value query, Value key, Value found,
                        mlir::OpFoldResult first, int64_t skipped) {
    auto type = mlir::cast<mlir::RankedTensorType>(query.getType());
    int64_t numBases = op.getNumBasis();
    Value basis = makeEmpty(query, {numBases, type.getDimSize(2)},
                            getStateType(type.getElementType()));
    Value sizes = makeEmpty(query, numBases, b.getI32Type());
    return ConvRecoverOp::create(
        b, mlir::TypeRange(mlir::ValueRange{basis, sizes, found}), query, key,
        getLengths(first, skipped), basis, sizes, found, op.getWindowAttr(),
        op.getDeltaAttr(), op.getEpsilonAttr(), op.getScaleAttr());
  }

  /// Goes through every pair of neighbouring groups; the first group of a pair
  /// belongs to the pair before. `body` is for rows `first .. first + count -
  /// 1`, of which the first `skipped` are not the pair's own, and takes and
  /// returns what pairs hand on.
  using PairBody =
      llvm::function_ref<Values(mlir::OpFoldResult first, int64_t count,
                                int64_t skipped, mlir::ValueRange carried)>;
  Values forEachPair(int64_t group, mlir::ValueRange inits, PairBody body);

  /// Rows `first .. first + count - 1` of `[B, H, N, D]`.
  Value sliceRows(Value tensor, mlir::OpFoldResult first, int64_t count);
  /// `tensor` with `rows` from row `first` on.
  Value insertRows(Value rows, Value tensor, mlir::OpFoldResult first);
  /// `first + offset`.
  mlir::OpFoldResult addRows(mlir::OpFoldResult first, int64_t offset);
  /// An empty tensor of the leading two extents of `like` and `trailing`, of
  /// which one that is not known is the rows of `like`.
  Value makeEmpty(Value like, llvm::ArrayRef<int64_t> trailing,
                  mlir::Type elementType);
  static llvm::ArrayRef<int64_t> getShape(Value tensor) {
    return mlir::cast<mlir::RankedTensorType>(tensor.getType()).getShape();
  }
  Value fill(Value init);
  /// `sums + added`, in place of `sums`.
  Value addTo(Value sums, Value added);

  mlir::ImplicitLocOpBuilder b;
  int64_t numTokens;

private:
  Value takeRows(Value from, Value rows, Value init = {});
  Value getLengths(mlir::OpFoldResult first, int64_t skipped);

  /// What attn.list_tokens says, if there is a mask.
  Value tokens, places, counts;
};

void expandConvBackward(ConvBackwardOp op);

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_EXPANDCONV_H
