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
#include <cmath>
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

TEST(UsefulFlopsTest, gradientsHaveFiveProductsPerPair) {
  const char *text = R"(
    func.func @f(%q: memref<2x4x?x8xf32>, %k: memref<2x2x?x8xf32>,
                 %v: memref<2x2x?x16xf32>, %o: memref<2x4x?x16xf32>,
                 %l: memref<2x4x?xf32>, %dq: memref<2x4x?x8xf32>,
                 %dk: memref<2x2x?x8xf32>, %dv: memref<2x2x?x16xf32>) {
      attn.dense_backward ins(%q, %k, %v : memref<2x4x?x8xf32>,
          memref<2x2x?x8xf32>, memref<2x2x?x16xf32>)
        forward(%o, %l : memref<2x4x?x16xf32>, memref<2x4x?xf32>)
        gradient(%o : memref<2x4x?x16xf32>)
        outs(%dq, %dk, %dv : memref<2x4x?x8xf32>, memref<2x2x?x8xf32>,
          memref<2x2x?x16xf32>) {mask = #attn.mask<causal>}
      return
    })";
  llvm::SmallVector<int64_t> shapes[] = {
      {2, 4, 5, 8}, {2, 2, 5, 8}, {2, 2, 5, 16}, {2, 4, 5, 16},
      {2, 4, 5},    {2, 4, 5, 8}, {2, 2, 5, 8},  {2, 2, 5, 16}};
  EXPECT_EQ(countFlops(text, shapes), 2.0 * (3 * 8 + 2 * 16) * 2 * 4 * 15);
}

TEST(UsefulFlopsTest, gradientsOfSummariesCostTwiceTheSummaries) {
  const char *text = R"(
    func.func @f(%x: memref<2x3x10x8xf32>, %w: memref<1x2x4x8xf32>,
                 %g: memref<2x3x6x8xf32>, %dx: memref<2x3x10x8xf32>,
                 %dw: memref<1x2x4x8xf32>) {
      attn.summarize_backward ins(%x : memref<2x3x10x8xf32>)
        weights(%w : memref<1x2x4x8xf32>) gradient(%g : memref<2x3x6x8xf32>)
        outs(%dx, %dw : memref<2x3x10x8xf32>, memref<1x2x4x8xf32>)
      return
    })";
  llvm::SmallVector<int64_t> shapes[] = {
      {2, 3, 10, 8}, {1, 2, 4, 8}, {2, 3, 6, 8}, {2, 3, 10, 8}, {1, 2, 4, 8}};
  EXPECT_EQ(countFlops(text, shapes), 4.0 * 2 * 3 * 10 * 8 * 2);
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

/// What the queries of attn.vq read, counted token by token: tokens one by one,
/// and queries that read codewords for older ones.
struct QuantizedReads {
  QuantizedReads(int64_t n, int64_t block, int64_t nearBlocks) {
    for (int64_t i = 0; i < n; ++i) {
      bool readsCodewords = false;
      for (int64_t j = 0; j <= i; ++j)
        if (i / block - j / block < nearBlocks)
          ++tokens;
        else
          readsCodewords = true;
      withCodewords += readsCodewords;
    }
  }
  double tokens = 0, withCodewords = 0;
};

