//===- Registration.cpp - Dialects and passes of every tool -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/InitAllDialects.h"
#include "fovea/InitAllPasses.h"
#include "fovea/Pipelines/Pipelines.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"

void fovea::registerAllDialects(mlir::DialectRegistry &registry) {
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<attn::AttnDialect>();
  attn::registerBufferizableOpInterfaceExternalModels(registry);
}

void fovea::registerAllPasses() {
  mlir::registerAllPasses();
  attn::registerAttnTransformsPasses();
  registerPipelines();
}
