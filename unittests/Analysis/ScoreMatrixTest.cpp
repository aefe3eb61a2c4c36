//===- ScoreMatrixTest.cpp - Tests of which keys queries read -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Expected entries are written from the definitions in the specification, pair
// by pair.
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ScoreMatrix.h"
#include "ParsedFunction.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/FormatVariadic.h"
#include <gtest/gtest.h>

using namespace fovea;
using llvm::formatv;

using Shapes = llvm::SmallVector<llvm::SmallVector<int64_t>>;

namespace {
/// The matrix of the last operation of a function that has one.
struct ParsedMatrix : ParsedFunction {
  explicit ParsedMatrix(const std::string &text, const Shapes &shapes = {})
      : ParsedFunction(text), extents(function, shapes) {
    function.walk([&](mlir::Operation *op) {
      if (auto found = getScoreMatrix(op, extents))
        matrix = std::move(found);
    });
  }

  /// The numbers of the sources that stand for a token, a digit each.
  std::string read(int64_t query, int64_t token) {
    std::string found;
    for (auto [number, source] : llvm::enumerate(matrix->sources))
      for (const RowRange &range :
           source.getTokens(query / source.queriesPerRow))
        if (range.begin <= token && token < range.end)
          found += std::to_string(number);
    return found;
  }

  Extents extents;
  std::optional<ScoreMatrix> matrix;
};
} // namespace

