//===- GPUProductsTest.cpp - Products of matrices of the GPU runtime ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program of its own: once cuBLASLt has been found, it stays.
//
//===----------------------------------------------------------------------===//

#include "FakeCublasLt.h"
#include "FakeCuda.h"
#include "RuntimeTestUtils.h"
#include "fovea_rt/gpu.h"
#include "fovea_rt/half_float.h"

#include "gmock/gmock.h"

#include <cstdlib>
#include <dlfcn.h>
#include <vector>

using namespace fovea::rt::test;
using testing::HasSubstr;

namespace {

constexpr int32_t kKind = FOVEA_RT_GPU_CUDA;

/// An axis of a product: kind, extent, strides in left, right, result, bias.
struct Axis {
  int64_t numbers[FOVEA_RT_GPU_AXIS_NUMBERS];
};

/// A product of arrays of small whole numbers, which f16 and bf16 have, too.
struct Product {
  std::vector<Axis> axes;
  int32_t factorType = FOVEA_RT_GPU_F32, resultType = FOVEA_RT_GPU_F32,
          flags = 0;
  bool hasBias = false;
  void *stream = nullptr;
  fovea_rt_status status = FOVEA_RT_OK;

  static int64_t bytesOf(int32_t type) {
    return type == FOVEA_RT_GPU_F32 ? 4 : 2;
  }
  static void store(int32_t type, std::vector<char> &array, int64_t at,
                    float value) {
    uint16_t half = type == FOVEA_RT_GPU_F16 ? fovea::truncateToF16(value)
                                             : fovea::truncateToBF16(value);
    if (type == FOVEA_RT_GPU_F32)
      memcpy(&array[at * 4], &value, 4);
    else
      memcpy(&array[at * 2], &half, 2);
  }
  static float load(int32_t type, const std::vector<char> &array, int64_t at) {
    float value;
    uint16_t half;
    if (type == FOVEA_RT_GPU_F32) {
      memcpy(&value, &array[at * 4], 4);
      return value;
    }
    memcpy(&half, &array[at * 2], 2);
    return type == FOVEA_RT_GPU_F16 ? fovea::extendF16(half)
                                    : fovea::extendBF16(half);
  }

  /// Elements that the strides of an array reach.
  int64_t sizeOf(int array) const {
    int64_t last = 0;
    for (const Axis &axis : axes)
      last += std::max<int64_t>(axis.numbers[1] - 1, 0) *
              std::abs(axis.numbers[2 + array]);
    return last + 1;
  }

  void
  visit(size_t depth, std::array<int64_t, 4> at,
        const std::function<void(const std::array<int64_t, 4> &)> &body) const {
    if (depth == axes.size())
      return body(at);
    const auto &numbers = axes[depth].numbers;
    for (int64_t i = 0; i < numbers[1]; ++i) {
      visit(depth + 1, at, body);
      for (int array = 0; array < 4; ++array)
        at[array] += numbers[2 + array];
    }
  }

  /// Runs it; compares with the sums as they are defined.
  void run() {
    int32_t types[] = {factorType, factorType, resultType, resultType};
    std::vector<char> arrays[4];
    for (int array = 0; array < 4; ++array) {
      int64_t size = sizeOf(array);
      arrays[array].resize(size * bytesOf(types[array]));
      for (int64_t i = 0; i < size; ++i)
        store(types[array], arrays[array], i,
              float((i * 7 + array * 3 + i / 5) % 5 - 2));
    }
    std::vector<float> expected(sizeOf(2)), biases(sizeOf(2));
    std::vector<bool> isMet(sizeOf(2));
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = load(resultType, arrays[2], i);
    bool adds = flags & FOVEA_RT_GPU_ADD;
    // An extent of 0 along the depth is a sum of nothing.
    std::vector<Axis> all = axes;
    for (Axis &axis : axes)
      if (axis.numbers[0] == FOVEA_RT_GPU_AXIS_DEPTH)
        axis.numbers[1] = 1;
    visit(0, {}, [&](const std::array<int64_t, 4> &at) {
      if (!isMet[at[2]] && !adds)
        expected[at[2]] = 0;
      isMet[at[2]] = true;
      biases[at[2]] = hasBias ? load(resultType, arrays[3], at[3]) : 0;
    });
    axes = all;
    visit(0, {}, [&](const std::array<int64_t, 4> &at) {
      expected[at[2]] += load(factorType, arrays[0], at[0]) *
                         load(factorType, arrays[1], at[1]);
    });
    call(arrays);
    if (status)
      return;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(load(resultType, arrays[2], i), expected[i] + biases[i]) << i;
  }

