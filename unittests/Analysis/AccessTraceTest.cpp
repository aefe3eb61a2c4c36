//===- AccessTraceTest.cpp - Where numbers come from ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/AccessTrace.h"
#include "ParsedFunction.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fovea;

/// The extents of all digits, dimension by dimension.
static SmallVector<SmallVector<int64_t>> getExtents(const AccessTrace &trace,
                                                    const Access &access) {
  SmallVector<SmallVector<int64_t>> extents;
  for (const IndexList &list : access.indices) {
    extents.emplace_back();
    for (Atom atom : trace.resolve(list))
      extents.back().push_back(trace.getExtent(atom));
  }
  return extents;
}

using Extents = SmallVector<SmallVector<int64_t>>;

TEST(AccessTraceTest, CutsAlongDigitsAndInside) {
  AccessTrace trace;
  IndexList list = trace.addIndex(24);
  auto cuts = trace.cut(list, {2, 1, 12});
  ASSERT_TRUE(cuts);
  EXPECT_EQ((*cuts)[0].size(), 1u);
  EXPECT_TRUE((*cuts)[1].empty());
  // The list of before has the digits of now.
  EXPECT_EQ(trace.resolve(list).size(), 2u);
  EXPECT_EQ(trace.getExtent(trace.resolve(list)), 24);
  // 24 as 4 x 6 would fall inside of 12 as 2 x 6: another digit.
  ASSERT_TRUE(trace.cut(list, {4, 6}));
  EXPECT_EQ(trace.resolve(list).size(), 3u);
  EXPECT_FALSE(trace.cut(list, {5, 5}));
  EXPECT_FALSE(trace.cut(list, {2, 6}));
  EXPECT_FALSE(trace.cut(list, {ShapedType::kDynamic, 6}));
}

TEST(AccessTraceTest, FollowsLayouts) {
  ParsedFunction f(R"(
    func.func @f(%x: tensor<2x12x5xf32>, %o: tensor<5x24xf32>, %p: tensor<3x5x2x4xf32>) -> tensor<3x5x2x4xf32> {
      %0 = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x12x5xf32> into tensor<24x5xf32>
      %1 = linalg.transpose ins(%0 : tensor<24x5xf32>) outs(%o : tensor<5x24xf32>) permutation = [1, 0]
      %2 = tensor.expand_shape %1 [[0], [1, 2, 3]] output_shape [5, 2, 3, 4] : tensor<5x24xf32> into tensor<5x2x3x4xf32>
      %3 = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (b, c, a, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
                           iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
          ins(%2 : tensor<5x2x3x4xf32>) outs(%p : tensor<3x5x2x4xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<3x5x2x4xf32>
      return %3 : tensor<3x5x2x4xf32>
    })");
  AccessTrace trace;
  Access start = trace.addAccess(f.getReturned());
  Access end = trace.peel(start);
  EXPECT_EQ(end.value, f.function.getArgument(0));
  EXPECT_EQ(getExtents(trace, end), (Extents{{2}, {3, 4}, {5}}));
  // By the same atoms.
  EXPECT_EQ(end.indices[1][0], start.indices[0][0]);
  EXPECT_EQ(trace.getDependencies(start), trace.getAtoms(end));
}

TEST(AccessTraceTest, StopsWhereNumbersAreComputed) {
  ParsedFunction f(R"(
    func.func @f(%x: tensor<4x1xf32>, %s: f32) -> (tensor<4x6xf32>, tensor<4xf32>) {
      %e = tensor.empty() : tensor<4x6xf32>
      %0 = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, 0)>, affine_map<(a, b) -> (a, b)>],
                           iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<4x1xf32>) outs(%e : tensor<4x6xf32>) {
      ^bb0(%in: f32, %out: f32):
        %m = arith.mulf %in, %s : f32
        linalg.yield %m : f32
      } -> tensor<4x6xf32>
      %i = tensor.empty() : tensor<4xf32>
      %sum = linalg.reduce { arith.addf } ins(%0 : tensor<4x6xf32>) outs(%i : tensor<4xf32>) dimensions = [1]
      return %0, %sum : tensor<4x6xf32>, tensor<4xf32>
    })");
  AccessTrace trace;
  Access product = trace.addAccess(f.getReturned(0));
  EXPECT_EQ(trace.peel(product).value, f.getReturned(0));
  Access opened = trace.open(product);
  ASSERT_TRUE(isa<arith::MulFOp>(AccessTrace::getElementwiseOp(opened)));
  Access x = trace.peel(AccessTrace::getOperand(opened, 0));
  EXPECT_EQ(x.value, f.function.getArgument(0));
  EXPECT_EQ(getExtents(trace, x), (Extents{{4}, {}}));
  Access s = AccessTrace::getOperand(opened, 1);
  EXPECT_EQ(s.value, f.function.getArgument(1));
  EXPECT_TRUE(s.indices.empty());
  // Columns are all alike.
  EXPECT_EQ(trace.getDependencies(product).size(), 1u);

  Access sum = trace.addAccess(f.getReturned(1));
  EXPECT_EQ(trace.open(sum).value, f.getReturned(1));
  EXPECT_EQ(AccessTrace::getElementwiseOp(trace.open(sum)), nullptr);
}

TEST(AccessTraceTest, FindsTheSameNumberComputedTwice) {
  ParsedFunction f(R"(
    func.func @f(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<6x4xf32>, tensor<4x6xf32>) {
      %0 = math.exp %x : tensor<4x6xf32>
      %e = tensor.empty() : tensor<6x4xf32>
      %1 = linalg.generic {indexing_maps = [affine_map<(a, b) -> (b, a)>, affine_map<(a, b) -> (a, b)>],
                           iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<4x6xf32>) outs(%e : tensor<6x4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %m = math.exp %in : f32
        linalg.yield %m : f32
      } -> tensor<6x4xf32>
      %2 = math.sin %x : tensor<4x6xf32>
      return %0, %1, %2 : tensor<4x6xf32>, tensor<6x4xf32>, tensor<4x6xf32>
    })");
  AccessTrace trace;
  Access a = trace.addAccess(f.getReturned(0));
  Access b{f.getReturned(1), {a.indices[1], a.indices[0]}};
  Access c{f.getReturned(2), a.indices};
  llvm::DenseMap<Atom, Atom> bound;
  EXPECT_TRUE(trace.isSame(a, b, {}, bound));
  EXPECT_FALSE(trace.isSame(a, c, {}, bound));

  // With columns by an index of their own, if that is the column of `a`.
  Access other = trace.addAccess(f.getReturned(1));
  other.indices[1] = a.indices[0];
  EXPECT_FALSE(trace.isSame(a, other, {}, bound));
  AtomSet unknown =
      trace.resolve(AtomSet(other.indices[0].begin(), other.indices[0].end()));
  EXPECT_TRUE(trace.isSame(a, other, unknown, bound));
  EXPECT_EQ(bound.lookup(other.indices[0][0]), a.indices[1][0]);
}
