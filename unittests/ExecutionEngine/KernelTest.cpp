//===- KernelTest.cpp - Tests of calls and their checks -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestUtils.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>
#include <sys/mman.h>
#include <thread>

using namespace fovea;
using namespace fovea::test;
using testing::HasSubstr;

namespace {

using Results = llvm::SmallVector<OwnedTensor>;

TEST(KernelTest, leavesInputsAlone) {
  // The result would fit into the argument.
  Kernel kernel = compileOrDie(R"(
    func.func @negate(%x: tensor<4xf32>) -> tensor<4xf32> {
      %out = linalg.negf ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>)
          -> tensor<4xf32>
      return %out : tensor<4xf32>
    })");
  Floats x({4}, {1, 2, 3, 4});
  Results results;
  ASSERT_EQ(getText(kernel.invoke({x}, results)), "");
  EXPECT_EQ(toFloats(results[0]), (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(x.values, (std::vector<float>{1, 2, 3, 4}));
}

TEST(KernelTest, writesWhereTheFunctionSaysSo) {
  Kernel kernel = compileOrDie(R"(
    func.func @fill(%x: memref<4xf32>) {
      %c = arith.constant 7.0 : f32
      linalg.fill ins(%c : f32) outs(%x : memref<4xf32>)
      return
    })");
  EXPECT_TRUE(kernel.getSignature().arguments[0].isWritten);
  Floats x({4});
  Results results;
  ASSERT_EQ(getText(kernel.invoke({x}, results)), "");
  EXPECT_EQ(x.values, (std::vector<float>{7, 7, 7, 7}));
  TensorRef readOnly = x;
  readOnly.isReadOnly = true;
  EXPECT_THAT(getText(kernel.invoke({readOnly}, results)),
              HasSubstr("argument 0 (%x) of @fill: expected writable memory"));
}

TEST(KernelTest, givesGradientsMemoryOfTheirOwn) {
  Kernel kernel = compileOrDie(R"(
    func.func @f(%d: memref<1x1x?x2xf32>, %p: memref<1x1x?xi32>,
                 %dx: memref<1x1x?x2xf32>) {
      attn.rope_backward ins(%p : memref<1x1x?xi32>)
          gradient(%d : memref<1x1x?x2xf32>) outs(%dx : memref<1x1x?x2xf32>)
      return
    })");
  Floats memory({1, 1, 4, 2});
  int32_t positions[2] = {0, 0};
  Results results;
  auto invoke = [&](float *from, float *to, int64_t numTokens) {
    llvm::SmallVector<int64_t, 4> shape = {1, 1, numTokens, 2};
    return getText(kernel.invoke(
        {{from, ElementType::F32, shape, {}, false},
         {positions, ElementType::I32, {1, 1, numTokens}, {}, false},
         {to, ElementType::F32, shape, {}, false}},
        results));
  };
  float *data = memory.values.data();
  EXPECT_EQ(invoke(data, data + 4, 2), "");
  EXPECT_EQ(invoke(data + 4, data, 2), "");
  // Without a token there is nothing to share.
  EXPECT_EQ(invoke(data, data, 0), "");
  for (int64_t shift : {0, 1, 3})
    EXPECT_EQ(invoke(data, data + shift, 2),
              "argument 2 (%dx) of @f: attn.rope_backward expects memory of "
              "its own for a gradient, but got memory that overlaps argument 0 "
              "(%d) of @f");
}

TEST(KernelTest, findsGradientsBetweenTheRowsOfOthers) {
  Kernel kernel = compileOrDie(R"(
    !rows = memref<1x1x3x2xf32, strided<[?, ?, ?, 1]>>
    func.func @f(%d: !rows, %p: memref<1x1x3xi32>, %dx: !rows) {
      attn.rope_backward ins(%p : memref<1x1x3xi32>) gradient(%d : !rows)
          outs(%dx : !rows)
      return
    })");
  Floats memory({24});
  int32_t positions[3] = {0, 0, 0};
  int64_t shape[] = {1, 1, 3, 2}, strides[] = {0, 0, 6, 1};
  Results results;
  for (int64_t shift = -5; shift <= 12; ++shift) {
    std::string text = getText(kernel.invoke(
        {{memory.values.data() + 6, ElementType::F32, shape, strides, false},
         {positions, ElementType::I32, {1, 1, 3}, {}, false},
         {memory.values.data() + 6 + shift, ElementType::F32, shape, strides,
          false}},
        results));
    // 6 rows of 2 columns, 6 columns apart.
    bool overlaps = (shift + 12) % 6 < 2 || (shift + 12) % 6 > 4;
    EXPECT_EQ(text.empty(), !overlaps) << shift << text;
  }
}

TEST(KernelTest, readsAndWritesByStrides) {
  Kernel kernel = compileOrDie(R"(
    func.func @negate(
        %x: tensor<2x?x3xf32> {bufferization.buffer_layout = strided<[?, 4, 1]>},
        %y: memref<2x?x3xf32, strided<[?, ?, 1]>>) {
      %init = bufferization.to_tensor %y restrict writable
          : memref<2x?x3xf32, strided<[?, ?, 1]>> to tensor<2x?x3xf32>
      %0 = linalg.negf ins(%x : tensor<2x?x3xf32>)
          outs(%init : tensor<2x?x3xf32>) -> tensor<2x?x3xf32>
      bufferization.materialize_in_destination %0 in restrict writable %y
          : (tensor<2x?x3xf32>, memref<2x?x3xf32, strided<[?, ?, 1]>>) -> ()
      return
    })");
  EXPECT_EQ(kernel.getSignature().getString(),
            "(%x: memref<2x?x3xf32, strided<[?, 4, 1]>>, "
            "%y: memref<2x?x3xf32, strided<[?, ?, 1]>>) -> ()");
  Floats x({24}), y({24});
  std::iota(x.values.begin(), x.values.end(), 1.0f);
  llvm::fill(y.values, 0.0f);
  Results results;
  int64_t shape[] = {2, 2, 3}, apart[] = {12, 4, 1}, turned[] = {3, -12, 1};
  auto invoke = [&](llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
    return getText(kernel.invoke(
        {{x.values.data(), ElementType::F32, shape, from, true},
         {y.values.data() + 12, ElementType::F32, shape, to, false}},
        results));
  };
  ASSERT_EQ(invoke(apart, turned), "");
  for (int64_t i : {0, 1})
    for (int64_t j : {0, 1})
      for (int64_t k : {0, 1, 2})
        EXPECT_EQ(y.values[12 + 3 * i - 12 * j + k],
                  -x.values[12 * i + 4 * j + k]);
  // Between the rows nothing changes.
  EXPECT_EQ(llvm::count(y.values, 0.0f), 12);

  EXPECT_EQ(invoke(turned, turned),
            "argument 0 (%x) of @negate: expected memref<2x?x3xf32, "
            "strided<[?, 4, 1]>>, but got strides [3, -12, 1]");
  int64_t columns[] = {1, 4, 2}, same[] = {0, 3, 1}, two[] = {6, 3};
  EXPECT_THAT(invoke(columns, turned), HasSubstr("but got strides [1, 4, 2]"));
  EXPECT_EQ(invoke(apart, same),
            "argument 1 (%y) of @negate: expected memory of its own for each "
            "element, because the kernel writes to it, but got strides "
            "[0, 3, 1] for shape [2, 2, 3]");
  EXPECT_THAT(invoke(apart, two), HasSubstr("one stride for each of the 3"));
  // What is contiguous has strides as well.
  EXPECT_THAT(invoke({}, turned), HasSubstr("but got strides [6, 3, 1]"));
  ASSERT_EQ(invoke(apart, {}), "");
  EXPECT_EQ(y.values[12], -1);
}

TEST(KernelTest, refusesLayoutsThatNoCallerHas) {
  for (llvm::StringRef layout :
       {"strided<[1, 2]>", "strided<[?, ?]>", "strided<[2, 1], offset: 4>",
        "strided<[2, 1], offset: ?>", "affine_map<(i, j) -> (j, i)>"}) {
    std::string text =
        ("func.func @f(%x: memref<2x2xf32, " + layout + ">) { return }").str();
    EXPECT_THAT(getText(compile(text).takeError()),
                HasSubstr("memrefs whose last stride is 1 and offset 0"));
  }
}

TEST(KernelTest, namesWhatIsWrongWithAnArgument) {
  Kernel kernel = compileOrDie(kAdd);
  Floats good({4}), longer({5}), deeper({2, 2});
  auto check = [&](TensorRef second) {
    return getText(kernel.checkInputs({good, second}));
  };
  EXPECT_EQ(check(good), "");
  EXPECT_EQ(getText(kernel.checkInputs({good})),
            "@add expects 2 arguments, but got 1; its type is (%x: "
            "tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>)");
  EXPECT_EQ(check(longer),
            "argument 1 (%y) of @add: expected extent 4 in dimension 0, but "
            "got 5 (shape [5], needed tensor<4xf32>)");
  EXPECT_EQ(check(deeper), "argument 1 (%y) of @add: expected tensor<4xf32> of "
                           "rank 1, but got rank 2 with shape [2, 2]");
  TensorRef bad = good;
  bad.elementType = ElementType::F64;
  EXPECT_EQ(check(bad), "argument 1 (%y) of @add: expected elements of type "
                        "f32, but got f64");
  bad = good;
  int64_t stride = 2;
  bad.strides = stride;
  EXPECT_EQ(check(bad),
            "argument 1 (%y) of @add: expected a contiguous tensor in "
            "row-major order, strides [1], but got strides [2]");
  bad = good;
  bad.data = static_cast<char *>(bad.data) + 1;
  EXPECT_THAT(check(bad), HasSubstr("expected data aligned to 4 bytes"));
  bad.data = nullptr;
  EXPECT_THAT(check(bad), HasSubstr("but got a null pointer"));
  int64_t negative = -4;
  bad = good;
  bad.shape = negative;
  EXPECT_THAT(check(bad), HasSubstr("expected extents of at least 0"));
}

TEST(KernelTest, leavesResultsAloneOnFailure) {
  Kernel kernel = compileOrDie(kAdd);
  Floats good({4}), longer({5});
  Results results;
  ASSERT_EQ(getText(kernel.invoke({good, good}, results)), "");
  std::vector<float> before = toFloats(results[0]);
  EXPECT_NE(getText(kernel.invoke({good, longer}, results)), "");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(toFloats(results[0]), before);
}

constexpr const char *kDense = R"(
  func.func @dense(%q: tensor<?x?x?x4xf32>, %k: tensor<?x?x?x4xf32>,
                   %v: tensor<?x?x?x4xf32>) -> tensor<?x?x?x4xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %b = tensor.dim %q, %c0 : tensor<?x?x?x4xf32>
    %h = tensor.dim %q, %c1 : tensor<?x?x?x4xf32>
    %n = tensor.dim %q, %c2 : tensor<?x?x?x4xf32>
    %init = tensor.empty(%b, %h, %n) : tensor<?x?x?x4xf32>
    %out = attn.dense ins(%q, %k, %v : tensor<?x?x?x4xf32>,
        tensor<?x?x?x4xf32>, tensor<?x?x?x4xf32>)
      outs(%init : tensor<?x?x?x4xf32>) -> tensor<?x?x?x4xf32>
    return %out : tensor<?x?x?x4xf32>
  })";

