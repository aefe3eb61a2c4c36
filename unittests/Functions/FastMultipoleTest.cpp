//===- FastMultipoleTest.cpp - Hierarchical attention of arrays -----------===//
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

constexpr int64_t H = 4, G = 2, N = 61, D = 5, E = 3, m = 8, p = 2;

/// Weights and biases of two levels.
struct Summaries {
  Summaries(int64_t sets, int64_t width, unsigned seed,
            ElementType type = ElementType::F32)
      : arrays{makeRandom({sets, p, m, width}, seed, type),
               makeRandom({sets, p, 2 * m, width}, seed + 1, type),
               makeRandom({sets, p, width}, seed + 2, type),
               makeRandom({sets, p, width}, seed + 3, type)},
        refs(arrays.begin(), arrays.end()) {}

  SummaryWeights get(bool hasBiases) const {
    llvm::ArrayRef<TensorRef> all(refs);
    if (hasBiases)
      return SummaryWeights(all.take_front(2), all.take_back(2));
    return all.take_front(2);
  }

  std::vector<Array> arrays;
  std::vector<TensorRef> refs;
};

class FastMultipole : public testing::Test {
protected:
  Array q = makeRandom({1, H, N, D}, 1), k = makeRandom({1, G, N, D}, 2),
        v = makeRandom({1, G, N, E}, 3);
};

TEST_F(FastMultipole, AgreesWithTheReference) {
  Summaries keys(1, D, 10), values(G, E, 20);
  for (bool causal : {false, true}) {
    FastMultipoleOptions options;
    options.causal = causal;
    options.multiplicity = !causal;
    options.scale = 0.5;
    options.returnLse = true;
    auto run = [&](Target target) {
      options.target = target;
      return get(fast_multipole(q, k, v, keys.get(causal), values.get(true), m,
                                options));
    };
    AttentionResult result = run(Target::CPU),
                    expected = run(Target::Reference);
    expectNear(result.output, expected.output, 5e-6);
    expectNear(result.lse, expected.lse, 1e-5);
  }
}

TEST_F(FastMultipole, LinearAgreesWithTheReference) {
  Summaries queries(1, D, 10), keys(1, D, 20), values(1, E, 30);
  Array output({1, H, N, E});
  FastMultipoleLinearOptions options;
  options.causal = options.allowQueryLookahead = true;
  auto run = [&](Target target, std::optional<TensorRef> given) {
    options.target = target;
    options.out = given ? ResultMemory(*given) : ResultMemory();
    return get(fast_multipole_linear(q, k, v, queries.get(true),
                                     keys.get(false), values.get(false), m,
                                     options));
  };
  OwnedTensor result = run(Target::CPU, TensorRef(output));
  EXPECT_EQ(result.getData(), output.bytes.data());
  expectNear(result, run(Target::Reference, {}), 5e-6);
}

TEST_F(FastMultipole, WithoutLevelsIsDense) {
  DenseOptions options;
  options.causal = true;
  FastMultipoleOptions multipole;
  multipole.causal = true;
  llvm::ArrayRef<TensorRef> none;
  expectNear(get(fast_multipole(q, k, v, none, none, 32, multipole)).output,
             get(dense(q, k, v, options)).output, 5e-6);
}

/// The first of `lengths` tokens of one batch entry.
TEST_F(FastMultipole, TakesLengthsOrAMask) {
  Summaries keys(1, D, 10), values(G, E, 20);
  Array lengths({1}, ElementType::I32);
  lengths.set(0, 40);
  FastMultipoleOptions options;
  options.lengths = TensorRef(lengths);
  AttentionResult result = get(
      fast_multipole(q, k, v, keys.get(false), values.get(false), m, options));
  Array mask({1, N}, ElementType::I1);
  for (int64_t token = 0; token < N; ++token)
    mask.set(token, token < 40);
  options.mask = TensorRef(mask);
  EXPECT_EQ(getText(fast_multipole(q, k, v, keys.get(false), values.get(false),
                                   m, options)),
            "lengths: found mask as well, needed one of the two");
  options.lengths.reset();
  AttentionResult same = get(
      fast_multipole(q, k, v, keys.get(false), values.get(false), m, options));
  expectNear(same.output, result.output, 0);
  options.target = Target::Reference;
  AttentionResult expected = get(
      fast_multipole(q, k, v, keys.get(false), values.get(false), m, options));
  expectNear(result.output, expected.output, 5e-6);
}

/// Ready-made summaries of two levels.
struct ReadySummaries {
  ReadySummaries(int64_t heads, int64_t width, unsigned seed,
                 ElementType type = ElementType::F32)
      : arrays{makeRandom({1, heads, 8, p, width}, seed, type),
               makeRandom({1, heads, 4, p, width}, seed + 1, type)},
        refs(arrays.begin(), arrays.end()) {}

