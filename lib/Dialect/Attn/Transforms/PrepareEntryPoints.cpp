//===- PrepareEntryPoints.cpp - How public functions look to the host -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace fovea::attn {
#define GEN_PASS_DEF_PREPAREENTRYPOINTSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct PrepareEntryPointsPass
    : fovea::attn::impl::PrepareEntryPointsPassBase<PrepareEntryPointsPass> {
  using PrepareEntryPointsPassBase::PrepareEntryPointsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function.isPublic() || function.isExternal())
      return;
    Builder builder(&getContext());
    function->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(),
                      builder.getUnitAttr());
    StringRef writable = bufferization::BufferizationDialect::kWritableAttrName;
    for (auto [index, type] : llvm::enumerate(function.getArgumentTypes())) {
      auto isWritable = function.getArgAttrOfType<BoolAttr>(index, writable);
      if (isa<TensorType>(type) && !isWritable)
        function.setArgAttr(index, writable, builder.getBoolAttr(false));
      if (isWritable ? isWritable.getValue() : isa<MemRefType>(type))
        function.setArgAttr(index, kWrittenAttrName, builder.getUnitAttr());
    }
  }
};
} // namespace
