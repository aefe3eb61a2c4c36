//===- BarriersTest.cpp - Barriers and shared memory ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EmulatorTestUtils.h"

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::HasSubstr;

namespace {

/// Replaces `from`, which must be there, by `to`.
std::string replace(std::string text, const std::string &from,
                    const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// Every thread writes its number and reads that of the opposite thread.
const char *const exchange = R"(
@buffer = internal addrspace(3) global [128 x i32] poison, align 16
define ptx_kernel void @k(ptr %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(3) @buffer, i32 %tid
  store i32 %tid, ptr addrspace(3) %p
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %other = xor i32 %tid, 127
  %q = getelementptr i32, ptr addrspace(3) @buffer, i32 %other
  %v = load i32, ptr addrspace(3) %q
  %pout = getelementptr i32, ptr %out, i32 %tid
  store i32 %v, ptr %pout
  ret void
}
)";

std::string run(const std::string &text, uint32_t seed = 0, bool races = true,
                unsigned numThreads = 128, Counters *counters = nullptr) {
  auto module = compile(text);
  if (!module)
    return "not compiled";
  Buffer<uint32_t> out(256);
  Launch launch(*module, {2}, {numThreads});
  launch.options.seed = seed;
  launch.options.races = races;
  std::string error = launch(out);
  if (counters)
    *counters = launch.counters;
  if (!error.empty())
    return error;
  for (unsigned i = 0; i < numThreads; ++i)
    if (out[i] != (i ^ 127))
      return "thread " + std::to_string(i) + " has " + std::to_string(out[i]);
  return "";
}

TEST(Barriers, OrderSharedMemory) {
  for (uint32_t seed : {0, 1, 2, 3}) {
    Counters counters;
    EXPECT_EQ(run(exchange, seed, true, 128, &counters), "");
    EXPECT_EQ(counters.barriers, 2u);
    EXPECT_EQ(counters.sharedBytes, 512u);
  }
}

TEST(Barriers, MissingOneIsARace) {
  std::string text = replace(
      exchange, "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)", "");
  EXPECT_THAT(run(text), HasSubstr("race on shared +"));
  EXPECT_THAT(run(text), HasSubstr("kernel 'k', block (0, 0, 0), thread"));
  // Without the detector some order shows it: unwritten memory is poison.
  EXPECT_THAT(run(text, 0, false), HasSubstr("has 4294967295"));
}

TEST(Barriers, MissingOneAfterReadingIsARace) {
  // A second round overwrites what slower warps still read.
  std::string text = replace(exchange, "  ret void", R"(
  store i32 %v, ptr addrspace(3) %p
  ret void)");
  EXPECT_THAT(run(text), HasSubstr("race on shared +"));
}

TEST(Barriers, NeighboursOfSixteenBitsAreNoRace) {
  auto module = compile(R"(
@buffer = internal addrspace(3) global [64 x i16] poison, align 16
define ptx_kernel void @k(ptr %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %warp = call i32 @llvm.nvvm.read.ptx.sreg.warpid()
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %twice = mul i32 %lane, 2
  %i = add i32 %twice, %warp
  %p = getelementptr i16, ptr addrspace(3) @buffer, i32 %i
  store i16 7, ptr addrspace(3) %p
  ret void
}
)");
  ASSERT_TRUE(module);
  Buffer<uint32_t> out(1);
  EXPECT_EQ((Launch(*module, {1}, {64})(out)), "");
}

TEST(Barriers, PartsOfWhatIsAccessedWholeAreTold) {
  // The first warp writes 16 bytes a lane; the second one reads the last two
  // of them, which the first writes again, alone or with the others.
  std::string barrier =
      "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n";
  auto compose =
      [&](const std::string &first, const std::string &second,
          const std::string &store) {
        return R"(
@buffer = internal addrspace(3) global [256 x i16] poison, align 16
define ptx_kernel void @k(ptr %out) {
  %warp = call i32 @llvm.nvvm.read.ptx.sreg.warpid()
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %eight = mul i32 %lane, 8
  %last = add i32 %eight, 7
  %p = getelementptr i16, ptr addrspace(3) @buffer, i32 %eight
  %q = getelementptr i16, ptr addrspace(3) @buffer, i32 %last
  %isFirst = icmp eq i32 %warp, 0
  br i1 %isFirst, label %write, label %a
write:
  store <4 x i32> splat (i32 7), ptr addrspace(3) %p, align 16
  br label %a
a:
)" + first + R"(
  br i1 %isFirst, label %b, label %read
read:
  %v = load i16, ptr addrspace(3) %q
  store i16 %v, ptr %out
  br label %b
b:
)" + second + R"(
  br i1 %isFirst, label %again, label %c
again:
)" + store + R"(
  br label %c
c:
  ret void
}
)";
      };
  auto runText = [](const std::string &text) -> std::string {
    auto module = compile(text);
    if (!module)
      return "not compiled";
    Buffer<uint32_t> out(1);
    return Launch(*module, {1}, {64})(out);
  };
  std::string part = "  store i16 8, ptr addrspace(3) %q\n";
  std::string other = "  store i16 8, ptr addrspace(3) %p\n";
  std::string whole =
      "  store <4 x i32> splat (i32 8), ptr addrspace(3) %p, align 16\n";
  for (const std::string &store : {part, other, whole}) {
    EXPECT_EQ(runText(compose(barrier, barrier, store)), "");
    EXPECT_THAT(runText(compose("", barrier, store)),
                HasSubstr("race on shared +14: "));
  }
  EXPECT_EQ(runText(compose(barrier, "", other)), "");
  EXPECT_THAT(runText(compose(barrier, "", part)),
              HasSubstr("race on shared +14: "));
  EXPECT_THAT(runText(compose(barrier, "", whole)),
              HasSubstr("race on shared +14: "));
}

