//===- SplitAddresses.h - Parts of addresses that stay the same -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The address of an element is a base and a sum of indices times strides:
//
//   base[(row + 1) * 64 + k + 2]  ==>  ((base + row * 64) + k) + 66
//
// with what is added in outer loops first, so that it can be hoisted, and
// constants last, where they become a part of the instruction: the addresses of
// a register tile, a dozen or two in a loop, then differ by constants only and
// share a register. LLVM's loop strength reduction finds as good an answer by a
// search that took half of the time of compiling.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_LLVM_SPLITADDRESSES_H
#define FOVEA_TARGET_LLVM_SPLITADDRESSES_H

#include "llvm/IR/PassManager.h"

namespace fovea {

/// Leaves duplicates and invariants to the passes that come next.
struct SplitAddressesPass : llvm::PassInfoMixin<SplitAddressesPass> {
  llvm::PreservedAnalyses run(llvm::Function &function,
                              llvm::FunctionAnalysisManager &manager);
};

} // namespace fovea

#endif // FOVEA_TARGET_LLVM_SPLITADDRESSES_H
