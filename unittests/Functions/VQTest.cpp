//===- VQTest.cpp - Attention of arrays over quantized keys ---------------===//
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

constexpr int64_t B = 2, H = 4, G = 2, N = 23, D = 5, E = 3, S = 6, L = 4;

class VQ : public testing::Test {
protected:
  Array q = makeRandom({B, H, N, D}, 1), k = makeRandom({B, G, N, D}, 2),
        v = makeRandom({B, G, N, E}, 3), codebook = makeRandom({G, S, D}, 4),
        bias = makeRandom({1, 1, N, 2 * L}, 5);
};

TEST_F(VQ, QuantizeFindsTheNearestCodeword) {
  QuantizeOptions options;
  Array codes({B, G, N}, ElementType::I32);
  options.out = {std::nullopt, TensorRef(codes)};
  QuantizeResult result = get(quantize(k, codebook, options));
  EXPECT_EQ(result.codes.getData(), codes.bytes.data());
  auto distance = [&](int64_t row, int64_t code) {
    double sum = 0;
    for (int64_t d = 0; d < D; ++d)
      sum += std::pow(k.get(row * D + d) -
                          codebook.get((row / N % G * S + code) * D + d),
                      2);
    return sum;
  };
  for (int64_t row = 0; row < B * G * N; ++row) {
    int64_t found = codes.get(row);
    for (int64_t code = 0; code < S; ++code)
      EXPECT_LE(distance(row, found), distance(row, code) + 1e-5);
    for (int64_t d = 0; d < D; ++d)
      EXPECT_EQ(result.quantized.getDataAs<float>()[row * D + d],
                codebook.get((row / N % G * S + found) * D + d));
  }
}

TEST_F(VQ, EqualsDenseOverQuantizedKeys) {
  QuantizeResult quantized = get(quantize(k, codebook));
  for (bool causal : {true, false}) {
    DenseOptions denseOptions;
    denseOptions.scale = 1;
    denseOptions.causal = causal;
    denseOptions.returnLse = true;
    AttentionResult expected =
        get(dense(q, quantized.quantized.getRef(), v, denseOptions));
    VQOptions options;
    options.causal = causal;
    options.returnLse = true;
    for (VQReduction reduction :
         {VQReduction::Auto, VQReduction::Serial, VQReduction::MatMul,
          VQReduction::Associative, VQReduction::InputScan}) {
      options.reduction = reduction;
      VQResult result = get(vq(q, k, v, codebook, L, options));
      expectNear(result.output, expected.output, 5e-6);
      expectNear(result.lse, expected.lse, 1e-5);
    }
    // Codes in place of keys.
    expectNear(
        get(vq(q, quantized.codes.getRef(), v, codebook, L, options)).output,
        expected.output, 5e-6);
  }
}

TEST_F(VQ, WindowsAndTokensAgreeWithTheWhole) {
  VQOptions options;
  options.bias = TensorRef(bias);
  options.scale = 0.8;
  VQResult whole = get(vq(q, k, v, codebook, L, options));
  auto row = [&](int64_t bh, int64_t i) {
    return whole.output.getDataAs<float>() + (bh * N + i) * E;
  };
  VQState state;
  auto expectRows = [&](const OwnedTensor &part, int64_t begin, int64_t end) {
    expectNear(
        part, B * H * (end - begin) * E,
        [&](int64_t i) {
          int64_t at = i / E;
          return row(at / (end - begin), begin + at % (end - begin))[i % E];
        },
        5e-6);
  };
  // A window, nothing, a window, and tokens.
  options.returnState = true;
  for (auto [begin, end] :
       {std::pair<int64_t, int64_t>{0, 9}, {9, 9}, {9, 14}}) {
    Array part = takeRows(bias, begin, end);
    options.bias = TensorRef(part);
    options.state = &state;
    VQResult result = get(vq(takeRows(q, begin, end), takeRows(k, begin, end),
                             takeRows(v, begin, end), codebook, L, options));
    if (begin != end)
      expectRows(result.output, begin, end);
    state = std::move(result.state);
    EXPECT_EQ(*state.position.getDataAs<int64_t>(), end);
  }
  VQDecodeOptions decode;
  decode.scale = options.scale;
  for (int64_t token = 14; token < N; ++token) {
    Array part = takeRows(bias, token, token + 1), output({B, H, 1, E});
    decode.bias = TensorRef(part);
    decode.out = TensorRef(output);
    void *memory = state.mean.getData();
    OwnedTensor result = get(
        vq_decode(takeRows(q, token, token + 1), takeRows(k, token, token + 1),
                  takeRows(v, token, token + 1), codebook, state, L, decode));
    EXPECT_EQ(state.mean.getData(), memory);
    EXPECT_EQ(result.getData(), output.bytes.data());
    expectRows(result, token, token + 1);
  }
}

