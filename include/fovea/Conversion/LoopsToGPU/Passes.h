//===- Passes.h - Products of matrices on a GPU -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_LOOPSTOGPU_PASSES_H
#define FOVEA_CONVERSION_LOOPSTOGPU_PASSES_H

#include "fovea/Support/F32Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace fovea::attn {

#define GEN_PASS_DECL
#include "fovea/Conversion/LoopsToGPU/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fovea/Conversion/LoopsToGPU/Passes.h.inc"

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_LOOPSTOGPU_PASSES_H
