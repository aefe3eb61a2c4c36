//===- ConvGradient.h - Loops of attn.conv_apply_backward -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With g = d_output / normaliser and e = (d_output . output) / normaliser, both
// by row, the entries of a segment at one lag share a weight w:
//
//   d_value[j]     = sum_i w[i - j] g[i]                    the other way round
//   d_profile[lag] = w[lag] sum_j (g[j + lag] . value[j] - e[j + lag])
//
//   for (batch, head)
//     (tables)      as in ConvKernel.h
//     judge rows    those that are marked get g = 0
//     rows          g and e; rows with numbers that are not finite, and those
//                   that may read such values, are marked, too
//     (products)    both sums, by one of the algorithms
//     exact rows    marked rows add entry by entry
//     bases         basis r is in the profiles of all segments from r on
//
// Heads that share values add to d_value one after the other. No task adds to
// what another one does.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVGRADIENT_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVGRADIENT_H

#include "ConvKernel.h"

namespace fovea::attn {

class ConvGradientKernel : public ConvKernel {
public:
  ConvGradientKernel(mlir::OpBuilder &builder, ConvApplyBackwardOp op,
                     const ConvPlan &plan)
      : ConvKernel(builder, op, op.getBasis(), op.getSizes(), op.getValue(),
                   plan),
        backward(op) {}

protected:
  void allocateBuffers() override;
  /// What has to be known before rows are judged.
  virtual void prepareProducts() {}
  /// Adds to the gradients of values, and stores those of all profiles, for all
  /// rows but those that are marked.
  virtual void emitProducts() = 0;

  /// Adds a vector of columns to the gradient of a value.
  void addToValue(Value numbers, Value key, Value column);
  /// Stores for every vector of lags of every segment its weights times what
  /// `sum` gives.
  void storeProfileGradients(
      llvm::function_ref<Value(Value segment, Value lag)> sum);

  ConvApplyBackwardOp backward;
  /// g [N, paddedWidth], and e with `front` zeros before and behind it.
  Value rowGradients, rowDeltas;
  int64_t front;
  /// Like scores.
  Value profileGradients;

private:
  void prepareShared() override;
  void emitHead() override;
  void finish() override;
  Marked prepareRows();
  Value prepareRow(Value row);
  Value dot(Value row, llvm::function_ref<Value(Value column)> other);
  void storeBases();

  // ConvGradientRows.cpp
  void emitExactRows(const Marked &marked);
  void listMarkedRows(Value end);
  void prepareExactRow(Value row, Value rowWeights);
  void addExactValues(Value row, Value firstKey, Value endKey,
                      Value rowWeights);
  void addExactLags(Value row, Value firstLag, Value endLag, Value rowWeights);
  void forEachEntry(
      Value row, Value firstLag, Value endLag, Value rowWeights,
      llvm::function_ref<void(Value segment, Value lag, Value weight)> body);

  /// Sums for the gradients of values [B, G, N, paddedWidth].
  Value valueSums;
  /// The rows that are marked, in order.
  Value markedRows;
  /// Of marked rows: the greatest score, the reciprocal of the normaliser next
  /// to it, and d_output . output.
  Value exactTops, exactFactors, exactDeltas;
};

void emitConvGradientToeplitz(mlir::OpBuilder &builder, ConvApplyBackwardOp op,
                              const ConvPlan &plan);
void emitConvGradientPartitioned(mlir::OpBuilder &builder,
                                 ConvApplyBackwardOp op, const ConvPlan &plan);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVGRADIENT_H
