//===- GradientRanges.h - Who reads which rows of a source ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GRADIENTRANGES_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GRADIENTRANGES_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/StreamRanges.h"

namespace fovea::attn {

/// Which rows of a source a query of attn.stream_backward reads, and which
/// queries read a row. Gradients go through the ranges of a source one by one,
/// which have no row in common for a query.
class GradientRanges {
public:
  using Value = mlir::Value;

  /// Rows, or queries; none where the end is before the begin.
  struct Span {
    Value begin, end;
  };

  GradientRanges(KernelBuilder &builder, StreamBackwardOp op,
                 const StreamSource &source);

  /// Counts queries and rows for that batch entry, where lengths say how many.
  void setBatch(Value batch);
  /// Takes other values of the same numbers.
  void setNumbers(Value queries, const SourceLength &rows) {
    numQueries = queries;
    length = rows;
  }
  Value getNumQueries() const { return numQueries; }
  const SourceLength &getLength() const { return length; }
  Value getNumRanges();

  /// The block of a query, for which ranges say what it reads.
  Value getBlock(Value query);
  /// The rows of a range that the mask admits for a query, which exists.
  Span getRows(Value range, Value query);
  /// The rows that some of `count` queries from `query` on read.
  Span getRowsOfTile(Value range, Value query, int64_t count);
  /// Those that all of them read; the ranges ascend.
  Span getCommonRows(Value range, Value query, int64_t count);
  /// The tiles of `count` queries, one of which reads some row of `rows`, with
  /// others in between.
  Span getTilesOfRows(Value range, const Span &rows, int64_t count);
  /// Those that are whole and read all of them with all queries; the ranges
  /// ascend.
  Span getWholeTiles(Value range, const Span &rows, int64_t count);
  /// Whether none of the ranges begins or ends before where it does for an
  /// earlier query: what is between the first and the last query that read a
  /// row reads it, too.
  bool ascend() const { return isAscending; }

  /// The rows of a range for a block of queries, whatever the mask.
  Span getRowsOfBlock(Value range, Value block);
  /// The rows that the mask admits for a query.
  Span getAdmitted(Value query);

private:
  /// The last of `count` queries from `query` on that exists; 0 if none does.
  Value getLast(Value query, int64_t count);
  /// The first number below `end` for which a condition holds, if it holds for
  /// all numbers after it.
  Value findFirst(Value end, llvm::function_ref<Value(Value)> holds);

  KernelBuilder &b;
  StreamBackwardOp op;
  StreamSource source;
  bool isAscending;
  Value numQueries;
  SourceLength length;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GRADIENTRANGES_H
