//===- ClocksTest.cpp - Clocks of warps, copies and tensor cores ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/Runtime/Clocks.h"
#include "EmulatorTestUtils.h"

#include <cmath>
#include <tuple>

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

// Those of Rates.h, which are no part of the interface: L2, middle, HBM, all.
constexpr double kLatency[] = {460, 600, 800, 600}, kRate[] = {170, 64, 48, 33};
constexpr double kTail[] = {36, 36, 56, 36};
constexpr double kIssueAlone = 1.9, kInteger = 2, kCopyStart = 33, kWake = 43;

struct Clocked {
  std::string error;
  LaunchClocks clocks;
};

} // namespace

template <typename... Args>
static Clocked run(const std::string &text, Dim3 grid, uint32_t threads,
                   Options options, const Args &...args) {
  auto module = compile(text, /*clocks=*/true);
  if (!module)
    return {"not compiled", {}};
  Launch launch(*module, grid, {threads});
  launch.options = options;
  launch.options.clocks = true;
  Clocked result;
  result.error = launch(args...);
  if (launch.counters.clocks)
    result.clocks = *launch.counters.clocks;
  return result;
}

/// The cycles that `who` waits for `whom`, by what the texts hold.
static double waited(const LaunchClocks &clocks, const std::string &who,
                     const std::string &whom) {
  double cycles = 0;
  for (const LaunchClocks::Wait &wait : clocks.waits)
    if (wait.who == who && wait.whom == whom)
      cycles += wait.cycles;
  return cycles;
}

/// Thread 0 copies, and all wait for it. Warpgroup 1 has `work` to do until it
/// arrives at a barrier, where warpgroup 0 waits for it.
static std::string makeCopy(const std::string &bytes) {
  return R"(
@memory = internal addrspace(3) global [32768 x i8] poison, align 128
@bar = internal addrspace(3) global i64 poison, align 8
define ptx_kernel void @k(ptr addrspace(1) %in) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %leader = icmp eq i32 %tid, 0
  br i1 %leader, label %load, label %ready
load:
  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @bar, i32 1)
  %t = call i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3) @bar, i32 )" +
         bytes + R"()
  %c = addrspacecast ptr addrspace(3) @memory to ptr addrspace(7)
  call void @llvm.nvvm.cp.async.bulk.global.to.shared.cluster(ptr addrspace(7) %c, ptr addrspace(3) @bar, ptr addrspace(1) %in, i32 )" +
         bytes + R"(, i16 0, i64 0, i1 false, i1 false)
  br label %ready
ready:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %wait
wait:
  %done = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) @bar, i32 0)
  br i1 %done, label %go, label %wait
go:
  ret void
}
)";
}

/// `count` exponentials, each of the one before.
static std::string makeExponentials(const std::string &name, unsigned count) {
  std::string text, last = "%x";
  for (unsigned i = 0; i < count; ++i) {
    std::string next = "%" + name + std::to_string(i);
    text += "  " + next + " = call float @llvm.nvvm.ex2.approx.f(float " +
            last + ")\n";
    last = next;
  }
  return text + "  store volatile float " + last + ", ptr %slot\n";
}

/// Warpgroup 1 has so many exponentials until it arrives where 0 waits.
static std::string makeWaiting(unsigned exponentials) {
  return R"(
@bar = internal addrspace(3) global i64 poison, align 8
define ptx_kernel void @k(float %x) {
  %slot = alloca float
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %leader = icmp eq i32 %tid, 0
  br i1 %leader, label %init, label %ready
init:
  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @bar, i32 128)
  br label %ready
ready:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %second = icmp uge i32 %tid, 128
  br i1 %second, label %work, label %wait
work:
)" + makeExponentials("e", exponentials) +
         R"(
  %t = call i64 @llvm.nvvm.mbarrier.arrive.shared(ptr addrspace(3) @bar)
  ret void
wait:
  %done = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) @bar, i32 0)
  br i1 %done, label %go, label %wait
go:
  ret void
}
)";
}

