//===- ScoreBounds.h - Bounds of what score regions compute -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_KERNELS_SCOREBOUNDS_H
#define FOVEA_LIB_KERNELS_SCOREBOUNDS_H

#include "fovea/Kernels/ScoreAdmission.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace fovea::attn {

/// Emits bounds of values of the body.
class ScoreAdmission::Evaluator {
public:
  /// Elements that keys read are those of whole runs if `byRuns`, where these
  /// are known.
  Evaluator(KernelBuilder &b, ScoreAdmission &body, State &state,
            bool byRuns = false)
      : b(b), body(body), state(state), byRuns(byRuns) {
    keyed = body.findDependents({score_argument::Key});
  }

  void set(unsigned argument, Interval interval) {
    state.try_emplace(body.block->getArgument(argument),
                      Bounds{interval.low, interval.high});
  }
  /// Bounds what `values` are computed from, as far as the key is not needed.
  void prepare(llvm::SmallVector<Value> values);
  Bounds bound(Value value);
  /// Whether an element that `read` reads is there for all entries; null where
  /// that is not known.
  Value isWithin(mlir::tensor::ExtractOp read);

private:
  Bounds compute(Value value);
  Bounds computeInteger(mlir::Operation *op);
  Bounds computeCondition(mlir::Operation *op);
  Bounds compare(mlir::arith::CmpIOp op);
  Bounds boundRemainder(mlir::Operation *op);
  bool followsKey(Value value);
  Bounds readRange(mlir::tensor::ExtractOp op);

  Value constant(bool value) {
    return mlir::arith::ConstantOp::create(b, b.getBoolAttr(value));
  }
  Value negate(Value condition) {
    return b.createOrFold<mlir::arith::XOrIOp>(condition, constant(true));
  }
  Value toIndex(Value integer) {
    return integer.getType().isIndex()
               ? integer
               : mlir::arith::IndexCastOp::create(b, b.getIndexType(), integer);
  }
  KernelBuilder &b;
  ScoreAdmission &body;
  State &state;
  bool byRuns;
  /// What depends on the key.
  llvm::DenseSet<Value> keyed;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_KERNELS_SCOREBOUNDS_H
