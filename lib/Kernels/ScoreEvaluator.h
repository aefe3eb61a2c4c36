//===- ScoreEvaluator.h - Operations of score regions -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_KERNELS_SCOREEVALUATOR_H
#define FOVEA_LIB_KERNELS_SCOREEVALUATOR_H

#include "fovea/Kernels/ScoreBody.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace fovea::attn {

/// Emits the operations of a body whose operands are known.
class ScoreBody::Evaluator {
public:
  Evaluator(KernelBuilder &b, ScoreBody &body, State &state)
      : b(b), body(body), state(state) {}

  void set(Value value, const Lanes &lanes) {
    state.lanes.try_emplace(value, lanes);
  }
  /// Evaluates what depends on nothing else than what is set; of `needed`
  /// alone, unless that is null.
  void run(const llvm::SmallPtrSetImpl<mlir::Operation *> *needed = nullptr);
  /// The value in every lane; a wide integer with `bits` bits.
  Value toVector(const Lanes &lanes, unsigned bits);
  /// A value in every lane, in the type of sums; NaN where the body read out of
  /// bounds.
  Value finish(Value value);

  static mlir::ConstantIntRanges getRange(int64_t low, int64_t high) {
    return mlir::ConstantIntRanges::fromSigned(
        llvm::APInt(64, low, /*isSigned=*/true),
        llvm::APInt(64, high, /*isSigned=*/true));
  }
  static mlir::ConstantIntRanges getUnknown(mlir::Type type) {
    return mlir::ConstantIntRanges::maxRange(
        mlir::ConstantIntRanges::getStorageBitwidth(type));
  }
  static bool isWide(mlir::Type type) {
    return type.isIndex() || type.isInteger(64);
  }

private:
  Lanes evaluate(mlir::Operation &op);
  mlir::ConstantIntRanges inferRange(mlir::Operation &op,
                                     llvm::ArrayRef<Lanes> operands);
  std::optional<Lanes> addRamps(mlir::Operation &op,
                                llvm::ArrayRef<Lanes> operands,
                                const mlir::ConstantIntRanges &range);
  std::optional<Lanes> compareRamps(mlir::Operation &op,
                                    llvm::ArrayRef<Lanes> operands,
                                    const mlir::ConstantIntRanges &range);
  Value splitRamp(const Lanes &ramp, int64_t divisor, bool negates,
                  int64_t rest, Value &lanes);
  std::optional<Lanes> takeRemainder(mlir::Operation &op);
  std::optional<Lanes> compareRemainder(mlir::Operation &op,
                                        const mlir::ConstantIntRanges &range);
  Value addProduct(mlir::Operation &op, llvm::ArrayRef<Value> operands);
  Value divideByKnown(mlir::Operation &op, llvm::ArrayRef<Value> operands);
  Lanes vectorize(mlir::Operation &op, llvm::ArrayRef<Lanes> operands,
                  const mlir::ConstantIntRanges &range);

  /// Elements of a memref, and in which lanes there is one: null where others
  /// are NaN.
  struct Read {
    Value value, isInside;
  };
  Lanes read(mlir::tensor::ExtractOp op);
  Value readScalar(Value memref, llvm::ArrayRef<Lanes> at, bool poisons);
  Read readRun(Value memref, llvm::ArrayRef<Lanes> at, bool poisons);
  Read gather(Value memref, llvm::ArrayRef<Lanes> at, bool poisons);
  Value areInside(Value memref, llvm::ArrayRef<Lanes> at);
  void addOutside(Value isInside);
  static bool fits32(const mlir::ConstantIntRanges &range) {
    return range.smin().isSignedIntN(32) && range.smax().isSignedIntN(32);
  }
  static bool isUniform(const Lanes &lanes) {
    return lanes.kind == Lanes::Uniform;
  }

  mlir::VectorType vectorOf(mlir::Type element) {
    return mlir::VectorType::get({b.getLanes()}, element);
  }
  Value toWidth(Value vector, unsigned bits, bool isSigned = true);

  KernelBuilder &b;
  ScoreBody &body;
  State &state;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_KERNELS_SCOREEVALUATOR_H
