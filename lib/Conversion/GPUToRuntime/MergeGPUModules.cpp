//===- MergeGPUModules.cpp - One module for all kernels -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace fovea::attn {
#define GEN_PASS_DEF_MERGEGPUMODULESPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

namespace {
struct MergeGPUModulesPass
    : fovea::attn::impl::MergeGPUModulesPassBase<MergeGPUModulesPass> {
  void runOnOperation() override {
    getOperation().walk(demandCluster);
    SmallVector<gpu::GPUModuleOp> modules(
        getOperation().getOps<gpu::GPUModuleOp>());
    if (modules.size() < 2)
      return;
    // In the order of the launches, so that kernels keep short names.
    gpu::GPUModuleOp merged = modules.front();
    SymbolTable table(merged);
    llvm::DenseMap<SymbolRefAttr, SymbolRefAttr> renamed;
    for (gpu::GPUModuleOp module : ArrayRef(modules).drop_front()) {
      for (auto kernel :
           llvm::make_early_inc_range(module.getOps<gpu::GPUFuncOp>())) {
        auto before = getReference(module, kernel.getName());
        kernel->remove();
        table.insert(kernel);
        renamed[before] = getReference(merged, kernel.getName());
      }
      module.erase();
    }
    getOperation().walk([&](gpu::LaunchFuncOp op) {
      if (SymbolRefAttr kernel = renamed.lookup(op.getKernel()))
        op.setKernelAttr(kernel);
    });
  }

  /// Makes a kernel demand the clusters that it is launched in.
  static void demandCluster(gpu::LaunchFuncOp op) {
    if (!op.hasClusterSize())
      return;
    gpu::KernelDim3 size = op.getClusterSizeOperandValues();
    SmallVector<int32_t> extents;
    for (Value extent : {size.x, size.y, size.z})
      if (std::optional<int64_t> constant = getConstantIntValue(extent))
        extents.push_back(*constant);
    if (extents.size() == 3)
      cast<gpu::GPUFuncOp>(
          SymbolTable::lookupNearestSymbolFrom(op, op.getKernel()))
          .setKnownClusterSize(extents);
  }

  static SymbolRefAttr getReference(gpu::GPUModuleOp module, StringRef kernel) {
    MLIRContext *context = module.getContext();
    return SymbolRefAttr::get(context, module.getName(),
                              {FlatSymbolRefAttr::get(context, kernel)});
  }
};
} // namespace
