//===- MemoryTest.cpp - Tests of kernel memory ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <vector>

using namespace fovea::rt::test;

namespace {

class MemoryTest : public RuntimeTest {
protected:
  void TearDown() override {
    EXPECT_EQ(statistics().allocated_bytes, 0) << "the test leaks";
    RuntimeTest::TearDown();
  }
};

using MemoryDeathTest = MemoryTest;

uintptr_t addressOf(void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

TEST_F(MemoryTest, blocksAreAlignedAndUsable) {
  for (int64_t alignment : {0, 1, 8, 64, 128, 4096, 1 << 21, 1 << 22})
    for (int64_t bytes : {0, 1, 64, 1000, 1 << 20, 4 << 20, (4 << 20) + 1}) {
      void *block = fovea_rt_alloc(bytes, alignment);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(addressOf(block) % 64, 0u);
      EXPECT_EQ(addressOf(block) % std::max<int64_t>(alignment, 1), 0u);
      if (bytes >= 4 << 20)
        EXPECT_EQ(addressOf(block) % (2 << 20), 0u);
      memset(block, 0x5a, static_cast<size_t>(bytes));
      fovea_rt_free(block);
    }
}

TEST_F(MemoryTest, emptyBlocksAreDistinct) {
  std::set<void *> blocks;
  for (int i = 0; i < 10; ++i)
    blocks.insert(fovea_rt_alloc(0, 64));
  EXPECT_EQ(blocks.size(), 10u);
  EXPECT_EQ(blocks.count(nullptr), 0u);
  for (void *block : blocks)
    fovea_rt_free(block);
}

TEST_F(MemoryTest, freeOfNullDoesNothing) {
  fovea_rt_free(nullptr);
  _mlir_memref_to_llvm_free(nullptr);
}

TEST_F(MemoryTest, namesOfMlirMeanTheSame) {
  void *plain = _mlir_memref_to_llvm_alloc(100);
  void *aligned = _mlir_memref_to_llvm_aligned_alloc(4096, 100);
  EXPECT_EQ(addressOf(plain) % 64, 0u);
  EXPECT_EQ(addressOf(aligned) % 4096, 0u);
  EXPECT_EQ(statistics().allocated_bytes, 200);
  _mlir_memref_to_llvm_free(plain);
  _mlir_memref_to_llvm_free(aligned);
}

TEST_F(MemoryTest, resultsOutliveASuccessfulInvocation) {
  void *result = nullptr;
  ASSERT_EQ(invoke([&] {
              void *temporary = fovea_rt_alloc(1000, 64);
              result = fovea_rt_alloc(5 << 20, 64);
              memset(result, 7, 5 << 20);
              fovea_rt_free(temporary);
            }),
            FOVEA_RT_OK);
  EXPECT_EQ(static_cast<char *>(result)[(5 << 20) - 1], 7);
  EXPECT_EQ(statistics().allocated_bytes, 5 << 20);
  std::thread([&] { fovea_rt_free(result); }).join();
}

TEST_F(MemoryTest, failureFreesWhatIsLive) {
  void *host = fovea_rt_alloc(10, 0);
  EXPECT_EQ(invoke([&] {
              void *blocks[6];
              for (void *&block : blocks)
                block = fovea_rt_alloc(1000, 64);
              // The first, the last and one in the middle of the list.
              fovea_rt_free(blocks[0]);
              fovea_rt_free(blocks[5]);
              fovea_rt_free(blocks[2]);
              fovea_rt_alloc(6 << 20, 64);
              EXPECT_EQ(statistics().allocated_bytes, 10 + 3000 + (6 << 20));
              fovea_rt_fail(5, "stop");
            }),
            5);
  EXPECT_EQ(statistics().allocated_bytes, 10);
  fovea_rt_free(host);
}

TEST_F(MemoryTest, failureFreesBlocksOfBodiesOnAllThreads) {
  fovea_rt_set_num_threads(3);
  EXPECT_EQ(invoke([&] {
              parallelFor(30, 0, [](int64_t index, void *) {
                void *temporary = fovea_rt_alloc(100, 64);
                fovea_rt_alloc(200 + index, 64);
                fovea_rt_free(temporary);
              });
              fovea_rt_fail(5, "stop");
            }),
            5);
  EXPECT_EQ(statistics().allocated_bytes, 0);
}

TEST_F(MemoryTest, aBlockOfAnEarlierInvocationMayBeFreedInALaterOne) {
  void *block = nullptr;
  ASSERT_EQ(invoke([&] { block = fovea_rt_alloc(100, 64); }), FOVEA_RT_OK);
  EXPECT_EQ(invoke([&] {
              fovea_rt_alloc(50, 64);
              fovea_rt_free(block);
              fovea_rt_fail(5, "stop");
            }),
            5);
}

TEST_F(MemoryTest, impossibleSizesFailWithTheSize) {
  auto ask = [](int64_t bytes, int64_t alignment) {
    return invoke([=] {
      fovea_rt_alloc(100, 64);
      fovea_rt_alloc(20, 64);
      fovea_rt_free(fovea_rt_alloc(7, 64));
      fovea_rt_alloc(bytes, alignment);
      ADD_FAILURE() << "got a block";
    });
  };
  for (int64_t bytes :
       {INT64_MAX, INT64_MAX - 63, int64_t(1) << 61, int64_t(1) << 50}) {
    EXPECT_EQ(ask(bytes, 64), FOVEA_RT_OUT_OF_MEMORY);
    EXPECT_EQ(std::string(fovea_rt_last_error()),
              "out of memory: kernel asked for " + std::to_string(bytes) +
                  " bytes (120 bytes already held by this invocation)");
  }
  EXPECT_EQ(ask(8, int64_t(1) << 62), FOVEA_RT_OUT_OF_MEMORY);
  EXPECT_EQ(ask(-5, 64), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(
      fovea_rt_last_error(),
      "invalid allocation: kernel asked for -5 bytes, expected zero or "
      "more; an extent may have overflowed");
  for (int64_t alignment : {int64_t(3), int64_t(96), int64_t(-64), INT64_MIN}) {
    EXPECT_EQ(ask(8, alignment), FOVEA_RT_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(fovea_rt_last_error()),
              "invalid allocation: alignment is " + std::to_string(alignment) +
                  ", expected a power of two");
  }
}

TEST_F(MemoryTest, freedLargeBlocksAreReused) {
  const int64_t bytes = 16 << 20;
  void *first = fovea_rt_alloc(bytes, 64);
  fovea_rt_free(first);
  EXPECT_GE(statistics().cached_bytes, bytes);
  void *second = fovea_rt_alloc(bytes - 100000, 64);
  EXPECT_EQ(second, first);
  EXPECT_EQ(statistics().cached_bytes, 0);
  EXPECT_EQ(statistics().allocated_bytes, bytes - 100000);
  memset(second, 1, bytes - 100000);
  // A third of the block would waste the rest.
  fovea_rt_free(second);
  void *small = fovea_rt_alloc(bytes / 3, 64);
  EXPECT_GE(statistics().cached_bytes, bytes);
  fovea_rt_free(small);
}

TEST_F(MemoryTest, freedBlocksOfSomePagesAreReused) {
  void *first = fovea_rt_alloc(64 << 10, 64);
  fovea_rt_free(first);
  EXPECT_GE(statistics().cached_bytes, 64 << 10);
  void *second = fovea_rt_alloc(64 << 10, 64);
  EXPECT_EQ(second, first);
  fovea_rt_free(second);
}

TEST_F(MemoryTest, reuseKeepsTheAlignmentOfLargeBlocks) {
  // As many pages as a block that is aligned to a huge page.
  void *pages = fovea_rt_alloc((4 << 20) - 100, 64);
  fovea_rt_free(pages);
  void *huge = fovea_rt_alloc(4 << 20, 64);
  EXPECT_EQ(addressOf(huge) % (2 << 20), 0u);
  fovea_rt_free(huge);
}

#ifdef __linux__
/// The VmFlags line of the mapping that contains `address`, from smaps.
std::string mappingFlags(void *address) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    unsigned long first = 0, last = 0;
    if (sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2)
      inside = first <= addressOf(address) && addressOf(address) < last;
    else if (inside && line.rfind("VmFlags:", 0) == 0)
      return line + " ";
  }
  return "";
}

TEST_F(MemoryTest, largeBlocksAskForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "the kernel has no transparent huge pages";
  void *block = fovea_rt_alloc(4 << 20, 64);
  const std::string flags = mappingFlags(block);
  fovea_rt_free(block);
  if (flags.empty())
    GTEST_SKIP() << "the kernel does not report mapping flags";
  EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
}
#endif

TEST_F(MemoryTest, reuseTakesTheTightestBlock) {
  void *large = fovea_rt_alloc(18 << 20, 64);
  void *tight = fovea_rt_alloc(16 << 20, 64);
  fovea_rt_free(tight);
  fovea_rt_free(large);
  void *block = fovea_rt_alloc(15 << 20, 64);
  EXPECT_EQ(block, tight);
  fovea_rt_free(block);
}

TEST_F(MemoryTest, cacheIsBoundedAndReleasable) {
  std::vector<void *> blocks;
  for (int i = 0; i < 70; ++i)
    blocks.push_back(fovea_rt_alloc(4 << 20, 64));
  for (void *block : blocks)
    fovea_rt_free(block);
  EXPECT_GE(statistics().cached_bytes, int64_t(64) * (4 << 20));
  EXPECT_LT(statistics().cached_bytes, int64_t(65) * (4 << 20));

  // Never touched, so these take no memory.
  for (void *&block : blocks)
    block = fovea_rt_alloc(100 << 20, 64);
  for (void *block : blocks)
    fovea_rt_free(block);
  EXPECT_LE(statistics().cached_bytes, 512 << 20);
  EXPECT_GE(statistics().cached_bytes, 400 << 20);
  fovea_rt_free(fovea_rt_alloc(600 << 20, 64));
  EXPECT_LE(statistics().cached_bytes, 512 << 20);

  fovea_rt_release_cache();
  EXPECT_EQ(statistics().cached_bytes, 0);
}

TEST_F(MemoryTest, peakFollowsTheSizesAskedFor) {
  fovea_rt_reset_statistics();
  EXPECT_EQ(invoke([] {
              void *first = fovea_rt_alloc(1000, 64);
              void *second = fovea_rt_alloc(5 << 20, 64);
              fovea_rt_free(first);
              fovea_rt_free(second);
              fovea_rt_free(fovea_rt_alloc(7, 64));
            }),
            FOVEA_RT_OK);
  EXPECT_EQ(statistics().peak_allocated_bytes, 1000 + (5 << 20));
  fovea_rt_reset_statistics();
  EXPECT_EQ(statistics().peak_allocated_bytes, 0);
}

TEST_F(MemoryTest, threadsAllocateAndFreeAtTheSameTime) {
  fovea_rt_set_num_threads(3);
  EXPECT_EQ(invoke([] {
              parallelFor(12, 0, [](int64_t index, void *) {
                std::minstd_rand random(static_cast<unsigned>(index) + 1);
                std::vector<void *> live(8);
                for (int i = 0; i < 500; ++i) {
                  void *&slot = live[random() % live.size()];
                  fovea_rt_free(slot);
                  slot = fovea_rt_alloc(
                      random() % 50 == 0 ? 4 << 20 : random() % 3000, 64);
                  static_cast<char *>(slot)[0] = 1;
                }
                for (void *block : live)
                  fovea_rt_free(block);
              });
            }),
            FOVEA_RT_OK);
  EXPECT_EQ(statistics().allocated_bytes, 0);
}

/// Whether `bytes` bytes are those of a NaN, as nobody has written them.
bool isPoisoned(const void *data, int64_t bytes) {
  auto *begin = static_cast<const unsigned char *>(data);
  return std::all_of(begin, begin + bytes,
                     [](unsigned char byte) { return byte == 0xff; });
}

/// Leaves with 0 if new blocks, of the C library, mapped and with huge pages,
/// and the scratch of every body are poisoned, on any thread and in loops
/// inside of others, a reused one as well.
[[noreturn]] void exitIfPoisoned() {
  setenv("FOVEA_POISON_MEMORY", "1", /*overwrite=*/1);
  std::atomic<bool> holds = true;
  auto use = [&holds](void *data, int64_t bytes) {
    if (!isPoisoned(data, bytes))
      holds = false;
    memset(data, 0, bytes);
  };
  for (int64_t bytes : {100, 100, 100 << 10, 100 << 10, 5 << 20, 5 << 20}) {
    void *block = fovea_rt_alloc(bytes, 64);
    use(block, bytes);
    fovea_rt_free(block);
  }
  for (int threads : {1, 3}) {
    fovea_rt_set_num_threads(threads);
    for (int64_t bytes : {256, 3 << 20})
      parallelFor(8, bytes, [&](int64_t, void *scratch) {
        use(scratch, bytes);
        parallelFor(2, 128, [&](int64_t, void *inner) { use(inner, 128); });
      });
  }
  exit(holds ? 0 : 1);
}

TEST_F(MemoryDeathTest, newMemoryAndScratchArePoisonedOnDemand) {
  // A process of its own reads the variable anew.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exitIfPoisoned(), ::testing::ExitedWithCode(0), "");
}

TEST_F(MemoryDeathTest, wrongFreesAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  alignas(64) static char foreign[256];
  const char *message =
      "fovea: fatal: fovea_rt_free of a pointer that fovea_rt_alloc did not "
      "return";
  EXPECT_DEATH(fovea_rt_free(foreign + 128), message);
  EXPECT_DEATH(fovea_rt_free(foreign + 129), message);
  EXPECT_DEATH(fovea_rt_alloc(-1, 64), "fovea: fatal: invalid allocation");
}

} // namespace
