//===- GPURowsTest.cpp - Arrays with strides on a pretended GPU -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUTestUtils.h"

#include <array>

using namespace fovea::rt::test;
using testing::HasSubstr;

namespace {

/// An array [2][3][4] of f32 with memory [3][2][8] from element `first` on, to
/// whose elements a kernel adds one.
struct GPURows : GPUTest {
  static constexpr int64_t kExtents[] = {2, 3, 4};
  static constexpr int64_t kBytes = 3 * 2 * 8 * sizeof(float);

  using Strides = std::array<int64_t, 3>;

  struct Mapped {
    void *pointer;
    int64_t strides[3];
  };

  fovea_rt_status addOne(float *values, int64_t alignment,
                         int32_t access = FOVEA_RT_GPU_READ |
                                          FOVEA_RT_GPU_WRITE,
                         Strides strides = {8, 16, 1}) {
    fake->calls.clear();
    return invoke([=] {
      fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
      for (int64_t i = 0; i < 3; ++i)
        mapped.strides[i] = strides[i];
      mapped.pointer =
          fovea_rt_gpu_map_rows(queue, values, sizeof(float), alignment, 3,
                                kExtents, mapped.strides, access);
      // What a kernel would do.
      for (int64_t i = 0; i < kExtents[0]; ++i)
        for (int64_t j = 0; j < kExtents[1]; ++j)
          for (int64_t k = 0; k < kExtents[2]; ++k)
            static_cast<float *>(
                mapped.pointer)[i * mapped.strides[0] + j * mapped.strides[1] +
                                k * mapped.strides[2]] += 1;
      fovea_rt_gpu_end(queue);
    });
  }

  /// Whether the elements of rows from `first` on are 1 and all others 0.
  static bool areRowsOne(const float *values, int64_t first) {
    for (int64_t i = 0; i < kBytes / 4; ++i) {
      bool isInRow = i >= first && (i - first) % 8 < 4;
      if (values[i] != (isInRow ? 1 : 0))
        return false;
    }
    return true;
  }

  static inline Mapped mapped;
};

TEST_F(GPURows, ArePackedOnTheWayFromTheHost) {
  for (int64_t first : {0, 1}) {
    float values[kBytes / 4] = {};
    EXPECT_EQ(addOne(values + first, 16), FOVEA_RT_OK) << error();
    EXPECT_TRUE(areRowsOne(values, first));
    EXPECT_THAT(mapped.strides, testing::ElementsAre(12, 4, 1));
    // As one piece each way.
    EXPECT_EQ(fake->count("cuMemcpyHtoDAsync_v2"), 1u);
    EXPECT_EQ(fake->count("cuMemcpyDtoHAsync_v2"), 1u);
  }
}

TEST_F(GPURows, StayWhereTheyAreOnTheDevice) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, kBytes, &pointer), FOVEA_RT_OK);
  auto *values = static_cast<float *>(pointer);
  for (auto [first, alignment] :
       {std::pair<int64_t, int64_t>(0, 16), {4, 16}, {2, 8}, {3, 4}}) {
    memset(pointer, 0, kBytes);
    EXPECT_EQ(addOne(values + first, alignment), FOVEA_RT_OK) << error();
    EXPECT_TRUE(areRowsOne(values, first));
    EXPECT_EQ(mapped.pointer, values + first);
    EXPECT_THAT(mapped.strides, testing::ElementsAre(8, 16, 1));
    EXPECT_EQ(fake->count("cuMemAllocAsync"), 0u);
    EXPECT_EQ(fake->count("cuMemcpy2DAsync_v2"), 0u);
  }
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

TEST_F(GPURows, AreCopiedOnTheDeviceUnlessTheyAreAligned) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, kBytes, &pointer), FOVEA_RT_OK);
  auto *values = static_cast<float *>(pointer);
  memset(pointer, 0, kBytes);
  EXPECT_EQ(addOne(values + 1, 16), FOVEA_RT_OK) << error();
  EXPECT_TRUE(areRowsOne(values, 1));
  EXPECT_THAT(mapped.strides, testing::ElementsAre(12, 4, 1));
  // Three rows at once, and nothing through the host.
  EXPECT_EQ(fake->count("cuMemcpy2DAsync_v2"), 4u);
  EXPECT_EQ(fake->count("cuMemcpyHtoDAsync_v2"), 0u);
  EXPECT_EQ(fake->count("cuMemcpyDtoHAsync_v2"), 0u);
  EXPECT_EQ(fake->count("cuMemAllocAsync"), 1u);
  // Rows that begin at odd places.
  EXPECT_EQ(addOne(values, 8, FOVEA_RT_GPU_READ, {15, 5, 1}), FOVEA_RT_OK);
  EXPECT_THAT(mapped.strides, testing::ElementsAre(12, 4, 1));
  EXPECT_EQ(fake->count("cuMemcpy2DAsync_v2"), 2u);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