  void call(std::vector<char> *arrays) {
    struct Context {
      const Product *product;
      std::vector<char> *arrays;
    } context{this, arrays};
    fovea_rt_gpu_set_stream(stream);
    status = invoke([context] {
      const Product &product = *context.product;
      fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
      void *mapped[4];
      for (int i = 0; i < 4; ++i)
        mapped[i] = fovea_rt_gpu_map(
            queue, context.arrays[i].data(), int64_t(context.arrays[i].size()),
            i == 2 ? FOVEA_RT_GPU_READ | FOVEA_RT_GPU_WRITE
                   : FOVEA_RT_GPU_READ);
      fovea_rt_gpu_multiply(
          product.factorType, product.resultType, product.flags, mapped[0],
          mapped[1], mapped[2], product.hasBias ? mapped[3] : nullptr,
          int32_t(product.axes.size()), product.axes.front().numbers);
      fovea_rt_gpu_end(queue);
    });
    fovea_rt_gpu_set_stream(nullptr);
  }
};

enum : int64_t {
  Batch = FOVEA_RT_GPU_AXIS_BATCH,
  Rows = FOVEA_RT_GPU_AXIS_ROWS,
  Columns = FOVEA_RT_GPU_AXIS_COLUMNS,
  Depth = FOVEA_RT_GPU_AXIS_DEPTH
};

/// left [m, k], right [k, n], result [m, n], all contiguous.
std::vector<Axis> plain(int64_t m, int64_t n, int64_t k) {
  return {{{Rows, m, k, 0, n, 0}},
          {{Columns, n, 0, 1, 1, 1}},
          {{Depth, k, 1, n, 0, 0}}};
}

class GPUProducts : public testing::Test {
protected:
  void SetUp() override {
    setenv("FOVEA_LIBCUDA", FOVEA_FAKE_CUDA, 1);
    fakeCuda = load<FakeCudaFunction>(FOVEA_FAKE_CUDA, "fakeCuda")();
  }
  void TearDown() override { EXPECT_TRUE(fakeCuda->blocks.empty()); }

  template <typename Function>
  static Function load(const char *path, const char *symbol) {
    void *library = dlopen(path, RTLD_NOW);
    return reinterpret_cast<Function>(dlsym(library, symbol));
  }
  FakeCublasLt &useLibrary() {
    setenv("FOVEA_LIBCUBLASLT", FOVEA_FAKE_CUBLASLT, 1);
    return *load<FakeCublasLtFunction>(FOVEA_FAKE_CUBLASLT, "fakeCublasLt")();
  }

  FakeCuda *fakeCuda;
};

TEST_F(GPUProducts, WithoutLibrary) {
  Product product{plain(2, 3, 4)};
  setenv("FOVEA_LIBCUBLASLT", "/nonexistent/libcublasLt.so", 1);
  product.run();
  EXPECT_EQ(product.status, FOVEA_RT_UNAVAILABLE);
  EXPECT_THAT(
      fovea_rt_last_error(),
      HasSubstr("products of matrices on a GPU need cuBLASLt, which is "
                "not on this machine, unless they are compiled with "
                "FOVEA_GPU_PRODUCTS=loops: /nonexistent/libcublasLt.so"));
  // By its usual names, where there is none either.
  unsetenv("FOVEA_LIBCUBLASLT");
  bool isThere = false;
  for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12",
                           "libcublasLt.so.11", "libcublasLt.so"})
    isThere |= dlopen(name, RTLD_LAZY) != nullptr;
  if (!isThere) {
    product.run();
    EXPECT_EQ(product.status, FOVEA_RT_UNAVAILABLE);
    EXPECT_THAT(fovea_rt_last_error(), HasSubstr("libcublasLt.so"));
  }
  setenv("FOVEA_LIBCUBLASLT", "libm.so.6", 1);
  product.run();
  EXPECT_EQ(product.status, FOVEA_RT_UNAVAILABLE);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("libm.so.6 is no cuBLASLt: it has no cublasLtCreate"));
}

