//===- LaunchTest.cpp - Launches and their failures -----------------------===//
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

/// y[i] = a * x[i] + y[i], one element a thread.
const char *const saxpy = R"(
define ptx_kernel void @saxpy(ptr %x, ptr %y, float %a, i32 %n) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %width = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %base = mul i32 %block, %width
  %i = add i32 %base, %tid
  %inside = icmp ult i32 %i, %n
  br i1 %inside, label %body, label %end
body:
  %px = getelementptr float, ptr %x, i32 %i
  %py = getelementptr float, ptr %y, i32 %i
  %vx = load float, ptr %px
  %vy = load float, ptr %py
  %p = fmul float %vx, %a
  %s = fadd float %p, %vy
  store float %s, ptr %py
  br label %end
end:
  ret void
}
)";

TEST(Launch, ComputesEveryElement) {
  auto module = compile(saxpy);
  ASSERT_TRUE(module);
  EXPECT_THAT(module->getKernelNames(), testing::ElementsAre("saxpy"));
  EXPECT_EQ(module->getNumParams("saxpy"), 4);
  EXPECT_EQ(module->getNumParams("other"), -1);
  for (uint32_t seed : {0, 1, 2}) {
    std::vector<float> x(100), y(100);
    for (int i = 0; i < 100; ++i) {
      x[i] = i;
      y[i] = 1000 + i;
    }
    Buffer<float> dx(x), dy(y);
    Launch launch(*module, {4}, {32});
    launch.options.seed = seed;
    EXPECT_EQ(launch(dx, dy, 2.0f, 100), "");
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(dy[i], 2.0f * i + 1000 + i);
    EXPECT_EQ(launch.counters.blocks, 4u);
    EXPECT_EQ(launch.counters.threads, 128u);
  }
}

TEST(Launch, ReportsAccessesBeyondABuffer) {
  auto module = compile(saxpy);
  ASSERT_TRUE(module);
  Buffer<float> x(96), y(100);
  std::string error = Launch(*module, {4}, {32})(x, y, 2.0f, 100);
  EXPECT_THAT(error, HasSubstr("kernel 'saxpy', block (3, 0, 0), thread 0"));
  EXPECT_THAT(error, HasSubstr("384 bytes into the block of 384 bytes"));
  // The next launch is not affected.
  Buffer<float> longer(100);
  EXPECT_EQ(Launch(*module, {4}, {32})(longer, y, 2.0f, 100), "");
}

TEST(Launch, ReadsNoMoreThanItSelects) {
  auto module = compile(R"(
define ptx_kernel void @choose(ptr %x, ptr %y) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %px = getelementptr float, ptr %x, i32 %tid
  %py = getelementptr float, ptr %y, i32 %tid
  %vx = load float, ptr %px
  %is = fcmp une float %vx, 1.0
  %vy = load float, ptr %py
  %chosen = select i1 %is, float %vy, float 0.0
  store float %chosen, ptr %py
  ret void
}
)");
  ASSERT_TRUE(module);
  // A whole page, and another one: what lies behind them is not there.
  Buffer<float> x(std::vector<float>(1024, 2.0f)),
      y(std::vector<float>(1024, 3.0f));
  EXPECT_EQ(Launch(*module, {1}, {1024})(x, y), "");
  EXPECT_EQ(y[1023], 3.0f);
}

TEST(Launch, ReportsAccessesToFreedMemory) {
  auto module = compile(saxpy);
  ASSERT_TRUE(module);
  auto *x = new Buffer<float>(128);
  float *freed = x->get();
  delete x;
  Buffer<float> y(128);
  EXPECT_THAT((Launch(*module, {4}, {32})(freed, y, 2.0f, 100)),
              HasSubstr("in freed memory, the block of 512 bytes"));
}

TEST(Launch, ReportsWritesBetweenAlignmentAndEnd) {
  // 100 bytes end 12 bytes before the page does.
  auto module = compile(saxpy);
  ASSERT_TRUE(module);
  Buffer<float> x(32), y(25);
  EXPECT_THAT((Launch(*module, {1}, {32})(x, y, 2.0f, 26)),
              HasSubstr("wrote 100 bytes after the start of a block of 100"));
}

TEST(Launch, RefusesBadShapes) {
  auto module = compile(saxpy);
  ASSERT_TRUE(module);
  Buffer<float> x(32);
  EXPECT_THAT((Launch(*module, {1}, {1025})(x, x, 2.0f, 0)),
              HasSubstr("a block has 1 to 1024 threads"));
  EXPECT_THAT((Launch(*module, {1}, {0})(x, x, 2.0f, 0)),
              HasSubstr("a block has 1 to 1024 threads"));
  Launch large(*module, {1}, {32});
  large.dynamicShared = 228 * 1024;
  EXPECT_THAT(large(x, x, 2.0f, 0),
              HasSubstr("at most 232448 bytes of shared memory"));
  llvm::Error error = module->launch("other", {1}, {32}, 0, nullptr);
  EXPECT_EQ(llvm::toString(std::move(error)),
            "the module has no kernel 'other'");
}

