//===- VectorizeStream.cpp - Vector code of attn.stream -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "StreamRowKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZESTREAMPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct VectorizeStreamPass
    : fovea::attn::impl::VectorizeStreamPassBase<VectorizeStreamPass> {
  using VectorizeStreamPassBase::VectorizeStreamPassBase;
  void runOnOperation() override {
    SmallVector<StreamOp> ops;
    getOperation().walk([&](StreamOp op) {
      if (isa<MemRefType>(op.getQuery().getType()))
        ops.push_back(op);
    });
    for (StreamOp op : ops) {
      if (!op.getTiles()) {
        op.emitOpError("has no tiles; run --attn-select-tiles first");
        return signalPassFailure();
      }
      OpBuilder builder(op);
      if (StreamRowKernel::fits(op))
        StreamRowKernel(op, builder).emit();
      else
        StreamKernel(op, builder, {manageCache, bf16Pairs}).emit();
      op.erase();
    }
  }
};
} // namespace
