//===- KVCacheTest.cpp - Keys and values of the tokens so far -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace fovea;
using namespace fovea::test;
using llvm::ArrayRef;

namespace {

constexpr int64_t B = 2, H = 4, G = 2, N = 21, D = 8, E = 6;

class KVCacheTest
    : public testing::TestWithParam<std::tuple<ElementType, bool>> {
protected:
  ElementType type = std::get<0>(GetParam());
  bool tokensFirst = std::get<1>(GetParam());
  Array q = makeRandom({B, H, N, D}, 1, type),
        k = makeRandom({B, G, N, D}, 2, type),
        v = makeRandom({B, G, N, E}, 3, type);

  KVCache make(int64_t capacity = N) {
    return llvm::cantFail(
        KVCache::create(B, G, D, capacity, {E, type, tokensFirst}));
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

TEST_P(KVCacheTest, ValuesAreColumnsOfKeys) {
  KVCacheOptions options{E, type, tokensFirst, /*valuesAreKeys=*/true};
  KVCache cache = llvm::cantFail(KVCache::create(B, G, D, N, options));
  EXPECT_EQ(cache.getNumBytes(), B * G * (N + 1) * D * getByteWidth(type));
  EXPECT_EQ(getText(cache.append(k)), "");
  KVCache fork = llvm::cantFail(cache.fork());
  EXPECT_TRUE(fork.hasValuesInKeys());
  // Of a copy, each row of which is the first columns.
  for (int64_t row = 0; row < B * G * N; ++row)
    for (int64_t column = 0; column < E; ++column)
      v.set(row * E + column, k.get(row * D + column));
  expectNear(get(fork.attend(q)).output, expect(0, N), getBound(type));
  EXPECT_EQ(getText(cache.append(k, v)),
            "v: found an array, needed none: values are the first 6 columns of "
            "keys");
  EXPECT_EQ(getText(make().append(k)),
            "v: found none, needed an array of shape [B,G,N,E]");
  options.valueWidth = D + 1;
  EXPECT_EQ(getText(KVCache::create(B, G, D, N, options).takeError()),
            "value_width: found 9, needed at most the 8 columns of keys, whose "
            "first ones are values");
}

TEST_P(KVCacheTest, RunsInTheEmulator) {
  KVCacheOptions options{E, type, tokensFirst};
  options.target = Target::GPUEmulator;
  if (type == ElementType::F64) {
    EXPECT_EQ(getText(KVCache::create(B, G, D, N, options).takeError()),
              "dtype: found float64, needed one of float16, bfloat16, float32 "
              "on a GPU");
    return;
  }
  KVCache cache = llvm::cantFail(KVCache::create(B, G, D, N, options));
  EXPECT_EQ(cache.getDevice(), -1);
  EXPECT_EQ(getText(cache.append(k, v)), "");
  KVCache fork = llvm::cantFail(cache.fork());
  EXPECT_EQ(fork.getTarget(), Target::GPUEmulator);
  expectNear(get(fork.attend(q)).output, expect(0, N), getBound(type));
  AttendOptions other;
  other.target = Target::Reference;
  EXPECT_EQ(getText(cache.attend(q, other).takeError()),
            "target: found 'reference', needed 'gpu-sim', that of the cache");
}

TEST_P(KVCacheTest, EveryPrefixEqualsTheWhole) {
  KVCache cache = make();
  EXPECT_EQ(cache.getNumBytes(),
            B * G * (N + 1) * (D + E) * getByteWidth(type));
  Array nothing = makeRandom({B, G, N, D}, 4, type),
        noValues = makeRandom({B, G, N, E}, 4, type);
  for (Array *array : {&nothing, &noValues})
    for (int64_t i = 0; i < array->size(); ++i)
      array->set(i, NAN);
  EXPECT_EQ(getText(cache.append(nothing, noValues)), "");
  EXPECT_EQ(getText(cache.truncate(0)), "");
  int64_t done = 0;
  for (int64_t count : {5, 6, 7, 13, 14, 21}) {
    EXPECT_EQ(getText(cache.append(takeRows(k, done, count),
                                   takeRows(v, done, count))),
              "");
    expectNear(get(cache.attend(takeRows(q, done, count))).output,
               expect(done, count), getBound(type));
    done = count;
  }
}

TEST_P(KVCacheTest, ForksAndFilesAreCopies) {
  KVCache cache = make(30);
  EXPECT_EQ(getText(cache.append(k, v)), "");
  KVCache fork = llvm::cantFail(cache.fork());
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("cache", "", path));
  EXPECT_EQ(getText(cache.save(path)), "");
  EXPECT_EQ(getText(cache.truncate(3)), "");
  EXPECT_EQ(getText(cache.append(k, v)), "");
  KVCache loaded = llvm::cantFail(KVCache::load(path));
  for (KVCache *copy : {&fork, &loaded}) {
    EXPECT_EQ(copy->getLengths(), ArrayRef<int64_t>({N, N}));
    EXPECT_EQ(copy->getNumBytes(), cache.getNumBytes());
    EXPECT_EQ(copy->isTokensFirst(), tokensFirst);
    expectNear(get(copy->attend(q)).output, expect(0, N), getBound(type));
  }
  {
    std::error_code code;
    llvm::raw_fd_ostream os(path, code, llvm::sys::fs::CD_OpenExisting,
                            llvm::sys::fs::FA_Write, llvm::sys::fs::OF_None);
    os.seek(200);
    os << '?';
  }
  EXPECT_THAT(getText(KVCache::load(path)), testing::HasSubstr("which is"));
  llvm::sys::fs::remove(path);
}

TEST_P(KVCacheTest, SequencesOfDifferentLengths) {
  KVCache cache = make(30);
  Array counts({B}, ElementType::I64);
  counts.set(0, 4);
  counts.set(1, 9);
  EXPECT_EQ(getText(cache.append(k, v, TensorRef(counts))), "");
  EXPECT_EQ(cache.getLengths(), ArrayRef<int64_t>({4, 9}));
  DenseOptions denseOptions;
  denseOptions.causal = true;
  denseOptions.lengths = TensorRef(counts);
  Array one = takeRows(q, 0, 1);
  expectNear(get(cache.attend(one)).output,
             get(dense(one, takeRows(k, 0, 9), takeRows(v, 0, 9), denseOptions))
                 .output,
             getBound(type));
  EXPECT_EQ(getText(cache.append(k, k)), "v: found head width 8, needed 6");
  EXPECT_EQ(getText(cache.append(k, v, TensorRef(counts))), "");
  EXPECT_EQ(getText(cache.append(k, v)),
            "k: found 21 tokens for batch entry 1 after 18, needed at most 12 "
            "for a capacity of 30");
  EXPECT_EQ(getText(cache.truncate(TensorRef(counts))), "");
  EXPECT_EQ(getText(cache.truncate(5)),
            "length: found 5 for batch entry 0, needed 0 to 4");
  AttendOptions options;
  options.lengths = TensorRef(counts);
  EXPECT_EQ(getText(cache.attend(one, options)),
            "lengths: found some, needed none: the cache knows them");
  EXPECT_EQ(cache.getLengths(), ArrayRef<int64_t>({4, 9}));
}

INSTANTIATE_TEST_SUITE_P(
    All, KVCacheTest,
    testing::Combine(testing::Values(ElementType::F32, ElementType::F64,
                                     ElementType::F16, ElementType::BF16),
                     testing::Bool()));

} // namespace
