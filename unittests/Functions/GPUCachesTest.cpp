//===- GPUCachesTest.cpp - Caches in memory of a pretended GPU ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Runtime/FakeCuda.h"
#include "FunctionsTestUtils.h"
#include "fovea_rt/gpu.h"
#include "llvm/Support/FileSystem.h"
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr int64_t B = 2, G = 2, D = 8, E = 6;

/// A copy of an array on the device of the calling thread.
class DeviceArray {
public:
  explicit DeviceArray(const Array &array) : array(array) {
    EXPECT_EQ(
        fovea_rt_gpu_acquire(FOVEA_RT_GPU_CUDA, array.bytes.size(), &data),
        FOVEA_RT_OK);
    std::memcpy(data, array.bytes.data(), array.bytes.size());
  }
  ~DeviceArray() { (void)fovea_rt_gpu_release(FOVEA_RT_GPU_CUDA, data); }
  DeviceArray(const DeviceArray &) = delete;

  operator TensorRef() const { return {data, array.type, array.shape}; }

private:
  const Array &array;
  void *data = nullptr;
};

class GPUCachesTest : public testing::Test {
protected:
  void SetUp() override {
    setenv("FOVEA_LIBCUDA", FOVEA_FAKE_CUDA, 1);
    // Kernels with these letters in their names are in every module.
    setenv("FAKE_CUDA_KERNELS", "_kernel", 1);
    static void *library = dlopen(FOVEA_FAKE_CUDA, RTLD_NOW);
    fake = reinterpret_cast<FakeCudaFunction>(dlsym(library, "fakeCuda"))();
    fovea_rt_gpu_set_device(1);
    fovea_rt_gpu_set_stream(stream);
    fake->calls.clear();
  }
  /// Nothing is left.
  void TearDown() override {
    fovea_rt_gpu_set_device(0);
    fovea_rt_gpu_set_stream(nullptr);
    EXPECT_TRUE(fake->blocks.empty());
  }

  static KVCache make(Target target, int64_t capacity = 9) {
    KVCacheOptions options;
    options.valueWidth = E;
    options.target = target;
    return llvm::cantFail(KVCache::create(B, G, D, capacity, options));
  }
  /// What a token of `batch` sequences of their own lengths asks of the driver;
  /// their pages are another cache's, too.
  std::vector<std::string> countToken(int64_t batch, bool isPaged) {
    Array k = makeRandom({batch, G, 5, D}, 1),
          v = makeRandom({batch, G, 5, E}, 2),
          one = makeRandom({batch, G, 1, D}, 3),
          two = makeRandom({batch, G, 1, E}, 4);
    DeviceArray keys(k), values(v), key(one), value(two);
    std::vector<int64_t> lengths(batch);
    for (int64_t entry = 0; entry < batch; ++entry)
      lengths[entry] = 1 + entry % 5;
    int64_t shape[] = {batch};
    TensorRef counts{lengths.data(), ElementType::I64, shape};
    if (!isPaged) {
      KVCacheOptions options;
      options.valueWidth = E;
      options.target = Target::GPU;
      KVCache cache = llvm::cantFail(KVCache::create(batch, G, D, 9, options));
      EXPECT_EQ(getText(cache.append(keys, TensorRef(values), counts)), "");
      fake->calls.clear();
      EXPECT_EQ(getText(cache.append(key, TensorRef(value))), "");
      return fake->calls;
    }
    PagedCacheOptions options;
    options.batch = batch;
    options.valueWidth = E;
    options.target = Target::GPU;
    PagedCache cache =
        llvm::cantFail(PagedCache::create(5 * batch, 4, G, D, options));
    EXPECT_EQ(getText(cache.append(keys, TensorRef(values), counts)), "");
    PagedCache fork = llvm::cantFail(cache.fork());
    fake->calls.clear();
    EXPECT_EQ(getText(fork.append(key, TensorRef(value))), "");
    return fake->calls;
  }
  size_t countWaits() const {
    return fake->count("cuCtxSynchronize") +
           fake->count("cuStreamSynchronize") +
           fake->count("cuEventSynchronize");
  }

  FakeCuda *fake = nullptr;
  void *stream = reinterpret_cast<void *>(0x5000);
  Array k = makeRandom({B, G, 4, D}, 1), v = makeRandom({B, G, 4, E}, 2);
};

