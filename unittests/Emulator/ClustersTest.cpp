//===- ClustersTest.cpp - Blocks that run together ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EmulatorTestUtils.h"

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::AnyOf;
using testing::HasSubstr;

static constexpr unsigned kTiles = 4, kTile = 256, kThreads = 64;

/// Two blocks of two warps add up the numbers of four tiles. Each copies half
/// of every tile to both; a warp that has read a tile tells both.
static const char *const sharing = R"(
@box = internal addrspace(3) global [256 x i32] poison, align 128
@full = internal addrspace(3) global i64 poison, align 8
@free = internal addrspace(3) global i64 poison, align 8
define ptx_kernel void @k(ptr addrspace(1) %in, ptr %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %rank = call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()
  %lane = and i32 %tid, 31
  %leads = icmp eq i32 %tid, 0
  %first = icmp eq i32 %lane, 0
  br i1 %leads, label %init, label %begin
init:
  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @full, i32 1)
  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @free, i32 4)
  call void @llvm.nvvm.fence.mbarrier_init.release.cluster()
  br label %begin
begin:
  call void @llvm.nvvm.barrier.cluster.arrive()
  call void @llvm.nvvm.barrier.cluster.wait()
  %other = xor i32 %rank, 1
  %free.there = call ptr addrspace(7) @llvm.nvvm.mapa.shared.cluster(ptr addrspace(3) @free, i32 %other)
  %half = mul i32 %rank, 512
  %target.here = getelementptr i8, ptr addrspace(3) @box, i32 %half
  %target = addrspacecast ptr addrspace(3) %target.here to ptr addrspace(7)
  br label %tiles
tiles:
  %tile = phi i32 [ 0, %begin ], [ %next, %done ]
  %sum = phi i32 [ 0, %begin ], [ %more, %done ]
  %parity = and i32 %tile, 1
  %before = xor i32 %parity, 1
  br i1 %leads, label %await, label %read
await:
  %isfree = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) @free, i32 %before)
  br i1 %isfree, label %copy, label %await
copy:
  %t = call i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3) @full, i32 1024)
  %start = mul i32 %tile, 1024
  %place = add i32 %start, %half
  %from = getelementptr i8, ptr addrspace(1) %in, i32 %place
  call void @llvm.nvvm.cp.async.bulk.global.to.shared.cluster(ptr addrspace(7) %target, ptr addrspace(3) @full, ptr addrspace(1) %from, i32 512, i16 3, i64 0, i1 true, i1 false)
  br label %read
read:
  %isfull = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) @full, i32 %parity)
  br i1 %isfull, label %add, label %read
add:
  %p0 = getelementptr i32, ptr addrspace(3) @box, i32 %tid
  %p1 = getelementptr i32, ptr addrspace(3) %p0, i32 64
  %p2 = getelementptr i32, ptr addrspace(3) %p0, i32 128
  %p3 = getelementptr i32, ptr addrspace(3) %p0, i32 192
  %v0 = load i32, ptr addrspace(3) %p0
  %v1 = load i32, ptr addrspace(3) %p1
  %v2 = load i32, ptr addrspace(3) %p2
  %v3 = load i32, ptr addrspace(3) %p3
  %s0 = add i32 %sum, %v0
  %s1 = add i32 %s0, %v1
  %s2 = add i32 %s1, %v2
  %more = add i32 %s2, %v3
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  br i1 %first, label %tell, label %done
tell:
  %a = call i64 @llvm.nvvm.mbarrier.arrive.shared(ptr addrspace(3) @free)
  call void @llvm.nvvm.mbarrier.arrive.scope.cluster.space.cluster(ptr addrspace(7) %free.there, i32 1)
  br label %done
done:
  %next = add i32 %tile, 1
  %again = icmp slt i32 %next, 4
  br i1 %again, label %tiles, label %end
end:
  %at = mul i32 %block, 64
  %index = add i32 %at, %tid
  %pout = getelementptr i32, ptr %out, i32 %index
  store i32 %more, ptr %pout
  call void @llvm.nvvm.barrier.cluster.arrive()
  call void @llvm.nvvm.barrier.cluster.wait()
  ret void
}
attributes #0 = { "nvvm.cluster_dim"="2,1,1" }
)";