TEST_F(VQ, DecodesWithTermsByDistance) {
  Array keys = makeRandom({1, 2 * L, D}, 11), bias = makeRandom({H, D}, 12),
        numbers = makeRandom({1, 2 * L}, 13);
  VQOptions options;
  options.relative = {TensorRef(keys), TensorRef(bias)};
  options.distanceBias = TensorRef(numbers);
  OwnedTensor whole = get(vq(q, k, v, codebook, L, options)).output;
  VQDecodeOptions decode;
  decode.relative = options.relative;
  decode.distanceBias = options.distanceBias;
  VQState state;
  for (int64_t token = 0; token < N; ++token) {
    OwnedTensor row = get(
        vq_decode(takeRows(q, token, token + 1), takeRows(k, token, token + 1),
                  takeRows(v, token, token + 1), codebook, state, L, decode));
    const auto *all = whole.getDataAs<float>();
    expectNear(
        row, B * H * E,
        [&](int64_t i) { return all[((i / E) * N + token) * E + i % E]; },
        5e-6);
  }
}

TEST_F(VQ, SquaredReLUAgreesWithTheReference) {
  VQOptions options;
  options.weighting = VQWeighting::SquaredReLU;
  VQResult result = get(vq(q, k, v, codebook, L, options));
  options.target = Target::Reference;
  expectNear(result.output, get(vq(q, k, v, codebook, L, options)).output,
             5e-6);
}

TEST_F(VQ, GradientIsTheSlope) {
  constexpr ElementType type = ElementType::F64;
  Array dOut = makeRandom({B, H, N, E}, 9, type),
        q = makeRandom({B, H, N, D}, 1, type),
        v = makeRandom({B, G, N, E}, 3, type),
        codebook = makeRandom({G, S, D}, 4, type),
        bias = makeRandom({1, 1, N, 2 * L}, 5, type),
        codes = makeCodes({B, G, N}, S, 7);
  VQOptions options;
  options.returnLse = true;
  options.bias = TensorRef(bias);
  auto run = [&] { return get(vq(q, codes, v, codebook, L, options)); };
  VQResult forward = run();
  VQBackwardOptions backward;
  backward.bias = TensorRef(bias);
  backward.out = forward.output.getRef();
  backward.lse = forward.lse.getRef();
  Array dQ({B, H, N, D}, type);
  backward.gradients = {TensorRef(dQ), std::nullopt, std::nullopt,
                        std::nullopt};
  VQGradients found =
      get(vq_backward(dOut, q, codes, v, codebook, L, backward));
  EXPECT_EQ(found.q.getData(), dQ.bytes.data());
  EXPECT_EQ(found.k.getShape(), llvm::ArrayRef<int64_t>({B, G, N, D}));
  expectSlopes({&q, &v, &bias}, {&found.q, &found.v, &found.bias}, dOut,
               [&] { return std::move(run().output); });

  backward.lse.reset();
  EXPECT_EQ(getText(vq_backward(dOut, q, codes, v, codebook, L, backward)),
            "lse: found none, needed that of vq");
}

