//===- MultipoleCacheTest.cpp - Fast multipole attention by tokens --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "llvm/Support/FileSystem.h"
#include <thread>

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr int64_t B = 2, H = 4, G = 2, N = 45, D = 8, E = 6, M = 6, P = 3,
                  L = 2;

class MultipoleCacheTest : public testing::TestWithParam<ElementType> {
protected:
  ElementType type = GetParam();
  Array q = makeRandom({B, H, N, D}, 1, type),
        k = makeRandom({B, G, N, D}, 2, type),
        v = makeRandom({B, G, N, E}, 3, type);
  std::vector<Array> arrays;
  llvm::SmallVector<TensorRef> refs[4];

  void SetUp() override {
    for (int64_t level = 0; level < L; ++level)
      for (int64_t width : {D, E}) {
        arrays.push_back(
            makeRandom({1, P, M << level, width}, 10 + level, type));
        for (int64_t i = 0; i < arrays.back().size(); ++i)
          arrays.back().set(i, arrays.back().get(i) / double(M << level));
        arrays.push_back(makeRandom({1, P, width}, 20 + level, type));
      }
    for (size_t i = 0; i < arrays.size(); ++i)
      refs[i % 4].push_back(arrays[i]);
  }
  SummaryWeights family(int side) {
    return SummaryWeights(refs[2 * side], refs[2 * side + 1]);
  }
  MultipoleCache make() {
    return llvm::cantFail(
        MultipoleCache::create(B, G, family(0), family(1), M));
  }
};

TEST_P(MultipoleCacheTest, EveryTokenIsTheLastRowOfTheWhole) {
  FastMultipoleOptions options;
  options.causal = true;
  options.returnLse = true;
  AttentionResult whole =
      get(fast_multipole(q, k, v, family(0), family(1), M, options));
  MultipoleCache cache = make();
  EXPECT_EQ(cache.getCapacity(), 2 * M << L);
  MultipoleAttendOptions decode;
  decode.returnLse = true;
  for (int64_t i = 0; i < N; ++i) {
    AttentionResult row =
        get(fast_multipole_decode(takeRows(q, i, i + 1), takeRows(k, i, i + 1),
                                  takeRows(v, i, i + 1), cache, decode));
    expectNear(
        row.output, B * H * E,
        [&](int64_t j) {
          return getElement(whole.output.getData(), type,
                            (j / E * N + i) * E + j % E);
        },
        getBound(type));
    expectNear(
        row.lse, B * H,
        [&](int64_t j) {
          return getElement(whole.lse.getData(), whole.lse.getElementType(),
                            j * N + i);
        },
        1e-5);
  }
}

// However many levels there are.
TEST_P(MultipoleCacheTest, AGroupIsClosedByTwoCalls) {
  auto countCalls = [] {
    auto statistics = KernelCache::getGlobal().getStatistics();
    return statistics.hits + statistics.misses;
  };
  MultipoleCache cache = make();
  for (int64_t i = 0; i < 3 * M; ++i) {
    uint64_t before = countCalls();
    ASSERT_FALSE(llvm::errorToBool(
        cache.append(takeRows(k, i, i + 1), takeRows(v, i, i + 1))));
    bool closes = i != 0 && i % M == 0;
    EXPECT_EQ(countCalls() - before, closes ? 2U : 0U) << i;
  }
}

TEST_P(MultipoleCacheTest, RunsInTheEmulator) {
  MultipoleCacheOptions options;
  options.target = Target::GPUEmulator;
  llvm::Expected<MultipoleCache> made =
      MultipoleCache::create(B, G, family(0), family(1), M, options);
  if (type == ElementType::F64) {
    EXPECT_EQ(getText(made.takeError()),
              "key_weights[0]: found element type float64, needed float16 or "
              "bfloat16 or float32");
    return;
  }
  MultipoleCache cache = llvm::cantFail(std::move(made)), host = make();
  EXPECT_EQ(cache.getTarget(), Target::GPUEmulator);
  EXPECT_EQ(cache.getDevice(), -1);
  for (int64_t i = 0; i < N; ++i) {
    Array rows[] = {takeRows(q, i, i + 1), takeRows(k, i, i + 1),
                    takeRows(v, i, i + 1)};
    AttentionResult expected =
        get(fast_multipole_decode(rows[0], rows[1], rows[2], host));
    expectNear(
        get(fast_multipole_decode(rows[0], rows[1], rows[2], cache)).output,
        expected.output, 2 * getBound(type));
  }
  MultipoleCache fork = llvm::cantFail(cache.fork());
  EXPECT_EQ(fork.getTarget(), Target::GPUEmulator);
  EXPECT_EQ(fork.getLength(), N);
}