static std::string makeDense(const char *mask) {
  return formatv(R"(
    func.func @f(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xf32>)
        -> tensor<2x4x?x8xf32> {{
      %out = attn.dense ins(%q, %k, %k : tensor<2x4x?x8xf32>,
          tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>)
        outs(%q : tensor<2x4x?x8xf32>) {{mask = #attn.mask<{0}>}
        -> tensor<2x4x?x8xf32>
      return %out : tensor<2x4x?x8xf32>
    })",
                 mask);
}

TEST(ScoreMatrixTest, readsWhatTheMaskAdmits) {
  for (auto [n, m] : {std::pair<int64_t, int64_t>{7, 11}, {11, 7}, {1, 1}})
    for (auto [mask, causal, window] : {std::tuple{"causal", true, 1000},
                                        {"window = 3", false, 3},
                                        {"causal, window = 3", true, 3}}) {
      ParsedMatrix dense(makeDense(mask), {{2, 4, n, 8}, {2, 2, m, 8}});
      ASSERT_TRUE(dense.matrix);
      EXPECT_EQ(dense.matrix->batch * dense.matrix->heads, 8);
      double entries = 0;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) {
          int64_t distance = i + m - n - j;
          bool isRead =
              std::abs(distance) < window && (!causal || distance >= 0);
          entries += isRead;
          EXPECT_EQ(dense.read(i, j), isRead ? "0" : "") << i << ' ' << j;
        }
      EXPECT_EQ(dense.matrix->countEntries(), entries);
      std::optional<PairCounts> pairs = countPairs(*dense.matrix, 0);
      ASSERT_TRUE(pairs);
      EXPECT_EQ(pairs->admitted, entries);
      EXPECT_EQ(pairs->never + pairs->twice + pairs->ahead, 0);
    }
}

/// A window of two blocks of 16, and a mean for each of blocks `0 .. {0} - 1`.
static std::string makeWindowAndSummaries(const char *end) {
  return formatv(R"(
    func.func @f(%q: tensor<1x1x64x8xf32>, %k: tensor<1x1x64x8xf32>,
                 %w: tensor<1x1x16x8xf32>) -> tensor<1x1x64x8xf32> {{
      %empty = tensor.empty() : tensor<1x1x4x8xf32>
      %ks = attn.summarize ins(%k : tensor<1x1x64x8xf32>)
        weights(%w : tensor<1x1x16x8xf32>)
        outs(%empty : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
      %out = attn.stream query(%q : tensor<1x1x64x8xf32>)
        source(%k, %k : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>]
          mask <causal>
        source(%ks, %ks : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, {0})>]
        outs(%q : tensor<1x1x64x8xf32>)
        {{block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x64x8xf32>
      return %out : tensor<1x1x64x8xf32>
    })",
                 end);
}

TEST(ScoreMatrixTest, followsSummariesToTheirTokens) {
  ParsedMatrix stream(makeWindowAndSummaries("b - 1"));
  ASSERT_TRUE(stream.matrix);
  ASSERT_EQ(stream.matrix->sequences.size(), 1u);
  EXPECT_EQ(stream.matrix->sources[1].kind, "summaries of 16 tokens");
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t j = 0; j < 64; ++j)
      EXPECT_EQ(stream.read(i, j), j > i                  ? ""
                                   : i / 16 - j / 16 <= 1 ? "0"
                                                          : "1");
  std::optional<PairCounts> pairs = countPairs(*stream.matrix, 0);
  ASSERT_TRUE(pairs);
  EXPECT_EQ(pairs->admitted, 64 * 65 / 2);
  EXPECT_EQ(pairs->never + pairs->twice + pairs->ahead, 0);
}

TEST(ScoreMatrixTest, findsPairsReadTwiceNeverAndAhead) {
  ParsedMatrix twice(makeWindowAndSummaries("b"));
  std::optional<PairCounts> pairs = countPairs(*twice.matrix, 0);
  EXPECT_EQ(pairs->twice, 3 * 16 * 16);
  EXPECT_EQ(pairs->firstTwice->query, 16);
  EXPECT_EQ(pairs->firstTwice->token, 0);
  EXPECT_EQ(pairs->never + pairs->ahead, 0);

  ParsedMatrix never(makeWindowAndSummaries("b - 2"));
  pairs = countPairs(*never.matrix, 0);
  EXPECT_EQ(pairs->never, 2 * 16 * 16);
  EXPECT_EQ(pairs->firstNever->query, 32);
  EXPECT_EQ(pairs->firstNever->token, 0);
  EXPECT_EQ(pairs->twice + pairs->ahead, 0);

  // A prefix is not ahead of a mask that admits it.
  ParsedMatrix prefix(makeDense("causal, prefix = 3"),
                      {{2, 4, 7, 8}, {2, 2, 7, 8}});
  pairs = countPairs(*prefix.matrix, 0);
  EXPECT_EQ(pairs->admitted, 7 * 8 / 2 + 2 + 1);
  EXPECT_EQ(pairs->never + pairs->twice + pairs->ahead, 0);

  // The summary of the own block has tokens behind the query.
  ParsedMatrix ahead(makeWindowAndSummaries("b + 1"));
  pairs = countPairs(*ahead.matrix, 0);
  EXPECT_EQ(pairs->ahead, 4 * (16 * 15 / 2));
  EXPECT_EQ(pairs->firstAhead->query, 0);
  EXPECT_EQ(pairs->firstAhead->token, 1);
}

TEST(ScoreMatrixTest, followsLevelsInOnePool) {
  ParsedMatrix stream(R"(
    func.func @f(%q: tensor<1x1x13x8xf32>, %k: tensor<1x1x13x8xf32>,
                 %w1: tensor<1x1x2x8xf32>, %w2: tensor<1x1x4x8xf32>)
        -> tensor<1x1x13x8xf32> {
      %e1 = tensor.empty() : tensor<1x1x7x8xf32>
      %e2 = tensor.empty() : tensor<1x1x4x8xf32>
      %e = tensor.empty() : tensor<1x1x11x8xf32>
      %s1 = attn.summarize ins(%k : tensor<1x1x13x8xf32>)
        weights(%w1 : tensor<1x1x2x8xf32>)
        outs(%e1 : tensor<1x1x7x8xf32>) -> tensor<1x1x7x8xf32>
      %s2 = attn.summarize ins(%k : tensor<1x1x13x8xf32>)
        weights(%w2 : tensor<1x1x4x8xf32>)
        outs(%e2 : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
      %p1 = tensor.insert_slice %s2 into %e[0, 0, 7, 0] [1, 1, 4, 8] [1, 1, 1, 1]
        : tensor<1x1x4x8xf32> into tensor<1x1x11x8xf32>
      %pool = tensor.insert_slice %s1 into %p1[0, 0, 0, 0] [1, 1, 7, 8] [1, 1, 1, 1]
        : tensor<1x1x7x8xf32> into tensor<1x1x11x8xf32>
      %out = attn.stream query(%q : tensor<1x1x13x8xf32>)
        source(%pool, %pool : tensor<1x1x11x8xf32>, tensor<1x1x11x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 2)>,
                  affine_map<(b)[rows, n] -> (8, 12, 7, 11)>]
        outs(%q : tensor<1x1x13x8xf32>) {scale = 1.0 : f64}
        -> tensor<1x1x13x8xf32>
      return %out : tensor<1x1x13x8xf32>
    })");
  ASSERT_TRUE(stream.matrix);
  EXPECT_EQ(stream.matrix->sequences[0].length, 13);
  EXPECT_EQ(stream.matrix->sources[0].kind, "summaries of 2 to 4 tokens");
  EXPECT_EQ(countRows(stream.matrix->sources[0].getRows(0)), 5);
  // Tokens 0 to 3 by level 1, 4 to 12 by level 2, the last of which is ragged.
  EXPECT_EQ(countRows(stream.matrix->sources[0].getTokens(0)), 13);
  EXPECT_EQ(countPairs(*stream.matrix, 0)->twice, 0);
}

/// The level that reads a pair, by definition.
static int64_t getLevel(int64_t i, int64_t j, int64_t group, int64_t levels) {
  auto distance = [&](int64_t size) { return std::abs(i / size - j / size); };
  if (distance(group) <= 1)
    return 0;
  for (int64_t level = 1; level <= levels; ++level) {
    int64_t size = group << (level - 1);
    if (distance(size) >= 2 && (level == levels || distance(2 * size) <= 1))
      return level;
  }
  ADD_FAILURE();
  return -1;
}

static std::string makeMultipole(const char *op, int64_t n, int64_t group,
                                 int64_t rank, int64_t levels,
                                 const char *causal) {
  std::string x = formatv("tensor<1x1x{0}x2xf32>", n), names, types, arguments;
  for (int64_t level = 0; level < levels; ++level) {
    std::string type = formatv("tensor<1x{0}x{1}x2xf32>", rank, group << level);
    names += formatv("{0}%w{1}", level ? ", " : "", level);
    types += (level ? ", " : "") + type;
    arguments += formatv(", %w{0}: {1}", level, type);
  }
  std::string weights = formatv("({0} : {1})", names, types);
  std::string queries =
      llvm::StringRef(op).ends_with("linear") ? "query_weights" + weights : "";
  return formatv(R"(
    func.func @f(%x: {0}{1}) -> {0} {{
      %out = attn.{2} ins(%x, %x, %x : {0}, {0}, {0}) {3}
        key_weights{4} value_weights{4} outs(%x : {0})
        {{group = {5} : i64 {6}} -> {0}
      return %out : {0}
    })",
                 x, arguments, op, queries, weights, group, causal);
}

TEST(ScoreMatrixTest, readsEveryPairAtItsLevel) {
  for (auto [n, group, rank, levels] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{32, 4, 2, 2},
        {33, 4, 2, 3},
        {63, 4, 4, 3},
        {50, 4, 1, 3},
        {9, 4, 2, 1},
        {13, 1, 1, 3}})
    for (auto [op, isCausal, attributes] :
         {std::tuple{"fast_multipole", false, ""},
          {"fast_multipole", true, ", causal"},
          {"fast_multipole_linear", false, ""},
          {"fast_multipole_linear", true, ", causal, allow_query_lookahead"}}) {
      ParsedMatrix tree(makeMultipole(op, n, group, rank, levels, attributes));
      ASSERT_TRUE(tree.matrix);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          EXPECT_EQ(tree.read(i, j),
                    isCausal && j > i
                        ? ""
                        : std::to_string(getLevel(i, j, group, levels)))
              << op << ' ' << n << ": " << i << ' ' << j;
      std::optional<PairCounts> pairs = countPairs(*tree.matrix, 0);
      EXPECT_EQ(pairs->never + pairs->twice + pairs->ahead, 0);
    }
}

TEST(ScoreMatrixTest, readsOldTokensByTheirCodes) {
  ParsedMatrix vq(R"(
    func.func @f(%q: tensor<1x1x13x8xf32>, %z: tensor<1x1x13xi32>,
                 %c: tensor<1x5x8xf32>) -> tensor<1x1x13x8xf32> {
      %out = attn.vq ins(%q, %z, %q, %c : tensor<1x1x13x8xf32>,
          tensor<1x1x13xi32>, tensor<1x1x13x8xf32>, tensor<1x5x8xf32>)
        outs(%q : tensor<1x1x13x8xf32>) {block = 4 : i64, causal}
        -> tensor<1x1x13x8xf32>
      return %out : tensor<1x1x13x8xf32>
    })");
  ASSERT_TRUE(vq.matrix);
  for (int64_t i = 0; i < 13; ++i) {
    for (int64_t j = 0; j < 13; ++j)
      EXPECT_EQ(vq.read(i, j), j > i ? "" : i / 4 - j / 4 <= 1 ? "0" : "1");
    EXPECT_EQ(countRows(vq.matrix->sources[1].getRows(i)), i < 8 ? 0 : 5);
  }
  EXPECT_FALSE(vq.matrix->sources[1].byData.empty());
  std::optional<PairCounts> pairs = countPairs(*vq.matrix, 0);
  EXPECT_EQ(pairs->never + pairs->twice + pairs->ahead, 0);
}

TEST(ScoreMatrixTest, readsTwoGroupsOfConvolutions) {
  ParsedMatrix conv(R"(
    func.func @f(%q: tensor<1x1x13x8xf32>, %n: tensor<1x1xi32>)
        -> tensor<1x1x13x8xf32> {
      %out, %a, %b = attn.conv ins(%q, %q, %q : tensor<1x1x13x8xf32>,
          tensor<1x1x13x8xf32>, tensor<1x1x13x8xf32>)
        outs(%q, %n, %n : tensor<1x1x13x8xf32>, tensor<1x1xi32>,
             tensor<1x1xi32>)
        {num_basis = 2 : i64, window = 2 : i64, delta = 0.1 : f64,
         epsilon = 0.1 : f64, group = 4 : i64}
        -> tensor<1x1x13x8xf32>, tensor<1x1xi32>, tensor<1x1xi32>
      return %out : tensor<1x1x13x8xf32>
    })");
  ASSERT_TRUE(conv.matrix);
  for (int64_t i = 0; i < 13; ++i)
    for (int64_t j = 0; j < 13; ++j)
      EXPECT_EQ(conv.read(i, j), j <= i && i / 4 - j / 4 <= 1 ? "0" : "");
}

TEST(ScoreMatrixTest, knowsNothingOfUnknownExtents) {
  ParsedMatrix dense(R"(
    func.func @f(%q: tensor<1x1x?x8xf32>, %n: index) -> tensor<1x1x?x8xf32> {
      %k = tensor.empty(%n) : tensor<1x1x?x8xf32>
      %out = attn.dense ins(%q, %k, %k : tensor<1x1x?x8xf32>,
          tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>)
        outs(%q : tensor<1x1x?x8xf32>) -> tensor<1x1x?x8xf32>
      return %out : tensor<1x1x?x8xf32>
    })",
                     {{1, 1, 5, 8}, {}});
  EXPECT_FALSE(dense.matrix);
  EXPECT_FALSE(dense.extents.isKnown);
}
