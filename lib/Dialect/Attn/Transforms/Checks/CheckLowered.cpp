//===- CheckLowered.cpp - What no conversion took -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKLOWEREDPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

static bool isLowered(Operation *op) {
  return isa_and_nonnull<LLVM::LLVMDialect>(op->getDialect()) ||
         isa<ModuleOp, gpu::BinaryOp>(op);
}

/// Functions that conversions add have the place of the module: what calls them
/// has that of what they were made for.
static Location findPlace(Operation *left, ModuleOp module) {
  auto function = left->getParentOfType<FunctionOpInterface>();
  if (!function || left->getLoc() != module.getLoc())
    return left->getLoc();
  std::optional<SymbolTable::UseRange> uses =
      SymbolTable::getSymbolUses(function, module);
  return uses && !uses->empty() ? uses->begin()->getUser()->getLoc()
                                : left->getLoc();
}

namespace {
struct CheckLoweredPass
    : fovea::attn::impl::CheckLoweredPassBase<CheckLoweredPass> {
  using CheckLoweredPassBase::CheckLoweredPassBase;

  void runOnOperation() override {
    Operation *left = nullptr;
    getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (isLowered(op))
        return WalkResult::advance();
      // Casts are what conversions leave around what they did not take.
      bool isCast = isa<UnrealizedConversionCastOp>(op);
      if (!left || !isCast)
        left = op;
      return isCast ? WalkResult::advance() : WalkResult::interrupt();
    });
    if (!left)
      return;
    InFlightDiagnostic error = emitError(findPlace(left, getOperation()));
    error << "'" << left->getName() << "' op ";
    if (left->getNumOperands() != 0)
      error << "on " << left->getOperandTypes().front() << " ";
    error << "cannot be compiled: nothing lowers it to LLVM";
    signalPassFailure();
  }
};
} // namespace
