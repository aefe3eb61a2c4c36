//===- Tiler.h - One tile of an attention op --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_IR_TILER_H
#define FOVEA_LIB_DIALECT_ATTN_IR_TILER_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/Builders.h"

namespace fovea::attn::detail {

/// Extent `dim` of a tensor or memref.
mlir::OpFoldResult getExtent(mlir::OpBuilder &builder, mlir::Location loc,
                             mlir::Value operand, int64_t dim);

/// True when `size` is known to be all of extent `dim` of a tensor.
bool isWholeExtent(mlir::OpFoldResult size, mlir::Value operand, int64_t dim);

/// The iteration domain that is the first `rank` extents of `operand`.
llvm::SmallVector<mlir::Range> getDomain(mlir::OpBuilder &builder,
                                         mlir::Location loc,
                                         mlir::Value operand, int64_t rank);

/// The iterators of a domain whose `count` loops are all parallel.
llvm::SmallVector<mlir::utils::IteratorType> getParallelLoops(unsigned count);

/// Where a tile of the domain lies in the result that `init` becomes: it has
/// all of the dimensions that are not in the domain.
mlir::LogicalResult
getResultTile(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value init,
              llvm::ArrayRef<mlir::OpFoldResult> offsets,
              llvm::ArrayRef<mlir::OpFoldResult> sizes,
              llvm::SmallVector<mlir::OpFoldResult> &resultOffsets,
              llvm::SmallVector<mlir::OpFoldResult> &resultSizes);

/// Cuts the operands of an attention op to one tile of its domain, which starts
/// with batch and head. What fails is an error of the operation.
class Tiler {
public:
  /// Fails on memrefs.
  static mlir::FailureOr<Tiler> get(mlir::OpBuilder &builder,
                                    mlir::DestinationStyleOpInterface op,
                                    llvm::ArrayRef<mlir::OpFoldResult> offsets,
                                    llvm::ArrayRef<mlir::OpFoldResult> sizes);

  /// Finds the key/value heads that the tile's query heads read. Fails unless
  /// the tile has one head, all heads, or every head has keys of its own.
  mlir::LogicalResult mapHeads(mlir::Value query, mlir::Value key);

  /// `[B, H, N, ...]`, or the first of these extents.
  mlir::Value sliceQueryLike(mlir::Value operand, bool broadcasts = false);
  /// `[B, G, M, ...]`: the rows stay whole.
  mlir::Value sliceKeyLike(mlir::Value operand, bool broadcasts = false);
  /// `[B, G', ...]`: the lists of the tile's heads of `query`. Fails where
  /// mapHeads would.
  mlir::FailureOr<mlir::Value> sliceLists(mlir::Value lists, mlir::Value query);
  /// `[H, ...]`, where an extent of 1 broadcasts.
  mlir::Value sliceHeads(mlir::Value operand);
  /// `[B, ...]`: what all heads share.
  mlir::Value sliceBatch(mlir::Value operand);
  /// `[B, N]`: the rows of the tile, which all heads share.
  mlir::Value sliceBatchRows(mlir::Value operand);
  /// `[W, ...]`: the sets that the tile's heads of `heads` share; `what` names
  /// them. Fails where mapHeads would.
  mlir::FailureOr<mlir::Value> sliceSets(mlir::Value operand, mlir::Value heads,
                                         llvm::StringRef what);

  /// The operation on `operands`, which are its own, cut to the tile.
  mlir::TilingResult tile(mlir::ValueRange operands);
  /// What tiling gives, where `tiled` computes the tile.
  mlir::TilingResult getResult(mlir::Operation *tiled) const;

private:
  Tiler(mlir::OpBuilder &builder, mlir::DestinationStyleOpInterface op,
        llvm::ArrayRef<mlir::OpFoldResult> offsets,
        llvm::ArrayRef<mlir::OpFoldResult> sizes)
      : builder(builder), op(op), loc(op->getLoc()), offsets(offsets),
        sizes(sizes) {}

  /// Which of `groups` groups the tile's heads of `query` fall into, when
  /// consecutive heads make a group.
  mlir::LogicalResult mapGroups(mlir::Value query, mlir::OpFoldResult numGroups,
                                int64_t groups, mlir::OpFoldResult &offset,
                                mlir::OpFoldResult &size);
  mlir::Value slice(mlir::Value operand,
                    llvm::ArrayRef<mlir::OpFoldResult> leadingOffsets,
                    llvm::ArrayRef<mlir::OpFoldResult> leadingSizes,
                    bool broadcasts);

  mlir::OpBuilder &builder;
  mlir::DestinationStyleOpInterface op;
  mlir::Location loc;
  llvm::ArrayRef<mlir::OpFoldResult> offsets, sizes;
  mlir::OpFoldResult keyHeadOffset, keyHeadSize;
  llvm::SmallVector<mlir::Operation *> slices;
};

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_IR_TILER_H