TEST(Barriers, DivergentOneIsReported) {
  std::string text = replace(
      exchange, "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
      R"(
  %low = and i32 %tid, 16
  %c = icmp eq i32 %low, 0
  br i1 %c, label %then, label %join
then:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %join
join:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 1))");
  EXPECT_THAT(run(text), HasSubstr("divergent warp: lane"));
}

TEST(Barriers, ReportsNameFileAndLine) {
  std::string text = replace(
      exchange, "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)", "");
  text = replace(text, "define ptx_kernel void @k(ptr %out) {",
                 "define ptx_kernel void @k(ptr %out) !dbg !3 {");
  text = replace(text, "store i32 %tid, ptr addrspace(3) %p",
                 "store i32 %tid, ptr addrspace(3) %p, !dbg !4");
  text += R"(
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!5}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "exchange.mlir", directory: "/")
!2 = !DISubroutineType(types: null)
!3 = distinct !DISubprogram(name: "k", file: !1, line: 1, type: !2, unit: !0, spFlags: DISPFlagDefinition)
!4 = !DILocation(line: 17, column: 3, scope: !3)
!5 = !{i32 2, !"Debug Info Version", i32 3}
)";
  EXPECT_THAT(run(text), HasSubstr("race on shared +"));
  EXPECT_THAT(run(text), HasSubstr("exchange.mlir:17"));
}

TEST(Barriers, ExitedThreadsAreNotWaitedFor) {
  std::string text = replace(
      exchange, "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
      R"(
  %high = icmp uge i32 %tid, 128
  br i1 %high, label %leave, label %stay
leave:
  ret void
stay:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0))");
  auto module = compile(replace(text, "[128 x i32]", "[160 x i32]"));
  ASSERT_TRUE(module);
  for (uint32_t seed : {0, 1, 2}) {
    Buffer<uint32_t> out(160);
    Launch launch(*module, {1}, {160});
    launch.options.seed = seed;
    EXPECT_EQ(launch(out), "");
    EXPECT_EQ(out[5], 122u);
  }
}

TEST(Barriers, DeadlockNamesBarriersAndThreads) {
  std::string text = replace(
      exchange, "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
      R"(
  %low = icmp ult i32 %tid, 32
  br i1 %low, label %one, label %two
one:
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 3, i32 64)
  br label %join
two:
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 4, i32 128)
  br label %join
join:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0))");
  std::string error = run(text);
  EXPECT_THAT(error, HasSubstr("kernel 'k', block (0, 0, 0): deadlock: "));
  EXPECT_THAT(error, HasSubstr("threads 0-31 wait at barrier 3, where 32 of "
                               "64 threads have arrived"));
  EXPECT_THAT(error, HasSubstr("threads 32-127 wait at barrier 4, where 96 of "
                               "128 threads have arrived"));
}

