//===- ConvKernel.h - Loops of attn.conv_apply ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for one attn.conv_apply on memrefs. Columns between the first column of
// a basis and that of the next are a *segment*: they share one profile of
// weights by lag, the distance of query and key.
//
//   values    widened, with whole vectors of columns (where they are not)
//   for (batch, head)
//     bounds       first column of every segment
//     weights      profiles, from score sums in f64, the head's maximum taken
//                  off
//     normaliser   sums of weights, without subtraction
//     (product)    weights times values, by one of the algorithms
//     judge rows   those that rounding may have spoilt are marked
//     exact rows   marked rows once more, from the scores
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CONV_CONVKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CONV_CONVKERNEL_H

#include "ConvPlan.h"
#include "KernelBuilder.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// What all algorithms share.
class ConvKernel {
public:
  ConvKernel(mlir::OpBuilder &builder, ConvApplyOp op, const ConvPlan &plan);
  virtual ~ConvKernel() = default;

  void emit();

protected:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  /// Allocates what the algorithm needs besides.
  virtual void allocateBuffers() {}
  /// What all heads share, from the values.
  virtual void prepareShared() {}
  /// What has to be known before rows are judged.
  virtual void prepareProduct() {}
  /// Writes all rows but those that are marked.
  virtual void emitProduct() = 0;
  /// Whether rounding errors of a row are small next to its normaliser; null
  /// where a product is as exact as sums are.
  virtual Value isQuiet(Value row, Value normaliser) { return Value(); }

  // Loops.
  void forAll(mlir::ArrayRef<Value> counts,
              llvm::function_ref<void(ValueRange)> body);

  // Buffers that live as long as the operation.
  Value allocate(mlir::Type type, mlir::ArrayRef<Value> extents);

  // Segments.
  Value firstColumn(Value segment) { return loadIndex(bounds, segment); }
  Value segmentOf(Value column) { return loadIndex(segments, column); }
  Value loadIndex(Value memref, ValueRange indices);
  void storeIndex(Value index, Value memref, ValueRange indices);

  // Profiles.
  Value weightOffset(Value segment, Value lag);
  Value scoreOffset(Value segment, Value lag);

  // Numbers in f64, whatever the state type.
  Value wide(double number);
  Value widen(Value number);

  /// The vector of which the first `count` elements are true.
  Value firstLanes(Value count);
  /// Elements that `mask` is false for are not read and count as `otherwise`.
  Value loadMasked(Value memref, ValueRange indices, Value mask,
                   double otherwise);
  /// Stores `numbers`, columns from `column` on, to a row of the output.
  void storeOutput(Value numbers, Value row, Value column);

  KernelBuilder b;
  ConvApplyOp op;
  const ConvPlan &plan;
  int64_t lanes, width;
  Value numTokens, numBases;
  /// The head that the code inside of the loops is for.
  Value batch, head, group;
  /// Values [B, G, N, paddedWidth], in the state type.
  Value values;
  int64_t paddedWidth;
  /// First columns [R + 1], and the segment of every column [N].
  Value bounds, segments;
  /// Profiles, one row for each segment, and one of zeros. Lag 0 is entry
  /// `plan.front` of a row of weights and entry 0 of a row of scores, which
  /// are binary logarithms of weights.
  Value weights, scores, weightRow, scoreRow;
  /// Normalisers [N] in f64, their reciprocals [N], and marks [N].
  Value normalisers, reciprocals, marks;
  llvm::SmallVector<Value> buffers;
  bool packsValues;

private:
  using LagVisitor = llvm::function_ref<Value(Value segment, Value lag,
                                              Value sum, Value mask, Value)>;

  void allocateTables();
  void prepareValues();
  void prepareBounds();
  void prepareWeights();
  Value findTop();
  Value forEachLagVector(Value chunk, Value init, LagVisitor visit);
  void storeProfiles(Value top);
  void prepareNormalisers();
  Value scan(Value numbers, bool isBackward);
  void sumWindows(Value segment);
  void judgeRows();

  // ConvRows.cpp
  void emitExactRows();
  void emitExactRow(Value row, Value sums, Value rowWeights);
  Value findRowTop(Value row);
  Values forEachRun(Value row, ValueRange inits,
                    llvm::function_ref<Values(Value segment, Value low,
                                              Value high, ValueRange)>
                        body);
  Value addRun(Value row, Value segment, Value low, Value count, Value top,
               Value normaliser, Value sums, Value rowWeights);

  Value partialTops, suffixes;
};

void emitConvToeplitz(mlir::OpBuilder &builder, ConvApplyOp op,
                      const ConvPlan &plan);
void emitConvPartitioned(mlir::OpBuilder &builder, ConvApplyOp op,
                         const ConvPlan &plan);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CONV_CONVKERNEL_H