/// Replaces `from`, which must be there, by `to`; the last one if `isLast`.
static std::string replace(std::string text, const std::string &from,
                           const std::string &to, bool isLast = false) {
  size_t at = isLast ? text.rfind(from) : text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// Runs as many blocks of `numThreads` threads as there are results for; what
/// is wrong with the kernel.
static std::string launchBlocks(const std::string &text, unsigned numThreads,
                                Buffer<int32_t> &in, Buffer<int32_t> &out,
                                uint32_t seed = 0, bool eager = false,
                                Counters *counters = nullptr) {
  auto module = compile(text);
  if (!module)
    return "not compiled";
  unsigned numBlocks = out.size() / numThreads;
  Launch launch(*module, {numBlocks}, {numThreads});
  launch.options.seed = seed;
  launch.options.eager = eager;
  std::string error = launch(in, out);
  if (counters)
    *counters = launch.counters;
  return error;
}

static std::string run(const std::string &text, uint32_t seed = 0,
                       bool eager = false, unsigned numBlocks = 4,
                       Counters *counters = nullptr) {
  Buffer<int32_t> in(kTiles * kTile), out(numBlocks * kThreads);
  for (unsigned i = 0; i < in.size(); ++i)
    in[i] = i * i;
  std::string error =
      launchBlocks(text, kThreads, in, out, seed, eager, counters);
  if (!error.empty())
    return error;
  for (unsigned i = 0; i < out.size(); ++i) {
    int32_t sum = 0;
    for (unsigned row = 0; row < kTiles * kTile / kThreads; ++row)
      sum += in[row * kThreads + i % kThreads];
    if (out[i] != sum)
      return "thread " + std::to_string(i) + " has a wrong sum";
  }
  return "";
}

/// The kernel without one of its lines.
static std::string without(const std::string &line, bool isLast = false) {
  return replace(sharing, line, "", isLast);
}

static const std::string clusterBarrier = R"(
  call void @llvm.nvvm.barrier.cluster.arrive()
  call void @llvm.nvvm.barrier.cluster.wait())";

TEST(Clusters, ShareWhatTheyCopy) {
  Counters counters;
  for (bool eager : {false, true})
    for (uint32_t seed = 0; seed < 40; ++seed)
      EXPECT_EQ(run(sharing, seed, eager, 4, &counters), "") << seed;
  EXPECT_EQ(counters.blocks, 4u);
  EXPECT_EQ(counters.threads, 4u * kThreads);
  // Of four tiles in each of four blocks, every one is copied in two halves.
  EXPECT_EQ(counters.count("cp.async.bulk"), 4u * kTiles);
  EXPECT_EQ(counters.copiedBytes, 4u * kTiles * kTile * 4);
}

TEST(Clusters, AskForWholeGrids) {
  EXPECT_THAT(run(sharing, 0, false, 3),
              HasSubstr("needs a grid of clusters of 2 x 1 x 1 blocks, but got "
                        "3 x 1 x 1"));
  EXPECT_THAT(run(replace(sharing, "2,1,1", "16,1,1"), 0, false, 16),
              HasSubstr("clusters have at most 8 blocks and 32 warps here, but "
                        "got 16 x 1 x 1"));
}

TEST(Clusters, HaveRegisters) {
  // The block's number from those of cluster and place.
  std::string text = replace(
      sharing, "%block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()", R"(
  %cluster = call i32 @llvm.nvvm.read.ptx.sreg.clusterid.x()
  %x = call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctaid.x()
  %n = call i32 @llvm.nvvm.read.ptx.sreg.cluster.nctarank()
  %begins = mul i32 %cluster, %n
  %block = add i32 %begins, %x)");
  EXPECT_EQ(run(text), "");
}

TEST(Clusters, TakeInlineAssembly) {
  std::string text = replace(
      sharing,
      "call void @llvm.nvvm.cp.async.bulk.global.to.shared.cluster(ptr "
      "addrspace(7) %target, ptr addrspace(3) @full, ptr addrspace(1) %from, "
      "i32 512, i16 3, i64 0, i1 true, i1 false)",
      "call void asm sideeffect \"cp.async.bulk.shared::cluster.global."
      "mbarrier::complete_tx::bytes.multicast::cluster [$0], [$1], 512, [$2], "
      "$3;\", \"l,l,l,h\"(ptr addrspace(7) %target, ptr addrspace(1) %from, "
      "ptr addrspace(3) @full, i16 3)");
  text = replace(
      text,
      "call ptr addrspace(7) @llvm.nvvm.mapa.shared.cluster(ptr addrspace(3) "
      "@free, i32 %other)",
      "call ptr addrspace(7) asm sideeffect \"mapa.shared::cluster.u64 $0, $1, "
      "$2;\", \"=l,l,r\"(ptr addrspace(3) @free, i32 %other)");
  text = replace(
      text,
      "call void @llvm.nvvm.mbarrier.arrive.scope.cluster.space.cluster(ptr "
      "addrspace(7) %free.there, i32 1)",
      "call void asm sideeffect \"mbarrier.arrive.release.cluster."
      "shared::cluster.b64 _, [$0];\", \"l\"(ptr addrspace(7) %free.there)");
  for (uint32_t seed = 0; seed < 8; ++seed)
    EXPECT_EQ(run(text, seed), "");
  EXPECT_THAT(compileError(replace(text, "mapa.shared::cluster.u64",
                                   "mapa.shared::cluster.u32")),
              HasSubstr("instruction 'mapa.shared::cluster.u32' is not "
                        "emulated"));
}

