//===- DenseTest.cpp - Dense attention of arrays --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/Functions/Shapes.h"
#include <thread>

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr int64_t B = 2, H = 4, G = 2, N = 7, M = 11, D = 5, E = 3;

/// Attention, written down entry by entry.
struct Naive {
  const Array &q, &k, &v;
  const DenseOptions &options;
  const Array *logWeight = nullptr, *bias = nullptr;

  /// Output elements, followed by lse.
  std::vector<double> operator()() const {
    std::vector<double> out, lse;
    for (int64_t bh = 0; bh < B * H; ++bh)
      for (int64_t i = 0; i < N; ++i)
        addRow(bh, i, out, lse);
    out.insert(out.end(), lse.begin(), lse.end());
    return out;
  }

  void addRow(int64_t bh, int64_t i, std::vector<double> &out,
              std::vector<double> &lse) const {
    int64_t bg = bh / H * G + bh % H / (H / G);
    double sum = 0;
    std::vector<double> row(E);
    for (int64_t j = 0; j < M; ++j) {
      int64_t distance = i + M - N - j;
      if (options.causal && distance < 0)
        continue;
      if (options.window && std::abs(distance) >= *options.window)
        continue;
      double score = 0;
      for (int64_t d = 0; d < D; ++d)
        score += q.get((bh * N + i) * D + d) * k.get((bg * M + j) * D + d);
      score *= options.scale.value_or(1 / std::sqrt(double(D)));
      if (logWeight)
        score += logWeight->get(bg % G * M + j);
      if (bias)
        score += bias->get(i * M + j);
      sum += std::exp(score);
      for (int64_t e = 0; e < E; ++e)
        row[e] += std::exp(score) * v.get((bg * M + j) * E + e);
    }
    for (double value : row)
      out.push_back(sum == 0 ? 0 : value / sum);
    lse.push_back(std::log(sum));
  }
};

class Dense : public testing::TestWithParam<ElementType> {};

