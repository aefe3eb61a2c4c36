//===- CopiesTest.cpp - Asynchronous copies and mbarriers -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EmulatorTestUtils.h"
#include "fovea/Emulator/Runtime/TensorMap.h"

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::HasSubstr;

namespace {

std::string replace(std::string text, const std::string &from,
                    const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

/// 32 threads copy 16 bytes each to shared memory and read those of another.
const char *const copyKernel = R"(
@buffer = internal addrspace(3) global [128 x i32] poison, align 16
define ptx_kernel void @k(ptr addrspace(1) %in, ptr %out, i32 %valid) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = mul i32 %tid, 4
  %p = getelementptr i32, ptr addrspace(3) @buffer, i32 %i
  %g = getelementptr i32, ptr addrspace(1) %in, i32 %i
  call void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3) %p, ptr addrspace(1) %g, i32 %valid)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.wait.group(i32 0)
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %o = xor i32 %i, 124
  %q = getelementptr i32, ptr addrspace(3) @buffer, i32 %o
  %v = load <4 x i32>, ptr addrspace(3) %q
  %pout = getelementptr i32, ptr %out, i32 %i
  store <4 x i32> %v, ptr %pout
  ret void
}
)";

std::string runCopy(const std::string &text, uint32_t valid = 16,
                    bool eager = false, bool races = true, size_t inputs = 128,
                    uint32_t threads = 32) {
  auto module = compile(text);
  if (!module)
    return "not compiled";
  Buffer<uint32_t> in(inputs), out(128);
  for (size_t i = 0; i < inputs; ++i)
    in[i] = i;
  Launch launch(*module, {1}, {threads});
  launch.options.eager = eager;
  launch.options.races = races;
  std::string error = launch(in, out, valid);
  if (!error.empty())
    return error;
  for (unsigned i = 0; i < 128; ++i) {
    unsigned expected = i % 4 * 4 < valid ? (i ^ 124) : 0;
    if (out[i] != expected)
      return "element " + std::to_string(i) + " is " + std::to_string(out[i]);
  }
  return "";
}

TEST(AsyncCopy, ArrivesByTheWait) {
  EXPECT_EQ(runCopy(copyKernel), "");
  EXPECT_EQ(runCopy(copyKernel, 8), "");
  EXPECT_EQ(runCopy(copyKernel, 0), "");
  EXPECT_EQ(runCopy(copyKernel, 16, /*eager=*/true), "");
}

TEST(AsyncCopy, InInlineAssembly) {
  std::string text = copyKernel;
  size_t at = text.find("  call void @llvm.nvvm.cp.async.cg");
  text.replace(at, text.find("  call void @llvm.nvvm.barrier") - at, R"(
  call void asm sideeffect "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r"(ptr addrspace(3) %p, ptr addrspace(1) %g, i32 %valid)
  call void asm sideeffect "cp.async.commit_group; cp.async.wait_group 0;", ""()
)");
  EXPECT_EQ(runCopy(text), "");
  EXPECT_EQ(runCopy(text, 4), "");
}

TEST(AsyncCopy, MissingWait) {
  std::string text = replace(
      copyKernel, "  call void @llvm.nvvm.cp.async.wait.group(i32 0)\n", "");
  EXPECT_THAT(runCopy(text), HasSubstr("is 4294967295"));
  // Copies that happen at once hide the mistake: that is why they do not.
  EXPECT_EQ(runCopy(text, 16, /*eager=*/true), "");
}

TEST(AsyncCopy, MissingCommit) {
  EXPECT_THAT(
      runCopy(replace(copyKernel,
                      "  call void @llvm.nvvm.cp.async.commit.group()\n", "")),
      HasSubstr("is 4294967295"));
}

TEST(AsyncCopy, WaitForTooFew) {
  EXPECT_THAT(
      runCopy(replace(copyKernel, "wait.group(i32 0)", "wait.group(i32 1)")),
      HasSubstr("is 4294967295"));
}

TEST(AsyncCopy, ReadsBeyondTheEnd) {
  EXPECT_THAT(runCopy(copyKernel, 16, false, true, 124),
              HasSubstr("no device memory: 496 bytes into the block of 496"));
  // With no bytes to read the address does not matter.
  EXPECT_EQ(runCopy(copyKernel, 0, false, true, 4), "");
}

