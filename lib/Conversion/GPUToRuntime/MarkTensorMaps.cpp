//===- MarkTensorMaps.cpp - Parameters that are tensor maps ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace fovea::attn {
#define GEN_PASS_DEF_MARKTENSORMAPSPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Bytes of a tensor map, and how they are aligned.
static constexpr int64_t kMapBytes = 128, kMapAlignment = 64;

/// The copy engine reads the map where the parameters of the kernel lie.
static void markMap(LLVM::LLVMFuncOp kernel, BlockArgument argument) {
  Builder b(kernel.getContext());
  unsigned index = argument.getArgNumber();
  kernel.setArgAttr(
      index, LLVM::LLVMDialect::getByValAttrName(),
      TypeAttr::get(LLVM::LLVMArrayType::get(b.getI64Type(), kMapBytes / 8)));
  kernel.setArgAttr(index, LLVM::LLVMDialect::getAlignAttrName(),
                    b.getI64IntegerAttr(kMapAlignment));
  kernel.setArgAttr(index, NVVM::NVVMDialect::getGridConstantAttrName(),
                    b.getUnitAttr());
}

/// Registers move between warpgroups only if the number of threads is fixed.
static void fixBlock(LLVM::LLVMFuncOp kernel) {
  StringRef atMost = NVVM::NVVMDialect::getMaxntidAttrName();
  if (Attribute threads = kernel->getAttr(atMost)) {
    kernel->removeAttr(atMost);
    kernel->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), threads);
  }
  kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                  Builder(kernel.getContext()).getI32IntegerAttr(1));
}

namespace {
struct MarkTensorMapsPass
    : fovea::attn::impl::MarkTensorMapsPassBase<MarkTensorMapsPass> {
  void runOnOperation() override {
    getOperation()->walk([](LLVM::LLVMFuncOp kernel) {
      bool movesRegisters = false;
      kernel.walk([&](Operation *op) {
        movesRegisters |= isa<NVVM::SetMaxRegisterOp>(op);
        Value map;
        if (auto load =
                dyn_cast<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp>(op))
          map = load.getTmaDescriptor();
        else if (auto store =
                     dyn_cast<NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp>(op))
          map = store.getTmaDescriptor();
        if (auto argument = dyn_cast_or_null<BlockArgument>(map))
          markMap(kernel, argument);
      });
      if (movesRegisters)
        fixBlock(kernel);
    });
  }
};
} // namespace