TEST(KernelTest, checksDynamicExtentsAgainstEachOther) {
  CompileOptions options;
  options.target = Target::Reference;
  Kernel kernel = compileOrDie(kDense, options);
  Floats q({2, 4, 3, 4}), kv({2, 2, 5, 4});
  Results results;
  ASSERT_EQ(getText(kernel.invoke({q, kv, kv}, results)), "");
  EXPECT_EQ(results[0].getShape(), (llvm::ArrayRef<int64_t>{2, 4, 3, 4}));

  Floats shorter({2, 2, 4, 4}), heads({2, 3, 5, 4}), batch({1, 2, 5, 4});
  EXPECT_EQ(getText(kernel.checkInputs({q, kv, shorter})),
            "argument 2 (%v) of @dense: attn.dense expects extent 5, the "
            "extent in dimension 2 of argument 1 (%k) of @dense, in dimension "
            "2, but got 4");
  EXPECT_THAT(getText(kernel.checkInputs({q, heads, heads})),
              HasSubstr("argument 0 (%q) of @dense: attn.dense expects extent "
                        "a multiple of 3"));
  EXPECT_THAT(getText(kernel.checkInputs({q, batch, batch})),
              HasSubstr("argument 1 (%k) of @dense: attn.dense expects extent "
                        "2, the extent in dimension 0"));
}

