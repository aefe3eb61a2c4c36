//===- HeadRows.h - Tiles whose rows are heads ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_HEADROWS_H
#define FOVEA_KERNELS_HEADROWS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// How many heads share a key head, if that is known, else 0.
inline int64_t getKeyGroup(StreamOp op) {
  auto getHeads = [](mlir::Value operand) {
    return mlir::cast<mlir::ShapedType>(operand.getType()).getDimSize(1);
  };
  int64_t heads = getHeads(op.getQuery());
  int64_t keyHeads = getHeads(op.getValues().front());
  bool isKnown = !mlir::ShapedType::isDynamic(heads) &&
                 !mlir::ShapedType::isDynamic(keyHeads) && keyHeads != 0;
  return isKnown ? heads / keyHeads : 0;
}

/// Whether the rows of a tile on a GPU are the heads that share a key head, of
/// one query. They are where lists of rows, which all of these heads share,
/// change after so few queries that those of one head would fill less of a
/// tile. Such an operation is not cut to tiles: its kernel has a block of
/// threads for each query.
inline bool hasHeadRows(StreamOp op) {
  if (op.getRowLists().empty() || op.getFirstRow() || op.getQueryLengths() ||
      !op.getScore().empty())
    return false;
  int64_t keyHeads =
      mlir::cast<mlir::ShapedType>(op.getValues().front().getType())
          .getDimSize(1);
  for (const StreamSource &source : op.getSourceList()) {
    if (source.attr.hasDistances())
      return false;
    int64_t lists = source.rowList
                        ? mlir::cast<mlir::ShapedType>(source.rowList.getType())
                              .getDimSize(1)
                        : 1;
    if (lists != 1 && lists != keyHeads)
      return false;
  }
  int64_t queries =
      mlir::cast<mlir::ShapedType>(op.getQuery().getType()).getDimSize(2);
  if (int64_t block = op.getBlock())
    queries =
        mlir::ShapedType::isDynamic(queries) ? block : std::min(queries, block);
  return !mlir::ShapedType::isDynamic(queries) && queries < getKeyGroup(op);
}

} // namespace fovea::attn

#endif // FOVEA_KERNELS_HEADROWS_H
