//===- SerializeGPUModules.cpp - Code of GPU modules --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/NVVM/Attributes.h"
#include "fovea/Target/NVVM/Passes.h"
#include "fovea/Target/NVVM/Serialize.h"
#include "mlir/IR/BuiltinOps.h"

namespace fovea {
#define GEN_PASS_DEF_SERIALIZEGPUMODULESPASS
#include "fovea/Target/NVVM/Passes.h.inc"
} // namespace fovea

using namespace mlir;
using namespace fovea;

namespace {
struct SerializeGPUModulesPass
    : fovea::impl::SerializeGPUModulesPassBase<SerializeGPUModulesPass> {
  using SerializeGPUModulesPassBase::SerializeGPUModulesPassBase;

  void runOnOperation() override {
    llvm::Expected<GPUInfo> gpu = getGPUInfo(chip, features);
    if (!gpu) {
      getOperation().emitError(llvm::toString(gpu.takeError()));
      return signalPassFailure();
    }
    if (optLevel > 3) {
      getOperation().emitError("expects opt-level to be 0 to 3, but got ")
          << optLevel;
      return signalPassFailure();
    }
    Builder builder(&getContext());
    for (auto gpuModule : getOperation().getOps<gpu::GPUModuleOp>()) {
      llvm::Expected<GPUCode> code = generateGPUCode(gpuModule, *gpu, optLevel);
      if (!code) {
        gpuModule.emitError(llvm::toString(code.takeError()));
        return signalPassFailure();
      }
      gpuModule->setAttr(kPTXAttrName, builder.getStringAttr(code->ptx));
      gpuModule->setAttr(kBitcodeAttrName,
                         builder.getStringAttr(code->bitcode));
      gpuModule->setAttr(kCapabilityAttrName,
                         builder.getI32IntegerAttr(gpu->capability));
      if (gpu->isExact)
        gpuModule->setAttr(kExactCapabilityAttrName, builder.getUnitAttr());
    }
  }
};
} // namespace
