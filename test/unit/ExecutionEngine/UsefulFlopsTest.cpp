//===- UsefulFlopsTest.cpp - Tests of the count of operations -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/UsefulFlops.h"
#include "TestUtils.h"
#include "fovea/InitAllDialects.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"
#include <set>

using namespace fovea;
using llvm::formatv;

namespace {

std::optional<double>
countFlops(const std::string &text,
           llvm::ArrayRef<llvm::SmallVector<int64_t>> shapes) {
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) {
    ADD_FAILURE() << text;
    return std::nullopt;
  }
  return countUsefulFlops(*module->getOps<mlir::func::FuncOp>().begin(),
                          shapes);
}

std::string makeDense(const char *mask) {
  return formatv(R"(
    func.func @f(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xf32>,
                 %v: tensor<2x2x?x16xf32>, %o: tensor<2x4x?x16xf32>)
        -> tensor<2x4x?x16xf32> {{
      %out = attn.dense ins(%q, %k, %v : tensor<2x4x?x8xf32>,
          tensor<2x2x?x8xf32>, tensor<2x2x?x16xf32>)
        outs(%o : tensor<2x4x?x16xf32>) {{mask = #attn.mask<{0}>}
        -> tensor<2x4x?x16xf32>
      return %out : tensor<2x4x?x16xf32>
    })",
                 mask);
}

TEST(UsefulFlopsTest, countsAdmittedPairsOfDense) {
  const int64_t n = 7, m = 11, window = 3;
  double causal = 0, windowed = 0, both = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      int64_t distance = i + m - n - j;
      causal += distance >= 0;
      windowed += std::abs(distance) < window;
      both += distance >= 0 && distance < window;
    }
  llvm::SmallVector<int64_t> shapes[] = {
      {2, 4, n, 8}, {2, 2, m, 8}, {2, 2, m, 16}, {2, 4, n, 16}};
  const double perPair = 2 * (8 + 16) * 2 * 4;
  EXPECT_EQ(countFlops(makeDense("causal"), shapes), causal * perPair);
  EXPECT_EQ(countFlops(makeDense("window = 3"), shapes), windowed * perPair);
  EXPECT_EQ(countFlops(makeDense("causal, window = 3"), shapes),
            both * perPair);
}

/// The distinct (row, column) pairs that the definition of fast multipole
/// reads, entry by entry: columns are keys, or summaries of a level.
struct Pairs {
  double near = 0, far = 0, summaries = 0;
};
Pairs countPairs(int64_t n, int64_t m, int64_t p, int64_t levels, bool causal) {
  Pairs pairs;
  std::set<std::tuple<int64_t, int64_t, int64_t>> far, summaries;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      if (causal && j > i)
        continue;
      if (std::abs(i / m - j / m) <= 1) {
        ++pairs.near;
        continue;
      }
      int64_t level = 1, interval = m;
      while (level < levels &&
             std::abs(i / (2 * interval) - j / (2 * interval)) > 1) {
        ++level;
        interval *= 2;
      }
      int64_t step = interval / p;
      far.insert({level, i, j / step});
      summaries.insert({level, i / step, j / step});
    }
  pairs.far = far.size();
  pairs.summaries = summaries.size();
  return pairs;
}

int64_t countLevels(int64_t n, int64_t m) {
  int64_t levels = 0;
  while ((m << (levels + 1)) < n)
    ++levels;
  return levels;
}