TEST(UsefulFlopsTest, countsWhatQuantizedAttentionReads) {
  const char *text = R"(
func.func @f(%q: tensor<2x6x?x8xf32>, %z: tensor<2x3x?xi32>, %v: tensor<2x3x?x4xf32>, %c: tensor<1x16x8xf32>,
             %b: tensor<1x1x?x10xf32>, %o: tensor<2x6x?x4xf32>) -> tensor<2x6x?x4xf32> {{
  %0 = attn.vq ins(%q, %z, %v, %c : tensor<2x6x?x8xf32>, tensor<2x3x?xi32>, tensor<2x3x?x4xf32>, tensor<1x16x8xf32>)
      {0} outs(%o : tensor<2x6x?x4xf32>) {{block = 5 : i64{1}} -> tensor<2x6x?x4xf32>
  return %0 : tensor<2x6x?x4xf32>
})";
  for (int64_t n : {1, 5, 6, 23}) {
    llvm::SmallVector<int64_t> shapes[] = {{2, 6, n, 8},  {2, 3, n},
                                           {2, 3, n, 4},  {1, 16, 8},
                                           {1, 1, n, 10}, {2, 6, n, 4}};
    // Every query has a score for every codeword, whether it reads it or not.
    double scores = 16.0 * n * 8;
    EXPECT_EQ(countFlops(formatv(text, "", ""), shapes),
              2.0 * 12 * (scores + 16.0 * n * 4));
    QuantizedReads own(n, 5, 1), both(n, 5, 2);
    EXPECT_EQ(countFlops(formatv(text, "", ", causal"), shapes),
              2.0 * 12 * (scores + 4 * (own.tokens + 16 * own.withCodewords)));
    EXPECT_EQ(
        countFlops(formatv(text, "bias(%b : tensor<1x1x?x10xf32>)", ", causal"),
                   shapes),
        2.0 * 12 * (scores + 4 * (both.tokens + 16 * both.withCodewords)));
  }
}

TEST(UsefulFlopsTest, countsTheGradientOfQuantizedAttention) {
  const char *text = R"(
func.func @f(%q: tensor<1x2x?x8xf32>, %z: tensor<1x1x?xi32>, %v: tensor<1x1x?x4xf32>, %c: tensor<1x16x8xf32>,
             %b: tensor<1x1x?x10xf32>, %o: tensor<1x2x?x4xf32>, %l: tensor<1x2x?xf32>, %k: tensor<1x1x?x8xf32>)
    -> tensor<1x2x?x8xf32> {{
  %0:3 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x?x8xf32>, tensor<1x1x?xi32>, tensor<1x1x?x4xf32>, tensor<1x16x8xf32>)
      {0} forward(%o, %l : tensor<1x2x?x4xf32>, tensor<1x2x?xf32>) gradient(%o : tensor<1x2x?x4xf32>)
      outs(%q, %k, %v : tensor<1x2x?x8xf32>, tensor<1x1x?x8xf32>, tensor<1x1x?x4xf32>)
      {{block = 5 : i64, causal} -> tensor<1x2x?x8xf32>, tensor<1x1x?x8xf32>, tensor<1x1x?x4xf32>
  return %0#0 : tensor<1x2x?x8xf32>
})";
  const int64_t n = 23;
  llvm::SmallVector<int64_t> shapes[] = {
      {1, 2, n, 8},  {1, 1, n},    {1, 1, n, 4}, {1, 16, 8},
      {1, 1, n, 10}, {1, 2, n, 4}, {1, 2, n},    {1, 1, n, 8}};
  QuantizedReads both(n, 5, 2);
  // Scores and d_query; products with means, and what their values are owed;
  // for tokens products with values, d_key and, with a bias, d_value.
  double codewords = 2 * 8.0 * 16 * n + 2 * 4.0 * 16 * both.withCodewords;
  EXPECT_EQ(countFlops(formatv(text, ""), shapes),
            2.0 * 2 * (codewords + (8 + 4) * both.tokens));
  EXPECT_EQ(
      countFlops(formatv(text, "bias(%b : tensor<1x1x?x10xf32>)"), shapes),
      2.0 * 2 * (codewords + (8 + 2 * 4) * both.tokens));
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
  const char *gradient = R"(
func.func @f(%u1: tensor<2x4x?x8xf32>, %u2: tensor<2x2x?x8xf32>, %v: tensor<2x2x?x5xf32>, %o: tensor<2x4x?x5xf32>) -> tensor<2x2x?x5xf32> {
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x5xf32>)
      forward(%o : tensor<2x4x?x5xf32>) gradient(%o : tensor<2x4x?x5xf32>)
      outs(%u1, %u2, %v : tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x5xf32>) {mask = #attn.row_mask<causal>}
      -> tensor<2x4x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x5xf32>
  return %0#2 : tensor<2x2x?x5xf32>
})";
  EXPECT_EQ(
      countFlops(gradient,
                 {{2, 4, 50, 8}, {2, 2, 70, 8}, {2, 2, 70, 5}, {2, 4, 50, 5}}),
      2.0 * 2 * 4 * 8 * 5 * (2 * 50 + 3 * 70));
}

