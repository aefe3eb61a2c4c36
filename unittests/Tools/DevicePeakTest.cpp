//===- DevicePeakTest.cpp - What a GPU's peaks are measured with ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In the emulator, which knows what the loops do, though not how fast.
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Bench/DevicePeak.h"
#include "fovea/Emulator/GPUDriver.h"
#include "fovea_rt/gpu.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace fovea;
using testing::DoubleEq;

static llvm::Expected<DevicePeak> createPeak(ElementType type, const char *chip,
                                             const char *f32 = "tf32x3") {
  CompileOptions options;
  options.target = Target::GPUEmulator;
  options.chip = chip;
  options.f32 = f32;
  return DevicePeak::create(options, type);
}

/// Runs the loop and counts executions of an operation.
static uint64_t count(DevicePeak &peak, int64_t iterations,
                      const char *operation) {
  uint64_t total = 0;
  simt::setLaunchObserver([&](const char *, const simt::Counters &counters) {
    total += counters.count(operation);
  });
  llvm::Error error = peak.runProducts(iterations);
  simt::setLaunchObserver(nullptr);
  EXPECT_FALSE(bool(error)) << toString(std::move(error));
  return total;
}

TEST(DevicePeakTest, CountsTheProductsOfWarps) {
  for (auto [type, name, flops] : {std::tuple(ElementType::F16, "f16", 4096.0),
                                   {ElementType::BF16, "bf16", 4096.0},
                                   {ElementType::F32, "tf32", 2048.0}}) {
    llvm::Expected<DevicePeak> peak = createPeak(type, "sm_80");
    ASSERT_TRUE(bool(peak)) << toString(peak.takeError());
    EXPECT_EQ(peak->getProductName(), name);
    EXPECT_THAT(peak->getFlops(3), DoubleEq(flops * count(*peak, 3, "mma")));
  }
}

TEST(DevicePeakTest, CountsTheProductsOfWarpgroups) {
  for (auto [type, name, depth] : {std::tuple(ElementType::F16, "f16", 16),
                                   {ElementType::BF16, "bf16", 16},
                                   {ElementType::F32, "tf32", 8}}) {
    llvm::Expected<DevicePeak> peak = createPeak(type, "sm_90a");
    ASSERT_TRUE(bool(peak)) << toString(peak.takeError());
    EXPECT_EQ(peak->getProductName(), name);
    EXPECT_THAT(peak->getFlops(2), DoubleEq(2.0 * 64 * 128 * depth *
                                            count(*peak, 2, "mma_async")));
  }
}

TEST(DevicePeakTest, RunsWithoutTensorCores) {
  llvm::Expected<DevicePeak> peak =
      createPeak(ElementType::F32, "sm_90a", "exact");
  ASSERT_TRUE(bool(peak)) << toString(peak.takeError());
  EXPECT_EQ(peak->getProductName(), "f32");
  EXPECT_EQ(count(*peak, 2, "mma"), 0u);
  // 16 sums, eight times, of 256 threads of two blocks for each of two
  // multiprocessors.
  EXPECT_THAT(peak->getFlops(2), DoubleEq(2.0 * 2 * 16 * 8 * 256 * 2 * 2));
}

TEST(DevicePeakTest, HasNothingInItsLoopButProducts) {
  for (auto [chip, f32, product] :
       {std::tuple("sm_80", "tf32", "mma.sync.aligned.m16n8k8"),
        {"sm_90a", "tf32", "wgmma.mma_async.sync.aligned.m64n128k8"},
        {"sm_80", "exact", "fma.rn.f32"}}) {
    llvm::Expected<DevicePeak> peak = createPeak(ElementType::F32, chip, f32);
    ASSERT_TRUE(bool(peak)) << toString(peak.takeError());
    llvm::StringRef ptx = peak->getPTX();
    EXPECT_TRUE(ptx.contains(".entry fovea_peak_products"));
    EXPECT_TRUE(ptx.contains(product));
    EXPECT_EQ(ptx.count("ld.global.v4.b32"), 4u);
    EXPECT_EQ(ptx.count("st.global.v4.b32"), 4u);
    for (const char *unwanted : {".extern .func", ".local", "f64", "call"})
      EXPECT_FALSE(ptx.contains(unwanted)) << unwanted;
  }
}

TEST(DevicePeakTest, CopiesEveryByte) {
  llvm::Expected<DevicePeak> peak = createPeak(ElementType::F32, "sm_80");
  ASSERT_TRUE(bool(peak)) << toString(peak.takeError());
  constexpr int64_t kBytes = 3 * DevicePeak::kCopyBytes;
  std::vector<uint32_t> in(kBytes / 4), out(kBytes / 4);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = 2654435761u * i;
  void *from = nullptr, *to = nullptr;
  ASSERT_EQ(fovea_rt_gpu_acquire(FOVEA_RT_GPU_EMULATOR, kBytes, &from), 0);
  ASSERT_EQ(fovea_rt_gpu_acquire(FOVEA_RT_GPU_EMULATOR, kBytes, &to), 0);
  fovea_rt_gpu_transfer(FOVEA_RT_GPU_EMULATOR, from, in.data(), kBytes);
  llvm::Error error = peak->copy(to, from, kBytes);
  EXPECT_FALSE(bool(error)) << toString(std::move(error));
  fovea_rt_gpu_transfer(FOVEA_RT_GPU_EMULATOR, out.data(), to, kBytes);
  EXPECT_EQ(in, out);
  fovea_rt_gpu_release(FOVEA_RT_GPU_EMULATOR, from);
  fovea_rt_gpu_release(FOVEA_RT_GPU_EMULATOR, to);
}

TEST(DevicePeakTest, GrowsUntilTheTimeIsLongEnough) {
  llvm::Expected<DevicePeak> peak =
      createPeak(ElementType::F32, "sm_80", "exact");
  ASSERT_TRUE(bool(peak)) << toString(peak.takeError());
  // A clock on which the second run takes a second.
  int runs = 0;
  auto time =
      [&](llvm::function_ref<llvm::Error()> run) -> llvm::Expected<double> {
    if (llvm::Error error = run())
      return std::move(error);
    return runs++ ? 1.0 : 0.25;
  };
  llvm::Expected<double> rate = peak->measureProducts(time, 1);
  ASSERT_TRUE(bool(rate)) << toString(rate.takeError());
  EXPECT_EQ(runs, 2);
  // 64 iterations at first, four times as many then.
  EXPECT_THAT(*rate, DoubleEq(peak->getFlops(256)));
}

TEST(DevicePeakTest, SaysWhenNoTimePasses) {
  llvm::Expected<DevicePeak> peak =
      createPeak(ElementType::F32, "sm_80", "exact");
  ASSERT_TRUE(bool(peak)) << toString(peak.takeError());
  auto time = [](llvm::function_ref<llvm::Error()>) -> llvm::Expected<double> {
    return 0.0;
  };
  llvm::Expected<double> rate = peak->measureProducts(time, 1);
  ASSERT_FALSE(bool(rate));
  EXPECT_EQ(toString(rate.takeError()), "the device's events measure no time");
}