std::string makeMultipole(int64_t n, int64_t m, int64_t p, bool causal,
                          bool linear) {
  int64_t levels = countLevels(n, m);
  std::string type = formatv("tensor<1x2x{0}x4xf32>", n), arguments;
  auto makeList = [&](llvm::StringRef name) {
    std::string names, types;
    for (int64_t level = 1; level <= levels; ++level) {
      std::string weight =
          formatv("tensor<1x{0}x{1}x4xf32>", p, m << (level - 1));
      arguments += formatv(", %{0}{1}: {2}", name, level, weight);
      names += formatv("{0}%{1}{2}", level > 1 ? ", " : "", name, level);
      types += (level > 1 ? ", " : "") + weight;
    }
    return levels == 0 ? std::string()
                       : name.str() + "_weights(" + names + " : " + types + ")";
  };
  std::string lists = linear ? makeList("query") : "";
  lists += makeList("key") + makeList("value");
  return formatv(R"(
    func.func @f(%x: {0}{1}) -> {0} {{
      %out = attn.fast_multipole{2} ins(%x, %x, %x : {0}, {0}, {0})
        {3} outs(%x : {0}) {{group = {4} : i64 {5} {6}} -> {0}
      return %out : {0}
    })",
                 type, arguments, linear ? "_linear" : "", lists, m,
                 causal ? ", causal" : "",
                 causal && linear ? ", allow_query_lookahead" : "");
}

TEST(UsefulFlopsTest, countsPairsAndSummariesOfFastMultipole) {
  for (auto [n, m, p] : {std::tuple<int64_t, int64_t, int64_t>{64, 4, 2},
                         {64, 8, 8},
                         {61, 4, 1},
                         {33, 4, 4},
                         {129, 8, 2},
                         {7, 4, 2},
                         {100, 6, 3}})
    for (bool causal : {false, true}) {
      int64_t levels = countLevels(n, m);
      Pairs pairs = countPairs(n, m, p, levels, causal);
      double perPair = 2 * (4 + 4) * 2, oneTensor = 2.0 * p * 2 * n * 4;
      EXPECT_EQ(countFlops(makeMultipole(n, m, p, causal, false), {}),
                perPair * (pairs.near + pairs.far) + 2 * levels * oneTensor)
          << n << ' ' << m << ' ' << p << ' ' << causal;
      EXPECT_EQ(countFlops(makeMultipole(n, m, p, causal, true), {}),
                perPair * (pairs.near + pairs.summaries) +
                    3 * levels * oneTensor)
          << n << ' ' << m << ' ' << p << ' ' << causal;
    }
}

TEST(UsefulFlopsTest, countsSourcesOfAStream) {
  EXPECT_EQ(countFlops(R"(
    func.func @f(%q: tensor<1x1x64x16xf32>, %s: tensor<1x1x4x16xf32>)
        -> tensor<1x1x64x16xf32> {
      %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
        source(%q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>]
          mask <causal>
        source(%s, %s : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
        outs(%q : tensor<1x1x64x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x1x64x16xf32>
      return %out : tensor<1x1x64x16xf32>
    })",
                       {}),
            2.0 * 32 * (4 * (16 * 17 / 2) + 3 * 16 * 16 + 16 * (1 + 2)));
}

TEST(UsefulFlopsTest, countsProductsOfKeysAndCodewords) {
  const char *text = R"(
func.func @f(%k: tensor<2x3x?x8xf32>, %c: tensor<1x16x8xf32>, %z: tensor<2x3x?xi32>) -> tensor<2x3x?xi32> {
  %0 = attn.quantize ins(%k, %c : tensor<2x3x?x8xf32>, tensor<1x16x8xf32>) outs(%z : tensor<2x3x?xi32>) -> tensor<2x3x?xi32>
  return %0 : tensor<2x3x?xi32>
})";
  EXPECT_EQ(countFlops(text, {{2, 3, 50, 8}, {1, 16, 8}, {2, 3, 50}}),
            2.0 * 2 * 3 * 50 * 16 * 8);
}

TEST(UsefulFlopsTest, countsOuterProductsOfKeysAndTheirUse) {
  const char *text = R"(
func.func @f(%u1: tensor<2x4x?x8xf32>, %u2: tensor<2x2x?x8xf32>, %v: tensor<2x2x?x5xf32>, %o: tensor<2x4x?x5xf32>) -> tensor<2x4x?x5xf32> {
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x5xf32>)
      outs(%o : tensor<2x4x?x5xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x?x5xf32>
  return %0 : tensor<2x4x?x5xf32>
})";
  EXPECT_EQ(
      countFlops(text,
                 {{2, 4, 50, 8}, {2, 2, 70, 8}, {2, 2, 70, 5}, {2, 4, 50, 5}}),
      2.0 * 2 * 4 * 8 * 5 * (50 + 70));
}

TEST(UsefulFlopsTest, saysNothingWhereThereIsNothingToCount) {
  EXPECT_EQ(countFlops("func.func @f() { return }", {}), std::nullopt);
}

} // namespace
