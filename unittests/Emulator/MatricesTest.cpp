//===- MatricesTest.cpp - Matrices of warps and warpgroups ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EmulatorTestUtils.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::HasSubstr;

namespace {

uint32_t toHalf(float value, bool bf16) {
  if (bf16) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits >> 16;
  }
  _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  memcpy(&bits, &half, 2);
  return bits;
}

float fromHalf(uint32_t bits) {
  uint16_t low = bits;
  _Float16 half;
  memcpy(&half, &low, 2);
  return float(half);
}

uint32_t bitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

float floatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/// "$first, ..., $(first + count - 1)" in braces.
std::string list(unsigned first, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", $" : "$") + std::to_string(first + i);
  return text + "}";
}

std::string repeat(const std::string &part, unsigned count) {
  std::string text;
  for (unsigned i = 0; i < count; ++i)
    text += (i ? "," : "") + part;
  return text;
}

/// A kernel that loads registers of type `type` for each thread, hands them to
/// inline assembly and stores its results.
std::string withRegisters(const std::string &assembly, unsigned numIn,
                          unsigned numOut, const std::string &type,
                          const std::string &code) {
  std::string text = "define ptx_kernel void @k(ptr %in, ptr %out) {\n"
                     "  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
                     "  %bin = mul i32 %tid, " +
                     std::to_string(numIn) + "\n  %bout = mul i32 %tid, " +
                     std::to_string(numOut) + "\n";
  std::string arguments, results;
  for (unsigned i = 0; i < numIn; ++i) {
    std::string n = std::to_string(i);
    text += "  %ii" + n + " = add i32 %bin, " + n + "\n  %pi" + n +
            " = getelementptr " + type + ", ptr %in, i32 %ii" + n + "\n  %x" +
            n + " = load " + type + ", ptr %pi" + n + "\n";
    arguments += (i ? ", " : "") + type + " %x" + n;
  }
  for (unsigned i = 0; i < numOut; ++i)
    results += (i ? ", " : "") + type;
  text += "  %r = call { " + results + " } asm sideeffect \"" + assembly +
          "\", \"" + repeat("=" + code, numOut) + "," + repeat(code, numIn) +
          "\"(" + arguments + ")\n";
  for (unsigned i = 0; i < numOut; ++i) {
    std::string n = std::to_string(i);
    text += "  %y" + n + " = extractvalue { " + results + " } %r, " + n +
            "\n  %io" + n + " = add i32 %bout, " + n + "\n  %po" + n +
            " = getelementptr " + type + ", ptr %out, i32 %io" + n +
            "\n  store " + type + " %y" + n + ", ptr %po" + n + "\n";
  }
  return text + "  ret void\n}\n";
}

//===----------------------------------------------------------------------===//
// mma.sync
//===----------------------------------------------------------------------===//

/// Small integers: exact in every type.
struct Factors {
  float a[16][16], b[16][8], c[16][8];

  Factors() {
    std::mt19937 random(1);
    auto next = [&] { return float(int(random() % 9) - 4); };
    for (auto &row : a)
      for (float &x : row)
        x = next();
    for (auto &row : b)
      for (float &x : row)
        x = next();
    for (auto &row : c)
      for (float &x : row)
        x = next();
  }
  float expected(unsigned row, unsigned column, unsigned k) const {
    float sum = c[row][column];
    for (unsigned i = 0; i < k; ++i)
      sum += a[row][i] * b[i][column];
    return sum;
  }
};

void checkHalves(unsigned k, bool bf16, bool halfSums) {
  Factors factors;
  unsigned numA = k / 4, numB = k / 8, numC = halfSums ? 2 : 4;
  std::string type = bf16 ? "bf16" : "f16", sums = halfSums ? "f16" : "f32";
  std::string assembly = "mma.sync.aligned.m16n8k" + std::to_string(k) +
                         ".row.col." + sums + "." + type + "." + type + "." +
                         sums + " " + list(0, numC) + ", " + list(numC, numA) +
                         ", " + list(numC + numA, numB) + ", " +
                         list(numC + numA + numB, numC) + ";";
  unsigned numIn = numA + numB + numC;
  auto module = compile(withRegisters(assembly, numIn, numC, "i32", "r"));
  ASSERT_TRUE(module);
  Buffer<uint32_t> in(32 * numIn), out(32 * numC);
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned group = lane / 4, quad = lane % 4;
    uint32_t *x = &in[lane * numIn];
    auto pair = [&](float low, float high) {
      return toHalf(low, bf16) | toHalf(high, bf16) << 16;
    };
    // The layouts of the PTX manual: a0 a1 are rows g and g + 8 of columns
    // 2q and 2q + 1, a2 a3 the same 8 columns on.
    for (unsigned i = 0; i < numA; ++i) {
      const float *row = factors.a[group + (i & 1) * 8];
      unsigned column = quad * 2 + (i >> 1) * 8;
      *x++ = pair(row[column], row[column + 1]);
    }
    for (unsigned i = 0; i < numB; ++i)
      *x++ = pair(factors.b[quad * 2 + i * 8][group],
                  factors.b[quad * 2 + i * 8 + 1][group]);
    for (unsigned i = 0; i < numC; ++i) {
      if (halfSums)
        *x++ = pair(factors.c[group + i * 8][quad * 2],
                    factors.c[group + i * 8][quad * 2 + 1]);
      else
        *x++ = bitsOf(factors.c[group + (i >> 1) * 8][quad * 2 + (i & 1)]);
    }
  }
  ASSERT_EQ((Launch(*module, {1}, {32})(in, out)), "");
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned column = 0; column < 8; ++column) {
      unsigned lane = row % 8 * 4 + column / 2;
      uint32_t *y = &out[lane * numC];
      float found = halfSums ? fromHalf(y[row / 8] >> column % 2 * 16)
                             : floatOf(y[row / 8 * 2 + column % 2]);
      EXPECT_EQ(found, factors.expected(row, column, k));
    }
}

