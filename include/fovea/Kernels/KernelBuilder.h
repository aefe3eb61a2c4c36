//===- KernelBuilder.h - Emission of vector kernels -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Short names for the few operations that hand-scheduled kernels consist of:
// index arithmetic, loops that carry registers, one-dimensional vectors.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_KERNELBUILDER_H
#define FOVEA_KERNELS_KERNELBUILDER_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn {

/// Emits kernels whose vectors hold `lanes` elements of `stateType`, the type
/// that sums are kept in. With no lanes a "vector" is a scalar: that is how
/// threads of a GPU compute.
class KernelBuilder : public mlir::ImplicitLocOpBuilder {
public:
  using Values = llvm::SmallVector<mlir::Value>;

  KernelBuilder(mlir::Location loc, mlir::OpBuilder &builder,
                mlir::FloatType stateType, int64_t lanes);

  mlir::FloatType getStateType() const { return stateType; }
  mlir::Type getVectorType() const { return vectorType; }
  /// A vector of as many elements of another type.
  mlir::Type getVectorType(mlir::Type elementType) const;
  int64_t getLanes() const { return lanes; }

  /// Vectors have another number of lanes as long as one of these lives.
  class Lanes {
  public:
    Lanes(KernelBuilder &b, int64_t lanes) : b(b), outer(b.lanes) {
      b.setLanes(lanes);
    }
    ~Lanes() { b.setLanes(outer); }

  private:
    KernelBuilder &b;
    int64_t outer;
  };

  // Index arithmetic. Constants fold as they are emitted, so that static shapes
  // leave no trace of the general case.
  mlir::Value index(int64_t value);
  /// A constant of the type of `a`, an index or an integer.
  mlir::Value like(mlir::Value a, int64_t value);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value add(mlir::Value a, int64_t b) {
    return b ? add(a, like(a, b)) : a;
  }
  mlir::Value sub(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, int64_t b) { return mul(a, like(a, b)); }
  /// Minimum and maximum of signed values: a difference may be negative.
  mlir::Value min(mlir::Value a, mlir::Value b);
  mlir::Value min(mlir::Value a, int64_t b) { return min(a, like(a, b)); }
  mlir::Value max(mlir::Value a, mlir::Value b);
  mlir::Value max(mlir::Value a, int64_t b) { return max(a, like(a, b)); }
  mlir::Value clamp(mlir::Value a, mlir::Value low, mlir::Value high);
  mlir::Value floorDiv(mlir::Value a, mlir::Value b);
  /// Quotients and remainders of values that are never negative.
  mlir::Value div(mlir::Value a, mlir::Value b);
  mlir::Value div(mlir::Value a, int64_t b) { return div(a, like(a, b)); }
  mlir::Value rem(mlir::Value a, mlir::Value b);
  mlir::Value rem(mlir::Value a, int64_t b) { return rem(a, like(a, b)); }
  mlir::Value ceilDiv(mlir::Value a, int64_t b) {
    return div(add(a, b - 1), b);
  }
  mlir::Value roundDown(mlir::Value a, int64_t multiple);
  /// The number for a batch entry among `lengths` [B], which may be null: then
  /// `all`.
  mlir::Value lengthOf(mlir::Value lengths, mlir::Value batch, mlir::Value all);
  /// The same index, of which LLVM no longer knows what it is: loads at both
  /// remain two.
  mlir::Value hide(mlir::Value index);
  /// The size of a dimension of a memref.
  mlir::Value extent(mlir::Value memref, int64_t dim);
  /// The view of `memref` with its leading dimensions fixed at `leading`.
  mlir::Value rowView(mlir::Value memref, mlir::ValueRange leading);
  /// `index` along dimension `dim` of `memref`, which may broadcast.
  mlir::Value broadcastIndex(mlir::Value memref, int64_t dim,
                             mlir::Value index);

