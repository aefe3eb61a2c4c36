//===- SetTarget.cpp - Facts about the target -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/DLTI/DLTI.h"

namespace fovea::attn {
#define GEN_PASS_DEF_SETTARGETPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct SetTargetPass : fovea::attn::impl::SetTargetPassBase<SetTargetPass> {
  using SetTargetPassBase::SetTargetPassBase;

  void runOnOperation() override {
    if (gpu)
      return GPUFacts{sharedBytes, warpgroups}.setIn(getOperation());
    CPUFacts{vectorBits,   numRegisters, separateAdds,
             splitVectors, bf16Pairs,    amx}
        .setIn(getOperation());
    if (failed(CPUFacts::of(getOperation())))
      signalPassFailure();
  }
};
} // namespace