TEST(Launch, ChecksTheBlockAKernelDemands) {
  auto module = compile(R"(
define ptx_kernel void @exact() "nvvm.reqntid"="64" { ret void }
)");
  ASSERT_TRUE(module);
  EXPECT_EQ((Launch(*module, {1}, {64})()), "");
  EXPECT_THAT((Launch(*module, {1}, {32})()),
              HasSubstr("needs blocks of 64 x 1 x 1 threads, but got 32"));
}

TEST(Launch, ReportsTraps) {
  auto module = compile(R"(
define ptx_kernel void @bad() { call void @llvm.trap() unreachable }
)");
  ASSERT_TRUE(module);
  EXPECT_THAT((Launch(*module, {1}, {32})()),
              HasSubstr("kernel 'bad', block (0, 0, 0), thread 0: the kernel "
                        "trapped"));
}

TEST(Launch, ReportsStackOverflow) {
  auto module = compile(R"(
define ptx_kernel void @deep(ptr %out) {
  %big = alloca [65536 x i64]
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i64, ptr %big, i32 %tid
  store volatile i64 1, ptr %p
  ret void
}
)");
  ASSERT_TRUE(module);
  Buffer<int> out(1);
  EXPECT_THAT((Launch(*module, {1}, {32})(out)), HasSubstr("stack overflow"));
}

TEST(Launch, CopiesParametersByValue) {
  auto module = compile(R"(
define ptx_kernel void @sum(ptr byval([4 x i32]) align 64 %v, ptr %out) {
  %a = ptrtoint ptr %v to i64
  %low = and i64 %a, 63
  %zero = trunc i64 %low to i32
  %p = getelementptr i32, ptr %v, i32 3
  %x = load i32, ptr %p
  %s = add i32 %x, %zero
  store i32 %s, ptr %out
  ret void
}
)");
  ASSERT_TRUE(module);
  int32_t values[5] = {0, 1, 2, 3, 4};
  Buffer<int32_t> out(1);
  void *pointer = out.get();
  // Not aligned to 64 bytes; the copy is.
  void *params[] = {values + 1, &pointer};
  llvm::Error error = module->launch("sum", {1}, {1}, 0, params);
  EXPECT_EQ(llvm::toString(std::move(error)), "");
  EXPECT_EQ(out[0], 4);
}

TEST(Compile, NamesWhatIsNotEmulated) {
  EXPECT_THAT(compileError(R"(
define ptx_kernel void @k() {
  %x = call i32 @llvm.nvvm.fns(i32 0, i32 0, i32 0)
  ret void
}
)"),
              HasSubstr("intrinsic 'llvm.nvvm.fns' is not emulated"));
  EXPECT_THAT(compileError(R"(
define ptx_kernel void @k() {
  call void asm sideeffect "frobnicate.b32 $0;", "r"(i32 1)
  ret void
}
)"),
              HasSubstr("instruction 'frobnicate.b32' is not emulated"));
  EXPECT_THAT(compileError(R"(
declare float @__nv_exp2f(float)
define ptx_kernel void @k(ptr %p) {
  %x = call float @__nv_exp2f(float 1.0)
  store float %x, ptr %p
  ret void
}
)"),
              HasSubstr("functions without a body: '__nv_exp2f'"));
  EXPECT_THAT(compileError("define void @f() { ret void }"),
              HasSubstr("the module has no kernel"));
}

TEST(Compile, ReportsBrokenBitcode) {
  auto module = Module::create(llvm::StringRef("not bitcode"), "test");
  ASSERT_FALSE(bool(module));
  EXPECT_NE(llvm::toString(module.takeError()), "");
}

TEST(Memory, FillsWithNaN) {
  Buffer<float> values(3);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_TRUE(std::isnan(values[2]));
}

TEST(Memory, FindsBlocks) {
  size_t before = countDevice();
  Buffer<float> values(3);
  EXPECT_EQ(countDevice(), before + 1);
  void *start;
  size_t bytes;
  ASSERT_TRUE(findDevice(&values[2], &start, &bytes));
  EXPECT_EQ(start, values.get());
  EXPECT_EQ(bytes, 12u);
  int local = 0;
  EXPECT_FALSE(findDevice(&local, &start, &bytes));
  EXPECT_FALSE(freeDevice(&values[1]));
}

} // namespace
