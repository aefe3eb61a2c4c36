//===- Passes.h - Passes of the attention dialect ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_H
#define FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_H

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace fovea::attn {

#define GEN_PASS_DECL
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"

/// Registers one-shot bufferization of the dialect's operations.
void registerBufferizableOpInterfaceExternalModels(
    mlir::DialectRegistry &registry);

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_TRANSFORMS_PASSES_H