TEST(Clocks, CopyTakesLatencyAndBytes) {
  Buffer<uint32_t> in(8192);
  Clocked little = run(makeCopy("4096"), {1}, 32, {}, in);
  Clocked much = run(makeCopy("32768"), {1}, 32, {}, in);
  ASSERT_EQ(little.error, "");
  ASSERT_EQ(much.error, "");
  for (unsigned i = 0; i < kNumLevels; ++i) {
    double cycles = little.clocks.getTotal()[i];
    // Some instructions before it and behind it.
    EXPECT_GT(cycles, kCopyStart + kLatency[i] + 4096 / kRate[i] + kWake);
    EXPECT_LT(cycles, kCopyStart + kLatency[i] + 4096 / kRate[i] + kWake + 50);
    EXPECT_NEAR(much.clocks.getTotal()[i] - cycles, (32768 - 4096) / kRate[i],
                1e-6);
  }
  EXPECT_GT(waited(little.clocks, "threads 0-31", "copies"), 600);
}

TEST(Clocks, CopiesOfLanesAreThoseOfTheirWarp) {
  Buffer<uint32_t> in(128);
  Clocked copied = run(R"(
@buffer = internal addrspace(3) global [128 x i32] poison, align 16
define ptx_kernel void @k(ptr addrspace(1) %in) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = mul i32 %tid, 4
  %p = getelementptr i32, ptr addrspace(3) @buffer, i32 %i
  %g = getelementptr i32, ptr addrspace(1) %in, i32 %i
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %p, ptr addrspace(1) %g)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.wait.group(i32 0)
  ret void
}
)",
                       {1}, 32, {}, in);
  ASSERT_EQ(copied.error, "");
  double wait = waited(copied.clocks, "threads 0-31", "copies");
  EXPECT_NEAR(wait, kLatency[kMiddle] + 32 * 16 / kRate[kMiddle], 8);
  for (unsigned i = 0; i < kNumLevels; ++i)
    EXPECT_NEAR(copied.clocks.getTotal()[i] - copied.clocks.getTotal()[kMiddle],
                kLatency[i] + 512 / kRate[i] - kLatency[kMiddle] - 8, 1e-6);
}

TEST(Clocks, WaitTakesTheMaximum) {
  Clocked few = run(makeWaiting(10), {1}, 256, {}, 0.5f);
  Clocked many = run(makeWaiting(110), {1}, 256, {}, 0.5f);
  ASSERT_EQ(few.error, "");
  ASSERT_EQ(many.error, "");
  // A warp of the second group is alone in its quarter: an exponential in 8.
  EXPECT_NEAR(many.clocks.getTotal()[kMiddle] - few.clocks.getTotal()[kMiddle],
              100 * 8, 1e-6);
  double wait = waited(many.clocks, "threads 0-127", "threads 128-255");
  EXPECT_GT(wait, 110 * 8 - 20);
  EXPECT_LT(wait, many.clocks.getTotal()[kMiddle]);
  // For the barrier's first state only.
  EXPECT_LT(waited(many.clocks, "threads 128-255", "threads 0-127"), 50);
  EXPECT_THAT(many.clocks.waits.front().where, HasSubstr("mbarrier.try"));
}

/// Warp 0 copies eight tiles of 8 KiB to `stages` places in turn, warp 1 has 50
/// exponentials for each.
static std::string makePipeline(unsigned stages) {
  std::string text = R"(
@memory = internal addrspace(3) global [65536 x i8] poison, align 128
@full = internal addrspace(3) global [8 x i64] poison, align 8
@empty = internal addrspace(3) global [8 x i64] poison, align 8
define ptx_kernel void @k(ptr addrspace(1) %in, float %x) {
  %slot = alloca float
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %leader = icmp eq i32 %tid, 0
  br i1 %leader, label %init, label %ready
init:
)";
  auto at = [&](const char *barrier, unsigned i) {
    return "ptr addrspace(3) getelementptr (i64, ptr addrspace(3) @" +
           std::string(barrier) + ", i32 " + std::to_string(i % stages) + ")";
  };
  auto wait = [&](const std::string &label, const char *barrier, unsigned i,
                  unsigned phase) {
    return "  br label %" + label + "\n" + label + ":\n  %d" + label +
           " = call i1 "
           "@llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(" +
           at(barrier, i) + ", i32 " + std::to_string(phase & 1) +
           ")\n  br i1 %d" + label + ", label %go" + label + ", label %" +
           label + "\ngo" + label + ":\n";
  };
  for (unsigned i = 0; i < stages; ++i)
    for (const char *barrier : {"full", "empty"})
      text += "  call void @llvm.nvvm.mbarrier.init.shared(" + at(barrier, i) +
              ", i32 1)\n";
  text += R"(  br label %ready
ready:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %second = icmp uge i32 %tid, 32
  br i1 %second, label %consume, label %elect
elect:
  br i1 %leader, label %produce, label %end
produce:
)";
  for (unsigned i = 0; i < 8; ++i) {
    std::string n = std::to_string(i);
    if (i >= stages)
      text += wait("p" + n, "empty", i, i / stages - 1);
    text += "  %t" + n +
            " = call i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space."
            "cta(" +
            at("full", i) +
            ", i32 8192)\n  call void "
            "@llvm.nvvm.cp.async.bulk.global.to.shared.cluster(ptr "
            "addrspace(7) addrspacecast (ptr addrspace(3) getelementptr (i8, "
            "ptr addrspace(3) @memory, i32 " +
            std::to_string(i % stages * 8192) + ") to ptr addrspace(7)), " +
            at("full", i) +
            ", ptr addrspace(1) %in, i32 8192, i16 0, i64 0, i1 false, i1 "
            "false)\n";
  }
  text += "  br label %end\nconsume:\n  %first = icmp eq i32 %tid, 32\n";
  for (unsigned i = 0; i < 8; ++i) {
    std::string n = std::to_string(i);
    text += wait("c" + n, "full", i, i / stages) +
            makeExponentials("e" + n + "x", 50) +
            "  call void @llvm.nvvm.bar.warp.sync(i32 -1)\n  br i1 %first, "
            "label %a" +
            n + ", label %b" + n + "\na" + n + ":\n  %u" + n +
            " = call i64 @llvm.nvvm.mbarrier.arrive.shared(" + at("empty", i) +
            ")\n  br label %b" + n + "\nb" + n + ":\n";
  }
  return text + "  br label %end\nend:\n  ret void\n}\n";
}

