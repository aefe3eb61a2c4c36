//===- PagedTest.cpp - Attention to keys in pages -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"
#include "llvm/Support/FileSystem.h"

using namespace fovea;
using namespace fovea::test;
using llvm::ArrayRef;

namespace {

constexpr int64_t B = 2, H = 4, G = 2, N = 21, D = 8, E = 6, kPage = 4;

class PagedTest : public testing::TestWithParam<std::tuple<ElementType, bool>> {
protected:
  ElementType type = std::get<0>(GetParam());
  bool tokensFirst = std::get<1>(GetParam());
  Array q = makeRandom({B, H, N, D}, 1, type),
        k = makeRandom({B, G, N, D}, 2, type),
        v = makeRandom({B, G, N, E}, 3, type);

  PagedCache make(int64_t pages = 12) {
    return llvm::cantFail(
        PagedCache::create(pages, kPage, G, D, {B, E, type, tokensFirst}));
  }
  /// The whole call over the first `end` tokens, for the queries from `begin`.
  OwnedTensor expect(int64_t begin, int64_t end) {
    DenseOptions options;
    options.causal = true;
    return get(dense(takeRows(q, begin, end), takeRows(k, 0, end),
                     takeRows(v, 0, end), options))
        .output;
  }
};

TEST_P(PagedTest, EveryPrefixEqualsTheWhole) {
  PagedCache cache = make();
  EXPECT_EQ(cache.getNumBytes(), 12 * kPage * G * (D + E) * getByteWidth(type));
  int64_t done = 0;
  for (int64_t count : {3, 4, 5, 13, 14, 21}) {
    EXPECT_EQ(getText(cache.append(takeRows(k, done, count),
                                   takeRows(v, done, count))),
              "");
    EXPECT_EQ(cache.getNumFreePages(), 12 - 2 * ((count + 3) / 4));
    expectNear(get(cache.attend(takeRows(q, done, count))).output,
               expect(done, count), getBound(type));
    done = count;
  }
  EXPECT_EQ(getText(cache.append(k, v)),
            "k: found tokens for 10 more pages, needed at most 0, those of 12 "
            "that are free");
}

TEST_P(PagedTest, ForksAndFilesAreCopies) {
  PagedCache cache = make(20);
  EXPECT_EQ(getText(cache.append(k, v)), "");
  PagedCache fork = llvm::cantFail(cache.fork());
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("cache", "", path));
  EXPECT_EQ(getText(cache.save(path)), "");
  EXPECT_EQ(getText(cache.truncate(4)), "");
  // The fork has what the other does not.
  EXPECT_EQ(cache.getNumFreePages(), 8);
  EXPECT_EQ(getText(cache.append(takeRows(k, 0, 9), takeRows(v, 0, 9))), "");
  PagedCache loaded = llvm::cantFail(PagedCache::load(path));
  for (PagedCache *copy : {&fork, &loaded}) {
    EXPECT_EQ(copy->getLengths(), ArrayRef<int64_t>({N, N}));
    EXPECT_EQ(copy->getNumFreePages(), copy == &fork ? 2 : 8);
    EXPECT_EQ(copy->isTokensFirst(), tokensFirst);
    expectNear(get(copy->attend(q)).output, expect(0, N), getBound(type));
  }
  llvm::sys::fs::remove(path);
}

TEST_P(PagedTest, SequencesShareTheirPages) {
  PagedCache cache = make(20);
  EXPECT_EQ(getText(cache.append(takeRows(k, 0, 6), takeRows(v, 0, 6))), "");
  EXPECT_EQ(cache.getNumFreePages(), 16);
  PagedCache fork = llvm::cantFail(cache.fork({0, 1}));
  // What is assigned to gives its pages back.
  fork = llvm::cantFail(cache.fork({0, 1}));
  EXPECT_EQ(fork.getNumFreePages(), 16);
  EXPECT_EQ(getText(fork.append(takeRows(k, 6, N), takeRows(v, 6, N))), "");
  EXPECT_EQ(fork.getNumFreePages(), 6);
  expectNear(get(fork.attend(q)).output, expect(0, N), getBound(type));
  EXPECT_EQ(getText(cache.append(takeRows(k, 6, N), takeRows(v, 6, N))),
            "k: found tokens for 8 more pages, needed at most 6, those of 20 "
            "that are free");
  {
    PagedCache moved = std::move(fork);
    EXPECT_EQ(moved.getNumFreePages(), 6);
  }
  EXPECT_EQ(getText(cache.append(takeRows(k, 6, N), takeRows(v, 6, N))), "");
  expectNear(get(cache.attend(q)).output, expect(0, N), getBound(type));
  EXPECT_EQ(getText(cache.fork({0, 2}).takeError()),
            "sequences: found 2 at [1], needed 0 to 1, or -1 for an empty one");
}

INSTANTIATE_TEST_SUITE_P(Types, PagedTest,
                         testing::Combine(testing::Values(ElementType::F32,
                                                          ElementType::BF16),
                                          testing::Bool()));

TEST(PagedErrorsTest, NameWhatTheyAreAbout) {
  Array q = makeRandom({B, H, 1, D}, 1), k = makeRandom({5, G, kPage, D}, 2),
        v = makeRandom({5, G, kPage, E}, 3);
  Array table({B, 2}, ElementType::I32), lengths({B}, ElementType::I32);
  table.set(3, 5);
  lengths.set(1, 5);
  EXPECT_EQ(getText(paged(q, k, v, table, lengths)),
            "block_table: found 5 at [1, 1], needed a page from 0 to 4 for the "
            "5 tokens of lengths[1]");
  lengths.set(1, 9);
  EXPECT_EQ(getText(paged(q, k, v, table, lengths)),
            "lengths: found 9 for batch entry 1, needed 0 to 8");
  lengths.set(1, 4);
  EXPECT_EQ(getText(paged(q, k, v, table, lengths)), "");
}

} // namespace
