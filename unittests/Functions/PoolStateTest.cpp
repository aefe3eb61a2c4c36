//===- PoolStateTest.cpp - Pooled summaries of the tokens so far ----------===//
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

constexpr int64_t B = 2, G = 3, N = 23, E = 7, I = 4;

class PoolStateTest
    : public testing::TestWithParam<std::tuple<ElementType, int64_t>> {
protected:
  ElementType type = std::get<0>(GetParam());
  int64_t overlap = std::get<1>(GetParam());
  Array x = makeRandom({B, G, N, E}, 1, type),
        gate = makeRandom({B, G, N, E}, 2, type),
        bias = makeRandom({I, E}, 3, type);

  PoolState make() {
    return llvm::cantFail(
        PoolState::create(B, G, E, I, {overlap, TensorRef(bias), type}));
  }
  std::string append(PoolState &state, int64_t begin, int64_t end) {
    return getText(
        state.append(takeRows(x, begin, end), takeRows(gate, begin, end)));
  }
  /// Expects the bits of the whole call over the tokens of `state`.
  void expectWhole(const PoolState &state) {
    int64_t length = state.getLength();
    OwnedTensor found = state.getSummaries(),
                whole =
                    get(pool(takeRows(x, 0, length), takeRows(gate, 0, length),
                             I, {{overlap, TensorRef(bias)}, {}}));
    ASSERT_EQ(found.getShape(), whole.getShape());
    for (int64_t i = 0; i < whole.getNumElements(); ++i) {
      // Rows of a head lie where there is memory for more.
      int64_t perHead = length / I * E, head = i / perHead;
      int64_t at = head / G * found.getStrides()[0] +
                   head % G * found.getStrides()[1] + i % perHead;
      ASSERT_EQ(getElement(found.getData(), type, at),
                getElement(whole.getData(), type, i));
    }
  }
};

TEST_P(PoolStateTest, EveryPrefixEqualsTheWhole) {
  for (int64_t step : {1, 3, 9, 23}) {
    PoolState state = make();
    expectWhole(state);
    for (int64_t done = 0; done < N; done += step) {
      ASSERT_EQ(append(state, done, std::min(done + step, N)), "");
      expectWhole(state);
    }
    EXPECT_EQ(state.getLength(), N);
  }
}

TEST_P(PoolStateTest, TruncationsAndForksGoOn) {
  PoolState state = make();
  ASSERT_EQ(append(state, 0, 18), "");
  PoolState fork = llvm::cantFail(state.fork());
  ASSERT_EQ(append(fork, 18, N), "");
  // The last tokens again, once others stood there.
  int64_t kept = 13;
  ASSERT_EQ(getText(state.truncate(kept)), "");
  ASSERT_EQ(getText(state.append(takeRows(gate, 0, 5), takeRows(x, 0, 5))), "");
  ASSERT_EQ(getText(state.truncate(kept)), "");
  expectWhole(state);
  ASSERT_EQ(append(state, kept, N), "");
  expectWhole(state);
  expectWhole(fork);
  EXPECT_EQ(fork.getLength(), N);
}

TEST_P(PoolStateTest, WhatIsKeptDoesNotGrow) {
  PoolState state = make();
  for (int64_t done = 0; done < N; ++done)
    ASSERT_EQ(append(state, done, done + 1), "");
  int64_t reach = (overlap + I - 1) / I * I, rows = 8;
  EXPECT_LE(state.getNumBytes(),
            B * G * E * getByteWidth(type) * (2 * (2 * I + reach) + rows));
}

TEST_P(PoolStateTest, ErrorsLeaveItAsItWas) {
  PoolState state = make();
  ASSERT_EQ(append(state, 0, 18), "");
  EXPECT_EQ(getText(state.append(takeRows(x, 0, 2), takeRows(gate, 0, 3))),
            "gate: found shape (2, 3, 3, 7), needed (2, 3, 2, 7)");
  EXPECT_THAT(getText(state.append(makeRandom({B, E}, 1, type), gate)),
              testing::HasSubstr("x: found rank 2, needed rank 4 [B,G,N,E]"));
  ElementType other =
      type == ElementType::F32 ? ElementType::F64 : ElementType::F32;
  EXPECT_THAT(getText(state.append(makeRandom({B, G, 1, E}, 1, other), gate)),
              testing::HasSubstr("x: found element type"));
  EXPECT_EQ(getText(state.truncate(19)).find("length: found 19, needed "), 0u);
  EXPECT_EQ(getText(state.truncate(-1)).find("length: found -1, needed "), 0u);
  EXPECT_EQ(state.getLength(), 18);
  expectWhole(state);
  EXPECT_EQ(getText(PoolState::create(B, G, E, 0)),
            "interval: found 0, needed an integer of at least 1");
  EXPECT_EQ(getText(PoolState::create(B, G, 0, I)),
            "width: found 0, needed an integer of at least 1");
  EXPECT_EQ(getText(PoolState::create(B, G, E, I + 1,
                                      {overlap, TensorRef(bias), type})),
            "position_bias: found shape (4, 7), needed (5, 7)");
}

INSTANTIATE_TEST_SUITE_P(
    Types, PoolStateTest,
    testing::Combine(testing::Values(ElementType::F32, ElementType::F64,
                                     ElementType::BF16, ElementType::F16),
                     testing::Values(0, 3, 8)));

} // namespace