  // Conditions; constants fold here, too.
  mlir::Value equal(mlir::Value a, mlir::Value b);
  mlir::Value less(mlir::Value a, mlir::Value b);
  mlir::Value either(mlir::Value a, mlir::Value b);
  mlir::Value both(mlir::Value a, mlir::Value b);
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);

  // Scalars and vectors of the state type.
  mlir::Value scalar(double value);
  mlir::Value splat(double value);
  /// One number for every lane.
  mlir::Value constant(llvm::ArrayRef<double> values);
  mlir::Value broadcast(mlir::Value scalar);
  mlir::Value fadd(mlir::Value a, mlir::Value b);
  mlir::Value fsub(mlir::Value a, mlir::Value b);
  mlir::Value fmul(mlir::Value a, mlir::Value b);
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c);
  /// `a > b ? a : b`: one instruction on x86, and `b` wins when either is NaN.
  mlir::Value fmax(mlir::Value a, mlir::Value b);

  /// A polynomial in `x`, constant term first.
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<double> coefficients);

  /// Loads or stores one vector, or the scalar where there are no lanes;
  /// floating-point elements of another type are converted.
  mlir::Value loadVector(mlir::Value memref, mlir::ValueRange indices);
  /// A streaming store goes past the caches; its address must be aligned.
  void storeVector(mlir::Value vector, mlir::Value memref,
                   mlir::ValueRange indices, bool streaming = false);
  /// Loads one element as the state type.
  mlir::Value loadScalar(mlir::Value memref, mlir::ValueRange indices);
  void storeScalar(mlir::Value scalar, mlir::Value memref,
                   mlir::ValueRange indices);

  /// Loads or stores two vectors whose elements alternate in memory.
  std::pair<mlir::Value, mlir::Value> loadPairs(mlir::Value memref,
                                                mlir::ValueRange indices);
  void storePairs(mlir::Value first, mlir::Value second, mlir::Value memref,
                  mlir::ValueRange indices);

  /// Codes, counts and places: integers in memory, `index` in arithmetic.
  mlir::Value loadIndex(mlir::Value memref, mlir::ValueRange indices);
  void storeIndex(mlir::Value value, mlir::Value memref,
                  mlir::ValueRange indices);
  /// An index as a number of the state type.
  mlir::Value toNumber(mlir::Value index);

  /// An uninitialised buffer of extents `leading`, which may be constants, and
  /// `trailing`; the caller frees it.
  mlir::Value allocate(llvm::ArrayRef<mlir::Value> leading,
                       llvm::ArrayRef<int64_t> trailing,
                       mlir::Type elementType);
  /// An uninitialised buffer of the shape of `like` without its first `drop`
  /// dimensions and with elements of another type; the caller frees it.
  mlir::Value allocateLike(mlir::Value like, mlir::Type elementType,
                           unsigned drop = 0);

  /// Asks for the cache line at `indices` to be brought to the first cache
  /// level (locality 3) or to the second (2), to be written if `isWrite`.
  void prefetch(mlir::Value memref, mlir::ValueRange indices, unsigned locality,
                bool isWrite = false);

  /// An uninitialised 64-byte aligned buffer of static shape.
  mlir::Value scratch(llvm::ArrayRef<int64_t> shape, mlir::Type elementType);
  /// The same with leading extents that may be known to the call alone.
  mlir::Value scratch(llvm::ArrayRef<mlir::Value> leading,
                      llvm::ArrayRef<int64_t> trailing, mlir::Type elementType);
  /// Frees all such buffers; they were made in the present block. In a parallel
  /// loop they become scratch memory of the thread, but a loop of one iteration
  /// is gone by then.
  void freeScratch();

  /// `for (iv = low; iv < high; iv += step)` that carries `inits`; `body`
  /// returns the next values. Returns the final ones.
  Values loop(mlir::Value low, mlir::Value high, int64_t step,
              mlir::ValueRange inits,
              llvm::function_ref<Values(mlir::Value, mlir::ValueRange)> body);
  /// The same in steps of one, `unroll` of them in every turn, which begins
  /// with `startTurn(iv)`; what is left goes one by one.
  Values
  unrolledLoop(mlir::Value low, mlir::Value high, int64_t unroll,
               mlir::ValueRange inits,
               llvm::function_ref<Values(mlir::Value, mlir::ValueRange)> body,
               llvm::function_ref<void(mlir::Value)> startTurn = {});
  /// A loop that carries nothing.
  void loop(mlir::Value low, mlir::Value high, int64_t step,
            llvm::function_ref<void(mlir::Value)> body);
  /// A loop that goes on while `condition`; both take the carried values.
  Values loopWhile(mlir::ValueRange inits,
                   llvm::function_ref<mlir::Value(mlir::ValueRange)> condition,
                   llvm::function_ref<Values(mlir::ValueRange)> body);
  /// A parallel loop.
  void forAll(llvm::ArrayRef<mlir::Value> bounds,
              llvm::function_ref<void(mlir::ValueRange)> body);
  /// Calls `body` with the first column of every whole vector of a row of
  /// `width` columns, in a loop where they are many.
  void overVectors(int64_t width, llvm::function_ref<void(mlir::Value)> body);
  /// The same, carrying `inits`; returns the final values.
  Values
  overVectors(int64_t width, mlir::ValueRange inits,
              llvm::function_ref<Values(mlir::Value, mlir::ValueRange)> body);
  /// Copies a row, also from a type to another.
  void copyRow(mlir::Value from, mlir::ValueRange at, mlir::Value to,
               mlir::ValueRange target, int64_t width);
  /// `condition ? then() : otherwise()`, where only one is run.
  mlir::Value select(mlir::Value condition, mlir::Type type,
                     llvm::function_ref<mlir::Value()> then,
                     llvm::function_ref<mlir::Value()> otherwise);
  /// `if (condition) then();`, where a constant condition leaves no `if`.
  void ifThen(mlir::Value condition, llvm::function_ref<void()> then);
  /// `if (condition) then(); else otherwise();`, likewise.
  void ifThenElse(mlir::Value condition, llvm::function_ref<void()> then,
                  llvm::function_ref<void()> otherwise);

  /// Transposes `lanes` vectors of `lanes` elements in registers.
  Values transpose(mlir::ValueRange rows);
  /// The sums of at most `lanes` vectors over their elements: that of each in
  /// the lane of its number, and zeros behind.
  mlir::Value sumEach(mlir::ValueRange vectors);
  /// The sums of as many vectors as a lane of 128 bits has elements over each
  /// such lane: in every lane those of all vectors, in their order.
  mlir::Value sumInLanes(mlir::ValueRange vectors);

private:
  mlir::Value addStages(mlir::ValueRange vectors);
  void setLanes(int64_t count);

  mlir::FloatType stateType;
  int64_t lanes;
  mlir::Type vectorType;
  Values scratchBuffers;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_KERNELBUILDER_H