TEST(AsyncCopy, Misaligned) {
  EXPECT_THAT(runCopy(replace(copyKernel,
                              "%g = getelementptr i32, ptr "
                              "addrspace(1) %in, i32 %i",
                              "%i1 = add i32 %i, 1\n  %g = getelementptr i32, "
                              "ptr addrspace(1) %in, i32 %i1")),
              HasSubstr("are not aligned to their size"));
}

/// The same, but a second warp reads, which waits for an mbarrier at which the
/// threads of the first one arrive with their copies.
const char *const arrivalKernel = R"(
@buffer = internal addrspace(3) global [128 x i32] poison, align 16
@other = internal addrspace(3) global i32 poison, align 4
@bar = internal addrspace(3) global i64 poison, align 8
define ptx_kernel void @k(ptr addrspace(1) %in, ptr %out, i32 %valid) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %lane = and i32 %tid, 31
  %i = mul i32 %lane, 4
  %leader = icmp eq i32 %tid, 0
  br i1 %leader, label %init, label %ready
init:
  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @bar, i32 32)
  br label %ready
ready:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %copies = icmp ult i32 %tid, 32
  br i1 %copies, label %copy, label %wait
copy:
  %p = getelementptr i32, ptr addrspace(3) @buffer, i32 %i
  %g = getelementptr i32, ptr addrspace(1) %in, i32 %i
  call void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3) %p, ptr addrspace(1) %g, i32 %valid)
  call void @llvm.nvvm.cp.async.mbarrier.arrive.noinc.shared(ptr addrspace(3) @bar)
  ret void
wait:
  call void asm sideeffect "{ .reg .pred P1; LAB_WAIT: mbarrier.try_wait.parity.shared.b64 P1, [$0], $1, $2; @P1 bra.uni DONE; bra.uni LAB_WAIT; DONE: }", "r,r,r"(ptr addrspace(3) @bar, i32 0, i32 10000000)
  %o = xor i32 %i, 124
  %q = getelementptr i32, ptr addrspace(3) @buffer, i32 %o
  %v = load <4 x i32>, ptr addrspace(3) %q
  %pout = getelementptr i32, ptr %out, i32 %i
  store <4 x i32> %v, ptr %pout
  ret void
}
)";

TEST(AsyncCopy, ArrivesAtABarrier) {
  for (bool eager : {false, true}) {
    EXPECT_EQ(runCopy(arrivalKernel, 16, eager, true, 128, 64), "");
    EXPECT_EQ(runCopy(arrivalKernel, 8, eager, true, 128, 64), "");
  }
}

TEST(AsyncCopy, ArrivalsThatAreCountedEndNoPhase) {
  EXPECT_THAT(
      runCopy(replace(arrivalKernel, ".noinc", ""), 16, false, true, 128, 64),
      HasSubstr("wait"));
}

TEST(AsyncCopy, MissingArrival) {
  std::string arrival = "  call void @llvm.nvvm.cp.async.mbarrier.arrive.noinc"
                        ".shared(ptr addrspace(3) @bar)\n";
  EXPECT_THAT(
      runCopy(replace(arrivalKernel, arrival, ""), 16, false, true, 128, 64),
      HasSubstr("wait"));
  // One that copies do not have: it does not wait for them.
  std::string other = "  call i64 @llvm.nvvm.mbarrier.arrive.shared("
                      "ptr addrspace(3) @bar)\n";
  EXPECT_NE(
      runCopy(replace(arrivalKernel, arrival, other), 16, false, true, 128, 64),
      "");
}

TEST(AsyncCopy, ArrivalsDoNotOrderWhatFollows) {
  std::string text =
      replace(arrivalKernel, "  ret void\nwait:",
              "  store i32 7, ptr addrspace(3) @other\n  ret void\nwait:");
  text = replace(text, "  %o = xor i32 %i, 124",
                 "  %seven = load i32, ptr addrspace(3) @other\n"
                 "  %moved = mul i32 %seven, 0\n"
                 "  %j = add i32 %i, %moved\n  %o = xor i32 %j, 124");
  EXPECT_THAT(runCopy(text, 16, false, true, 128, 64), HasSubstr("race on"));
  EXPECT_THAT(runCopy(text, 16, true, true, 128, 64), HasSubstr("race on"));
}