TEST(UsefulFlopsTest, countsTransformsOfConvolutionsAndTheirProducts) {
  const char *text = R"(
func.func @f(%b: tensor<1x4x3x?xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x?x5xf32>, %o: tensor<1x4x?x5xf32>, %c: tensor<1x4xi32>) -> tensor<1x4x?x5xf32> {{
  %0:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x?xf32>, tensor<1x4x3xi32>, tensor<1x2x?x5xf32>)
      outs(%o, %c : tensor<1x4x?x5xf32>, tensor<1x4xi32>) {0} -> tensor<1x4x?x5xf32>, tensor<1x4xi32>
  return %0#0 : tensor<1x4x?x5xf32>
})";
  const char *gradient = R"(
func.func @f(%b: tensor<1x4x3x?xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x?x5xf32>, %o: tensor<1x4x?x5xf32>) -> tensor<1x2x?x5xf32> {{
  %0:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<1x4x3x?xf32>, tensor<1x4x3xi32>, tensor<1x2x?x5xf32>)
      forward(%o : tensor<1x4x?x5xf32>) gradient(%o : tensor<1x4x?x5xf32>)
      outs(%b, %v : tensor<1x4x3x?xf32>, tensor<1x2x?x5xf32>) {0} -> tensor<1x4x3x?xf32>, tensor<1x2x?x5xf32>
  return %0#1 : tensor<1x2x?x5xf32>
})";
  const llvm::SmallVector<int64_t> shapes[] = {
      {1, 4, 3, 64}, {1, 4, 3}, {1, 2, 64, 5}, {1, 4, 64, 5}, {1, 4}};
  auto gradientShapes = llvm::ArrayRef(shapes).drop_back();
  const char *pairs = "{algorithm = #attn.conv_algorithm<toeplitz>}";
  // Four heads of five columns; transforms of 128 rows.
  double transform = 2.5 * 128 * 7;
  EXPECT_EQ(countFlops(formatv(text, ""), shapes),
            4.0 * 5 * (2 * transform + 8 * 3 * 64));
  EXPECT_EQ(countFlops(formatv(gradient, ""), gradientShapes),
            4.0 * 5 * (3 * transform + 2 * 8 * 3 * 64));
  EXPECT_EQ(countFlops(formatv(text, pairs), shapes), 4.0 * 5 * 64 * 65);
  EXPECT_EQ(countFlops(formatv(gradient, pairs), gradientShapes),
            2 * 4.0 * 5 * 64 * 65);
}

TEST(UsefulFlopsTest, countsTheColumnsThatConvolutionsAreMadeOf) {
  const char *text = R"(
func.func @f(%q: tensor<1x2x64x8xf32>, %v: tensor<1x2x64x5xf32>) -> tensor<1x2x64x8xf32> {{
  %0:3 = attn.conv_backward ins(%q, %q, %v : tensor<1x2x64x8xf32>, tensor<1x2x64x8xf32>, tensor<1x2x64x5xf32>)
      forward(%v : tensor<1x2x64x5xf32>) gradient(%v : tensor<1x2x64x5xf32>)
      outs(%q, %q, %v : tensor<1x2x64x8xf32>, tensor<1x2x64x8xf32>, tensor<1x2x64x5xf32>)
      {{num_basis = 3 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64{0}} -> tensor<1x2x64x8xf32>, tensor<1x2x64x8xf32>, tensor<1x2x64x5xf32>
  return %0#0 : tensor<1x2x64x8xf32>
})";
  const llvm::SmallVector<int64_t> shapes[] = {{1, 2, 64, 8}, {1, 2, 64, 5}};
  // The search, and what it hands on to queries and to keys.
  auto head = [](double tokens) {
    double transform = 2.5 * 2 * tokens * std::log2(2 * tokens);
    return 5 * (3 * transform + 2 * 8 * 3 * tokens) + 3 * 2 * 3 * tokens * 8;
  };
  EXPECT_EQ(countFlops(formatv(text, ""), shapes), 2 * head(64));
  // Seven pairs of neighbours.
  EXPECT_EQ(countFlops(formatv(text, ", group = 8 : i64"), shapes),
            2 * 7 * head(16));
}

TEST(UsefulFlopsTest, saysNothingWhereThereIsNothingToCount) {
  EXPECT_EQ(countFlops("func.func @f() { return }", {}), std::nullopt);
}

} // namespace