TEST_F(VQ, GradientGoesThroughTheState) {
  constexpr ElementType type = ElementType::F64;
  constexpr int64_t cut = 9;
  Array q = makeRandom({B, H, N, D}, 1, type),
        v = makeRandom({B, G, N, E}, 3, type),
        codebook = makeRandom({G, S, D}, 4, type),
        codes = makeCodes({B, G, N}, S, 7);
  Array q1 = takeRows(q, 0, cut), q2 = takeRows(q, cut, N),
        v1 = takeRows(v, 0, cut), v2 = takeRows(v, cut, N),
        codes1 = takeRows(codes, 0, cut), codes2 = takeRows(codes, cut, N),
        dOut1({B, H, cut, E}, type),
        dOut2 = makeRandom({B, H, N - cut, E}, 9, type);
  VQOptions options;
  options.returnLse = options.returnState = true;
  VQResult first, second;
  auto run = [&] {
    options.state = nullptr;
    first = get(vq(q1, codes1, v1, codebook, L, options));
    options.state = &first.state;
    second = get(vq(q2, codes2, v2, codebook, L, options));
    return std::move(second.output);
  };
  OwnedTensor output = run();
  VQBackwardOptions backward;
  backward.out = output.getRef();
  backward.lse = second.lse.getRef();
  backward.state = &first.state;
  VQGradients found2 =
      get(vq_backward(dOut2, q2, codes2, v2, codebook, L, backward));
  backward.out = first.output.getRef();
  backward.lse = first.lse.getRef();
  backward.state = nullptr;
  backward.dNextState = &found2.state;
  VQGradients found1 =
      get(vq_backward(dOut1, q1, codes1, v1, codebook, L, backward));
  expectSlopes({&v1, &q2, &v2}, {&found1.v, &found2.q, &found2.v}, dOut2, run);

  backward.causal = false;
  EXPECT_EQ(getText(vq_backward(dOut1, q1, codes1, v1, codebook, L, backward)),
            "causal: found False, needed True with a state");
}

TEST_F(VQ, CodebookUpdateSmoothsSumsAndCounts) {
  Array codes = makeCodes({B, G, N}, S, 7), sums = makeRandom({G, S, D}, 8),
        counts({G, S});
  for (int64_t i = 0; i < G * S; ++i)
    counts.set(i, 1 + i);
  Array expectedSums = sums, expectedCounts = counts;
  for (int64_t i = 0; i < sums.size(); ++i)
    expectedSums.set(i, 0.75 * sums.get(i));
  for (int64_t i = 0; i < counts.size(); ++i)
    expectedCounts.set(i, 0.75 * counts.get(i));
  for (int64_t row = 0; row < B * G * N; ++row) {
    int64_t set = row / N % G * S + codes.get(row);
    expectedCounts.set(set, expectedCounts.get(set) + 0.25);
    for (int64_t d = 0; d < D; ++d)
      expectedSums.set(set * D + d, expectedSums.get(set * D + d) +
                                        0.25 * k.get(row * D + d));
  }
  CodebookUpdateOptions options;
  options.rate = 0.75;
  OwnedTensor words = get(codebook_update(k, codes, sums, counts, options));
  for (int64_t i = 0; i < counts.size(); ++i)
    EXPECT_NEAR(counts.get(i), expectedCounts.get(i), 1e-4);
  for (int64_t i = 0; i < sums.size(); ++i)
    EXPECT_NEAR(sums.get(i), expectedSums.get(i), 1e-4);
  expectNear(
      words, G * S * D,
      [&](int64_t i) {
        return expectedSums.get(i) / expectedCounts.get(i / D);
      },
      5e-6);
}