//===----------------------------------------------------------------------===//
// mbarrier and TMA
//===----------------------------------------------------------------------===//

/// Thread 0 lets TMA copy a box of 16 x 64 elements of 16 bits; all threads
/// wait for it and give it out row by row; then it goes back by TMA.
const char *const tensorKernel = R"(
@box = internal addrspace(3) global [2048 x i8] poison, align 1024
@bar = internal addrspace(3) global i64 poison, align 8
define ptx_kernel void @k(ptr byval([16 x i64]) align 64 %map, ptr byval([16 x i64]) align 64 %result, ptr %out, i32 %x, i32 %y) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %leader = icmp eq i32 %tid, 0
  %cluster = addrspacecast ptr addrspace(3) @box to ptr addrspace(7)
  br i1 %leader, label %init, label %ready
init:
  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @bar, i32 1)
  call void @llvm.nvvm.fence.mbarrier_init.release.cluster()
  br label %ready
ready:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br i1 %leader, label %load, label %wait
load:
  %t = call i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3) @bar, i32 2048)
  call void @llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d(ptr addrspace(7) %cluster, ptr addrspace(3) @bar, ptr %map, i32 %x, i32 %y, i16 0, i64 0, i1 false, i1 false, i32 0)
  br label %wait
wait:
  call void asm sideeffect "{ .reg .pred P1; LAB_WAIT: mbarrier.try_wait.parity.shared.b64 P1, [$0], $1, $2; @P1 bra.uni DONE; bra.uni LAB_WAIT; DONE: }", "r,r,r"(ptr addrspace(3) @bar, i32 0, i32 10000000)
  %at = mul i32 %tid, 32
  %p = getelementptr i8, ptr addrspace(3) @box, i32 %at
  %pout = getelementptr i8, ptr %out, i32 %at
  %v = load <8 x i32>, ptr addrspace(3) %p, align 16
  store <8 x i32> %v, ptr %pout, align 16
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br i1 %leader, label %store, label %end
store:
  call void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.2d(ptr addrspace(3) @box, ptr %result, i32 %x, i32 %y, i64 0, i1 false)
  call void @llvm.nvvm.cp.async.bulk.commit.group()
  call void @llvm.nvvm.cp.async.bulk.wait.group.read(i32 0)
  br label %end
end:
  ret void
}
)";

struct TensorCopy {
  static constexpr int kColumns = 64, kRows = 16;
  int width = 80, height = 20;
  Swizzle swizzle = Swizzle::B128;
  int x = 8, y = 3;
  uint32_t seed = 0;
  bool eager = false;
  Counters counters;

  static TensorMap makeMap(void *base, int width, int height, Swizzle swizzle) {
    TensorMap map;
    map.rank = 2;
    map.elementBytes = 2;
    map.swizzle = swizzle;
    map.base = reinterpret_cast<uintptr_t>(base);
    map.extent[0] = width;
    map.extent[1] = height;
    map.stride[0] = width * 2;
    map.box[0] = kColumns;
    map.box[1] = kRows;
    return map;
  }

  /// Runs the kernel and checks both copies.
  std::string run(const std::string &text) {
    auto module = compile(text);
    if (!module)
      return "not compiled";
    Buffer<uint16_t> in(width * height), back(width * height), out(1024);
    for (int i = 0; i < width * height; ++i) {
      in[i] = i;
      back[i] = 9999;
    }
    TensorMap map = makeMap(in.get(), width, height, swizzle);
    TensorMap result = makeMap(back.get(), width, height, swizzle);
    Launch launch(*module, {1}, {64});
    launch.options.seed = seed;
    launch.options.eager = eager;
    std::string error = launch(map, result, out, x, y);
    counters = launch.counters;
    if (!error.empty())
      return error;
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) {
        bool inside = x + column >= 0 && x + column < width && y + row >= 0 &&
                      y + row < height;
        // Rows of 128 bytes; the swizzle exchanges pieces of 16 bytes.
        int piece = column / 8, bits = (1 << int(swizzle)) - 1;
        int at = row * 64 + (piece ^ (row & bits)) * 8 + column % 8;
        int expected = inside ? (y + row) * width + x + column : 0;
        if (out[at] != expected)
          return "row " + std::to_string(row) + " column " +
                 std::to_string(column) + " is " + std::to_string(out[at]);
        if (inside && back[expected] != expected)
          return "element " + std::to_string(expected) + " did not come back";
      }
    for (int i = 0; i < width * height; ++i) {
      int column = i % width - x, row = i / width - y;
      bool inside = column >= 0 && column < kColumns && row >= 0 && row < kRows;
      if (!inside && back[i] != 9999)
        return "element " + std::to_string(i) + " was overwritten";
    }
    return "";
  }
};