TEST_F(GPUCachesTest, AppendIsWorkOfTheStream) {
  KVCache cache = make(Target::GPU);
  EXPECT_EQ(cache.getDevice(), 1);
  DeviceArray keys(k), values(v);
  fake->calls.clear();
  EXPECT_EQ(getText(cache.append(keys, TensorRef(values))), "");
  EXPECT_EQ(fake->count("cuMemcpy2DAsync_v2"), 2u);
  EXPECT_EQ(fake->lastStream, stream);
  EXPECT_EQ(countWaits(), 0u);
  EXPECT_EQ(getText(cache.truncate(3)), "");
  EXPECT_EQ(countWaits(), 0u);
  // What another stream still writes is read by neither.
  KVCache fork = llvm::cantFail(cache.fork());
  auto firstWait = llvm::find(fake->calls, "cuCtxSynchronize");
  EXPECT_LT(firstWait, llvm::find(fake->calls, "cuMemsetD8Async"));
  EXPECT_EQ(fork.getLengths(), llvm::ArrayRef<int64_t>({3, 3}));
  // The same content in a file as that of a cache of the CPU.
  KVCache host = make(Target::CPU);
  EXPECT_EQ(getText(host.append(k, TensorRef(v))), "");
  EXPECT_EQ(getText(host.truncate(3)), "");
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("cache", "", path));
  EXPECT_EQ(getText(fork.save(path)), "");
  KVCache loaded = llvm::cantFail(KVCache::load(path)),
          moved = llvm::cantFail(KVCache::load(path, Target::GPU));
  llvm::sys::fs::remove(path);
  EXPECT_EQ(moved.getDevice(), 1);
  Array q = makeRandom({B, 4, 1, D}, 3);
  expectNear(get(loaded.attend(q)).output, get(host.attend(q)).output, 0);
}

TEST_F(GPUCachesTest, AnAppendIsAsManyCallsForAllNumbersOfSequences) {
  for (bool isPaged : {false, true}) {
    // The first call loads the module.
    countToken(32, isPaged);
    std::vector<std::string> few = countToken(16, isPaged),
                             many = countToken(64, isPaged);
    EXPECT_EQ(few, many);
    // A list, and a kernel for keys and one for values. Pages before that.
    EXPECT_EQ(llvm::count(many, "cuMemcpyHtoDAsync_v2"), isPaged ? 2 : 1);
    EXPECT_EQ(llvm::count(many, "cuLaunchKernel"), isPaged ? 4 : 2);
    EXPECT_EQ(llvm::count(many, "cuMemcpy2DAsync_v2"), 0);
    EXPECT_EQ(llvm::count(many, "cuCtxSynchronize"), 0);
    EXPECT_EQ(llvm::count(many, "cuStreamSynchronize"), 0);
    EXPECT_EQ(fake->lastStream, stream);
  }
}

TEST_F(GPUCachesTest, TokensInAnyOrderAreReadByTheDriver) {
  constexpr int64_t batch = 9;
  Array rows = makeRandom({batch, G, D, 1}, 1);
  DeviceArray tokens(rows);
  TensorRef whole = tokens;
  int64_t shape[] = {batch, G, 1, D / 2}, strides[] = {G * D, D, D, 2},
          lengths[] = {1, 0, 1, 0, 1, 0, 1, 0, 1}, numEntries[] = {batch};
  TensorRef columns{whole.data, whole.elementType, shape, strides};
  KVCacheOptions options;
  options.target = Target::GPU;
  KVCache cache = llvm::cantFail(KVCache::create(batch, G, D / 2, 4, options));
  EXPECT_EQ(
      getText(cache.append(columns, columns,
                           TensorRef{lengths, ElementType::I64, numEntries})),
      "");
  // Five sequences, keys and values, and heads.
  EXPECT_EQ(fake->count("cuMemcpy2DAsync_v2"), 5 * 2 * size_t(G));
  EXPECT_EQ(fake->count("cuLaunchKernel"), 0u);
}