TEST(Mma, Halves) {
  for (unsigned k : {8, 16}) {
    checkHalves(k, /*bf16=*/false, /*halfSums=*/false);
    checkHalves(k, /*bf16=*/false, /*halfSums=*/true);
    checkHalves(k, /*bf16=*/true, /*halfSums=*/false);
  }
}

TEST(Mma, TF32) {
  for (unsigned k : {4, 8}) {
    Factors factors;
    unsigned numA = k / 2, numB = k / 4, numIn = numA + numB + 4;
    std::string assembly = "mma.sync.aligned.m16n8k" + std::to_string(k) +
                           ".row.col.f32.tf32.tf32.f32 " + list(0, 4) + ", " +
                           list(4, numA) + ", " + list(4 + numA, numB) + ", " +
                           list(4 + numA + numB, 4) + ";";
    auto module = compile(withRegisters(assembly, numIn, 4, "i32", "r"));
    ASSERT_TRUE(module);
    Buffer<uint32_t> in(32 * numIn), out(32 * 4);
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned group = lane / 4, quad = lane % 4;
      uint32_t *x = &in[lane * numIn];
      for (unsigned i = 0; i < numA; ++i)
        // The low bits are not looked at.
        *x++ = bitsOf(factors.a[group + (i & 1) * 8][quad + (i >> 1) * 4]) |
               0x1fff;
      for (unsigned i = 0; i < numB; ++i)
        *x++ = bitsOf(factors.b[quad + i * 4][group]);
      for (unsigned i = 0; i < 4; ++i)
        *x++ = bitsOf(factors.c[group + (i >> 1) * 8][quad * 2 + (i & 1)]);
    }
    ASSERT_EQ((Launch(*module, {1}, {32})(in, out)), "");
    for (unsigned row = 0; row < 16; ++row)
      for (unsigned column = 0; column < 8; ++column)
        EXPECT_EQ(
            floatOf(
                out[(row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2]),
            factors.expected(row, column, k));
  }
}

TEST(Mma, F64) {
  Factors factors;
  std::string assembly = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 " +
                         list(0, 2) + ", " + list(2, 1) + ", " + list(3, 1) +
                         ", " + list(4, 2) + ";";
  auto module = compile(withRegisters(assembly, 4, 2, "double", "d"));
  ASSERT_TRUE(module);
  Buffer<double> in(32 * 4), out(32 * 2);
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned group = lane / 4, quad = lane % 4;
    in[lane * 4] = factors.a[group][quad];
    in[lane * 4 + 1] = factors.b[quad][group];
    in[lane * 4 + 2] = factors.c[group][quad * 2];
    in[lane * 4 + 3] = factors.c[group][quad * 2 + 1];
  }
  ASSERT_EQ((Launch(*module, {1}, {32})(in, out)), "");
  for (unsigned row = 0; row < 8; ++row)
    for (unsigned column = 0; column < 8; ++column)
      EXPECT_EQ(out[(row * 4 + column / 2) * 2 + column % 2],
                factors.expected(row, column, 4));
}

TEST(Mma, OtherTypesAreRefused) {
  EXPECT_THAT(
      compileError(withRegisters(
          "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, "
          "{$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};",
          10, 4, "i32", "r")),
      HasSubstr("'mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32' is not "
                "emulated"));
}

//===----------------------------------------------------------------------===//
// ldmatrix and stmatrix
//===----------------------------------------------------------------------===//