TEST(TensorCopies, MoveBoxes) {
  for (uint32_t seed : {0, 1, 2})
    for (bool eager : {false, true}) {
      TensorCopy copy;
      copy.seed = seed;
      copy.eager = eager;
      EXPECT_EQ(copy.run(tensorKernel), "");
      EXPECT_EQ(copy.counters.copiedBytes, 4096u);
    }
}

TEST(TensorCopies, InInlineAssembly) {
  // As MLIR writes those with a predicate.
  auto replaceCall = [](std::string text, const std::string &name,
                        const std::string &by) {
    size_t at = text.find("  call void @llvm.nvvm." + name);
    EXPECT_NE(at, std::string::npos) << name;
    return text.replace(at, text.find('\n', at) - at, "  " + by);
  };
  std::string text = replaceCall(
      tensorKernel, "cp.async.bulk.tensor.g2s",
      "call void asm sideeffect \"@$5 cp.async.bulk.tensor.2d.shared::cluster."
      "global.mbarrier::complete_tx::bytes [$0], [$1, {$2,$3} ], [$4];\", "
      "\"l,l,r,r,r,b\"(ptr addrspace(7) %cluster, ptr %map, i32 %x, i32 %y, "
      "ptr "
      "addrspace(3) @bar, i1 %leader)");
  text = replaceCall(
      text, "cp.async.bulk.tensor.s2g",
      "call void asm sideeffect \"@$4 cp.async.bulk.tensor.2d.global."
      "shared::cta.bulk_group [$0, {$2, $3} ], [$1];\", \"l,r,r,r,b\"(ptr "
      "%result, ptr addrspace(3) @box, i32 %x, i32 %y, i1 %leader)");
  text = replaceCall(text, "mbarrier.init.shared",
                     "call void asm sideeffect \"@$2 mbarrier.init.shared.b64 "
                     "[$0], $1;\", \"r,r,b\"(ptr addrspace(3) @bar, i32 1, i1 "
                     "%leader)");
  text = replace(text,
                 "%t = call i64 "
                 "@llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space."
                 "cta(ptr addrspace(3) @bar, i32 2048)",
                 "call void asm sideeffect \"@$2 mbarrier.arrive.expect_tx."
                 "shared.b64 _, [$0], $1;\", \"r,r,b\"(ptr addrspace(3) @bar, "
                 "i32 2048, i1 %leader)");
  EXPECT_EQ(TensorCopy().run(text), "");
}

TEST(TensorCopies, FillWithZerosOutside) {
  for (auto [x, y] : {std::pair(40, 10), std::pair(-8, -3), std::pair(80, 0),
                      std::pair(0, 20)}) {
    TensorCopy copy;
    copy.x = x;
    copy.y = y;
    EXPECT_EQ(copy.run(tensorKernel), "") << x << " " << y;
  }
}

TEST(TensorCopies, MissingWait) {
  std::string text = tensorKernel;
  size_t at = text.find("  call void asm sideeffect");
  text.erase(at, text.find('\n', at) - at);
  EXPECT_THAT(TensorCopy().run(text), HasSubstr("race on shared +1024: writes "
                                                "what warp 1 read"));
  TensorCopy random;
  std::string errors;
  for (random.seed = 1; random.seed < 6; ++random.seed)
    errors += random.run(text);
  EXPECT_NE(errors, "");
  TensorCopy eager;
  eager.eager = true;
  EXPECT_THAT(eager.run(text), HasSubstr("race on shared +"));
}

TEST(TensorCopies, WaitForTheWrongPhase) {
  EXPECT_THAT(
      TensorCopy().run(replace(tensorKernel, "@bar, i32 0, i32 10000000",
                               "@bar, i32 1, i32 10000000")),
      HasSubstr("race on shared +1024"));
}