TEST_P(Dense, AgreesWithTheDefinition) {
  ElementType type = GetParam();
  Array q = makeRandom({B, H, N, D}, 1, type),
        k = makeRandom({B, G, M, D}, 2, type),
        v = makeRandom({B, G, M, E}, 3, type),
        logWeight = makeRandom({G, M}, 4, type),
        bias = makeRandom({1, N, M}, 5, type);
  DenseOptions options;
  options.returnLse = true;
  options.causal = true;
  options.window = 6;
  options.scale = 0.7;
  options.logWeight = TensorRef(logWeight);
  options.bias = TensorRef(bias);
  for (Target target : {Target::CPU, Target::Reference}) {
    options.target = target;
    AttentionResult result = get(dense(q, k, v, options));
    std::vector<double> expected = Naive{q, k, v, options, &logWeight, &bias}();
    expectNear(
        result.output, B * H * N * E, [&](int64_t i) { return expected[i]; },
        getBound(type));
    expectNear(
        result.lse, B * H * N,
        [&](int64_t i) { return expected[B * H * N * E + i]; }, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Dense,
                         testing::Values(ElementType::F32, ElementType::F64,
                                         ElementType::BF16, ElementType::F16),
                         [](const auto &info) {
                           return getName(info.param).str();
                         });

TEST(DenseCall, ReadsStridesAndWritesToGivenArrays) {
  // q as [B,N,H,D] in memory, every array on odd addresses of its elements.
  Array memory = makeRandom({B, N, H, D}, 1), q({B, H, N, D}),
        k = makeRandom({B, G, M, D}, 2), v = makeRandom({B, G, M, E}, 3);
  for (int64_t b = 0, to = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < N; ++i)
        for (int64_t d = 0; d < D; ++d)
          q.set(to++, memory.get(((b * N + i) * H + h) * D + d));
  AttentionResult expected = get(dense(q, k, v));

  TensorRef strided = q;
  int64_t strides[] = {N * H * D, D, H * D, 1};
  strided.data = memory.bytes.data();
  strided.strides = strides;
  strided.isReadOnly = true;
  for (Target target : {Target::CPU, Target::Reference, Target::GPUEmulator}) {
    Array output({B, H, N, E}), lse({B, H, N});
    DenseOptions options;
    options.target = target;
    options.returnLse = true;
    options.out = {TensorRef(output), TensorRef(lse)};
    AttentionResult result = get(dense(strided, k, v, options));
    EXPECT_EQ(result.output.getData(), output.bytes.data());
    EXPECT_EQ(result.lse.getData(), lse.bytes.data());
    expectNear(result.output, expected.output, 5e-6);
  }
}

// q, k, v and the output are slices of one array [B,N,4,H,D].
TEST(DenseCall, ReadsAndWritesBetweenOtherArrays) {
  Array memory = makeRandom({B, N, 4, H, D}, 1);
  int64_t shape[] = {B, H, N, D}, strides[] = {N * 4 * H * D, D, 4 * H * D, 1};
  TensorRef slices[4];
  std::vector<Array> arrays;
  for (int64_t i = 0; i < 4; ++i) {
    slices[i] = memory;
    slices[i].data = memory.bytes.data() + i * H * D * sizeof(float);
    slices[i].shape = shape;
    slices[i].strides = strides;
    Array &array = arrays.emplace_back(llvm::ArrayRef(shape));
    for (int64_t b = 0, to = 0; b < B; ++b)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t n = 0; n < N; ++n)
          for (int64_t d = 0; d < D; ++d)
            array.set(to++,
                      memory.get((((b * N + n) * 4 + i) * H + h) * D + d));
  }
  Array untouched = memory;
  AttentionResult expected = get(dense(arrays[0], arrays[1], arrays[2]));
  DenseOptions options;
  options.out = slices[3];
  uint64_t before = KernelCache::getGlobal().getStatistics().misses;
  AttentionResult result = get(dense(slices[0], slices[1], slices[2], options));
  EXPECT_EQ(result.output.getData(), slices[3].data);
  EXPECT_EQ(result.output.getStrides(), llvm::ArrayRef(strides));
  for (int64_t b = 0, from = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t n = 0; n < N; ++n)
        for (int64_t d = 0; d < D; ++d) {
          int64_t at = (((b * N + n) * 4 + 3) * H + h) * D + d;
          EXPECT_EQ(memory.get(at), expected.output.getDataAs<float>()[from++]);
          untouched.set(at, memory.get(at));
        }
  EXPECT_EQ(memory.bytes, untouched.bytes);

  // One kernel for all strides.
  EXPECT_EQ(KernelCache::getGlobal().getStatistics().misses, before + 1);
  Array other = makeRandom({B, H, N + 1, D + 3}, 2);
  int64_t rows[] = {H * (N + 1) * (D + 3), (N + 1) * (D + 3), D + 3, 1};
  TensorRef padded = other;
  padded.shape = shape;
  padded.strides = rows;
  get(dense(padded, slices[1], slices[2], options));
  EXPECT_EQ(KernelCache::getGlobal().getStatistics().misses, before + 1);

  options.out = slices[2];
  EXPECT_EQ(getText(dense(slices[0], slices[1], slices[2], options)),
            "out: found memory that overlaps v, needed memory of its own");
  TensorRef shifted = slices[2];
  shifted.data = static_cast<float *>(shifted.data) + 1;
  options.out = shifted;
  EXPECT_EQ(getText(dense(slices[0], slices[1], slices[2], options)),
            "out: found memory that overlaps v, needed memory of its own");
}

TEST(DenseCall, GivesZerosWhereThereIsNothingToRead) {
  Array q = makeRandom({1, 2, 3, 4}, 1), k({1, 1, 0, 4}), v({1, 1, 0, 5});
  DenseOptions options;
  options.returnLse = true;
  AttentionResult result = get(dense(q, k, v, options));
  ASSERT_EQ(result.output.getNumElements(), 30);
  for (int64_t i = 0; i < 30; ++i)
    EXPECT_EQ(result.output.getDataAs<float>()[i], 0);
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(result.lse.getDataAs<float>()[i], -INFINITY);

  Array none({1, 2, 0, 4}), keys({1, 1, 6, 4}), values({1, 1, 6, 5});
  EXPECT_EQ(get(dense(none, keys, values)).output.getNumElements(), 0);
}

TEST(DenseCall, CompilesOnceForAllThreads) {
  Array q = makeRandom({1, 3, 9, 4}, 1), k = makeRandom({1, 3, 9, 4}, 2),
        v = makeRandom({1, 3, 9, 4}, 3);
  uint64_t before = KernelCache::getGlobal().getStatistics().misses;
  std::vector<AttentionResult> results(6);
  std::vector<std::thread> threads;
  for (AttentionResult &result : results)
    threads.emplace_back([&] { result = get(dense(q, k, v)); });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(KernelCache::getGlobal().getStatistics().misses, before + 1);
  for (const AttentionResult &result : results)
    expectNear(result.output, results[0].output, 0);
}

TEST(DenseCall, CompilesOnceForAllLengths) {
  auto countCompilations = [] {
    return KernelCache::getGlobal().getStatistics().misses;
  };
  // Of a width that no other test has.
  auto run = [](int64_t length) {
    Array q = makeRandom({1, 2, length, 9}, 1), k = makeRandom({1, 2, 7, 9}, 2);
    return get(dense(q, k, k)).output;
  };
  EXPECT_EQ(getShapes(), Shapes::Auto);
  uint64_t before = countCompilations();
  std::vector<OwnedTensor> found;
  for (int64_t length : {1, 2, 16, 17, 70})
    found.push_back(run(length));
  EXPECT_EQ(countCompilations(), before + 1);

  setShapes(Shapes::Static);
  for (const OwnedTensor &output : found)
    expectNear(run(output.getShape()[2]), output, 0);
  EXPECT_EQ(countCompilations(), before + 1 + found.size());

  setShapes(Shapes::Dynamic);
  run(33);
  EXPECT_EQ(countCompilations(), before + 1 + found.size());
  setShapes(Shapes::Auto);
}

TEST(DenseBackward, GradientIsTheSlope) {
  constexpr ElementType type = ElementType::F64;
  Array q = makeRandom({B, H, N, D}, 1, type),
        k = makeRandom({B, G, M, D}, 2, type),
        v = makeRandom({B, G, M, E}, 3, type),
        logWeight = makeRandom({1, G, M}, 4, type),
        bias = makeRandom({1, 1, N, M}, 5, type),
        dOut = makeRandom({B, H, N, E}, 6, type), dV({B, G, M, E}, type);
  DenseOptions options;
  options.causal = options.returnLse = true;
  options.scale = 0.7;
  options.logWeight = TensorRef(logWeight);
  options.bias = TensorRef(bias);
  auto run = [&] { return get(dense(q, k, v, options)); };
  AttentionResult forward = run();
  DenseBackwardOptions backward;
  backward.causal = true;
  backward.scale = 0.7;
  backward.logWeight = TensorRef(logWeight);
  backward.bias = TensorRef(bias);
  backward.gradients = {std::nullopt, std::nullopt, TensorRef(dV), std::nullopt,
                        std::nullopt};
  DenseGradients found = get(dense_backward(
      dOut, q, k, v, forward.output.getRef(), forward.lse.getRef(), backward));
  EXPECT_EQ(found.v.getData(), dV.bytes.data());
  expectSlopes({&q, &k, &v, &logWeight, &bias},
               {&found.q, &found.k, &found.v, &found.logWeight, &found.bias},
               dOut, [&] { return std::move(run().output); });

  // Of one term only.
  backward.logWeight.reset();
  backward.gradients = {};
  found = get(dense_backward(dOut, q, k, v, forward.output.getRef(),
                             forward.lse.getRef(), backward));
  EXPECT_EQ(found.logWeight.getData(), nullptr);
  EXPECT_EQ(found.bias.getShape(), llvm::ArrayRef(bias.shape));

  // Of none, though there are both.
  backward.logWeight = TensorRef(logWeight);
  backward.returnDLogWeight = backward.returnDBias = false;
  found = get(dense_backward(dOut, q, k, v, forward.output.getRef(),
                             forward.lse.getRef(), backward));
  EXPECT_EQ(found.logWeight.getData(), nullptr);
  EXPECT_EQ(found.bias.getData(), nullptr);
  expectSlopes({&q, &k, &v}, {&found.q, &found.k, &found.v}, dOut,
               [&] { return std::move(run().output); });
}

TEST(Dense, RegionWithoutText) {
  Array q = makeRandom({B, H, N, D}, 1), k = makeRandom({B, G, M, D}, 2),
        v = makeRandom({B, G, M, E}, 3);
  DenseOptions options;
  options.score.emplace();
  EXPECT_NE(getText(dense(q, k, v, options)).find("attn.yield"),
            std::string::npos);
}

TEST(Dense, LengthsAreCheckedWhereNoKeyIsRead) {
  Array q = makeRandom({B, H, N, D}, 1), k = makeRandom({B, G, M, D}, 2),
        v = makeRandom({B, G, M, E}, 3), sink = makeRandom({1, H}, 4);
  int32_t counts[] = {1, M + 1};
  int64_t shape[] = {B};
  DenseOptions options;
  options.window = 0;
  options.sink = TensorRef(sink);
  options.lengths = TensorRef{counts, ElementType::I32, shape};
  EXPECT_NE(getText(dense(q, k, v, options)).find("lengths: found 12"),
            std::string::npos);
  counts[1] = M;
  EXPECT_TRUE(bool(dense(q, k, v, options)));
}

TEST(DenseBackward, NothingToRead) {
  Array q = makeRandom({B, H, N, D}, 1), k({B, G, 0, D}), v({B, G, 0, E}),
        out({B, H, N, E}), lse({B, H, N}), dOut = makeRandom({B, H, N, E}, 2);
  DenseGradients found = get(dense_backward(dOut, q, k, v, out, lse));
  for (int64_t i = 0; i < q.size(); ++i)
    EXPECT_EQ(found.q.getDataAs<float>()[i], 0);
  EXPECT_EQ(found.k.getShape(), llvm::ArrayRef(k.shape));
}

} // namespace