/// Four 8x8 matrices go through shared memory: written by plain stores, row r
/// of matrix m at STRIDE * (8 m + r), and read by ldmatrix.
std::string loadKernel(bool transposed, unsigned stride, unsigned shift = 0) {
  std::string name = std::string("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.") +
                     (transposed ? "trans." : "") + "b16.p3";
  std::string text = R"(
@buffer = internal addrspace(3) global [4096 x i8] poison, align 128
define ptx_kernel void @k(ptr %in, ptr %out) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %offset = mul i32 %lane, STRIDE
  %row = getelementptr i8, ptr addrspace(3) @buffer, i32 %offset
  %from = getelementptr <4 x i32>, ptr %in, i32 %lane
  %v = load <4 x i32>, ptr %from
  store <4 x i32> %v, ptr addrspace(3) %row
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  %shifted = getelementptr i8, ptr addrspace(3) %row, i32 SHIFT
  %m = call { i32, i32, i32, i32 } @NAME(ptr addrspace(3) %shifted)
  %first = mul i32 %lane, 4
)";
  for (int i = 0; i < 4; ++i) {
    std::string n = std::to_string(i);
    text += "  %x" + n + " = extractvalue { i32, i32, i32, i32 } %m, " + n +
            "\n  %i" + n + " = add i32 %first, " + n + "\n  %p" + n +
            " = getelementptr i32, ptr %out, i32 %i" + n + "\n  store i32 %x" +
            n + ", ptr %p" + n + "\n";
  }
  text += "  ret void\n}\n";
  text.replace(text.find("NAME"), 4, name);
  text.replace(text.find("SHIFT"), 5, std::to_string(shift));
  text.replace(text.find("STRIDE"), 6, std::to_string(stride));
  return text;
}

TEST(LoadMatrix, GivesRowsOrColumns) {
  for (bool transposed : {false, true}) {
    auto module = compile(loadKernel(transposed, 16));
    ASSERT_TRUE(module);
    Buffer<uint16_t> in(4 * 64), out(4 * 64);
    for (unsigned i = 0; i < 256; ++i)
      in[i] = i;
    Launch launch(*module, {1}, {32});
    ASSERT_EQ(launch(in, out), "");
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned m = 0; m < 4; ++m)
        for (unsigned half = 0; half < 2; ++half) {
          unsigned row = lane / 4, column = lane % 4 * 2 + half;
          EXPECT_EQ(out[(lane * 4 + m) * 2 + half],
                    m * 64 +
                        (transposed ? column * 8 + row : row * 8 + column));
        }
    // Rows one after another meet no bank twice.
    EXPECT_EQ(launch.counters.matrixPhases, 4u);
    EXPECT_EQ(launch.counters.matrixPhasesIdeal, 4u);
  }
}

TEST(LoadMatrix, CountsBankConflicts) {
  auto module = compile(loadKernel(false, 128));
  ASSERT_TRUE(module);
  Buffer<uint16_t> in(4 * 64), out(4 * 64);
  for (unsigned i = 0; i < 256; ++i)
    in[i] = i;
  Launch launch(*module, {1}, {32});
  ASSERT_EQ(launch(in, out), "");
  EXPECT_EQ(launch.counters.matrixPhases, 32u);
  EXPECT_EQ(launch.counters.matrixPhasesIdeal, 4u);
}

TEST(LoadMatrix, NeedsAlignedRowsInside) {
  Buffer<uint16_t> in(4 * 64), out(4 * 64);
  auto module = compile(loadKernel(false, 128, 16));
  ASSERT_TRUE(module);
  EXPECT_EQ((Launch(*module, {1}, {32})(in, out)), "");
  module = compile(loadKernel(false, 128, 128));
  ASSERT_TRUE(module);
  EXPECT_THAT((Launch(*module, {1}, {32})(in, out)),
              HasSubstr("16 bytes at shared +4096 lie outside the block's 4096 "
                        "bytes of shared memory (llvm.nvvm.ldmatrix"));
  module = compile(loadKernel(false, 128, 8));
  ASSERT_TRUE(module);
  EXPECT_THAT((Launch(*module, {1}, {32})(in, out)),
              HasSubstr("the row at shared +8 is not aligned to 16 bytes"));
  // Ordinary accesses have their alignment, too.
  module = compile(loadKernel(false, 24));
  ASSERT_TRUE(module);
  EXPECT_THAT((Launch(*module, {1}, {32})(in, out)),
              HasSubstr("misaligned access: address"));
}

TEST(StoreMatrix, IsTheInverse) {
  // What ldmatrix gave goes back to the place from which it came.
  std::string text = loadKernel(false, 16);
  text.replace(text.find("  %first ="), 0, R"(
  %y0 = extractvalue { i32, i32, i32, i32 } %m, 0
  %y1 = extractvalue { i32, i32, i32, i32 } %m, 1
  %y2 = extractvalue { i32, i32, i32, i32 } %m, 2
  %y3 = extractvalue { i32, i32, i32, i32 } %m, 3
  store <4 x i32> zeroinitializer, ptr addrspace(3) %row
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  call void @llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %row, i32 %y0, i32 %y1, i32 %y2, i32 %y3)
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  %w = load <4 x i32>, ptr addrspace(3) %row
  %to = getelementptr <4 x i32>, ptr %in, i32 %lane
  store <4 x i32> %w, ptr %to
)");
  auto module = compile(text);
  ASSERT_TRUE(module);
  Buffer<uint16_t> in(4 * 64), out(4 * 64);
  for (unsigned i = 0; i < 256; ++i)
    in[i] = i * 7;
  ASSERT_EQ((Launch(*module, {1}, {32})(in, out)), "");
  for (unsigned i = 0; i < 256; ++i)
    EXPECT_EQ(in[i], uint16_t(i * 7));
}

} // namespace