TEST_F(GPUCachesTest, AKernelThatFailsChangesNothing) {
  constexpr int64_t batch = 9;
  Array rows = makeRandom({batch, G, 3, D}, 1);
  DeviceArray tokens(rows);
  PagedCacheOptions options;
  options.batch = batch;
  options.target = Target::GPU;
  PagedCache cache = llvm::cantFail(PagedCache::create(30, 2, G, D, options));
  EXPECT_EQ(getText(cache.append(tokens, TensorRef(tokens))), "");
  EXPECT_EQ(cache.getNumFreePages(), 12);
  PagedCache fork = llvm::cantFail(cache.fork());
  // Of pages that are shared, and of tokens.
  for (int successes : {0, 1, 2, 3}) {
    fake->failing = "cuLaunchKernel";
    fake->result = 700;
    fake->successes = successes;
    int64_t shape[] = {batch};
    std::vector<int64_t> ones(batch, 1);
    EXPECT_THAT(
        getText(cache.append(tokens, TensorRef(tokens),
                             TensorRef{ones.data(), ElementType::I64, shape})),
        testing::HasSubstr("CUDA_ERROR"));
    fake->failing = "";
    EXPECT_EQ(cache.getNumFreePages(), 12);
    EXPECT_EQ(cache.getLengths(), fork.getLengths());
  }
}

TEST_F(GPUCachesTest, GroupsAreAddedWithoutTheHost) {
  constexpr int64_t group = 4, rank = 2;
  Array keyWeights[] = {makeRandom({1, rank, group, D}, 4),
                        makeRandom({1, rank, 2 * group, D}, 5)},
        valueWeights[] = {makeRandom({1, rank, group, E}, 6),
                          makeRandom({1, rank, 2 * group, E}, 7)};
  DeviceArray kw[] = {DeviceArray(keyWeights[0]), DeviceArray(keyWeights[1])},
              vw[] = {DeviceArray(valueWeights[0]),
                      DeviceArray(valueWeights[1])};
  TensorRef keyRefs[] = {kw[0], kw[1]}, valueRefs[] = {vw[0], vw[1]};
  MultipoleCacheOptions options;
  options.target = Target::GPU;
  MultipoleCache cache = llvm::cantFail(
      MultipoleCache::create(B, G, SummaryWeights(keyRefs),
                             SummaryWeights(valueRefs), group, options));
  EXPECT_EQ(cache.getDevice(), 1);
  DeviceArray keys(k), values(v);
  fake->calls.clear();
  // A group, and one with which its sums are made.
  EXPECT_EQ(getText(cache.append(keys, values)), "");
  EXPECT_EQ(fake->count("cuLaunchKernel"), 0u);
  EXPECT_EQ(getText(cache.append(keys, values)), "");
  EXPECT_EQ(fake->count("cuLaunchKernel"), 4u);
  EXPECT_EQ(fake->count("cuMemcpyDtoHAsync_v2"), 0u);
  // At most for the log weights of the group before to have been copied.
  EXPECT_EQ(countWaits(), fake->count("cuEventSynchronize"));
  EXPECT_LE(countWaits(), 1u);
  EXPECT_EQ(fake->lastStream, stream);
  // A prompt of three groups and of five: a kernel for each level and side adds
  // the present group, and one all whole groups behind it.
  Array prompt[] = {makeRandom({B, G, 20, D}, 8), makeRandom({B, G, 20, E}, 9)};
  DeviceArray manyKeys(prompt[0]), manyValues(prompt[1]);
  for (int64_t count : {12, 20}) {
    MultipoleCache fork = llvm::cantFail(cache.fork());
    TensorRef rows[] = {manyKeys, manyValues};
    int64_t shapes[][4] = {{B, G, count, D}, {B, G, count, E}},
            strides[][4] = {{G * 20 * D, 20 * D, D, 1},
                            {G * 20 * E, 20 * E, E, 1}};
    fake->calls.clear();
    EXPECT_EQ(getText(fork.append(
                  {rows[0].data, ElementType::F32, shapes[0], strides[0]},
                  {rows[1].data, ElementType::F32, shapes[1], strides[1]})),
              "");
    EXPECT_EQ(fake->count("cuLaunchKernel"), 8u);
    EXPECT_EQ(fork.getLength(), 8 + count);
  }
  fovea_rt_gpu_set_device(0);
  constexpr const char *chosen = "device: found GPU 0 chosen by the thread, "
                                 "needed GPU 1, where the cache is";
  EXPECT_EQ(getText(cache.append(keys, values)), chosen);
  EXPECT_EQ(getText(cache.fork().takeError()), chosen);
  fovea_rt_gpu_set_device(1);
  EXPECT_EQ(getText(cache.append(k, values)),
            "k: found an array in CPU memory, needed one on GPU 1, where the "
            "cache is");
  TensorRef elsewhere[] = {kw[0], keyWeights[1]};
  EXPECT_EQ(
      getText(MultipoleCache::create(B, G, SummaryWeights(elsewhere),
                                     SummaryWeights(valueRefs), group, options)
                  .takeError()),
      "key_weights[1]: found an array in CPU memory, needed one on GPU "
      "1, where the cache is");
  EXPECT_EQ(cache.getLength(), 8);
}