TEST_F(GPURows, HavePositiveStridesForBoxes) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, kBytes, &pointer), FOVEA_RT_OK);
  auto *values = static_cast<float *>(pointer);
  EXPECT_EQ(addOne(values, 16, FOVEA_RT_GPU_READ, {0, 8, 1}), FOVEA_RT_OK);
  EXPECT_EQ(mapped.pointer, pointer);
  EXPECT_THAT(mapped.strides, testing::ElementsAre(0, 8, 1));
  for (Strides strides : {Strides{0, 8, 1}, Strides{8, 0, 1}}) {
    EXPECT_EQ(
        addOne(values, 16, FOVEA_RT_GPU_READ | FOVEA_RT_GPU_BOXES, strides),
        FOVEA_RT_OK);
    EXPECT_NE(mapped.pointer, pointer);
    EXPECT_THAT(mapped.strides, testing::ElementsAre(12, 4, 1));
  }
  // Backwards, from the last of three rows on.
  EXPECT_EQ(addOne(values + 16, 16, FOVEA_RT_GPU_READ | FOVEA_RT_GPU_BOXES,
                   {24, -8, 1}),
            FOVEA_RT_OK);
  EXPECT_NE(mapped.pointer, values + 16);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

TEST_F(GPURows, StridesOfSingleIndicesLeadNowhere) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, kBytes, &pointer), FOVEA_RT_OK);
  static void *values;
  values = pointer;
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              int64_t extents[] = {1, 3, 1, 4}, strides[] = {-3, 8, 0, 1};
              if (fovea_rt_gpu_map_rows(
                      queue, values, 4, 16, 4, extents, strides,
                      FOVEA_RT_GPU_READ | FOVEA_RT_GPU_BOXES) != values)
                fovea_rt_fail(10, "a copy");
              if (strides[0] != 24 || strides[1] != 8 || strides[2] != 4)
                fovea_rt_fail(11, "other strides");
              int64_t none[] = {1, 3, 0, 4};
              if (fovea_rt_gpu_map_rows(queue, nullptr, 4, 16, 4, none, strides,
                                        FOVEA_RT_GPU_READ))
                fovea_rt_fail(12, "not null");
              fovea_rt_gpu_end(queue);
            }),
            FOVEA_RT_OK)
      << error();
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

TEST_F(GPURows, FreeWhatTheyHoldWhereCopiesFail) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, kBytes, &pointer), FOVEA_RT_OK);
  size_t held = fake->blocks.size();
  for (int successes : {0, 1, 2, 3}) {
    fail("cuMemcpy2DAsync_v2", 999, successes);
    EXPECT_EQ(addOne(static_cast<float *>(pointer) + 1, 16), FOVEA_RT_DEVICE);
    EXPECT_THAT(error(), HasSubstr("cannot copy 3 rows of 16 bytes on device"));
    EXPECT_EQ(fake->blocks.size(), held);
  }
  fail("", 0);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

TEST_F(GPUTest, CopiesUnalignedMemoryOfTheDevice) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, 404, &pointer), FOVEA_RT_OK);
  memset(pointer, 0, 404);
  auto *values = static_cast<float *>(pointer);
  EXPECT_EQ(addOne(values + 1, 100), FOVEA_RT_OK) << error();
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(std::vector<float>(values + 1, values + 101),
            std::vector<float>(100, 1));
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

/// Kernels load and store four numbers of 16 bits at once, or two of 32.
TEST_F(GPUTest, CopiesShortMemoryOfTheDeviceThatIsUnaligned) {
  static char *memory;
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, 256, &pointer), FOVEA_RT_OK);
  memory = static_cast<char *>(pointer);
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              auto isItself = [&](int64_t offset, int64_t bytes) {
                return fovea_rt_gpu_map(queue, memory + offset, bytes,
                                        FOVEA_RT_GPU_READ) == memory + offset;
              };
              if (isItself(20, 8) || isItself(34, 8) || isItself(50, 12))
                fovea_rt_fail(10, "unaligned");
              if (!isItself(64, 8) || !isItself(84, 12) || !isItself(98, 2) ||
                  !isItself(101, 1) || !isItself(110, 6))
                fovea_rt_fail(11, "aligned");
              fovea_rt_gpu_end(queue);
            }),
            FOVEA_RT_OK)
      << error();
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

