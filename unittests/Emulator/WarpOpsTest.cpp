//===- WarpOpsTest.cpp - Shuffles, votes and reductions -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EmulatorTestUtils.h"

#include <functional>

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::HasSubstr;

namespace {

/// A kernel of one warp: out[lane] = %r, computed by `body` from %v = in[lane]
/// and %lane.
std::string perLane(const std::string &body) {
  return R"(
define ptx_kernel void @k(ptr %in, ptr %out) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %pin = getelementptr i32, ptr %in, i32 %lane
  %pout = getelementptr i32, ptr %out, i32 %lane
  %v = load i32, ptr %pin
)" + body +
         R"(
  store i32 %r, ptr %pout
  ret void
}
)";
}

uint32_t input(unsigned lane) { return (lane * 2654435761u) ^ 0x80001234u; }

/// Runs the kernel in several orders and compares with expected(lane).
void check(const std::string &body,
           const std::function<uint32_t(unsigned)> &expected,
           unsigned numLanes = 32) {
  auto module = compile(perLane(body));
  ASSERT_TRUE(module);
  for (uint32_t seed : {0, 1, 2}) {
    Buffer<uint32_t> in(32), out(32);
    for (unsigned lane = 0; lane < 32; ++lane) {
      in[lane] = input(lane);
      out[lane] = 0;
    }
    Launch launch(*module, {1}, {numLanes});
    launch.options.seed = seed;
    ASSERT_EQ(launch(in, out), "") << body;
    for (unsigned lane = 0; lane < numLanes; ++lane)
      EXPECT_EQ(out[lane], expected(lane)) << body << " lane " << lane;
  }
}

std::string shuffle(const char *mode, int by, int clamp) {
  return "  %r = call i32 @llvm.nvvm.shfl.sync." + std::string(mode) +
         ".i32(i32 -1, i32 %v, i32 " + std::to_string(by) + ", i32 " +
         std::to_string(clamp) + ")";
}

TEST(WarpOps, Shuffles) {
  for (int by : {0, 1, 5, 16, 31}) {
    check(shuffle("bfly", by, 31),
          [=](unsigned lane) { return input(lane ^ by); });
    check(shuffle("down", by, 31), [=](unsigned lane) {
      return input(lane + by > 31 ? lane : lane + by);
    });
    check(shuffle("up", by, 0), [=](unsigned lane) {
      return input(int(lane) < by ? lane : lane - by);
    });
    check(shuffle("idx", by, 31), [=](unsigned) { return input(by); });
  }
}

TEST(WarpOps, ShufflesWithinSegments) {
  // Segments of 8 lanes: the clamp operand carries 0x18 in bits 8 to 12.
  check(shuffle("down", 3, 0x1807 | 0x18), [](unsigned lane) {
    return input(lane % 8 + 3 > 7 ? lane : lane + 3);
  });
  check(shuffle("idx", 2, 0x181f),
        [](unsigned lane) { return input(lane / 8 * 8 + 2); });
}

TEST(WarpOps, ShufflesGiveAPredicate) {
  check(R"(
  %s = call { i32, i1 } @llvm.nvvm.shfl.sync.down.i32p(i32 -1, i32 %v, i32 4, i32 31)
  %p = extractvalue { i32, i1 } %s, 1
  %r = zext i1 %p to i32)",
        [](unsigned lane) { return lane + 4 <= 31; });
}

TEST(WarpOps, ShufflesFloats) {
  check(R"(
  %f = bitcast i32 %v to float
  %s = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %f, i32 7, i32 31)
  %r = bitcast float %s to i32)",
        [](unsigned lane) { return input(lane ^ 7); });
}

TEST(WarpOps, ShufflesInlineAssembly) {
  check(R"(
  %r = call i32 asm sideeffect "shfl.sync.bfly.b32 $0, $1, 3, 31, -1;", "=r,r"(i32 %v))",
        [](unsigned lane) { return input(lane ^ 3); });
  check(R"(
  %r = call i32 asm sideeffect "{ .reg .pred p; .reg .b32 t; shfl.sync.down.b32 t|p, $1, 8, 31, -1; selp.b32 $0, t, 77, p; }", "=r,r"(i32 %v))",
        [](unsigned lane) { return lane + 8 > 31 ? 77 : input(lane + 8); });
}

TEST(WarpOps, Votes) {
  auto vote = [](const char *mode, const char *type) {
    return "  %c = icmp slt i32 %v, 0\n  %b = call " + std::string(type) +
           " @llvm.nvvm.vote." + mode + ".sync(i32 -1, i1 %c)\n" +
           (std::string(type) == "i1" ? "  %r = zext i1 %b to i32"
                                      : "  %r = add i32 %b, 0");
  };
  uint32_t ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    ballot |= uint32_t(int32_t(input(lane)) < 0) << lane;
  ASSERT_NE(ballot, 0u);
  ASSERT_NE(ballot, ~0u);
  check(vote("any", "i1"), [](unsigned) { return 1; });
  check(vote("all", "i1"), [](unsigned) { return 0; });
  check(vote("uni", "i1"), [](unsigned) { return 0; });
  check(vote("ballot", "i32"), [=](unsigned) { return ballot; });
}