TEST(Clocks, StagesHideLoads) {
  Buffer<uint32_t> in(2048);
  std::vector<LaunchClocks> all;
  for (unsigned stages : {1, 2, 4}) {
    Clocked result = run(makePipeline(stages), {1}, 64, {}, in, 0.5f);
    ASSERT_EQ(result.error, "");
    all.push_back(result.clocks);
    Options options;
    options.seed = 3;
    Clocked other = run(makePipeline(stages), {1}, 64, options, in, 0.5f);
    // An instruction may count with the event before it or behind it.
    for (unsigned i = 0; i < kNumLevels; ++i)
      EXPECT_NEAR(other.clocks.getTotal()[i], result.clocks.getTotal()[i], 8);
  }
  // A load, its way back and forth, and the exponentials, eight times.
  double one = all[0].getTotal()[kMiddle];
  EXPECT_NEAR(one, 8 * (33 + 600 + 128 + 43 + 400 + 52), 200);
  EXPECT_LT(all[1].getTotal()[kMiddle], 0.75 * one);
  // The first load, and nothing but exponentials then.
  EXPECT_NEAR(all[2].getTotal()[kMiddle], 33 + 600 + 128 + 43 + 8 * (400 + 36),
              150);
  for (unsigned i = 0; i < kNumLevels; ++i) {
    EXPECT_LT(all[1].getTotal()[i], all[0].getTotal()[i]);
    EXPECT_LT(all[2].getTotal()[i], all[1].getTotal()[i]);
  }
}

TEST(Clocks, DoNotDependOnTheOrderOfThreads) {
  for (const std::string &text : {makeWaiting(20), makeWaiting(0)}) {
    Clocked fixed = run(text, {3}, 256, {}, 0.5f);
    for (uint32_t seed : {1, 2, 3, 4, 5}) {
      Options options;
      options.seed = seed;
      options.eager = seed % 2;
      Clocked other = run(text, {3}, 256, options, 0.5f);
      ASSERT_EQ(other.error, "");
      EXPECT_EQ(other.clocks.getTotal(), fixed.clocks.getTotal()) << seed;
    }
  }
}

/// A hundred comparisons with 0 of what `operation` makes of bits.
static std::string makeTests(const std::string &operation) {
  std::string text = R"(
define ptx_kernel void @k(i32 %x) {
  %slot = alloca i32
)",
              last = "%x";
  for (unsigned i = 0; i < 100; ++i) {
    std::string n = std::to_string(i);
    text += "  %b" + n + " = " + operation + " i32 %x, " + last + "\n  %c" + n +
            " = icmp eq i32 %b" + n + ", 0\n  %s" + n + " = select i1 %c" + n +
            ", i32 " + last + ", i32 " + n + "\n";
    last = "%s" + n;
  }
  return text + "  store volatile i32 " + last + ", ptr %slot\n  ret void\n}\n";
}