TEST_F(GPUProducts, Layouts) {
  FakeCublasLt &fake = useLibrary();
  for (int64_t m : {1, 2, 5})
    for (int64_t n : {1, 3})
      for (int64_t k : {1, 4, 7})
        for (int transposed = 0; transposed < 8; ++transposed)
          for (int32_t flags : {0, int(FOVEA_RT_GPU_ADD)}) {
            SCOPED_TRACE(testing::Message()
                         << m << ' ' << n << ' ' << k << ' ' << transposed);
            auto at = [&](int array, int64_t first, int64_t second) {
              return transposed >> array & 1
                         ? std::pair<int64_t, int64_t>(1, first)
                         : std::pair(second, int64_t(1));
            };
            auto [leftRow, leftDepth] = at(0, m, k);
            auto [rightDepth, rightColumn] = at(1, k, n);
            auto [row, column] = at(2, m, n);
            Product product{{{{Rows, m, leftRow, 0, row, 0}},
                             {{Columns, n, 0, rightColumn, column, 1}},
                             {{Depth, k, leftDepth, rightDepth, 0, 0}}}};
            product.flags = flags;
            product.run();
            EXPECT_EQ(product.status, FOVEA_RT_OK) << fovea_rt_last_error();
          }
  EXPECT_EQ(fake.numHandles, 1);
  EXPECT_EQ(fake.numAlive, 0);
  EXPECT_EQ(fake.lastComputeType, 68);
}

TEST_F(GPUProducts, TypesAndBiases) {
  FakeCublasLt &fake = useLibrary();
  for (int32_t factors :
       {int(FOVEA_RT_GPU_F32), int(FOVEA_RT_GPU_F16), int(FOVEA_RT_GPU_BF16)})
    for (int32_t results : {factors, int(FOVEA_RT_GPU_F32)})
      for (bool bias : {false, true}) {
        // An odd depth: rows of 16 bits are not aligned to more.
        Product product{plain(3, 4, 5), factors, results};
        product.hasBias = bias;
        product.run();
        EXPECT_EQ(product.status, FOVEA_RT_OK) << fovea_rt_last_error();
      }
  Product tf32{plain(3, 4, 5)};
  tf32.flags = FOVEA_RT_GPU_TF32;
  tf32.run();
  EXPECT_EQ(fake.lastComputeType, 77);
  Product wrong{plain(3, 4, 5), FOVEA_RT_GPU_F16, FOVEA_RT_GPU_BF16};
  wrong.run();
  EXPECT_EQ(wrong.status, FOVEA_RT_INVALID_ARGUMENT);
}