TEST(TensorCopies, WrongNumberOfBytes) {
  EXPECT_THAT(
      TensorCopy().run(
          replace(tensorKernel, "@bar, i32 2048)", "@bar, i32 4096)")),
      HasSubstr("deadlock: threads 0-63 wait for the mbarrier at shared "
                "+2048, whose phase 0 lacks 0 of 1 arrivals and 2048 "
                "bytes"));
}

TEST(TensorCopies, MissingArrival) {
  EXPECT_THAT(
      TensorCopy().run(replace(tensorKernel, "@bar, i32 1)", "@bar, i32 2)")),
      HasSubstr("lacks 1 of 2 arrivals and 0 bytes"));
}

TEST(TensorCopies, MissingInitialisation) {
  EXPECT_THAT(
      TensorCopy().run(replace(
          tensorKernel,
          "call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @bar, "
          "i32 1)",
          "")),
      HasSubstr("the mbarrier at shared +2048 has not been initialised"));
}

TEST(TensorCopies, MissingBarrierAfterInitialisation) {
  std::string text = replace(
      tensorKernel,
      "ready:\n  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
      "ready:");
  std::string errors;
  TensorCopy copy;
  for (copy.seed = 0; copy.seed < 8; ++copy.seed)
    errors += copy.run(text);
  EXPECT_THAT(errors, HasSubstr("has not been initialised"));
}

TEST(TensorCopies, StoreThatIsNotWaitedFor) {
  EXPECT_THAT(
      TensorCopy().run(replace(
          tensorKernel,
          "call void @llvm.nvvm.cp.async.bulk.wait.group.read(i32 0)", "")),
      HasSubstr("leaves the kernel without waiting for its store"));
}

TEST(TensorCopies, StoreOfOrdinaryWritesNeedsAFence) {
  std::string text =
      replace(tensorKernel,
              "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 "
              "0)\n  br i1 %leader, label %store",
              R"(
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  store <8 x i32> %v, ptr addrspace(3) %p, align 16
  FENCE
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br i1 %leader, label %store)");
  EXPECT_THAT(TensorCopy().run(replace(text, "FENCE", "")),
              HasSubstr("without fence.proxy.async after it"));
  EXPECT_EQ(TensorCopy().run(
                replace(text, "FENCE",
                        "call void @llvm.nvvm.fence.proxy.async.shared_cta()")),
            "");
}

TEST(TensorCopies, NeedAMapAndAlignment) {
  std::string text = replace(tensorKernel, "ptr addrspace(3) @box to",
                             "ptr addrspace(3) getelementptr (i8, ptr "
                             "addrspace(3) @box, i32 128) to");
  EXPECT_THAT(TensorCopy().run(replace(text, "[2048 x i8]", "[4096 x i8]")),
              HasSubstr("the box at shared +128 is not aligned to 1024 bytes"));
  EXPECT_THAT(TensorCopy().run(replace(tensorKernel, "ptr %map, i32 %x",
                                       "ptr %out, i32 %x")),
              HasSubstr("there is no tensor map at address"));
}

TEST(TensorMaps, AreChecked) {
  TensorMap map = TensorCopy::makeMap(nullptr, 80, 20, Swizzle::B128);
  EXPECT_EQ(checkTensorMap(map), nullptr);
  TensorMap bad = map;
  bad.base = 8;
  EXPECT_THAT(checkTensorMap(bad), HasSubstr("address"));
  bad = map;
  bad.stride[0] = 168;
  EXPECT_THAT(checkTensorMap(bad), HasSubstr("stride"));
  bad = map;
  bad.box[0] = 128;
  EXPECT_THAT(checkTensorMap(bad), HasSubstr("must not exceed the swizzle"));
  bad = map;
  bad.box[0] = 60;
  EXPECT_THAT(checkTensorMap(bad), HasSubstr("multiple of 16 bytes"));
  bad = map;
  bad.box[1] = 257;
  EXPECT_THAT(checkTensorMap(bad), HasSubstr("1 to 256"));
  bad = map;
  bad.rank = 6;
  EXPECT_THAT(checkTensorMap(bad), HasSubstr("rank"));
  bad = map;
  bad.extent[1] = 0;
  EXPECT_THAT(checkTensorMap(bad), HasSubstr("extent"));
}

} // namespace
