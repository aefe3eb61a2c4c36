//===- ConvTest.cpp - Attention of arrays by convolutions -----------------===//
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

constexpr int64_t B = 2, H = 4, G = 2, N = 37, D = 6, E = 3, R = 3;

class Conv : public testing::Test {
protected:
  /// Every column begins a basis: the scores are represented exactly.
  static ConvSearch findAll(int64_t numBasis) {
    return {numBasis, 1, 0, 0, {}};
  }

  Array q = makeRandom({B, H, N, D}, 1), k = makeRandom({B, G, N, D}, 2),
        v = makeRandom({B, G, N, E}, 3);
};

TEST_F(Conv, AllBasesAreCausalAttention) {
  DenseOptions options;
  options.causal = true;
  OwnedTensor expected = std::move(get(dense(q, k, v, options)).output);
  ConvBases bases = get(conv_recover(q, k, findAll(N)));
  EXPECT_EQ(bases.b.getShape(), llvm::ArrayRef<int64_t>({B, H, N, N}));
  for (int64_t head = 0; head < B * H; ++head)
    EXPECT_EQ(bases.found.getDataAs<int32_t>()[head], N);
  for (ConvAlgorithm algorithm : {ConvAlgorithm::Auto, ConvAlgorithm::Toeplitz,
                                  ConvAlgorithm::Partitioned}) {
    ConvApplyOptions apply;
    apply.algorithm = algorithm;
    if (algorithm == ConvAlgorithm::Partitioned)
      apply.block = 16;
    Array output({B, H, N, E});
    apply.out = {TensorRef(output), std::nullopt};
    ConvApplyResult result =
        get(conv_apply(bases.b.getRef(), bases.sizes.getRef(), v, apply));
    EXPECT_EQ(result.output.getData(), output.bytes.data());
    EXPECT_EQ(result.recomputed.getShape(), llvm::ArrayRef<int64_t>({B, H}));
    expectNear(result.output, expected, 5e-6);
  }
  ConvResult whole = get(conv(q, k, v, findAll(N)));
  expectNear(whole.output, expected, 5e-6);
  EXPECT_EQ(*whole.found.getDataAs<int32_t>(), N);
}

TEST_F(Conv, AbsentTokensAreNotThere) {
  // Every third token of the first sequence and none of the second.
  auto isAbsent = [](int64_t token) { return token >= N || token % 3 == 1; };
  Array mask({B, N}, ElementType::I1), logWeight({B, 1, N});
  for (int64_t token = 0; token < B * N; ++token) {
    mask.set(token, !isAbsent(token));
    logWeight.set(token, isAbsent(token) ? -INFINITY : 0);
  }
  DenseOptions dense;
  dense.causal = true;
  dense.logWeight = TensorRef(logWeight);
  OwnedTensor expected = std::move(get(fovea::dense(q, k, v, dense)).output);
  ConvOptions options;
  options.mask = TensorRef(mask);
  ConvResult result = get(conv(q, k, v, findAll(N), options));
  expectNear(
      result.output, B * H * N * E,
      [&](int64_t at) {
        int64_t token = at / (H * N * E) * N + at / E % N;
        return isAbsent(token) ? 0 : expected.getDataAs<float>()[at];
      },
      5e-6);
  EXPECT_EQ(result.found.getDataAs<int32_t>()[0], N - N / 3);
  EXPECT_EQ(result.found.getDataAs<int32_t>()[B * H - 1], 0);
  Array lengths({B}, ElementType::I64);
  options.lengths = TensorRef(lengths);
  EXPECT_EQ(getText(conv(q, k, v, findAll(N), options)),
            "lengths: found token_mask as well, needed one of the two");
}

TEST_F(Conv, SlidingGroupAgreesWithTheReference) {
  ConvOptions options;
  options.slidingGroup = 8;
  ConvSearch search{R, 2, 0.5, 0.01, 0.8};
  OwnedTensor found = std::move(get(conv(q, k, v, search, options)).output);
  options.target = Target::Reference;
  expectNear(found, get(conv(q, k, v, search, options)).output, 5e-6);
}

TEST_F(Conv, GradientIsTheSlope) {
  constexpr ElementType type = ElementType::F64;
  Array q = makeRandom({1, H, N, D}, 1, type),
        k = makeRandom({1, G, N, D}, 2, type),
        v = makeRandom({1, G, N, E}, 3, type),
        dOut = makeRandom({1, H, N, E}, 4, type), dV({1, G, N, E}, type);
  ConvSearch search = findAll(N);
  auto run = [&] { return std::move(get(conv(q, k, v, search)).output); };
  OwnedTensor out = run();
  ConvBackwardOptions options;
  options.gradients = {std::nullopt, std::nullopt, TensorRef(dV)};
  ConvGradients found =
      get(conv_backward(dOut, q, k, v, out.getRef(), search, options));
  EXPECT_EQ(found.v.getData(), dV.bytes.data());
  expectSlopes({&q, &k, &v}, {&found.q, &found.k, &found.v}, dOut, run);

  // In two steps.
  ConvBases bases = get(conv_recover(q, k, search));
  ConvApplyGradients applied = get(conv_apply_backward(
      dOut, bases.b.getRef(), bases.sizes.getRef(), v, out.getRef()));
  expectNear(applied.v, found.v, 1e-12);
  ConvGradients recovered = get(
      conv_recover_backward(applied.b.getRef(), q, k, bases.sizes.getRef()));
  expectNear(recovered.q, found.q, 1e-12);
  expectNear(recovered.k, found.k, 1e-12);
}

TEST_F(Conv, Errors) {
  auto recover = [&](ConvSearch search) {
    return getText(conv_recover(q, k, search));
  };
  EXPECT_EQ(recover({0, 1, 0, 0, {}}),
            "num_basis: found 0, needed an integer of at least 1");
  EXPECT_EQ(recover({1, N + 1, 0, 0, {}}),
            "window: found 38, needed at most the 37 rows of q");
  EXPECT_EQ(recover({1, 1, -1, 0, {}}),
            "delta: found -1, needed a finite number of at least 0");
  EXPECT_EQ(recover({1, 1, 0, NAN, {}}),
            "epsilon: found nan, needed a finite number of at least 0");

  Array b = makeRandom({B, H, R, N}, 4), sizes({B, H, R}, ElementType::I32);
  ConvApplyOptions options;
  auto apply = [&](const Array &sizes) {
    return getText(conv_apply(b, sizes, v, options));
  };
  EXPECT_EQ(apply(Array({B, H, R})),
            "sizes: found element type float32, needed int32");
  EXPECT_EQ(apply(Array({B, H, 1}, ElementType::I32)),
            "sizes: found shape (2, 4, 1), needed (2, 4, 3)");
  for (int64_t i = 0; i < sizes.size(); ++i)
    sizes.set(i, i % R);
  EXPECT_THAT(apply(sizes), testing::HasSubstr("sizes"));
  options.block = 24;
  EXPECT_EQ(apply(sizes),
            "block: found 24, needed a power of two from 8 to 2^20");
  options.block = 16;
  EXPECT_EQ(apply(sizes), "block: found 16 with the algorithm 'auto', needed "
                          "'partitioned'");
  options = {};
  options.algorithm = ConvAlgorithm::Single;
  EXPECT_EQ(apply(sizes),
            "algorithm: found 'single' for 3 bases, needed one basis");
  ConvOptions groups;
  groups.slidingGroup = 4;
  EXPECT_EQ(getText(conv(q, k, v, {1, 5, 0, 0, {}}, groups)),
            "window: found 5, needed at most the group of 4");
}

} // namespace
