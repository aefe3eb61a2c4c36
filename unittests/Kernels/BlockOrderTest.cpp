//===- BlockOrderTest.cpp - The order of blocks of threads ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <set>

using namespace mlir;
using namespace fovea::attn;

using Place = std::pair<int64_t, int64_t>; // a head and its block

/// What blocks of threads have, in their order: constants fold.
static std::vector<Place> getOrder(int64_t heads, int64_t blocks,
                                   int64_t section) {
  MLIRContext context;
  context.loadDialect<arith::ArithDialect, scf::SCFDialect>();
  OpBuilder builder(&context);
  Location loc = builder.getUnknownLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder, loc);
  builder.setInsertionPointToStart(module->getBody());
  KernelBuilder b(loc, builder, builder.getF32Type(), /*lanes=*/0);
  std::vector<Place> order;
  for (int64_t number = 0; number < heads * blocks; ++number) {
    auto [head, block] = splitSections(b, b.index(number), b.index(heads),
                                       b.index(blocks), b.index(section));
    order.emplace_back(getConstantIntValue(head).value_or(-1),
                       getConstantIntValue(block).value_or(-1));
  }
  return order;
}

/// The blocks of the sections one after the other, in each the last blocks of
/// all heads first.
static std::vector<Place> getExpected(int64_t heads, int64_t blocks,
                                      int64_t section) {
  std::vector<Place> order;
  for (int64_t first = 0; first < heads; first += section)
    for (int64_t block = blocks - 1; block >= 0; --block)
      for (int64_t head = first; head < std::min(heads, first + section);
           ++head)
        order.emplace_back(head, block);
  return order;
}

TEST(BlockOrderTest, HasEachBlockOnce) {
  for (int64_t heads : {1, 2, 3, 7, 10, 24})
    for (int64_t blocks : {1, 2, 5, 9})
      for (int64_t section : {1, 2, 3, 4, 7, 24, 30}) {
        std::vector<Place> order = getOrder(heads, blocks, section);
        std::set<Place> all(order.begin(), order.end());
        EXPECT_EQ(int64_t(all.size()), heads * blocks)
            << heads << " heads, " << blocks << " blocks, " << section;
        EXPECT_EQ(all.begin()->first, 0);
        EXPECT_EQ(all.rbegin()->first, heads - 1);
        EXPECT_EQ(order, getExpected(heads, blocks, section));
      }
}

TEST(BlockOrderTest, GoesHeadByHead) {
  std::vector<Place> expected = {{0, 2}, {0, 1}, {0, 0},
                                 {1, 2}, {1, 1}, {1, 0}};
  EXPECT_EQ(getOrder(2, 3, 1), expected);
}

TEST(BlockOrderTest, GoesByLengthOverTheHeadsOfASection) {
  // Sections of two of three heads.
  std::vector<Place> expected = {{0, 1}, {1, 1}, {0, 0},
                                 {1, 0}, {2, 1}, {2, 0}};
  EXPECT_EQ(getOrder(3, 2, 2), expected);
}

TEST(BlockOrderTest, KeepsClustersTogether) {
  // Blocks of a cluster have neighbouring heads, the even one first.
  for (int64_t section : {2, 4, 6}) {
    std::vector<Place> order = getOrder(/*heads=*/8, /*blocks=*/3, section);
    for (size_t i = 0; i < order.size(); i += 2) {
      EXPECT_EQ(order[i].first % 2, 0);
      EXPECT_EQ(order[i + 1].first, order[i].first + 1);
      EXPECT_EQ(order[i + 1].second, order[i].second);
    }
  }
}