TEST_F(GPUProducts, Axes) {
  FakeCublasLt &fake = useLibrary();
  auto run = [&](std::vector<Axis> axes, int products, int batch,
                 bool bias = false) {
    int before = fake.numProducts;
    Product product{std::move(axes)};
    product.hasBias = bias;
    product.run();
    EXPECT_EQ(product.status, FOVEA_RT_OK) << fovea_rt_last_error();
    EXPECT_EQ(fake.numProducts - before, products);
    EXPECT_EQ(fake.lastBatch, batch);
  };
  // [b, n, k] by [k, e]: one matrix of b n rows; with a bias, too.
  for (bool bias : {false, true})
    run({{{Rows, 2, 15, 0, 12, 0}},
         {{Rows, 3, 5, 0, 4, 0}},
         {{Columns, 4, 0, 1, 1, 1}},
         {{Depth, 5, 1, 4, 0, 0}}},
        1, 1, bias);
  // A batch, whose right factor is one for all.
  run({{{Batch, 6, 10, 0, 8, 0}},
       {{Rows, 2, 5, 0, 4, 0}},
       {{Columns, 4, 0, 1, 1, 0}},
       {{Depth, 5, 1, 4, 0, 0}}},
      1, 6);
  // [b, n, h, d] by [b, m, h, d]: batches of heads, and calls for entries.
  run({{{Batch, 2, 60, 48, 60, 0}},
       {{Batch, 3, 4, 4, 20, 0}},
       {{Rows, 5, 12, 0, 4, 0}},
       {{Columns, 4, 0, 12, 1, 0}},
       {{Depth, 4, 1, 1, 0, 0}}},
      2, 3);
  // A depth of two axes that follow each other.
  run({{{Rows, 3, 6, 0, 4, 0}},
       {{Columns, 4, 0, 1, 1, 0}},
       {{Depth, 2, 3, 12, 0, 0}},
       {{Depth, 3, 1, 4, 0, 0}}},
      1, 1);
  // And two that do not: sums of two products.
  run({{{Rows, 3, 6, 0, 4, 0}},
       {{Columns, 4, 0, 1, 1, 0}},
       {{Depth, 2, 3, 4, 0, 0}},
       {{Depth, 3, 1, 8, 0, 0}}},
      2, 1);
  // Columns of two axes that do not follow each other in the right factor; a
  // bias that differs by the outer one.
  for (bool bias : {false, true})
    run({{{Rows, 3, 5, 0, 8, 0}},
         {{Columns, 2, 0, 40, 4, 4}},
         {{Columns, 4, 0, 1, 1, 1}},
         {{Depth, 5, 1, 4, 0, 0}}},
        bias ? 2 : 1, bias ? 1 : 2, bias);
  // Rows that are all the same one.
  run({{{Rows, 3, 0, 0, 4, 0}},
       {{Columns, 4, 0, 1, 1, 0}},
       {{Depth, 5, 1, 4, 0, 0}}},
      1, 3);
  // Sums of nothing.
  run({{{Rows, 3, 0, 0, 4, 0}},
       {{Columns, 4, 0, 1, 1, 1}},
       {{Depth, 0, 1, 4, 0, 0}}},
      1, 1, /*bias=*/true);
  // No rows are no work.
  int before = fake.numProducts;
  Product none{plain(0, 3, 4)};
  none.run();
  EXPECT_EQ(none.status, FOVEA_RT_OK);
  EXPECT_EQ(fake.numProducts, before);

  // Columns that are apart are those of single rows.
  run({{{Rows, 3, 10, 0, 4, 0}},
       {{Columns, 4, 0, 1, 1, 0}},
       {{Depth, 5, 2, 4, 0, 0}}},
      1, 3);
  Product same{{{{Rows, 3, 1, 0, 4, 0}},
                {{Columns, 4, 0, 1, 1, 0}},
                {{Depth, 5, 0, 4, 0, 0}}}};
  same.run();
  EXPECT_EQ(same.status, FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("an axis of adjacent elements"));
  Product narrow{{{{Rows, 3, 6, 0, 4, 0}},
                  {{Columns, 4, 0, 1, 1, 0}},
                  {{Depth, 2, 3, 4, 0, 0}},
                  {{Depth, 3, 1, 8, 0, 0}}},
                 FOVEA_RT_GPU_F16,
                 FOVEA_RT_GPU_F16};
  narrow.run();
  EXPECT_EQ(narrow.status, FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("sum along one axis"));
}

TEST_F(GPUProducts, ChoicesAndStreams) {
  FakeCublasLt &fake = useLibrary();
  Product product{plain(11, 13, 17)};
  product.run();
  int before = fake.numChoices;
  for (int round = 0; round < 2; ++round)
    for (intptr_t stream : {0x10, 0x20}) {
      product.stream = reinterpret_cast<void *>(stream);
      product.run();
      EXPECT_EQ(product.status, FOVEA_RT_OK) << fovea_rt_last_error();
      EXPECT_EQ(fake.lastStream, product.stream);
    }
  EXPECT_EQ(fake.numChoices, before);
  product.stream = nullptr;

  fake.choiceResult = 3;
  product.axes = plain(11, 13, 18);
  product.run();
  EXPECT_EQ(product.status, FOVEA_RT_OUT_OF_MEMORY);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("cuBLASLt cannot plan 1 products of 11 x 18 by 18 x 13 "
                        "numbers: CUBLAS_STATUS_ALLOC_FAILED"));
  fake.choiceResult = 0;
  fake.knowsNothing = true;
  product.run();
  EXPECT_EQ(product.status, FOVEA_RT_DEVICE);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("CUBLAS_STATUS_NOT_SUPPORTED"));
  fake.knowsNothing = false;
  fake.productResult = 13;
  product.run();
  EXPECT_EQ(product.status, FOVEA_RT_DEVICE);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("cannot run 1 products of 11 x 18 by 18 x 13 numbers: "
                        "CUBLAS_STATUS_EXECUTION_FAILED"));
  fake.productResult = 0;
  EXPECT_EQ(fake.numAlive, 0);
}

TEST_F(GPUProducts, NeedsAQueue) {
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_multiply(FOVEA_RT_GPU_F32, FOVEA_RT_GPU_F32, 0,
                                    nullptr, nullptr, nullptr, nullptr, 0,
                                    nullptr);
            }),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("need a queue"));
}

} // namespace