TEST(Clocks, WhatCombinesBitsTestsThem) {
  Clocked tests = run(makeTests("and"), {1}, 32, {}, int32_t(5));
  Clocked others = run(makeTests("sub"), {1}, 32, {}, int32_t(5));
  ASSERT_EQ(tests.error, "");
  ASSERT_EQ(others.error, "");
  EXPECT_NEAR(others.clocks.getTotal()[0] - tests.clocks.getTotal()[0],
              100 * kInteger, 1);
}

/// `count` products of 64 x `n` x 16 of a warpgroup, and a wait for them.
static std::string makeProducts(unsigned count, unsigned n) {
  unsigned registers = n / 2;
  std::string product = "wgmma.mma_async.sync.aligned.m64n" +
                        std::to_string(n) + "k16.f32.f16.f16 {";
  std::string results, outs, ties, zeros;
  for (unsigned i = 0; i < registers; ++i) {
    product += (i ? ", $" : "$") + std::to_string(i);
    results += i ? ", float" : "float";
    outs += i ? ",=f" : "=f";
    ties += "," + std::to_string(i);
    zeros += ", float 0.0";
  }
  product += "}, $" + std::to_string(2 * registers) + ", $" +
             std::to_string(2 * registers + 1) + ", p, 1, 1, 0, 0;";
  std::string text = "setp.ne.b32 p, 0, 0; ";
  for (unsigned i = 0; i < count; ++i)
    text += product + " ";
  return R"(
@memory = internal addrspace(3) global [65536 x i8] poison, align 1024
define ptx_kernel void @k() {
  call void @llvm.nvvm.wgmma.fence.sync.aligned()
  %base = ptrtoint ptr addrspace(3) @memory to i64
  %low = and i64 %base, 262143
  %start = lshr i64 %low, 4
  %d = or i64 %start, 4611686293305294848
  %r = call {)" +
         results + "} asm sideeffect \"{ .reg .pred p; " + text + "}\", \"" +
         outs + ties + ",l,l\"(" + zeros.substr(2) + R"(, i64 %d, i64 %d)
  call void @llvm.nvvm.wgmma.commit_group.sync.aligned()
  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)
  ret void
}
)";
}

TEST(Clocks, ProductsTakeHalfOfTheirColumns) {
  Options options;
  options.races = false;
  Clocked one = run(makeProducts(1, 128), {1}, 128, options);
  Clocked nine = run(makeProducts(9, 128), {1}, 128, options);
  ASSERT_EQ(one.error, "");
  ASSERT_EQ(nine.error, "");
  for (unsigned i = 0; i < kNumLevels; ++i) {
    EXPECT_GT(one.clocks.getTotal()[i], 64 + kTail[i]);
    // All instructions of the text are ahead of the first.
    double instructions = 8 * 3 * kIssueAlone;
    EXPECT_NEAR(nine.clocks.getTotal()[i] - one.clocks.getTotal()[i],
                8 * 64 + instructions, 8);
  }
  EXPECT_GT(waited(nine.clocks, "threads 0-127", "tensor cores"), 400);
}

/// `count` products of a warp, 16 x 8 x 16.
static std::string makeWarpProducts(unsigned count) {
  std::string text = "define ptx_kernel void @k() {\n";
  for (unsigned i = 0; i < count; ++i)
    text += "  %r" + std::to_string(i) +
            " = call {float, float, float, float} asm sideeffect "
            "\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};\", "
            "\"=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f\"(i32 0, i32 0, i32 0, i32 0, "
            "i32 0, i32 0, float 0.0, float 0.0, float 0.0, float 0.0)\n";
  return text + "  ret void\n}\n";
}