TEST(KernelTest, runsOnNothing) {
  for (Target target : {Target::CPU, Target::Reference}) {
    CompileOptions options;
    options.target = target;
    Kernel kernel = compileOrDie(kDense, options);
    Floats q({0, 4, 3, 4}), kv({0, 2, 5, 4});
    Results results;
    ASSERT_EQ(getText(kernel.invoke({q, kv, kv}, results)), "");
    EXPECT_EQ(results[0].getShape(), (llvm::ArrayRef<int64_t>{0, 4, 3, 4}));
    Floats noQueries({2, 4, 0, 4}), keys({2, 2, 5, 4});
    ASSERT_EQ(getText(kernel.invoke({noQueries, keys, keys}, results)), "");
    EXPECT_EQ(results[0].getNumElements(), 0);
    Floats queries({2, 4, 3, 4}), noKeys({2, 2, 0, 4});
    ASSERT_EQ(getText(kernel.invoke({queries, noKeys, noKeys}, results)), "");
    EXPECT_THAT(toFloats(results[0]), testing::Each(0.0f));
  }
}

TEST(KernelTest, ownsResultsThatAreNotFresh) {
  Kernel kernel = compileOrDie(R"(
    func.func @f(%x: tensor<2xf32>)
        -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<1xf32>) {
      %c = arith.constant dense<[5.0, 6.0]> : tensor<2xf32>
      %part = tensor.extract_slice %x[1] [1] [1]
          : tensor<2xf32> to tensor<1xf32>
      return %x, %x, %c, %part
          : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<1xf32>
    })");
  Results results;
  {
    Floats x({2}, {1, 2});
    ASSERT_EQ(getText(kernel.invoke({x}, results)), "");
    x.values = {8, 9};
  }
  ASSERT_EQ(results.size(), 4u);
  results[1].getDataAs<float>()[0] = 7;
  EXPECT_EQ(toFloats(results[0]), (std::vector<float>{1, 2}));
  EXPECT_EQ(toFloats(results[1]), (std::vector<float>{7, 2}));
  EXPECT_EQ(toFloats(results[2]), (std::vector<float>{5, 6}));
  EXPECT_EQ(toFloats(results[3]), (std::vector<float>{2}));
}