TEST(Barriers, ThreadsVote) {
  // Threads 96 and up say yes, in the last of four warps to begin with seed 0.
  const char *const text = R"(
define ptx_kernel void @k(ptr %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %yes = icmp uge i32 %tid, 96
  VOTE
  %opposite = xor i32 %tid, 127
  %result = select i1 %right, i32 %opposite, i32 1000
  %pout = getelementptr i32, ptr %out, i32 %tid
  store i32 %result, ptr %pout
  ret void
}
)";
  for (const char *vote :
       {"%right = call i1 @llvm.nvvm.barrier.cta.red.or.aligned.all("
        "i32 0, i1 %yes)",
        "%right = call i1 @llvm.nvvm.barrier.cta.red.or.aligned.count("
        "i32 2, i32 128, i1 %yes)",
        "%all = call i1 @llvm.nvvm.barrier.cta.red.and.aligned.all("
        "i32 0, i1 %yes)\n  %right = xor i1 %all, true",
        "%count = call i32 @llvm.nvvm.barrier.cta.red.popc.aligned.all("
        "i32 0, i1 %yes)\n  %right = icmp eq i32 %count, 32"})
    for (uint32_t seed : {0, 1, 2, 3})
      EXPECT_EQ(run(replace(text, "VOTE", vote), seed), "") << vote;
}

TEST(Barriers, ProducersArriveWithoutWaiting) {
  // Warps 0 and 1 write and arrive; warps 2 and 3 wait for them and read.
  std::string text = R"(
@buffer = internal addrspace(3) global [128 x i32] poison, align 16
define ptx_kernel void @k(ptr %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %pout = getelementptr i32, ptr %out, i32 %tid
  %p = getelementptr i32, ptr addrspace(3) @buffer, i32 %tid
  %writes = icmp ult i32 %tid, 64
  %other = xor i32 %tid, 127
  br i1 %writes, label %producer, label %consumer
producer:
  store i32 %tid, ptr addrspace(3) %p
  ARRIVE
  store i32 %other, ptr %pout
  ret void
consumer:
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 128)
  %q = getelementptr i32, ptr addrspace(3) @buffer, i32 %other
  %v = load i32, ptr addrspace(3) %q
  store i32 %v, ptr %pout
  ret void
}
)";
  for (uint32_t seed : {0, 1, 2, 3}) {
    EXPECT_EQ(run(replace(text, "ARRIVE",
                          "call void @llvm.nvvm.barrier.cta.arrive.aligned."
                          "count(i32 1, i32 128)"),
                  seed),
              "");
    EXPECT_EQ(run(replace(text, "ARRIVE",
                          "call void asm sideeffect \"bar.arrive $0, $1;\", "
                          "\"r,r\"(i32 1, i32 128)"),
                  seed),
              "");
  }
  EXPECT_THAT(run(replace(text, "ARRIVE", "")), HasSubstr("deadlock"));
  EXPECT_THAT(run(replace(text, "ARRIVE",
                          "call void @llvm.nvvm.barrier.cta.arrive.aligned."
                          "count(i32 1, i32 96)")),
              HasSubstr("barrier 1 is in use for"));
  EXPECT_THAT(run(replace(text, "ARRIVE",
                          "call void @llvm.nvvm.barrier.cta.arrive.aligned."
                          "count(i32 1, i32 100)")),
              HasSubstr("takes a multiple of 32 threads"));
  EXPECT_THAT(run(replace(text, "ARRIVE",
                          "call void @llvm.nvvm.barrier.cta.arrive.aligned."
                          "count(i32 16, i32 128)")),
              HasSubstr("barriers are numbered 0 to 15, but got 16"));
}

