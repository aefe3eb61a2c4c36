//===- AttnOpsTest.cpp - What all operations have in common ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fovea::attn;

/// A gradient whose operation does not say so would be written over what it is
/// computed from, where a caller lets memory overlap.
TEST(AttnOpsTest, EveryGradientHasMemoryOfItsOwn) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  unsigned numGradients = 0;
  for (RegisteredOperationName op : context.getRegisteredOperations()) {
    bool isGradient = op.getStringRef().ends_with("_backward");
    numGradients += isGradient;
    EXPECT_EQ(op.hasTrait<SeparateInits>(), isGradient)
        << op.getStringRef().str();
  }
  EXPECT_GE(numGradients, 12u);
}
