//===- CheckCodes.cpp - Checks of codes -----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKCODESPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Codes that an operation takes, and the operand with an entry for each code
/// along extent `dim`.
struct CodesOperand {
  Value codes, table;
  unsigned dim;
};
} // namespace

/// The codes that `op` uses as indices, if any. Every operation that does must
/// be here.
static std::optional<CodesOperand> getCodesOperand(Operation *op) {
  using Result = std::optional<CodesOperand>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([](CodebookAccumulateOp op) {
        return CodesOperand{op.getCodes(), op.getMean(), 2};
      })
      .Case([](CodebookScanOp op) {
        return CodesOperand{op.getCodes(), op.getInitialMean(), 2};
      })
      .Case([](VQOp op) {
        return CodesOperand{op.getCodes(), op.getCodebook(), 1};
      })
      .Case([](VQBackwardOp op) {
        return CodesOperand{op.getCodes(), op.getCodebook(), 1};
      })
      .Case([](VQDecodeOp op) {
        return CodesOperand{op.getCodes(), op.getCodebook(), 1};
      })
      .Case([](CodebookUpdateOp op) {
        return CodesOperand{op.getCodes(), op.getCodebook(), 1};
      })
      .Default([](Operation *) { return std::nullopt; });
}

/// True for codes that come, perhaps in part, from a codebook of no more than
/// `numCodes` codewords.
static bool areKnown(Value codes, int64_t numCodes) {
  while (Operation *op = codes.getDefiningOp()) {
    if (auto quantize = dyn_cast<QuantizeOp>(op))
      return cast<ShapedType>(quantize.getCodebook().getType()).getDimSize(1) <=
             numCodes;
    if (!isa<tensor::ExtractSliceOp, tensor::CastOp>(op))
      return false;
    codes = op->getOperand(0);
  }
  return false;
}

namespace {
struct CheckCodesPass : fovea::attn::impl::CheckCodesPassBase<CheckCodesPass> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      std::optional<CodesOperand> operand = getCodesOperand(op);
      if (!operand)
        return;
      auto type = cast<ShapedType>(operand->table.getType());
      int64_t numCodes = type.getDimSize(operand->dim);
      if (!ShapedType::isDynamic(numCodes) &&
          areKnown(operand->codes, numCodes))
        return;
      ImplicitLocOpBuilder b(op->getLoc(), op);
      Value bound =
          isa<MemRefType>(type)
              ? b.createOrFold<memref::DimOp>(operand->table, operand->dim)
              : b.createOrFold<tensor::DimOp>(operand->table, operand->dim);
      std::string name = (op->getName().getStringRef() + ": codes").str();
      CheckCodesOp::create(b, operand->codes, bound, name);
    });
  }
};
} // namespace