TEST(Clocks, EstimatesOfDevices) {
  Clocked few = run(makeWarpProducts(10), {1}, 32, {});
  Clocked many = run(makeWarpProducts(110), {1}, 32, {});
  ASSERT_EQ(few.error, "");
  ASSERT_EQ(many.error, "");
  ASSERT_EQ(many.clocks.estimates.size(), 2u);
  // Names, clocks, and cycles of a quarter between two products.
  std::tuple<const char *, double, double> expected[] = {
      {"H100, H200", 1.6, 6.26}, {"B200", 1.85, 8.2}};
  for (size_t i = 0; i < 2; ++i) {
    auto [name, gigahertz, product] = expected[i];
    const LaunchClocks::Estimate &estimate = many.clocks.estimates[i];
    EXPECT_EQ(estimate.device, name);
    EXPECT_EQ(estimate.gigahertz, gigahertz);
    ASSERT_TRUE(estimate.milliseconds);
    for (unsigned level = 0; level < kNumLevels; ++level)
      EXPECT_NEAR((*estimate.milliseconds)[level] -
                      (*few.clocks.estimates[i].milliseconds)[level],
                  100 * product / gigahertz * 1e-6, 1e-9);
  }
  // Hopper's alone.
  Options options;
  options.races = false;
  Clocked warpgroups = run(makeProducts(1, 128), {1}, 128, options);
  ASSERT_EQ(warpgroups.clocks.estimates.size(), 2u);
  EXPECT_TRUE(warpgroups.clocks.estimates[0].milliseconds);
  EXPECT_FALSE(warpgroups.clocks.estimates[1].milliseconds);
  std::string text = describeClocks("k", warpgroups.clocks);
  EXPECT_THAT(text, HasSubstr("B200: none, as it has no products of "
                              "warpgroups; compile for --chip=sm_100"));
}

TEST(Clocks, BlocksGoToTheMultiprocessorThatIsFree) {
  Clocked one = run(makeWaiting(10), {1}, 256, {}, 0.5f);
  // 132 multiprocessors, each with up to 8 blocks of 256 threads.
  Clocked all = run(makeWaiting(10), {132}, 256, {}, 0.5f);
  EXPECT_EQ(all.clocks.resident, 1u);
  EXPECT_EQ(all.clocks.getTotal(), one.clocks.getTotal());
  LaunchClocks clocks;
  clocks.clusters.assign(133, Times{1, 2, 3, 4});
  EXPECT_THAT(clocks.getTotal(), ElementsAre(2, 4, 6, 8));
  clocks.resident = 2;
  EXPECT_THAT(clocks.getTotal(), ElementsAre(1, 2, 3, 4));
  clocks.resident = 1;
  clocks.clusterBlocks = 2;
  EXPECT_THAT(clocks.getTotal(), ElementsAre(3, 6, 9, 12));
  clocks.clusters.front() = {10, 10, 10, 10};
  EXPECT_THAT(clocks.getLongest(), ElementsAre(10, 10, 10, 10));
  EXPECT_THAT(clocks.getMedian(), ElementsAre(1, 2, 3, 4));
}

TEST(Clocks, WarpsOfBlocksShareQuarters) {
  std::string text = "define ptx_kernel void @k(float %x) {\n"
                     "  %slot = alloca float\n" +
                     makeExponentials("e", 100) + "  ret void\n}\n";
  auto runBlocks = [&](unsigned multiple) {
    Clocked result = run(text, {132 * multiple}, 32, {}, 0.5f);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.clocks.resident, multiple);
    return result.clocks.getTotal()[kMiddle];
  };
  // A quarter for each of four blocks of a warp; eight are two of each.
  double one = runBlocks(1);
  EXPECT_GT(one, 99 * 8);
  EXPECT_EQ(runBlocks(4), one);
  EXPECT_GT(runBlocks(8), one + 90 * 8);
}

TEST(Clocks, Text) {
  Clocked many = run(makeWaiting(110), {2}, 256, {}, 0.5f);
  std::string text = describeClocks("k", many.clocks);
  EXPECT_THAT(text, HasSubstr("kernel 'k' by clocks: modelled, not measured"));
  EXPECT_THAT(text, HasSubstr("blocks    2, 1 of a multiprocessor"));
  EXPECT_THAT(text, HasSubstr("threads 0-127 at mbarrier.try, operation"));
  EXPECT_THAT(text, HasSubstr("for threads 128-255"));
  EXPECT_THAT(text, HasSubstr("estimate  H100, H200: "));
  EXPECT_THAT(text, HasSubstr("\n            B200: "));
  EXPECT_THAT(text, testing::Not(HasSubstr("tile")));
}

TEST(Clocks, NeedCodeThatSaysItsWork) {
  auto module = compile(makeWaiting(1));
  Launch launch(*module, {1}, {256});
  launch.options.clocks = true;
  EXPECT_THAT(launch(0.5f), HasSubstr("has no clocks"));
  launch.options.clocks = false;
  EXPECT_EQ(launch(0.5f), "");
  EXPECT_EQ(launch.counters.clocks, nullptr);
}