TEST_F(VQ, DeadCodewordsBecomeKeys) {
  Array codes = makeCodes({B, G, N}, 1, 7), sums({G, S, D}), counts({G, S});
  CodebookUpdateOptions options;
  options.rate = 0;
  options.replaceBelow = 0.5;
  options.seed = 3;
  OwnedTensor words = get(codebook_update(k, codes, sums, counts, options));
  const auto *first = words.getDataAs<float>();
  for (int64_t set = 0; set < G; ++set)
    for (int64_t code = 1; code < S; ++code) {
      EXPECT_EQ(counts.get(set * S + code), 0.5);
      bool isKey = false;
      for (int64_t row = 0; row < B * G * N; ++row) {
        bool isSame = row / N % G == set;
        for (int64_t d = 0; d < D; ++d)
          isSame &=
              first[(set * S + code) * D + d] == float(k.get(row * D + d));
        isKey |= isSame;
      }
      EXPECT_TRUE(isKey);
    }
  options.replaceBelow = -1;
  EXPECT_EQ(getText(codebook_update(k, codes, sums, counts, options)),
            "replace_below: found -1, needed a finite number at least 0");
}

TEST_F(VQ, MasksAndWideCodesAreThoseOfNarrowCodes) {
  Array lengths({B}, ElementType::I64);
  for (int64_t b = 0; b < B; ++b)
    lengths.set(b, N - 3 * b - 1);
  QuantizeOptions present;
  present.lengths = TensorRef(lengths);
  QuantizeResult quantized = get(quantize(k, codebook, present));
  Array wide({B, G, N}, ElementType::I64);
  for (int64_t i = 0; i < wide.size(); ++i)
    wide.set(i, quantized.codes.getDataAs<int32_t>()[i]);
  VQOptions options;
  options.padded = true;
  VQResult expected =
      get(vq(q, quantized.codes.getRef(), v, codebook, L, options));
  expectNear(get(vq(q, wide, v, codebook, L, options)).output, expected.output,
             0);
  options.padded = false;
  options.lengths = TensorRef(lengths);
  expectNear(get(vq(q, k, v, codebook, L, options)).output, expected.output, 0);
  EXPECT_EQ(getText(vq(q, wide, v, codebook, L, options)),
            "lengths: found with codes, needed keys: codes are -1 for absent "
            "tokens");
}

TEST_F(VQ, AStepOfACodebookIsAnUpdateElsewhere) {
  Array codes = makeCodes({B, G, N}, S, 7), sums = makeRandom({G, S, D}, 8),
        counts({G, S});
  Array newSums = sums, newCounts = counts;
  CodebookStep step = get(codebook_step(k, codes, sums, counts));
  OwnedTensor words = get(codebook_update(k, codes, newSums, newCounts));
  expectNear(step.codebook, words, 0);
  expectNear(
      step.sums, sums.size(), [&](int64_t i) { return newSums.get(i); }, 0);
  expectNear(
      step.counts, counts.size(), [&](int64_t i) { return newCounts.get(i); },
      0);
  EXPECT_EQ(counts.bytes, Array({G, S}).bytes);
}

TEST_F(VQ, TheCommitmentLossHasItsSlope) {
  Array keys = makeRandom({B, G, N, D}, 6, ElementType::F64),
        words = makeRandom({B, G, N, D}, 7, ElementType::F64);
  auto run = [&] { return get(commitment_loss(keys, words)); };
  double expected = 0;
  for (int64_t i = 0; i < keys.size(); ++i)
    expected += std::pow(keys.get(i) - words.get(i), 2) / (B * G * N);
  expectNear(run(), 1, [&](int64_t) { return expected; }, 1e-12);
  Array weight({}, ElementType::F64);
  weight.set(0, 0.75);
  OwnedTensor gradient = get(commitment_loss_backward(0.75, keys, words));
  expectSlopes({&keys}, {&gradient}, weight, run);
  // As of keys that are all absent.
  for (Array none : {Array({1, 0, 2, 3}), Array({0, 1, 2, 3}),
                     Array({1, 1, 0, 3}), Array({1, 1, 2, 0})}) {
    expectNear(
        get(commitment_loss(none, none)), 1, [](int64_t) { return 0; }, 0);
    get(commitment_loss_backward(1.0, none, none));
  }
}

} // namespace
