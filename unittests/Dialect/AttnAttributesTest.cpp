//===- AttnAttributesTest.cpp - Attributes built by C++ code -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the textual form cannot say, because its parser refuses it first.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "gtest/gtest.h"
#include <functional>

using namespace mlir;
using namespace fovea::attn;

namespace {
class AttnAttributesTest : public testing::Test {
protected:
  AttnAttributesTest()
      : handler(&context, [this](Diagnostic &diagnostic) {
          message = diagnostic.str();
        }) {
    context.loadDialect<AttnDialect>();
  }

  llvm::function_ref<InFlightDiagnostic()> emitError() { return emitter; }

  MLIRContext context;
  std::string message;
  ScopedDiagnosticHandler handler;
  /// All rows of a source.
  AffineMap allRows() {
    return AffineMap::get(
        1, 2,
        {getAffineConstantExpr(0, &context), getAffineSymbolExpr(0, &context)},
        &context);
  }
  std::function<InFlightDiagnostic()> emitter = [this]() {
    return mlir::emitError(UnknownLoc::get(&context));
  };
};
} // namespace

TEST_F(AttnAttributesTest, MaskRefusesNegativeWindow) {
  EXPECT_FALSE(succeeded(MaskAttr::verify(emitError(), true, -1, 0, 1)));
  EXPECT_EQ(message, "expected a window that is not negative, but got -1");
  EXPECT_FALSE(succeeded(MaskAttr::verify(emitError(), true, 0, 0, 0)));
  EXPECT_EQ(message, "expected a stride from 1 to 1048576, but got 0");
}

TEST_F(AttnAttributesTest, MaskWithoutWindow) {
  auto mask = MaskAttr::get(&context, false, 0);
  EXPECT_TRUE(mask.isTrivial());
  EXPECT_FALSE(mask.hasWindow());
  EXPECT_FALSE(mask.hasStride());
  EXPECT_FALSE(MaskAttr::get(&context, true, 0).isTrivial());
  EXPECT_FALSE(MaskAttr::get(&context, false, 3).isTrivial());
}

TEST_F(AttnAttributesTest, SourceRefusesNoRanges) {
  EXPECT_FALSE(succeeded(SourceAttr::verify(
      emitError(), ArrayRef<AffineMap>(), MaskAttr::get(&context, false, 0),
      false, false, false, false, false, false, false, AffineMap(), /*unit=*/0,
      /*hasListedPositions=*/false, /*hasScore=*/false)));
  EXPECT_NE(message.find("expected at least one range of a source"),
            std::string::npos);
}

TEST_F(AttnAttributesTest, SourceRefusesMissingMask) {
  EXPECT_FALSE(succeeded(SourceAttr::verify(
      emitError(), ArrayRef<AffineMap>(allRows()), MaskAttr(), false, false,
      false, false, false, false, false, AffineMap(), /*unit=*/0,
      /*hasListedPositions=*/false, /*hasScore=*/false)));
  EXPECT_EQ(message, "expected a mask");
}

TEST_F(AttnAttributesTest, SourceRefusesRangeOfTwoBlocks) {
  auto range = AffineMap::get(
      2, 2, {getAffineDimExpr(0, &context), getAffineDimExpr(1, &context)},
      &context);
  EXPECT_FALSE(succeeded(
      SourceAttr::verify(emitError(), ArrayRef<AffineMap>(range),
                         MaskAttr::get(&context, false, 0), false, false, false,
                         false, false, false, false, AffineMap(), /*unit=*/0,
                         /*hasListedPositions=*/false, /*hasScore=*/false)));
  EXPECT_NE(message.find("expected ranges of the form"), std::string::npos);
}

TEST_F(AttnAttributesTest, SourceRefusesLocalBiasWithoutOneRange) {
  AffineMap ranges[] = {allRows(), allRows()};
  EXPECT_FALSE(succeeded(SourceAttr::verify(
      emitError(), ranges, MaskAttr::get(&context, false, 0),
      /*hasLogWeight=*/false, /*hasBias=*/true, /*hasCodes=*/false,
      /*hasLocalBias=*/true, /*hasLengths=*/false, /*hasRelative=*/false,
      /*hasDistanceBias=*/false, /*origin=*/AffineMap(), /*unit=*/0,
      /*hasListedPositions=*/false, /*hasScore=*/false)));
  EXPECT_EQ(message, "expected a bias and one range with a local bias, but got "
                     "2 ranges and a bias");
}

TEST_F(AttnAttributesTest, TilesCountQueryLanes) {
  EXPECT_EQ(TilesAttr::get(&context, 64, 32, 16, 4, 8, 4).getQueryLanes(), 64);
  EXPECT_TRUE(
      succeeded(TilesAttr::verify(emitError(), 64, 32, 16, 4, 8, 4, 1)));
  EXPECT_FALSE(
      succeeded(TilesAttr::verify(emitError(), 64, 30, 16, 4, 8, 4, 1)));
}
