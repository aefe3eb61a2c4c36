//===- Passes.h - Passes that generate GPU code -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_NVVM_PASSES_H
#define FOVEA_TARGET_NVVM_PASSES_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/Pass.h"

namespace fovea {

#define GEN_PASS_DECL
#include "fovea/Target/NVVM/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fovea/Target/NVVM/Passes.h.inc"

} // namespace fovea

#endif // FOVEA_TARGET_NVVM_PASSES_H
