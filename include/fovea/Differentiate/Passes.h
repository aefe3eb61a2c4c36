//===- Passes.h - Differentiation of functions ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIFFERENTIATE_PASSES_H
#define FOVEA_DIFFERENTIATE_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace fovea::attn {

#define GEN_PASS_DECL
#include "fovea/Differentiate/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fovea/Differentiate/Passes.h.inc"

/// Registers the gradients of the operations of the attention dialect and of
/// those of upstream ones that layers around attention are made of.
void registerDifferentiableOpInterfaceExternalModels(
    mlir::DialectRegistry &registry);

} // namespace fovea::attn

#endif // FOVEA_DIFFERENTIATE_PASSES_H