TEST_P(MultipoleCacheTest, CopiesGoOnAlike) {
  MultipoleCache cache = make();
  EXPECT_EQ(getText(cache.append(takeRows(k, 0, 31), takeRows(v, 0, 31))), "");
  MultipoleCache fork = llvm::cantFail(cache.fork()), loaded = make();
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("cache", "", path));
  EXPECT_EQ(getText(cache.save(path)), "");
  EXPECT_EQ(getText(loaded.restore(path)), "");
  llvm::sys::fs::remove(path);
  EXPECT_THAT(getText(loaded.restore(path)), testing::HasSubstr("No such"));
  for (int64_t i = 31; i < N; ++i) {
    AttentionResult expected, found;
    for (MultipoleCache *each : {&cache, &fork, &loaded}) {
      found = get(fast_multipole_decode(takeRows(q, i, i + 1),
                                        takeRows(k, i, i + 1),
                                        takeRows(v, i, i + 1), *each));
      if (each == &cache)
        std::swap(expected, found);
      else
        expectNear(found.output, expected.output, 0);
    }
  }
}

// Each thread has a cache of its own, and all ask and fork one that has another
// number of tokens, some by another kernel.
TEST_P(MultipoleCacheTest, ThreadsShareACacheAndFillTheirOwn) {
  constexpr int64_t numThreads = 4, length = 31;
  auto takeToken = [](const Array &array, int64_t i) {
    return takeRows(array, i, i + 1);
  };
  auto decode = [&](const MultipoleCache &shared, bool returnLse) {
    std::vector<AttentionResult> results;
    MultipoleAttendOptions options;
    options.returnLse = returnLse;
    MultipoleCache own = make();
    for (int64_t i = 0; i < N; ++i) {
      results.push_back(get(shared.attend(takeToken(q, i), options)));
      results.push_back(get(fast_multipole_decode(
          takeToken(q, i), takeToken(k, i), takeToken(v, i), own, options)));
    }
    MultipoleCache fork = llvm::cantFail(shared.fork());
    for (int64_t i = length; i < N; ++i)
      results.push_back(get(fast_multipole_decode(
          takeToken(q, i), takeToken(k, i), takeToken(v, i), fork, options)));
    return results;
  };
  MultipoleCache shared = make();
  ASSERT_EQ(
      getText(shared.append(takeRows(k, 0, length), takeRows(v, 0, length))),
      "");
  std::vector<AttentionResult> found[numThreads];
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < numThreads; ++i)
    threads.emplace_back([&, i] { found[i] = decode(shared, i % 2 == 1); });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(shared.getLength(), length);
  std::vector<AttentionResult> alone = decode(shared, /*returnLse=*/true);
  for (int64_t i = 0; i < numThreads; ++i) {
    ASSERT_EQ(found[i].size(), alone.size());
    for (size_t j = 0; j < alone.size(); ++j) {
      expectNear(found[i][j].output, alone[j].output, 0);
      if (i % 2 == 1)
        expectNear(found[i][j].lse, alone[j].lse, 0);
    }
  }
}

TEST_P(MultipoleCacheTest, RefusesWhatDoesNotFit) {
  MultipoleCache cache = make();
  EXPECT_EQ(getText(cache.append(k, v)), "");
  EXPECT_EQ(getText(cache.append(k, v)),
            "k: found 45 tokens after 45, needed at most 3: 2 levels of "
            "weights, in groups of 6, are for 48");
  Array one = takeRows(q, 0, 1);
  EXPECT_EQ(getText(fast_multipole_decode(q, k, v, cache)),
            "q: found length 45, needed 1");
  EXPECT_EQ(getText(fast_multipole_decode(one, takeRows(k, 0, 2),
                                          takeRows(v, 0, 2), cache)),
            "k: found length 2, needed 1");
  MultipoleAttendOptions options;
  options.out = {TensorRef(one)};
  EXPECT_THAT(getText(fast_multipole_decode(one, takeRows(k, 0, 1),
                                            takeRows(v, 0, 1), cache, options)),
              testing::HasSubstr("out[0]: found shape"));
  EXPECT_EQ(cache.getLength(), N);
}

INSTANTIATE_TEST_SUITE_P(All, MultipoleCacheTest,
                         testing::Values(ElementType::F32, ElementType::F64,
                                         ElementType::F16, ElementType::BF16));

} // namespace
