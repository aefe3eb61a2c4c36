//===- NarrowSources.cpp - Round sources of attn.stream once --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace fovea::attn {
#define GEN_PASS_DEF_NARROWSOURCESPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Rows of queries beyond which one more pass over a source is worth it.
static constexpr int64_t kManyQueries = 128;

/// Whether many queries read each row of sources with `numHeads` heads.
static bool hasManyQueries(StreamOp op, int64_t numHeads) {
  auto query = cast<ShapedType>(op.getQuery().getType());
  if (query.isDynamicDim(1) || query.isDynamicDim(2) ||
      ShapedType::isDynamic(numHeads))
    return true;
  int64_t rows = query.getDimSize(2);
  if (int64_t block = op.getBlock())
    rows = std::min(rows, block);
  return rows * (query.getDimSize(1) / numHeads) > kManyQueries;
}

namespace {
struct NarrowSourcesPass
    : fovea::attn::impl::NarrowSourcesPassBase<NarrowSourcesPass> {
  void runOnOperation() override {
    getOperation().walk([](StreamOp op) {
      FloatType type = getProductType(op);
      if (type.isF32() || !isa<RankedTensorType>(op.getQuery().getType()))
        return;
      OpBuilder builder(op);
      for (MutableOperandRange range :
           {op.getKeysMutable(), op.getValuesMutable()})
        for (OpOperand &operand : range) {
          auto shaped = cast<RankedTensorType>(operand.get().getType());
          if (shaped.getElementType() == type ||
              !hasManyQueries(op, shaped.getDimSize(1)))
            continue;
          operand.set(arith::TruncFOp::create(
              builder, op.getLoc(), shaped.clone(type), operand.get()));
        }
    });
  }
};
} // namespace
