//===- ConvBuilder.h - Emission of sums of convolutions ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVBUILDER_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVBUILDER_H

#include "ConvPlan.h"
#include "fovea/Kernels/RowBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

namespace fovea::attn::conv {

using mlir::ArrayRef;
using mlir::function_ref;
using mlir::Value;
using mlir::ValueRange;
using Values = KernelBuilder::Values;

/// Rows of a task, and of one whose rows are computed from their scores.
constexpr int64_t kTaskRows = 64, kExactRows = 16;
/// Tasks of much work that make a loop parallel.
constexpr int64_t kManyTasks = 16;

/// Emits the code of one attn.conv_apply on memrefs, or of its gradient: the
/// operands that all parts of a kernel read, and short names for what they do.
class ConvBuilder : public RowBuilder {
public:
  ConvBuilder(mlir::OpBuilder &builder, mlir::Operation *op, Value basis,
              Value sizes, Value value, const ConvPlan &plan);

  mlir::Operation *const op;
  const Value basis, sizes, value;
  const ConvPlan &plan;
  /// Columns of a value, and what they are padded to.
  const int64_t width, paddedWidth;
  const Value numTokens, numBases;
  /// The head that the code inside of the loops over heads is for.
  Value batch, head, group;

  /// Groups of columns that have a transform of their own.
  int64_t getNumGroups() const {
    return llvm::divideCeil(paddedWidth, plan.getColumns());
  }

  // Loops.

  /// A parallel loop whose tasks free their scratch memory.
  void forAll(ArrayRef<Value> counts, function_ref<void(ValueRange)> body);
  /// A parallel loop over rows, a few of them a task.
  void forAllRows(ArrayRef<Value> leading,
                  function_ref<void(ValueRange leading, Value row)> body);
  /// Visits the vectors of `[low, high)`; `mask` is null but for the last one,
  /// which may not be whole.
  Values
  forEachVector(Value low, Value high, ValueRange inits,
                function_ref<Values(Value at, Value mask, ValueRange)> body);
  /// Lists the numbers of `[first, end)` that `isListed`, in order; returns how
  /// many.
  Value listIf(Value first, Value end, Value list,
               function_ref<Value(Value)> isListed);

  /// Buffers that live until all but the first so many are freed.
  Value allocate(mlir::Type type, ArrayRef<Value> extents);
  size_t getNumBuffers() const { return buffers.size(); }
  void freeBuffers(size_t count);

  // Numbers in f64, whatever the state type.
  mlir::VectorType getWideType();
  Value wide(double number);
  Value splatWide(double number);
  Value widen(Value number);
  /// In the state type.
  Value narrow(Value numbers);
  Value loadWide(Value memref, Value at);
  void storeWide(Value numbers, Value memref, Value at);
  /// Zeros for the padded row `at`.
  void clearRow(Value memref, ValueRange at);
  /// Stores zeros in f64 to `[0, end)`.
  void clearWide(Value memref, Value end);

  // Vectors.
  Value compare(mlir::arith::CmpFPredicate predicate, Value a, Value b) {
    return mlir::arith::CmpFOp::create(*this, predicate, a, b);
  }
  Value reduce(mlir::vector::CombiningKind kind, Value numbers) {
    return mlir::vector::ReductionOp::create(*this, kind, numbers);
  }
  /// The vector of which the first `count` elements are true.
  Value firstLanes(Value count);
  /// Elements that `mask` is false for are not read and count as `otherwise`;
  /// without one, all are.
  Value loadMasked(Value memref, ValueRange indices, Value mask,
                   double otherwise);
  /// Those in front of `mask`, in the type of the memref.
  void storeMasked(Value numbers, Value memref, ValueRange indices, Value mask);
  /// Calls `body` with the first column of every vector up to `end`; one that
  /// is not whole has a constant.
  Values overColumns(int64_t end, ValueRange inits,
                     function_ref<Values(Value, ValueRange)> body);
  /// Columns from `column` on of a row that is not padded; 0 beyond the width.
  Value loadColumns(Value memref, ValueRange at, Value column);
  /// Stores them, as many as there are.
  void storeColumns(Value numbers, Value memref, ValueRange at, Value column);

private:
  Values buffers;
};

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVBUILDER_H
