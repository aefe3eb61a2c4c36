//===- StreamTest.cpp - Attention to a list of sources --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr int64_t B = 2, H = 4, G = 2, N = 37, D = 8, E = 6, block = 8;

/// Blocks of own keys, and a summary for each older one.
class StreamTest : public testing::Test {
protected:
  Array q = makeRandom({B, H, N, D}, 1, ElementType::F64),
        k = makeRandom({B, G, N, D}, 2, ElementType::F64),
        v = makeRandom({B, G, N, E}, 3, ElementType::F64),
        farK = makeRandom({B, G, 5, D}, 4, ElementType::F64),
        farV = makeRandom({B, G, 5, E}, 5, ElementType::F64),
        weight = makeRandom({1, 1, 5}, 6, ElementType::F64),
        sink = makeRandom({1, H}, 7, ElementType::F64);
  StreamOptions options;

  void SetUp() override {
    options.block = block;
    options.sink = TensorRef(sink);
    options.returnLse = true;
  }

  std::vector<Source> getSources() const {
    Source near{k, v}, far{farK, farV};
    near.causal = true;
    near.ranges = {"(b)[rows, n] -> (b * 8 - 8, b * 8 + 8)"};
    far.logWeight = TensorRef(weight);
    far.ranges = {"(b)[rows, n] -> (0, b - 1)"};
    return {near, far};
  }
};

TEST_F(StreamTest, IsTheSumOverAllSources) {
  AttentionResult found = get(stream(q, getSources(), options));
  std::vector<double> output(B * H * N * E), lse(B * H * N);
  for (int64_t bh = 0; bh < B * H; ++bh)
    for (int64_t i = 0; i < N; ++i) {
      int64_t bg = bh / (H / G), row = bh * N + i;
      double sum = std::exp(sink.get(bh % H));
      auto add = [&](const Array &keys, const Array &values, int64_t rows,
                     int64_t j, double score) {
        for (int64_t d = 0; d < D; ++d)
          score += q.get(row * D + d) * keys.get((bg * rows + j) * D + d) /
                   std::sqrt(double(D));
        sum += std::exp(score);
        for (int64_t e = 0; e < E; ++e)
          output[row * E + e] +=
              std::exp(score) * values.get((bg * rows + j) * E + e);
      };
      for (int64_t j = std::max<int64_t>(i / block * block - block, 0); j <= i;
           ++j)
        add(k, v, N, j, 0);
      for (int64_t j = 0; j < i / block - 1; ++j)
        add(farK, farV, 5, j, weight.get(j));
      for (int64_t e = 0; e < E; ++e)
        output[row * E + e] /= sum;
      lse[row] = std::log(sum);
    }
  expectNear(
      found.output, output.size(), [&](int64_t i) { return output[i]; }, 1e-12);
  expectNear(found.lse, lse.size(), [&](int64_t i) { return lse[i]; }, 1e-12);
}

TEST_F(StreamTest, GradientsAreSlopes) {
  AttentionResult result = get(stream(q, getSources(), options));
  Array dOut = makeRandom({B, H, N, E}, 8, ElementType::F64),
        dFarK({B, G, 5, D}, ElementType::F64);
  StreamBackwardOptions backward;
  static_cast<StreamFormOptions &>(backward) = options;
  // The keys of all sources come before their values.
  backward.gradients = {std::nullopt, std::nullopt, TensorRef(dFarK),
                        std::nullopt, std::nullopt, std::nullopt,
                        std::nullopt};
  StreamGradients found =
      get(stream_backward(dOut, q, getSources(), result.output.getRef(),
                          result.lse.getRef(), backward));
  ASSERT_EQ(found.sources.size(), 2u);
  EXPECT_EQ(found.sources[1].k.getData(), dFarK.bytes.data());
  EXPECT_EQ(found.sources[0].logWeight.getData(), nullptr);
  expectSlopes(
      {&q, &k, &v, &farK, &farV, &weight, &sink},
      {&found.q, &found.sources[0].k, &found.sources[0].v, &found.sources[1].k,
       &found.sources[1].v, &found.sources[1].logWeight, &found.sink},
      dOut, [&] { return get(stream(q, getSources(), options)).output; });
}