TEST(Barriers, ClusterOfOneBlock) {
  EXPECT_EQ(run(replace(exchange,
                        "  call void "
                        "@llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
                        R"(
  call void @llvm.nvvm.barrier.cluster.arrive.aligned()
  call void @llvm.nvvm.barrier.cluster.wait.aligned())")),
            "");
}

TEST(SharedMemory, IsPoisoned) {
  EXPECT_THAT(run(replace(exchange, "store i32 %tid, ptr addrspace(3) %p", "")),
              HasSubstr("has 4294967295"));
}

TEST(SharedMemory, IsBounded) {
  std::string text = replace(exchange, "%other = xor i32 %tid, 127",
                             "%other = add i32 %tid, 1");
  EXPECT_THAT(run(text), HasSubstr("thread 127: 4 bytes at shared +512 lie "
                                   "outside the block's 512 bytes of shared "
                                   "memory (load"));
}

TEST(SharedMemory, HasADynamicPart) {
  std::string text = replace(exchange, "define", R"(
@dynamic = external addrspace(3) global [0 x i8], align 1024
define)");
  text = replace(text, "@buffer, i32 %other", "@dynamic, i32 %other");
  text = replace(text, "store i32 %tid, ptr addrspace(3) %p", R"(
  %d = getelementptr i32, ptr addrspace(3) @dynamic, i32 %tid
  store i32 %tid, ptr addrspace(3) %d)");
  auto module = compile(text);
  ASSERT_TRUE(module);
  EXPECT_EQ(module->getStaticShared(), 1024u);
  Buffer<uint32_t> out(128);
  Launch launch(*module, {1}, {128});
  launch.dynamicShared = 512;
  EXPECT_EQ(launch(out), "");
  EXPECT_EQ(out[3], 124u);
  launch.dynamicShared = 508;
  EXPECT_THAT(launch(out), HasSubstr("outside the block's 1532 bytes"));
}

TEST(SharedMemory, AtomicsAreNoRace) {
  auto module = compile(R"(
@sum = internal addrspace(3) global i32 poison, align 16
define ptx_kernel void @k(ptr %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %first = icmp eq i32 %tid, 0
  br i1 %first, label %zero, label %go
zero:
  store i32 0, ptr addrspace(3) @sum
  br label %go
go:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %old = atomicrmw add ptr addrspace(3) @sum, i32 %tid seq_cst
  %total = atomicrmw add ptr %out, i32 %tid seq_cst
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br i1 %first, label %show, label %end
show:
  %v = load i32, ptr addrspace(3) @sum
  %p = getelementptr i32, ptr %out, i32 1
  store i32 %v, ptr %p
  br label %end
end:
  ret void
}
)");
  ASSERT_TRUE(module);
  for (uint32_t seed : {0, 1}) {
    Buffer<uint32_t> out(std::vector<uint32_t>{0, 0});
    Launch launch(*module, {1}, {128});
    launch.options.seed = seed;
    EXPECT_EQ(launch(out), "");
    EXPECT_EQ(out[0], 128u * 127 / 2);
    EXPECT_EQ(out[1], 128u * 127 / 2);
  }
}

TEST(SharedMemory, WaitsForAFlag) {
  // Thread 0 waits in a loop for what thread 32 writes.
  std::string text = R"(
@flag = internal addrspace(3) global i32 poison, align 16
define ptx_kernel void @k(ptr %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %a = atomicrmw xchg ptr addrspace(3) @flag, i32 0 seq_cst
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %waits = icmp eq i32 %tid, 0
  %sets = icmp eq i32 %tid, 32
  br i1 %waits, label %loop, label %other
loop:
  %v = load atomic i32, ptr addrspace(3) @flag acquire, align 4
  %done = icmp eq i32 %v, VALUE
  br i1 %done, label %end, label %loop
other:
  br i1 %sets, label %set, label %end
set:
  store atomic i32 1, ptr addrspace(3) @flag release, align 4
  br label %end
end:
  ret void
}
)";
  auto module = compile(replace(text, "VALUE", "1"));
  ASSERT_TRUE(module);
  Buffer<uint32_t> out(1);
  EXPECT_EQ((Launch(*module, {1}, {64})(out)), "");
  auto endless = compile(replace(text, "VALUE", "2"));
  ASSERT_TRUE(endless);
  EXPECT_THAT((Launch(*endless, {1}, {64})(out)),
              HasSubstr("deadlock: threads 0 wait in a loop that waits for "
                        "another thread"));
}

/// Every lane reads 4 bytes at `stride` * lane.
TEST(SharedMemory, CountsBankConflicts) {
  for (auto [stride, phases] :
       {std::pair(4, 1), std::pair(8, 2), std::pair(128, 32), std::pair(0, 1),
        std::pair(132, 1)}) {
    auto module = compile(replace(R"(
@buffer = internal addrspace(3) global [8192 x i8] poison, align 16
define ptx_kernel void @k(ptr %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %at = mul i32 %tid, STRIDE
  %p = getelementptr i8, ptr addrspace(3) @buffer, i32 %at
  %v = load i32, ptr addrspace(3) %p
  %pout = getelementptr i32, ptr %out, i32 %tid
  store i32 %v, ptr %pout
  ret void
}
)",
                                  "STRIDE", std::to_string(stride)));
    ASSERT_TRUE(module);
    Buffer<uint32_t> out(32);
    Launch launch(*module, {1}, {32});
    launch.options.bankConflicts = true;
    ASSERT_EQ(launch(out), "");
    EXPECT_EQ(launch.counters.accessPhases, uint64_t(phases)) << stride;
    EXPECT_EQ(launch.counters.accessPhasesIdeal, 1u);
  }
}

} // namespace