TEST(KernelTest, releasesMemoryToTheCaller) {
  Kernel kernel = compileOrDie(kAdd);
  Floats x({4}, {1, 2, 3, 4});
  Results results;
  ASSERT_EQ(getText(kernel.invoke({x, x}, results)), "");
  float *data = results[0].getDataAs<float>();
  OwnedTensor::Released released = results[0].release();
  EXPECT_EQ(results[0].getData(), nullptr);
  results.clear();
  EXPECT_EQ(data[3], 8);
  released.deleter(released.base);
}

TEST(KernelTest, takesAndReturnsScalars) {
  Kernel kernel = compileOrDie(R"(
    func.func @f(%flag: i1, %n: index, %x: f64, %t: tensor<f32>)
        -> (f64, i1, tensor<f32>, i8) {
      %i = arith.index_cast %n : index to i64
      %d = arith.sitofp %i : i64 to f64
      %sum = arith.addf %d, %x : f64
      %true = arith.constant true
      %not = arith.xori %flag, %true : i1
      %c = arith.constant -3 : i8
      return %sum, %not, %t, %c : f64, i1, tensor<f32>, i8
    })");
  EXPECT_EQ(kernel.getSignature().getString(),
            "(%flag: i1, %n: index, %x: f64, %t: tensor<f32>) -> (f64, i1, "
            "tensor<f32>, i8)");
  uint8_t flag = 1;
  int64_t n = int64_t(1) << 40;
  double x = 0.5;
  Floats t({}, {2.5});
  Results results;
  ASSERT_EQ(getText(kernel.invoke({{&flag, ElementType::I1, {}, {}, false},
                                   {&n, ElementType::I64, {}, {}, false},
                                   {&x, ElementType::F64, {}, {}, false},
                                   t},
                                  results)),
            "");
  EXPECT_EQ(*results[0].getDataAs<double>(), (int64_t(1) << 40) + 0.5);
  EXPECT_EQ(*results[1].getDataAs<uint8_t>(), 0);
  EXPECT_EQ(*results[2].getDataAs<float>(), 2.5);
  EXPECT_EQ(*results[3].getDataAs<int8_t>(), -3);
}

