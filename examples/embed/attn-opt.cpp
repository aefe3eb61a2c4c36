//===- attn-opt.cpp - An optimiser with the attention dialect -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An mlir-opt of one's own: some dialects of MLIR, the attention dialect with
// its expansions and gradients, and a pass over its operations.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Differentiate/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace {
/// Says how wide the heads of attention are.
struct ShowHeadsPass : PassWrapper<ShowHeadsPass, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ShowHeadsPass)

  StringRef getArgument() const override { return "show-heads"; }
  StringRef getDescription() const override { return "show widths of heads"; }

  void runOnOperation() override {
    getOperation()->walk([](fovea::attn::DenseOp op) {
      auto query = cast<RankedTensorType>(op.getQuery().getType());
      op.emitRemark() << query.getDimSize(1) << " heads of "
                      << query.getDimSize(3);
    });
  }
};
} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, fovea::attn::AttnDialect,
                  func::FuncDialect, tensor::TensorDialect>();
  fovea::attn::registerDifferentiableOpInterfaceExternalModels(registry);
  fovea::attn::registerAttnTransformsPasses();
  fovea::attn::registerDifferentiatePasses();
  registerCanonicalizerPass();
  PassRegistration<ShowHeadsPass>();
  return asMainReturnCode(
      MlirOptMain(argc, argv, "Attention on the bench\n", registry));
}
