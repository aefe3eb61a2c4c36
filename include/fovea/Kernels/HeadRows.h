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
#include "llvm/Support/MathExtras.h"

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

/// More queries have tiles of one head, unless lists say otherwise.
inline constexpr int64_t kMostFewQueries = 32;

/// How many queries in a row are packed, together with the heads that share a
/// key head: those of a block, which read the same ranges and lists. One, where
/// blocks may begin anywhere.
inline int64_t getPackedQueries(StreamOp op) {
  int64_t queries =
      mlir::cast<mlir::ShapedType>(op.getQuery().getType()).getDimSize(2);
  int64_t block = op.getBlock();
  bool isKnown = !mlir::ShapedType::isDynamic(queries);
  if (block == 0)
    return isKnown ? std::max<int64_t>(queries, 1) : 1;
  if (op.getFirstRow())
    return 1;
  return isKnown ? std::clamp<int64_t>(queries, 1, block) : block;
}

/// Whether there are so few queries that packed ones read their keys less often
/// than tiles of one head would.
inline bool hasFewQueryRows(StreamOp op) {
  int64_t queries =
      mlir::cast<mlir::ShapedType>(op.getQuery().getType()).getDimSize(2);
  if (mlir::ShapedType::isDynamic(queries) || queries > kMostFewQueries)
    return false;
  int64_t times = llvm::divideCeil(queries, getPackedQueries(op));
  return times <= 1 || times < getKeyGroup(op);
}

/// Whether the rows of a tile on a GPU are the heads that share a key head, of
/// one query or of several. They are where the queries of one head would fill
/// less of a tile: there are few, or lists of rows, which all of these heads
/// share, change after few. Such an operation is not cut to tiles: its kernel
/// has a block of threads for each tile of packed queries, or several for parts
/// of what they read.
inline bool hasHeadRows(StreamOp op) {
  int64_t group = getKeyGroup(op);
  if (group == 0 || op.getQueryLengths())
    return false;
  int64_t keyHeads =
      mlir::cast<mlir::ShapedType>(op.getValues().front().getType())
          .getDimSize(1);
  for (const StreamSource &source : op.getSourceList()) {
    if (mlir::cast<mlir::ShapedType>(source.values.getType()).getDimSize(1) !=
        keyHeads)
      return false;
    int64_t lists = source.rowList
                        ? mlir::cast<mlir::ShapedType>(source.rowList.getType())
                              .getDimSize(1)
                        : 1;
    if (lists != 1 && lists != keyHeads)
      return false;
  }
  if (hasFewQueryRows(op))
    return true;
  int64_t queries =
      mlir::cast<mlir::ShapedType>(op.getQuery().getType()).getDimSize(2);
  int64_t block = op.getBlock();
  if (op.getRowLists().empty() || block == 0)
    return false;
  queries =
      mlir::ShapedType::isDynamic(queries) ? block : std::min(queries, block);
  return queries < group;
}

} // namespace fovea::attn

#endif // FOVEA_KERNELS_HEADROWS_H