TEST_F(StreamTest, GradientsOfCapturesAreSlopes) {
  Array slopes = makeRandom({H}, 9, ElementType::F64);
  auto withScore = [&](auto made) {
    static_cast<StreamFormOptions &>(made) = options;
    made.score =
        ScoreFunction{"%c = tensor.extract %capture0[%head] : tensor<?xf64>\n"
                      "%s = arith.mulf %score, %c : f64\n"
                      "attn.yield %s : f64",
                      {slopes}};
    return made;
  };
  StreamOptions forward = withScore(StreamOptions());
  forward.returnLse = true;
  AttentionResult result = get(stream(q, getSources(), forward));
  Array dOut = makeRandom({B, H, N, E}, 8, ElementType::F64);
  auto backward = withScore(StreamBackwardOptions());
  EXPECT_TRUE(get(stream_backward(dOut, q, getSources(), result.output.getRef(),
                                  result.lse.getRef(), backward))
                  .captures.empty());
  backward.returnDCaptures = true;
  StreamGradients found =
      get(stream_backward(dOut, q, getSources(), result.output.getRef(),
                          result.lse.getRef(), backward));
  ASSERT_EQ(found.captures.size(), 1u);
  expectSlopes({&slopes, &sink}, {&found.captures[0], &found.sink}, dOut,
               [&] { return get(stream(q, getSources(), forward)).output; });
}

TEST_F(StreamTest, AdmitAndSegments) {
  DenseOptions dense;
  dense.causal = dense.returnLse = true;
  AttentionResult expected = get(fovea::dense(q, k, v, dense));
  Source source{k, v};
  StreamOptions admitted;
  admitted.returnLse = true;
  admitted.admit = AdmitFunction{"%a = arith.cmpi sge, %query, %key : index\n"
                                 "attn.yield %a : i1",
                                 {}};
  AttentionResult found = get(stream(q, source, admitted));
  expectNear(found.output, expected.output, 1e-12);
  expectNear(found.lse, expected.lse, 1e-12);

  // One document of the queries and keys before 20, and another.
  Array ids({1, N}, ElementType::I32);
  for (int64_t i = 20; i < N; ++i)
    ids.set(i, 3);
  source.segments = Segments{ids, ids};
  found = get(stream(q, source, admitted));
  dense.segments = source.segments;
  AttentionResult whole = get(fovea::dense(q, k, v, dense));
  expectNear(found.output, whole.output, 1e-12);
  dense.segments.reset();
  AttentionResult part = get(fovea::dense(
      takeRows(q, 20, N), takeRows(k, 20, N), takeRows(v, 20, N), dense));
  Array rows({B, H, N, E}, ElementType::F64);
  for (int64_t i = 0; i < rows.size(); ++i)
    rows.set(i, found.output.getDataAs<double>()[i]);
  Array tail = takeRows(rows, 20, N);
  expectNear(
      part.output, tail.size(), [&](int64_t i) { return tail.get(i); }, 1e-12);
}

TEST_F(StreamTest, RefusesWhatIsNoList) {
  EXPECT_EQ(getText(stream(q, {}, options)),
            "sources: found none, needed at least 1");
  std::vector<Source> sources = getSources();
  sources[1].v = TensorRef(v);
  EXPECT_EQ(getText(stream(q, sources, options)),
            "sources[1].v: found extent 37 in dimension 2, needed 5");
  sources = getSources();
  options.block = 0;
  EXPECT_EQ(getText(stream(q, sources, options)),
            "block: found 0, needed at least 1, since sources[0].ranges depend "
            "on the block");
  options.block = 8;
  sources[1].ranges = {"(b)[rows] -> (0, b)"};
  EXPECT_NE(getText(stream(q, sources, options)).find("sources[1].ranges: "),
            std::string::npos);
  sources[1].ranges = {"rows"};
  EXPECT_NE(getText(stream(q, sources, options))
                .find("sources[1].ranges: found 'rows', needed (b)[rows, n]"),
            std::string::npos);
  sources[1].ranges = {"(b)[rows, n] -> (0, 1)", "(b)[rows, n] -> (b - 3, b)"};
  EXPECT_NE(
      getText(stream(q, sources, options))
          .find("sources[1].ranges: found ranges 0 and 1 with rows in common"),
      std::string::npos);
  sources = getSources();
  options.admit = AdmitFunction{"attn.yield %query : index", {}};
  EXPECT_NE(getText(stream(q, sources, options)).find("admit: found"),
            std::string::npos);
}

} // namespace
