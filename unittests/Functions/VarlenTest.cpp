//===- VarlenTest.cpp - Attention of packed sequences ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"

using namespace fovea;
using namespace fovea::test;

/// Rows of [T,H,D] as [1,H,N,D].
static Array takeSequence(const Array &array, int64_t begin, int64_t end) {
  int64_t heads = array.shape[1], width = array.shape[2];
  Array part({1, heads, end - begin, width}, array.type);
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = begin; i < end; ++i)
      for (int64_t d = 0; d < width; ++d)
        part.set((head * (end - begin) + i - begin) * width + d,
                 array.get((i * heads + head) * width + d));
  return part;
}

namespace {

constexpr int64_t T = 40, H = 4, G = 2, D = 8, E = 6;

class VarlenTest : public testing::Test {
protected:
  std::vector<int64_t> bounds{0, 7, 7, 8, T};
  Array q = makeRandom({T, H, D}, 1, ElementType::F64),
        k = makeRandom({T, G, D}, 2, ElementType::F64),
        v = makeRandom({T, G, E}, 3, ElementType::F64),
        sink = makeRandom({H}, 4, ElementType::F64),
        starts{{5}, ElementType::I64};
  VarlenOptions options;

  void SetUp() override {
    for (auto [i, bound] : llvm::enumerate(bounds))
      starts.set(i, bound);
    options.causal = true;
    options.sink = TensorRef(sink);
    options.returnLse = true;
  }
};

TEST_F(VarlenTest, EverySequenceIsDenseAttention) {
  AttentionResult result = get(varlen(q, k, v, starts, starts, options));
  DenseOptions denseOptions;
  denseOptions.causal = true;
  denseOptions.sink = TensorRef(sink);
  denseOptions.returnLse = true;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    int64_t begin = bounds[i], size = bounds[i + 1] - begin;
    if (size == 0)
      continue;
    AttentionResult expected =
        get(dense(takeSequence(q, begin, begin + size),
                  takeSequence(k, begin, begin + size),
                  takeSequence(v, begin, begin + size), denseOptions));
    for (int64_t head = 0; head < H; ++head)
      for (int64_t row = 0; row < size; ++row) {
        EXPECT_EQ(result.lse.getDataAs<double>()[head * T + begin + row],
                  expected.lse.getDataAs<double>()[head * size + row]);
        for (int64_t e = 0; e < E; ++e)
          EXPECT_EQ(
              result.output
                  .getDataAs<double>()[((begin + row) * H + head) * E + e],
              expected.output.getDataAs<double>()[(head * size + row) * E + e]);
      }
  }
}

TEST_F(VarlenTest, GradientsAreSlopes) {
  AttentionResult result = get(varlen(q, k, v, starts, starts, options));
  Array dOut = makeRandom({T, H, E}, 5, ElementType::F64);
  VarlenBackwardOptions backward;
  backward.causal = true;
  backward.sink = TensorRef(sink);
  VarlenGradients gradients =
      get(varlen_backward(dOut, q, k, v, starts, starts, result.output.getRef(),
                          result.lse.getRef(), backward));
  expectSlopes(
      {&q, &k, &v, &sink},
      {&gradients.q, &gradients.k, &gradients.v, &gradients.sink}, dOut,
      [&] { return get(varlen(q, k, v, starts, starts, options)).output; });
}

/// With the longest sequences, which the caller tells, and those that the host
/// finds.
TEST_F(VarlenTest, IsInBatchesOnGPUs) {
  q = makeRandom({T, H, D}, 1), k = makeRandom({T, G, D}, 2);
  v = makeRandom({T, G, E}, 3), sink = makeRandom({H}, 4);
  Array dOut = makeRandom({T, H, E}, 5);
  VarlenBackwardOptions backward;
  static_cast<VarlenFormOptions &>(backward) = options;
  backward.sink = TensorRef(sink);
  options.sink = TensorRef(sink);
  auto compute = [&](Target target, std::optional<int64_t> longest) {
    options.target = backward.target = target;
    options.maxQueries = options.maxKeys = longest;
    backward.maxQueries = backward.maxKeys = longest;
    AttentionResult result = get(varlen(q, k, v, starts, starts, options));
    VarlenGradients gradients = get(
        varlen_backward(dOut, q, k, v, starts, starts, result.output.getRef(),
                        result.lse.getRef(), backward));
    return std::pair(std::move(result), std::move(gradients));
  };
  auto [expected, slopes] = compute(Target::CPU, std::nullopt);
  for (std::optional<int64_t> longest : {std::optional<int64_t>(), {32}}) {
    auto [found, gradients] = compute(Target::GPUEmulator, longest);
    expectNear(found.output, expected.output, 1e-4);
    expectNear(found.lse, expected.lse, 1e-4);
    expectNear(gradients.q, slopes.q, 1e-4);
    expectNear(gradients.k, slopes.k, 1e-4);
    expectNear(gradients.v, slopes.v, 1e-4);
    expectNear(gradients.sink, slopes.sink, 1e-4);
  }
  options.maxQueries = 31;
  EXPECT_THAT(getText(varlen(q, k, v, starts, starts, options)),
              testing::HasSubstr("lengths of cu_seqlens_q[0, 0, 3] must be at "
                                 "least 0 and below 32, but got 32"));
}

TEST_F(VarlenTest, RefusesWhatIsNoSequence) {
  starts.set(2, 6);
  EXPECT_EQ(getText(varlen(q, k, v, starts, starts, options)),
            "cu_seqlens_q: found 6 at place 2, needed 7 to 40");
  starts.set(2, 7);
  starts.set(4, T - 1);
  EXPECT_EQ(getText(varlen(q, k, v, starts, starts, options)),
            "cu_seqlens_q: found 39 at the end, needed 40, the number of rows");
}

} // namespace