//===----------------------------------------------------------------------===//
// Copies of arrays
//===----------------------------------------------------------------------===//

/// Copies an array of these extents between blocks of the device, and returns
/// how many calls of the driver that took; -1 where an element is wrong.
struct GPUCopies : GPUTest {
  using Numbers = std::array<int64_t, 4>;
  static constexpr int64_t kCount = 4096;

  int64_t copy(Numbers extents, Numbers to, Numbers from) {
    void *blocks[2];
    for (void *&block : blocks)
      EXPECT_EQ(fovea_rt_gpu_acquire(kKind, kCount * 4, &block), FOVEA_RT_OK);
    EXPECT_EQ(fovea_rt_gpu_clear(kKind, blocks[0], kCount * 4), FOVEA_RT_OK);
    auto *written = static_cast<int32_t *>(blocks[0]),
         *read = static_cast<int32_t *>(blocks[1]);
    std::array<int32_t, kCount> expected = {};
    for (int32_t i = 0; i < kCount; ++i)
      read[i] = i + 1;
    for (int64_t a = 0; a < extents[0]; ++a)
      for (int64_t b = 0; b < extents[1]; ++b)
        for (int64_t c = 0; c < extents[2]; ++c)
          for (int64_t d = 0; d < extents[3]; ++d)
            expected[a * to[0] + b * to[1] + c * to[2] + d * to[3]] =
                read[a * from[0] + b * from[1] + c * from[2] + d * from[3]];
    fake->calls.clear();
    static Numbers shape, strides[2];
    static void *places[2];
    shape = extents;
    strides[0] = to;
    strides[1] = from;
    std::copy_n(blocks, 2, places);
    EXPECT_EQ(invoke([] {
                fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
                fovea_rt_gpu_copy_array(places[0], strides[0].data(), places[1],
                                        strides[1].data(), 4, 4, shape.data());
                fovea_rt_gpu_end(queue);
              }),
              FOVEA_RT_OK)
        << error();
    int64_t count = fake->count("cuMemcpy2DAsync_v2");
    if (!std::equal(expected.begin(), expected.end(), written))
      count = -1;
    for (void *block : blocks)
      EXPECT_EQ(fovea_rt_gpu_release(kKind, block), FOVEA_RT_OK);
    return count;
  }
};

TEST_F(GPUCopies, AreFewCalls) {
  // A token, and tokens, of [B,H,N,D] to places of [B,H,9,D].
  EXPECT_EQ(copy({2, 3, 1, 8}, {216, 72, 8, 1}, {24, 8, 8, 1}), 1);
  EXPECT_EQ(copy({2, 3, 4, 8}, {216, 72, 8, 1}, {96, 32, 8, 1}), 1);
  // Heads side by side on both sides: all of a batch entry is one run.
  EXPECT_EQ(copy({2, 3, 4, 8}, {216, 8, 24, 1}, {96, 8, 24, 1}), 1);
  // On one side alone: rows, of the longest axis at once.
  EXPECT_EQ(copy({2, 3, 4, 8}, {216, 8, 24, 1}, {96, 32, 8, 1}), 6);
  // Everything without gaps, and single elements.
  EXPECT_EQ(copy({2, 3, 4, 8}, {96, 32, 8, 1}, {96, 32, 8, 1}), 1);
  EXPECT_EQ(copy({2, 1, 1, 8}, {8, 8, 8, 1}, {16, 16, 16, 2}), 1);
  EXPECT_EQ(copy({1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}), 1);
  // Rows that are read again, row by row.
  EXPECT_EQ(copy({1, 3, 4, 8}, {96, 32, 8, 1}, {96, 0, 8, 1}), 3);
  EXPECT_EQ(copy({0, 3, 4, 8}, {96, 32, 8, 1}, {96, 32, 8, 1}), 0);
}

TEST_F(GPUCopies, FailWithoutADriverThatDoes) {
  fail("cuMemsetD8Async", 1);
  void *block;
  EXPECT_EQ(fovea_rt_gpu_acquire(kKind, 64, &block), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_clear(kKind, block, 64), FOVEA_RT_DEVICE);
  EXPECT_THAT(error(), HasSubstr("cannot fill 64 elements on device 0"));
  EXPECT_EQ(fovea_rt_gpu_release(kKind, block), FOVEA_RT_OK);
}

} // namespace