TEST(KernelTest, returnsOneScalar) {
  Kernel kernel = compileOrDie(R"(
    func.func @f(%x: bf16, %y: i1) -> bf16 {
      return %x : bf16
    })");
  uint16_t x = 0x3f80;
  uint8_t y = 0;
  Results results;
  ASSERT_EQ(getText(kernel.invoke({{&x, ElementType::BF16, {}, {}, false},
                                   {&y, ElementType::I1, {}, {}, false}},
                                  results)),
            "");
  EXPECT_EQ(*results[0].getDataAs<uint16_t>(), 0x3f80);
}

TEST(KernelTest, reportsFailuresOfTheRuntime) {
  Kernel kernel = compileOrDie(R"(
    func.func @f(%n: index) -> tensor<?xf32> {
      %c = arith.constant 7.0 : f32
      %init = tensor.empty(%n) : tensor<?xf32>
      %out = linalg.fill ins(%c : f32) outs(%init : tensor<?xf32>)
          -> tensor<?xf32>
      return %out : tensor<?xf32>
    })");
  int64_t n = int64_t(1) << 55;
  Results results;
  TensorRef argument{&n, ElementType::Index, {}, {}, false};
  EXPECT_THAT(getText(kernel.invoke({argument}, results)),
              testing::StartsWith("@f failed: "));
  n = 3;
  ASSERT_EQ(getText(kernel.invoke({argument}, results)), "");
  EXPECT_EQ(toFloats(results[0]), (std::vector<float>{7, 7, 7}));
}

TEST(KernelTest, indexesWith64Bits) {
  Kernel kernel = compileOrDie(R"(
    func.func @f(%x: tensor<?x2xi8>, %i: index) -> i8 {
      %c1 = arith.constant 1 : index
      %element = tensor.extract %x[%i, %c1] : tensor<?x2xi8>
      return %element : i8
    })");
  // Pages that are never touched cost nothing.
  int64_t rows = (int64_t(1) << 31) + 3, row = rows - 1;
  void *memory = mmap(nullptr, 2 * rows, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  static_cast<char *>(memory)[2 * rows - 1] = 42;
  int64_t shape[] = {rows, 2};
  Results results;
  EXPECT_EQ(getText(kernel.invoke({{memory, ElementType::I8, shape, {}, false},
                                   {&row, ElementType::Index, {}, {}, false}},
                                  results)),
            "");
  EXPECT_EQ(*results[0].getDataAs<int8_t>(), 42);
  munmap(memory, 2 * rows);

  int64_t absurd[] = {int64_t(1) << 62, 2};
  EXPECT_THAT(
      getText(kernel.checkInputs({{memory, ElementType::I8, absurd, {}, false},
                                  {&row, ElementType::Index, {}, {}, false}})),
      HasSubstr("make more bytes than an address space has"));
}

TEST(KernelTest, runsOnSeveralThreads) {
  Kernel kernel = compileOrDie(kDense);
  Floats q({2, 4, 33, 4}), kv({2, 2, 33, 4});
  Results expected;
  ASSERT_EQ(getText(kernel.invoke({q, kv, kv}, expected)), "");
  std::vector<std::thread> threads;
  std::atomic<int> numEqual = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Results results;
      for (int run = 0; run < 20; ++run)
        if (getText(kernel.invoke({q, kv, kv}, results)).empty())
          numEqual += toFloats(results[0]) == toFloats(expected[0]);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(numEqual, 80);
}

} // namespace
