//===- StreamRowKernel.h - One query row of attn.stream ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decoding has one query for each head, which would fill one lane of a vector
// of queries. This schedule of attn.stream has vectors of columns instead, and
// reads keys and values once, in order:
//
//   per tile of rows
//     score       S[row] = key . query, 16 rows transposed and added at once
//     exponentiate  along the rows
//     accumulate  output[columns] += S[row] value[columns]
//
// A mask leaves one query an interval of rows, so every segment is consecutive
// rows, and the tables, log weights and biases of a segment are vectors.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMROWKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMROWKERNEL_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

class StreamRowKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  StreamRowKernel(StreamOp op, mlir::OpBuilder &builder);

  /// Whether `op` has one query for each head.
  static bool fits(StreamOp op);

  /// Emits the code before the operation.
  void emit();

private:
  /// Keys that several sources name by their rows, with their scores.
  struct KeyTable {
    Value operand, scores;
    int64_t numRows;
  };
  /// A source's operands for one batch entry and head.
  struct SourceView {
    Value keys, values, logWeight, bias, codes, rows;
    const KeyTable *keyTable;
    SourceAttr attr;
  };
  /// Rows of a source whose scores are kept at once, and the row that column 0
  /// of the bias belongs to.
  struct Tile {
    const SourceView &source;
    Value low, count, biasBegin;
  };
  using Update =
      llvm::function_ref<Value(Value score, Value bias, Value weight)>;
  /// Running maximum, in base 2, and sum.
  struct State {
    Value maximum, sum;
  };

  void emitHead(Value batch, Value head);
  void packQuery(Value queryRows);
  SourceView view(const StreamOp::Source &source, Value batch, Value head,
                  Value keyHead);
  /// Rows `[low, high)` of a range that the query may read, and the row that
  /// column 0 of the bias belongs to.
  std::tuple<Value, Value, Value> getInterval(const SourceView &source,
                                              mlir::AffineMap range);
  State attendTile(const Tile &tile, State state);
  void finish(Value output, Value lse, const State &state);

  // Passes over the rows of a tile.
  void scoreRows(Value keys, Value low, Value count, Value scores);
  void lookUp(const SourceView &source, Value low, Value count);
  void updateScores(const Tile &tile, Update update);
  void addTerms(const Tile &tile);
  void scaleWeights(const SourceView &source, Value low, Value count);
  void accumulate(const Tile &tile);
  Values sumPanel(const Tile &tile, Value column, int64_t numVectors,
                  bool onlyVisible);
  /// Whether terms may remove entries; a mask leaves out whole rows.
  bool mayHide(const Tile &tile) {
    return tile.source.bias || tile.source.logWeight;
  }
  void markHidden(const Tile &tile);
  /// `body` for vectors of rows, `tail` for the rest.
  void forRows(Value count, llvm::function_ref<void(Value)> body,
               llvm::function_ref<void(Value)> tail);

  StreamOp op;
  KernelBuilder b;
  int64_t lanes, width, valueWidth;
  bool isSoftmax;
  llvm::SmallVector<KeyTable, 1> keyTables;

  Value query, scores, output; // scratch
  Value firstRow, numRows;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_STREAMROWKERNEL_H