TEST(WarpOps, Reductions) {
  struct Case {
    const char *name;
    std::function<uint32_t(uint32_t, uint32_t)> combine;
  } cases[] = {{"add", [](uint32_t a, uint32_t b) { return a + b; }},
               {"and", [](uint32_t a, uint32_t b) { return a & b; }},
               {"or", [](uint32_t a, uint32_t b) { return a | b; }},
               {"xor", [](uint32_t a, uint32_t b) { return a ^ b; }},
               {"umin", [](uint32_t a, uint32_t b) { return std::min(a, b); }},
               {"umax", [](uint32_t a, uint32_t b) { return std::max(a, b); }},
               {"min",
                [](uint32_t a, uint32_t b) {
                  return uint32_t(std::min(int32_t(a), int32_t(b)));
                }},
               {"max", [](uint32_t a, uint32_t b) {
                  return uint32_t(std::max(int32_t(a), int32_t(b)));
                }}};
  for (const Case &each : cases) {
    uint32_t total = input(0);
    for (unsigned lane = 1; lane < 32; ++lane)
      total = each.combine(total, input(lane));
    check("  %r = call i32 @llvm.nvvm.redux.sync." + std::string(each.name) +
              "(i32 %v, i32 -1)",
          [=](unsigned) { return total; });
  }
  float most = 0;
  check(R"(
  %s = lshr i32 %v, 9
  %f = uitofp i32 %s to float
  %m = call float @llvm.nvvm.redux.sync.fmax(float %f, i32 -1)
  %i = fptoui float %m to i32
  %r = add i32 %i, 0)",
        [&](unsigned) {
          for (unsigned lane = 0; lane < 32; ++lane)
            most = std::max(most, float(input(lane) >> 9));
          return uint32_t(most);
        });
}

TEST(WarpOps, Matches) {
  check(R"(
  %low = and i32 %lane, 3
  %r = call i32 @llvm.nvvm.match.any.sync.i32(i32 -1, i32 %low))",
        [](unsigned lane) { return 0x11111111u << lane % 4; });
  check(R"(
  %m = call { i32, i1 } @llvm.nvvm.match.all.sync.i32p(i32 -1, i32 5)
  %r = extractvalue { i32, i1 } %m, 0)",
        [](unsigned) { return 0xffffffffu; });
}

TEST(WarpOps, ElectsOneLane) {
  check(R"(
  %e = call { i32, i1 } @llvm.nvvm.elect.sync(i32 -1)
  %p = extractvalue { i32, i1 } %e, 1
  %r = zext i1 %p to i32)",
        [](unsigned lane) { return lane == 0; });
}

TEST(WarpOps, MasksTakePart) {
  // Two halves shuffle for themselves, in different branches.
  auto module = compile(R"(
define ptx_kernel void @k(ptr %out) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %pout = getelementptr i32, ptr %out, i32 %lane
  %low = icmp ult i32 %lane, 16
  br i1 %low, label %first, label %second
first:
  %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 65535, i32 %lane, i32 1, i32 31)
  store i32 %a, ptr %pout
  ret void
second:
  %b = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -65536, i32 %lane, i32 2, i32 31)
  store i32 %b, ptr %pout
  ret void
}
)");
  ASSERT_TRUE(module);
  for (uint32_t seed : {0, 3}) {
    Buffer<uint32_t> out(32);
    Launch launch(*module, {1}, {32});
    launch.options.seed = seed;
    EXPECT_EQ(launch(out), "");
    for (unsigned lane = 0; lane < 32; ++lane)
      EXPECT_EQ(out[lane], lane < 16 ? lane ^ 1 : lane ^ 2);
  }
}

//===----------------------------------------------------------------------===//
// Mistakes
//===----------------------------------------------------------------------===//

std::string errorOf(const std::string &text, unsigned numThreads = 32) {
  auto module = compile(text);
  if (!module)
    return "not compiled";
  Buffer<uint32_t> in(64), out(64);
  for (unsigned i = 0; i < 64; ++i)
    in[i] = i;
  return Launch(*module, {1}, {numThreads})(in, out);
}

TEST(WarpOps, ReportsADivergentShuffle) {
  EXPECT_THAT(errorOf(R"(
define ptx_kernel void @k(ptr %in, ptr %out) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %low = icmp ult i32 %lane, 16
  br i1 %low, label %first, label %end
first:
  %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %lane, i32 1, i32 31)
  store i32 %a, ptr %out
  br label %end
end:
  ret void
}
)"),
              HasSubstr("leaves the kernel while lane 0 waits for it "
                        "(llvm.nvvm.shfl.sync.bfly.i32"));
}