TEST(Clusters, KnowOtherBlocksOnlyAfterABarrier) {
  for (uint32_t seed = 0; seed < 8; ++seed)
    EXPECT_THAT(run(without(clusterBarrier), seed),
                AnyOf(HasSubstr("race on shared"),
                      HasSubstr("has not been initialised")));
}

TEST(Clusters, WaitForOtherBlocksAtTheEnd) {
  for (uint32_t seed = 0; seed < 8; ++seed)
    EXPECT_THAT(run(without(clusterBarrier, /*isLast=*/true), seed),
                AnyOf(HasSubstr("of the cluster has left the kernel"),
                      HasSubstr("the block leaves the kernel")));
}

TEST(Clusters, MissArrivalsOfOtherBlocks) {
  std::string text = without(
      "  call void @llvm.nvvm.mbarrier.arrive.scope.cluster.space.cluster(ptr "
      "addrspace(7) %free.there, i32 1)\n");
  for (uint32_t seed = 0; seed < 8; ++seed)
    EXPECT_THAT(run(text, seed),
                AllOf(HasSubstr("deadlock"), HasSubstr("lacks 2 of 4 "
                                                       "arrivals")));
  // The own block instead of the other one, and always the first.
  for (const char *other : {"add i32 %rank, 0", "add i32 0, 0"})
    EXPECT_NE(run(replace(sharing, "xor i32 %rank, 1", other)), "") << other;
}

TEST(Clusters, MissWrongMasks) {
  for (const char *mask : {"i16 1", "i16 2"})
    for (bool eager : {false, true})
      EXPECT_THAT(run(replace(sharing, "i16 3", mask), 0, eager),
                  HasSubstr("deadlock"))
          << mask;
  EXPECT_THAT(run(replace(sharing, "i16 3", "i16 7")),
              HasSubstr("a copy to the blocks of mask 0x7 of a cluster of 2"));
  EXPECT_THAT(run(replace(sharing, "i16 3", "i16 0")),
              HasSubstr("a copy to the blocks of mask 0x0 of a cluster of 2"));
  // Each block copies for itself alone.
  EXPECT_THAT(run(replace(sharing, "i1 true", "i1 false")),
              HasSubstr("deadlock"));
  // Without clusters there is no other block.
  EXPECT_THAT(run(replace(sharing, "2,1,1", "1,1,1")),
              HasSubstr("there is no block 1 in a cluster of 1"));
}

TEST(Clusters, MissWaitsForBothBlocks) {
  // Arrivals of the own block alone end a phase: the other may still read.
  std::string text = replace(sharing, "@free, i32 4", "@free, i32 2");
  for (uint32_t seed = 0; seed < 8; ++seed)
    EXPECT_NE(run(text, seed), "");
  // Nobody waits until a tile is free.
  text = replace(sharing,
                 "call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space."
                 "cta(ptr addrspace(3) @free, i32 %before)",
                 "icmp eq i32 0, 0");
  for (uint32_t seed = 0; seed < 8; ++seed)
    EXPECT_NE(run(text, seed), "");
  // Bytes of one half.
  text = replace(sharing, "@full, i32 1024", "@full, i32 512");
  for (bool eager : {false, true})
    EXPECT_NE(run(text, /*seed=*/0, eager), "");
}

TEST(Clusters, SeeEachOthersMemory) {
  std::string text = R"(
@number = internal addrspace(3) global i32 poison, align 16
define ptx_kernel void @k(ptr addrspace(1) %in, ptr %out) #0 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %rank = call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()
  store i32 %block, ptr addrspace(3) @number
  call void @llvm.nvvm.barrier.cluster.arrive()
  call void @llvm.nvvm.barrier.cluster.wait()
  %other = xor i32 %rank, 1
  %there = call ptr addrspace(7) @llvm.nvvm.mapa.shared.cluster(ptr addrspace(3) @number, i32 %other)
  %v = load i32, ptr addrspace(7) %there
  %pout = getelementptr i32, ptr %out, i32 %block
  store i32 %v, ptr %pout
  call void @llvm.nvvm.barrier.cluster.arrive()
  call void @llvm.nvvm.barrier.cluster.wait()
  ret void
}
attributes #0 = { "nvvm.cluster_dim"="2,1,1" }
)";
  auto launchIt = [](const std::string &text) -> std::string {
    Buffer<int32_t> in(1), out(4);
    std::string error = launchBlocks(text, /*numThreads=*/1, in, out);
    if (error.empty() && out.values() != std::vector<int32_t>{1, 0, 3, 2})
      return "wrong numbers";
    return error;
  };
  EXPECT_EQ(launchIt(text), "");
  EXPECT_NE(launchIt(replace(text, clusterBarrier, "")), "");
  EXPECT_THAT(launchIt(replace(text, clusterBarrier, "", /*isLast=*/true)),
              AnyOf(HasSubstr("of the cluster has left the kernel"),
                    HasSubstr("the block leaves the kernel")));
  EXPECT_THAT(launchIt(replace(text, "%rank, 1", "%rank, 2")),
              HasSubstr("in a cluster of 2"));
}
