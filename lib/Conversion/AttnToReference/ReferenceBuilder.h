//===- ReferenceBuilder.h - Emits plain loops in f64 ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCEBUILDER_H
#define FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCEBUILDER_H

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn {

/// Emits scalar loops over buffers. Indices are `index`, numbers `f64`,
/// whatever the buffers hold.
class ReferenceBuilder {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  template <typename Fn> using function_ref = llvm::function_ref<Fn>;

  explicit ReferenceBuilder(mlir::Operation *op) : builder(op->getLoc(), op) {}

  mlir::ImplicitLocOpBuilder &getBuilder() { return builder; }

  // Indices. Division is that of numbers that are not negative.
  Value index(int64_t value);
  Value extent(Value buffer, int64_t dim);
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value div(Value a, Value b);
  Value min(Value a, Value b);
  Value max(Value a, Value b);
  /// `|a - b|`.
  Value distance(Value a, Value b);
  Value less(Value a, Value b);
  Value lessOrEqual(Value a, Value b);
  Value both(Value a, Value b);
  Value either(Value a, Value b);

  // Numbers.
  Value number(double value);
  Value minusInfinity();
  Value addNumbers(Value a, Value b);
  Value subNumbers(Value a, Value b);
  Value mulNumbers(Value a, Value b);
  Value divNumbers(Value a, Value b);
  /// The greater of two numbers; NaN when one of them is.
  Value maxNumbers(Value a, Value b);
  Value exp(Value a);
  Value sin(Value a);
  Value cos(Value a);
  Value sqrt(Value a);
  Value absolute(Value a);
  /// The logarithm of an index.
  Value log(Value a);
  /// Comparisons of numbers, false when one is NaN.
  Value lessNumber(Value a, Value b);
  Value equalNumber(Value a, Value b);
  /// An index as a number, and back.
  Value toNumber(Value index);
  Value toIndex(Value number);
  Value isMinusInfinity(Value a);
  /// The opposite; also true of NaN.
  Value isNotMinusInfinity(Value a);
  Value select(Value condition, Value a, Value b);
  /// NaN instead of an infinity, so that what reads it becomes NaN even where
  /// its weight is zero.
  Value poisonInfinity(Value a);

  // Buffers.
  Value allocate(llvm::ArrayRef<int64_t> shape, ValueRange dynamicExtents = {});
  Value load(Value buffer, ValueRange indices);
  /// `indices`, with 0 where static extents of 1 stand for any extent.
  llvm::SmallVector<Value> broadcastIndices(Value buffer, ValueRange indices);
  /// `load` where static extents of 1 stand for any extent.
  Value loadBroadcast(Value buffer, ValueRange indices);
  void store(Value number, Value buffer, ValueRange indices);
  /// The same for buffers of codes or counts.
  Value loadIndex(Value buffer, ValueRange indices);
  /// An entry of a buffer of conditions.
  Value loadCondition(Value buffer, ValueRange indices);
  void storeIndex(Value index, Value buffer, ValueRange indices);
  /// A buffer of zeros with the shape of `buffer`.
  Value allocateZeros(Value buffer);
  /// Adds `number` to an element of `buffer`, where static extents of 1 stand
  /// for any extent.
  void addTo(Value buffer, ValueRange indices, Value number);
  /// Stores every element of `from` to `to`, or adds it if `adds`.
  void storeAll(Value from, Value to, bool adds = false);
  /// Stores `row`, a buffer of columns, to `buffer[indices, :]`.
  void storeRow(Value row, Value buffer, ValueRange indices);

  // Control flow.
  void forEach(Value begin, Value end, function_ref<void(Value)> body);
  void forEach(Value end, function_ref<void(Value)> body) {
    forEach(index(0), end, body);
  }
  /// Calls `body` for the indices of every element of `buffer`.
  void forEachElement(Value buffer, function_ref<void(ValueRange)> body);
  /// Loops while carrying `state`.
  Value accumulate(Value begin, Value end, Value state,
                   function_ref<Value(Value index, Value state)> body);
  /// `body()` where the condition holds.
  void ifThen(Value condition, function_ref<void()> body);
  /// `body()` where the condition holds, else `otherwise`.
  Value when(Value condition, function_ref<Value()> body, Value otherwise);

  /// `sum_d a[aIndices, d] * b[bIndices, d]`, NaN when it is not finite.
  Value dot(Value a, ValueRange aIndices, Value b, ValueRange bIndices);

  /// The key/value head that query head `head` reads.
  Value keyHead(Value query, Value key, Value head);

private:
  mlir::ImplicitLocOpBuilder builder;
};

/// A floating-point number that a score region reads: where, whether it is
/// there, the derivative of the score by it, and the number of its tensor among
/// those that have a gradient.
struct ReferenceRead {
  mlir::SmallVector<mlir::Value> at;
  mlir::Value isInside, derivative;
  unsigned tensor = 0;
};

/// One entry that a query row reads: its score, its log weight (null is 0), its
/// value by column, and, where a walk says so, its row among the keys.
struct ReferenceEntry {
  mlir::Value score, logWeight;
  llvm::function_ref<mlir::Value(mlir::Value column)> value;
  mlir::Value row = {};
  /// That of the score by the scaled product, where a walk says so; null is 1.
  mlir::Value derivative = {};
  /// What a score region reads, where its derivatives are wanted.
  llvm::ArrayRef<ReferenceRead> reads = {};
};

/// What to do with an entry; takes and returns the state it carries.
using EntryVisitor =
    llvm::function_ref<mlir::Value(const ReferenceEntry &, mlir::Value state)>;

/// Visits all entries that a row reads, in order, and returns the last state.
using EntryWalker =
    llvm::function_ref<mlir::Value(mlir::Value state, EntryVisitor)>;

/// Soft-max over the entries of one row: leaves `sum_e softmax(e) value(e)` in
/// `row`, a buffer of f64 columns, zeros when there is no entry. Returns the
/// logarithm of the sum of exponentials. A `sink` is one entry more, which has
/// no value.
mlir::Value emitSoftmaxRow(ReferenceBuilder &ref, EntryWalker walk,
                           mlir::Value row, mlir::Value sink = {});

/// `sum_e exp(log_weight(e)) max(score(e), 0)^2 value(e)`, in `row`.
void emitSquaredReluRow(ReferenceBuilder &ref, EntryWalker walk,
                        mlir::Value row);

/// Attach the lowerings of each file.
void attachBackwardToReference(mlir::MLIRContext &context);
void attachConvToReference(mlir::MLIRContext &context);
void attachConvRecoverToReference(mlir::MLIRContext &context);
void attachHierarchicalToReference(mlir::MLIRContext &context);
void attachLowRankToReference(mlir::MLIRContext &context);
void attachLowRankBackwardToReference(mlir::MLIRContext &context);
void attachPoolToReference(mlir::MLIRContext &context);
void attachQuantizeToReference(mlir::MLIRContext &context);
void attachSoftmaxToReference(mlir::MLIRContext &context);
void attachTokensToReference(mlir::MLIRContext &context);
void attachTreeToReference(mlir::MLIRContext &context);
void attachVQToReference(mlir::MLIRContext &context);
void attachVQBackwardToReference(mlir::MLIRContext &context);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCEBUILDER_H