  SummaryWeights get() const { return SummaryWeights::ready(refs); }

  std::vector<Array> arrays;
  std::vector<TensorRef> refs;
};

TEST_F(FastMultipole, TakesReadyMadeSummariesAndWeightsThatMixColumns) {
  ReadySummaries values(G, E, 20);
  std::vector<Array> arrays{makeRandom({G, p, m, D, D}, 10),
                            makeRandom({1, p, 2 * m, D, D}, 11)};
  std::vector<TensorRef> mixing(arrays.begin(), arrays.end());
  FastMultipoleOptions options;
  auto run = [&](Target target) {
    options.target = target;
    return get(fast_multipole(q, k, v, llvm::ArrayRef<TensorRef>(mixing),
                              values.get(), m, options));
  };
  expectNear(run(Target::CPU).output, run(Target::Reference).output, 2e-5);
}

class FastMultipoleBackward : public testing::Test {
protected:
  static constexpr ElementType type = ElementType::F64;

  /// The arrays of a family of summaries, and their gradients.
  void add(Summaries &family, const SummaryGradients &found, bool hasBiases) {
    for (int level = 0; level < 2; ++level) {
      arguments.push_back(&family.arrays[level]);
      gradients.push_back(&found.weights[level]);
    }
    ASSERT_EQ(found.biases.size(), hasBiases ? 2u : 0u);
    for (size_t level = 0; level < found.biases.size(); ++level) {
      arguments.push_back(&family.arrays[2 + level]);
      gradients.push_back(&found.biases[level]);
    }
  }

  void add(ReadySummaries &family, const SummaryGradients &found) {
    EXPECT_TRUE(found.weights.empty());
    ASSERT_EQ(found.summaries.size(), 2u);
    for (int level = 0; level < 2; ++level) {
      arguments.push_back(&family.arrays[level]);
      gradients.push_back(&found.summaries[level]);
    }
  }

  Array q = makeRandom({1, H, N, D}, 1, type),
        k = makeRandom({1, G, N, D}, 2, type),
        v = makeRandom({1, G, N, E}, 3, type),
        dOut = makeRandom({1, H, N, E}, 4, type);
  std::vector<Array *> arguments{&q, &k, &v};
  std::vector<const OwnedTensor *> gradients;
};

TEST_F(FastMultipoleBackward, GradientIsTheSlope) {
  Summaries keys(1, D, 10, type), values(G, E, 20, type);
  FastMultipoleOptions options;
  options.causal = options.returnLse = true;
  auto run = [&] {
    return get(
        fast_multipole(q, k, v, keys.get(false), values.get(true), m, options));
  };
  AttentionResult forward = run();
  FastMultipoleBackwardOptions backward;
  backward.causal = true;
  FastMultipoleGradients found = get(fast_multipole_backward(
      dOut, q, k, v, keys.get(false), values.get(true), forward.output.getRef(),
      forward.lse.getRef(), m, backward));
  EXPECT_TRUE(found.query.weights.empty());
  gradients = {&found.q, &found.k, &found.v};
  add(keys, found.key, false);
  add(values, found.value, true);
  expectSlopes(arguments, gradients, dOut,
               [&] { return std::move(run().output); });
}

TEST_F(FastMultipoleBackward, LinearGradientIsTheSlope) {
  Summaries queries(1, D, 10, type), keys(1, D, 20, type),
      values(1, E, 30, type);
  FastMultipoleLinearOptions options;
  auto run = [&] {
    return get(fast_multipole_linear(q, k, v, queries.get(true),
                                     keys.get(false), values.get(true), m,
                                     options));
  };
  FastMultipoleGradients found = get(fast_multipole_linear_backward(
      dOut, q, k, v, queries.get(true), keys.get(false), values.get(true), m));
  gradients = {&found.q, &found.k, &found.v};
  add(queries, found.query, true);
  add(keys, found.key, false);
  add(values, found.value, true);
  expectSlopes(arguments, gradients, dOut, run);
}

TEST_F(FastMultipoleBackward, GradientOfReadyMadeSummariesIsTheSlope) {
  Summaries queries(1, D, 10, type);
  ReadySummaries keys(G, D, 20, type), values(G, E, 30, type);
  auto run = [&] {
    return get(fast_multipole_linear(q, k, v, queries.get(false), keys.get(),
                                     values.get(), m));
  };
  FastMultipoleGradients found = get(fast_multipole_linear_backward(
      dOut, q, k, v, queries.get(false), keys.get(), values.get(), m));
  gradients = {&found.q, &found.k, &found.v};
  add(queries, found.query, false);
  add(keys, found.key);
  add(values, found.value);
  expectSlopes(arguments, gradients, dOut, run);
}

} // namespace