TEST_F(GPUCachesTest, MemoryIsFreedBehindAllWork) {
  auto cache = std::make_unique<KVCache>(make(Target::GPU));
  EXPECT_EQ(fake->blocks.size(), 2u);
  fake->calls.clear();
  cache.reset();
  ASSERT_EQ(fake->count("cuMemFreeAsync"), 2u);
  EXPECT_LT(llvm::find(fake->calls, "cuCtxSynchronize"),
            llvm::find(fake->calls, "cuMemFreeAsync"));
}

TEST_F(GPUCachesTest, ErrorsNameBothPlaces) {
  KVCache cache = make(Target::GPU);
  DeviceArray keys(k), values(v);
  fovea_rt_gpu_set_device(0);
  constexpr const char *chosen = "device: found GPU 0 chosen by the thread, "
                                 "needed GPU 1, where the cache is";
  EXPECT_EQ(getText(cache.append(keys, TensorRef(values))), chosen);
  EXPECT_EQ(getText(cache.fork().takeError()), chosen);
  EXPECT_EQ(getText(cache.save("nowhere")), chosen);
  DeviceArray elsewhere(v);
  fovea_rt_gpu_set_device(1);
  EXPECT_EQ(getText(cache.append(keys, TensorRef(elsewhere))),
            "v: found an array on GPU 0, needed one on GPU 1, where the cache "
            "is");
  EXPECT_EQ(getText(cache.append(k, TensorRef(values))),
            "k: found an array in CPU memory, needed one on GPU 1, where the "
            "cache is");
  EXPECT_EQ(cache.getLengths(), llvm::ArrayRef<int64_t>({0, 0}));
}

TEST_F(GPUCachesTest, FailuresOfTheDriver) {
  PagedCacheOptions options;
  options.batch = B;
  options.valueWidth = E;
  options.target = Target::GPU;
  PagedCache cache = llvm::cantFail(PagedCache::create(9, 4, G, D, options));
  DeviceArray keys(k), values(v);
  fake->failing = "cuMemcpy2DAsync_v2";
  fake->result = 700;
  fake->successes = 1;
  EXPECT_THAT(getText(cache.append(keys, TensorRef(values))),
              testing::HasSubstr("on device 1: CUDA_ERROR"));
  fake->failing = "";
  EXPECT_EQ(cache.getNumFreePages(), 9);
  EXPECT_EQ(cache.getLengths(), llvm::ArrayRef<int64_t>({0, 0}));
  EXPECT_EQ(getText(cache.append(keys, TensorRef(values))), "");
  EXPECT_EQ(cache.getNumFreePages(), 7);
  options.elementType = ElementType::F64;
  EXPECT_EQ(
      getText(PagedCache::create(9, 4, G, D, options).takeError()),
      "dtype: found float64, needed one of float16, bfloat16, float32 on a "
      "GPU");
  // With memory that was taken for keys given back.
  size_t before = fake->blocks.size();
  EXPECT_THAT(
      getText(PagedCache::create(
                  1 << 19, 4, G, D,
                  {B, E, ElementType::F32, false, false, Target::GPU})
                  .takeError()),
      testing::HasSubstr("pages: found 524288, needed memory for them: out of "
                         "memory on device 1"));
  EXPECT_EQ(fake->blocks.size(), before);
}

} // namespace