TEST(WarpOps, ReportsDifferentOperations) {
  EXPECT_THAT(errorOf(R"(
define ptx_kernel void @k(ptr %in, ptr %out) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %low = icmp ult i32 %lane, 16
  br i1 %low, label %first, label %second
first:
  %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %lane, i32 1, i32 31)
  store volatile i32 %a, ptr %out
  ret void
second:
  %b = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %lane, i32 2, i32 31)
  store volatile i32 %b, ptr %in
  ret void
}
)"),
              HasSubstr("divergent warp: lane 0 waits in"));
}

TEST(WarpOps, ReportsMasksWithoutTheLane) {
  EXPECT_THAT(errorOf(perLane("  %r = call i32 @llvm.nvvm.redux.sync.add(i32 "
                              "%v, i32 65535)")),
              HasSubstr("lane 16 is not in its own member mask 0x0000ffff"));
}

TEST(WarpOps, ReportsLanesThatAreNotThere) {
  EXPECT_THAT(errorOf(perLane("  %r = call i32 @llvm.nvvm.redux.sync.add(i32 "
                              "%v, i32 -1)"),
                      24),
              HasSubstr("lanes 0xff000000 of the member mask do not exist"));
}

TEST(WarpOps, ReportsReadsOfAnotherLane) {
  EXPECT_THAT(errorOf(R"(
define ptx_kernel void @k(ptr %in, ptr %out) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %low = icmp ult i32 %lane, 16
  br i1 %low, label %first, label %end
first:
  %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 65535, i32 %lane, i32 16, i32 31)
  store i32 %a, ptr %out
  br label %end
end:
  ret void
}
)"),
              HasSubstr("reads from lane 16, which does not take part"));
}

TEST(Scalars, Approximate) {
  auto module = compile(R"(
define ptx_kernel void @k(ptr %in, ptr %out) {
  %x = load float, ptr %in
  %a = call float @llvm.nvvm.ex2.approx.ftz.f32(float %x)
  store float %a, ptr %out
  %p1 = getelementptr float, ptr %out, i32 1
  %b = call float @llvm.nvvm.lg2.approx.ftz.f(float %x)
  store float %b, ptr %p1
  %p2 = getelementptr float, ptr %out, i32 2
  %c = call float @llvm.nvvm.rcp.approx.ftz.f(float %x)
  store float %c, ptr %p2
  %p3 = getelementptr float, ptr %out, i32 3
  %d = call float @llvm.nvvm.rsqrt.approx.ftz.f(float %x)
  store float %d, ptr %p3
  %p4 = getelementptr float, ptr %out, i32 4
  %e = call float asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"(float -140.0)
  store float %e, ptr %p4
  %p5 = getelementptr i32, ptr %out, i32 5
  %f = call i32 asm "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f"(float 1.0, float -2.0)
  store i32 %f, ptr %p5
  ret void
}
)");
  ASSERT_TRUE(module);
  Buffer<float> in(1), out(6);
  in[0] = 0.25f;
  ASSERT_EQ((Launch(*module, {1}, {1})(in, out)), "");
  EXPECT_EQ(out[0], std::exp2(0.25f));
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], 4.0f);
  EXPECT_EQ(out[3], 2.0f);
  // 2^-140 is subnormal.
  EXPECT_EQ(out[4], 0.0f);
  uint32_t packed;
  memcpy(&packed, &out[5], 4);
  EXPECT_EQ(packed, 0x3f80c000u);
}

TEST(Scalars, SpecialRegisters) {
  auto module = compile(R"(
define ptx_kernel void @k(ptr %out) {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %y = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %nx = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %warp = call i32 @llvm.nvvm.read.ptx.sreg.warpid()
  %lt = call i32 @llvm.nvvm.read.ptx.sreg.lanemask.lt()
  %gx = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %shared = call i32 @llvm.nvvm.read.ptx.sreg.dynamic_smem_size()
  %line = mul i32 %y, %nx
  %i = add i32 %line, %x
  %base = mul i32 %i, 4
  %p = getelementptr i32, ptr %out, i32 %base
  %p1 = getelementptr i32, ptr %p, i32 1
  %p2 = getelementptr i32, ptr %p, i32 2
  %p3 = getelementptr i32, ptr %p, i32 3
  store i32 %warp, ptr %p
  store i32 %lt, ptr %p1
  store i32 %gx, ptr %p2
  store i32 %shared, ptr %p3
  ret void
}
)");
  ASSERT_TRUE(module);
  Buffer<uint32_t> out(4 * 48);
  Launch launch(*module, {1}, {8, 6});
  launch.dynamicShared = 96;
  ASSERT_EQ(launch(out), "");
  for (uint32_t i = 0; i < 48; ++i) {
    EXPECT_EQ(out[4 * i], i / 32);
    EXPECT_EQ(out[4 * i + 1], (1u << i % 32) - 1);
    EXPECT_EQ(out[4 * i + 2], 1u);
    EXPECT_EQ(out[4 * i + 3], 96u);
  }
}

} // namespace
