//===- Turns.h - Bodies of a loop in one order ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums that the bodies of a parallel loop add to in one order, whatever the
// number of threads: see fovea_rt_wait_for_turn.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_TURNS_H
#define FOVEA_KERNELS_TURNS_H

#include "fovea/Kernels/KernelBuilder.h"
#include <limits>

namespace fovea::attn {

/// The turns of `numItems` items in each of `numChains` chains. Until the first
/// call of `forAll` there are none, and nobody waits.
class Turns {
public:
  using Value = mlir::Value;

  /// A position behind all others: FOVEA_RT_LAST_TURN of the runtime.
  static constexpr int64_t kLast = std::numeric_limits<int64_t>::max() - 1;

  Turns(KernelBuilder &b, mlir::ModuleOp module) : b(b), module(module) {}

  /// A parallel loop over all items, which has their turns unless it is not
  /// `isOrdered`. `body` gets the item, which waits for those with higher
  /// numbers, and its chain.
  void forAll(Value numItems, Value numChains, bool isOrdered,
              llvm::function_ref<void(Value, Value)> body);
  /// Waits until all later items of the chain have passed `position`.
  void wait(Value position);
  /// Says that this item has passed `position`.
  void end(Value position);

private:
  void call(llvm::StringRef function, mlir::ValueRange arguments);

  KernelBuilder &b;
  mlir::ModuleOp module;
  Value progress, item, chain, numItems, numChains;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_TURNS_H
