//===- CheckShapes.cpp - Checks of dynamic extents ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"
#include "fovea/Analysis/ExtentOrigin.h"
#include "fovea/Analysis/ExtentRules.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/FormatVariadic.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKSHAPESPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea;
using fovea::attn::RuntimeCalls;

static bool isDynamic(const OperandExtent &extent) {
  return cast<ShapedType>(extent.operand.getType()).isDynamicDim(extent.dim);
}

/// True when both extents are one and the same extent of an argument.
static bool haveSameOrigin(const ExtentRule &rule, Block *entry) {
  auto first = getExtentOrigin(rule.first.operand, rule.first.dim, entry);
  auto second = getExtentOrigin(rule.second.operand, rule.second.dim, entry);
  return rule.kind != ExtentRule::Summaries && first && second &&
         first->argument && first->argument == second->argument &&
         first->dim == second->dim;
}

static std::string describe(Operation *op, const ExtentRule &rule) {
  StringRef relation = rule.kind == ExtentRule::Equal ? "must be"
                       : rule.kind == ExtentRule::Multiple
                           ? "must be a multiple of"
                           : "must count the summaries of";
  return llvm::formatv("{0}: extent {1} of {2} {3} extent {4} of {5}",
                       op->getName().getStringRef(), rule.first.dim,
                       rule.first.name, relation, rule.second.dim,
                       rule.second.name);
}

namespace {
struct CheckShapesPass
    : fovea::attn::impl::CheckShapesPassBase<CheckShapesPass> {
  void runOnOperation() override {
    RuntimeCalls calls(getOperation());
    getOperation().walk([&](func::FuncOp function) {
      if (function.isExternal())
        return;
      Block *entry = &function.getBody().front();
      function.walk([&](Operation *op) {
        forEachExtentRule(op, [&](const ExtentRule &rule) {
          if ((isDynamic(rule.first) || isDynamic(rule.second)) &&
              !haveSameOrigin(rule, entry))
            emitCheck(op, rule, calls);
        });
      });
    });
  }

private:
  static void emitCheck(Operation *op, const ExtentRule &rule,
                        RuntimeCalls &calls) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Value found = getExtent(b, rule.first);
    Value expected = getExtent(b, rule.second);
    if (rule.kind == ExtentRule::Summaries) {
      AffineExpr rows = b.getAffineSymbolExpr(0);
      expected = affine::makeComposedAffineApply(
          b, b.getLoc(), rows.ceilDiv(rule.interval) * rule.rank,
          OpFoldResult(expected));
    }
    StringRef name = rule.kind == ExtentRule::Multiple
                         ? "fovea_rt_check_multiple"
                         : "fovea_rt_check_extent";
    auto asI64 = [&](Value value) -> Value {
      return arith::IndexCastOp::create(b, b.getI64Type(), value);
    };
    calls.emitCheck(b, name, describe(op, rule),
                    {asI64(found), asI64(expected)});
  }

  static Value getExtent(ImplicitLocOpBuilder &b, const OperandExtent &extent) {
    if (isa<MemRefType>(extent.operand.getType()))
      return b.createOrFold<memref::DimOp>(extent.operand, extent.dim);
    return b.createOrFold<tensor::DimOp>(extent.operand, extent.dim);
  }
};
} // namespace
