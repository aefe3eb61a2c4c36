//===- ConstantConeTest.cpp - Numbers known when compiling ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ConstantCone.h"
#include "ParsedFunction.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fovea;

/// All integers of a tensor; none if it is not constant.
static std::optional<std::vector<int64_t>> evaluate(ParsedFunction &f,
                                                    int64_t most = 1000) {
  ConstantCones cones(most);
  AccessTrace trace;
  Access access = trace.addAccess(f.getReturned());
  auto tensor = cones.evaluate(trace, access, access.indices);
  if (!tensor)
    return std::nullopt;
  std::vector<int64_t> numbers;
  for (ConstantElement element : tensor->elements)
    numbers.push_back(tensor->isReal() ? static_cast<int64_t>(element.real)
                                       : element.integer);
  return numbers;
}

/// A function of i, the index of an element of four.
static std::string ofIndex(const std::string &type, const std::string &body) {
  return "func.func @f(%unknown: tensor<4xindex>) -> tensor<4x" + type +
         "> {\n  %e = tensor.empty() : tensor<4x" + type + R"(>
      %c = arith.constant dense<[7, 5, 3, 1]> : tensor<4xi32>
      %0 = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
          ins(%c : tensor<4xi32>) outs(%e : tensor<4x)" +
         type + R"(>) {
      ^bb0(%n: i32, %out: )" +
         type + R"():
        %i = linalg.index 0 : index
        )" +
         body + "\n    linalg.yield %r : " + type + "\n  } -> tensor<4x" +
         type + ">\n  return %0 : tensor<4x" + type + ">\n}";
}

using Numbers = std::vector<int64_t>;

TEST(ConstantConeTest, ComputesAsTheProgram) {
  auto expect = [](const std::string &type, const std::string &body,
                   const std::optional<Numbers> &numbers) {
    ParsedFunction f(ofIndex(type, body));
    EXPECT_EQ(evaluate(f), numbers) << body;
  };
  expect("i32", "%r = arith.addi %n, %n : i32", Numbers{14, 10, 6, 2});
  expect("i8", R"(%t = arith.trunci %n : i32 to i8
                  %k = arith.constant 40 : i8
                  %r = arith.muli %t, %k : i8)",
         Numbers{24, -56, 120, 40});
  expect("i32", R"(%k = arith.constant -4 : i32
                   %s = arith.subi %n, %k : i32
                   %m = arith.subi %k, %s : i32
                   %d = arith.constant 4 : i32
                   %r = arith.floordivsi %m, %d : i32)",
         Numbers{-4, -4, -3, -3});
  expect("i1", R"(%k = arith.constant -1 : i32
                  %r = arith.cmpi ult, %n, %k : i32)",
         Numbers{1, 1, 1, 1});
  expect("i32", R"(%k = arith.constant 4 : i32
                   %b = arith.cmpi sgt, %n, %k : i32
                   %r = arith.extsi %b : i1 to i32)",
         Numbers{-1, -1, 0, 0});
  // To the precision of the type: 2^24 + 1 is no f32.
  expect("f32", R"(%k = arith.constant 16777216.0 : f32
                   %x = arith.sitofp %n : i32 to f32
                   %one = arith.constant 1.0 : f32
                   %d = arith.divf %x, %x : f32
                   %s = arith.addf %k, %one : f32
                   %r = arith.subf %s, %k : f32)",
         Numbers{0, 0, 0, 0});
  expect("i64", R"(%x = arith.sitofp %n : i32 to f32
                   %h = arith.constant -0.5 : f32
                   %y = arith.mulf %x, %h : f32
                   %r = arith.fptosi %y : f32 to i64)",
         Numbers{-3, -2, -1, 0});
  expect("i32", R"(%x = tensor.extract %c[%i] : tensor<4xi32>
                   %r = arith.maxsi %x, %n : i32)",
         Numbers{7, 5, 3, 1});
  // No result, no number of the program, or one of a library.
  expect("i32", R"(%z = arith.constant 0 : i32
                   %r = arith.divsi %n, %z : i32)",
         std::nullopt);
  expect("index", "%r = tensor.extract %unknown[%i] : tensor<4xindex>",
         std::nullopt);
  expect("f32", R"(%x = arith.sitofp %n : i32 to f32
                   %r = math.exp %x : f32)",
         std::nullopt);
}

TEST(ConstantConeTest, MovesAndReduces) {
  ParsedFunction g(R"(
    func.func @g() -> tensor<2x3xi64> {
      %c = arith.constant dense<[[0, 1, 2], [3, 4, 5]]> : tensor<2x3xi64>
      %d = arith.constant dense<[[9], [8]]> : tensor<2x1xi64>
      %all = tensor.concat dim(1) %d, %c : (tensor<2x1xi64>, tensor<2x3xi64>) -> tensor<2x4xi64>
      %part = tensor.extract_slice %all[0, 0] [2, 2] [1, 2] : tensor<2x4xi64> to tensor<2x2xi64>
      %into = tensor.insert_slice %part into %c[0, 1] [2, 2] [1, 1] : tensor<2x2xi64> into tensor<2x3xi64>
      return %into : tensor<2x3xi64>
    })");
  EXPECT_EQ(evaluate(g), (Numbers{0, 9, 1, 3, 8, 4}));
  EXPECT_FALSE(evaluate(g, /*most=*/3));

  ParsedFunction sum(R"(
    func.func @sum() -> tensor<3xi64> {
      %c = arith.constant dense<[[0, 1, 2], [3, 4, 5]]> : tensor<2x3xi64>
      %ten = arith.constant dense<10> : tensor<3xi64>
      %0 = linalg.reduce { arith.addi } ins(%c : tensor<2x3xi64>) outs(%ten : tensor<3xi64>) dimensions = [0]
      return %0 : tensor<3xi64>
    })");
  EXPECT_EQ(evaluate(sum), (Numbers{13, 15, 17}));
}
