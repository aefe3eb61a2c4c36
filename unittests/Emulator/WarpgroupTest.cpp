//===- WarpgroupTest.cpp - Products of warpgroups -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EmulatorTestUtils.h"

#include <cmath>
#include <cstring>

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::HasSubstr;

namespace {

enum class Layout {
  /// The summed axis is contiguous.
  K,
  /// The other one is.
  MN
};

/// A product of 64 x n: two wgmma one after the other, so that the result is
/// twice left * right.
struct ProductTest {
  std::string type = "f16", sums = "f32";
  unsigned n = 64;
  bool leftInRegisters = false;
  /// log2 of the swizzle in units of 16 bytes.
  unsigned swizzle = 3;
  Layout leftLayout = Layout::K, rightLayout = Layout::K;
  bool eager = false;
  uint32_t seed = 0;
  /// Replaced in the text of the kernel.
  std::string from, to;

  unsigned bytes() const { return type == "tf32" ? 4 : 2; }
  unsigned k() const { return 32 / bytes(); }
  unsigned registers() const { return sums == "f16" ? n / 4 : n / 2; }

  static float value(unsigned row, unsigned column, unsigned salt) {
    return float(int((row * 7 + column * 13 + row * column + salt) % 9) - 4);
  }
  uint32_t encode(float value) const {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (type == "tf32")
      return bits;
    if (type == "bf16")
      return bits >> 16;
    _Float16 half = static_cast<_Float16>(value);
    uint16_t low;
    memcpy(&low, &half, 2);
    return low;
  }

  /// Where the element of a matrix lies, as the manual describes it, and the
  /// two distances of its descriptor.
  unsigned leading(Layout layout) const {
    if (swizzle == 0)
      return layout == Layout::K ? 128 : 4096;
    return layout == Layout::K ? 16 : k() / 8 * (128u << swizzle);
  }
  unsigned stride(Layout layout) const {
    if (swizzle == 0)
      return layout == Layout::K ? 256 : 128;
    return 128u << swizzle;
  }
  unsigned offset(Layout layout, unsigned row, unsigned column) const {
    unsigned chunk = 16 / bytes(), line = chunk << swizzle, at;
    if (swizzle == 0 && layout == Layout::K) {
      // Blocks of 8 rows of 16 bytes.
      at = row / 8 * 256 + column / chunk * 128 + row % 8 * 16 +
           column % chunk * bytes();
    } else if (swizzle == 0) {
      // Blocks of 8 columns of 16 bytes, one after another along the rows.
      at = row / chunk * stride(layout) + column / 8 * leading(layout) +
           column % 8 * 16 + row % chunk * bytes();
    } else if (layout == Layout::K) {
      at = row * (16u << swizzle) + column * bytes();
    } else {
      at = row / line * leading(layout) + column * (16u << swizzle) +
           row % line * bytes();
    }
    if (swizzle == 0)
      return at;
    return at ^ (at >> 7 & ((1u << swizzle) - 1)) << 4;
  }

  std::string makeKernel() const;
  std::string run();
};

std::string list(unsigned first, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", $" : "$") + std::to_string(first + i);
  return text + "}";
}

std::string ProductTest::makeKernel() const {
  unsigned count = registers();
  std::string element = sums == "f16" ? "i32" : "float";
  std::string code = sums == "f16" ? "r" : "f";
  std::string text = R"(
@memory = external addrspace(3) global [0 x i8], align 1024
@bar = internal addrspace(3) global i64 poison, align 8
define ptx_kernel void @k(ptr addrspace(1) %in, ptr %registers, ptr %out, i32 %bytes, i64 %left, i64 %right) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %leader = icmp eq i32 %tid, 0
  br i1 %leader, label %load, label %ready
load:
  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) @bar, i32 1)
  %t = call i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3) @bar, i32 %bytes)
  %cluster = addrspacecast ptr addrspace(3) @memory to ptr addrspace(7)
  call void @llvm.nvvm.cp.async.bulk.global.to.shared.cluster(ptr addrspace(7) %cluster, ptr addrspace(3) @bar, ptr addrspace(1) %in, i32 %bytes, i16 0, i64 0, i1 false, i1 false)
  br label %ready
ready:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %wait
wait:
  %done = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) @bar, i32 0)
  br i1 %done, label %go, label %wait
go:
  %base = ptrtoint ptr addrspace(3) @memory to i64
  %low = and i64 %base, 262143
  %start = lshr i64 %low, 4
  %da = add i64 %left, %start
  %db = add i64 %right, %start
)";
  if (leftInRegisters) {
    text += "  %ra = mul i32 %tid, 4\n";
    for (int i = 0; i < 4; ++i) {
      std::string n = std::to_string(i);
      text += "  %ri" + n + " = add i32 %ra, " + n + "\n  %rp" + n +
              " = getelementptr i32, ptr %registers, i32 %ri" + n + "\n  %a" +
              n + " = load i32, ptr %rp" + n + "\n";
    }
  }
  text += "  call void @llvm.nvvm.wgmma.fence.sync.aligned()\n";
  // Results 0 to count - 1, their initial values, then the factors.
  unsigned factor = 2 * count;
  std::string left =
      leftInRegisters ? list(factor, 4) : "$" + std::to_string(factor);
  unsigned next = factor + (leftInRegisters ? 4 : 1);
  auto transposed = [](Layout layout) { return layout == Layout::MN; };
  std::string flags = ", p, 1, 1";
  if (type != "tf32") {
    if (!leftInRegisters)
      flags += transposed(leftLayout) ? ", 1" : ", 0";
    flags += transposed(rightLayout) ? ", 1" : ", 0";
  }
  std::string assembly =
      "{ .reg .pred p; setp.ne.b32 p, $" + std::to_string(next + 1) +
      ", 0; wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k" +
      std::to_string(k()) + "." + sums + "." + type + "." + type + " " +
      list(0, count) + ", " + left + ", $" + std::to_string(next) + flags +
      "; }";
  std::string constraints, typeList;
  for (unsigned i = 0; i < count; ++i) {
    constraints += (i ? ",=" : "=") + code;
    typeList += (i ? ", " : "") + element;
  }
  for (unsigned i = 0; i < count; ++i)
    constraints += "," + std::to_string(i);
  constraints += leftInRegisters ? ",r,r,r,r,l,r" : ",l,l,r";
  for (int step = 0; step < 2; ++step) {
    std::string name = "%d" + std::to_string(step), arguments;
    for (unsigned i = 0; i < count; ++i) {
      std::string n = std::to_string(i);
      if (step)
        text += "  %c" + n + " = extractvalue { " + typeList + " } %d0, " + n +
                "\n";
      arguments += element +
                   (step                 ? " %c" + n
                    : element == "float" ? " 0x7FF8000000000000"
                                         : " 2147450879") +
                   ", ";
    }
    if (leftInRegisters)
      arguments += "i32 %a0, i32 %a1, i32 %a2, i32 %a3, ";
    else
      arguments += "i64 %da, ";
    arguments += "i64 %db, i32 " + std::to_string(step);
    text += "  " + name + " = call { " + typeList + " } asm sideeffect \"" +
            assembly + "\", \"" + constraints + "\"(" + arguments + ")\n";
  }
  text += "  call void @llvm.nvvm.wgmma.commit_group.sync.aligned()\n"
          "  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)\n"
          "  %first = mul i32 %tid, " +
          std::to_string(count) + "\n";
  for (unsigned i = 0; i < count; ++i) {
    std::string n = std::to_string(i);
    text += "  %y" + n + " = extractvalue { " + typeList + " } %d1, " + n +
            "\n  %i" + n + " = add i32 %first, " + n + "\n  %p" + n +
            " = getelementptr " + element + ", ptr %out, i32 %i" + n +
            "\n  store " + element + " %y" + n + ", ptr %p" + n + "\n";
  }
  text += "  ret void\n}\n";
  if (!from.empty()) {
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string ProductTest::run() {
  auto module = compile(makeKernel());
  if (!module)
    return "not compiled";
  // The left matrix, and 8 KiB on the right one.
  constexpr unsigned rightStart = 8192, total = rightStart + 32768;
  std::vector<uint8_t> image(total, 0xee);
  auto place = [&](unsigned start, Layout layout, unsigned rows,
                   unsigned salt) {
    for (unsigned row = 0; row < rows; ++row)
      for (unsigned column = 0; column < k(); ++column) {
        uint32_t bits = encode(value(row, column, salt));
        memcpy(&image[start + offset(layout, row, column)], &bits, bytes());
      }
  };
  place(0, leftLayout, 64, 1);
  place(rightStart, rightLayout, n, 2);
  auto descriptor = [&](unsigned start, Layout layout) {
    // 1: 128 bytes, 2: 64 bytes, 3: 32 bytes.
    uint64_t mode = swizzle ? 4 - swizzle : 0;
    return mode << 62 | uint64_t(stride(layout) >> 4) << 32 |
           uint64_t(leading(layout) >> 4) << 16 | start >> 4;
  };
  Buffer<uint8_t> in(image);
  Buffer<uint32_t> left(128 * 4), out(128 * registers());
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned r = 0; r < 4; ++r) {
      unsigned row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8, quad = t % 4;
      if (type == "tf32")
        left[t * 4 + r] = encode(value(row, quad + r / 2 * 4, 1));
      else
        left[t * 4 + r] = encode(value(row, quad * 2 + r / 2 * 8, 1)) |
                          encode(value(row, quad * 2 + 1 + r / 2 * 8, 1)) << 16;
    }
  Launch launch(*module, {1}, {128});
  launch.dynamicShared = total;
  launch.options.eager = eager;
  launch.options.seed = seed;
  std::string error =
      launch(in, left, out, uint32_t(total), descriptor(0, leftLayout),
             descriptor(rightStart, rightLayout));
  if (!error.empty())
    return error;
  for (unsigned row = 0; row < 64; ++row)
    for (unsigned column = 0; column < n; ++column) {
      float expected = 0;
      for (unsigned i = 0; i < k(); ++i)
        expected += 2 * value(row, i, 1) * value(column, i, 2);
      unsigned t = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
      unsigned element = column / 8 * 4 + row / 8 % 2 * 2 + column % 2;
      float found;
      if (sums == "f16") {
        uint16_t bits = out[t * registers() + element / 2] >> element % 2 * 16;
        _Float16 half;
        memcpy(&half, &bits, 2);
        found = float(half);
      } else {
        uint32_t bits = out[t * registers() + element];
        memcpy(&found, &bits, 4);
      }
      if (found != expected)
        return "row " + std::to_string(row) + " column " +
               std::to_string(column) + " is " + std::to_string(found) +
               ", not " + std::to_string(expected);
    }
  return "";
}

TEST(Wgmma, Types) {
  for (const char *type : {"f16", "bf16", "tf32"})
    for (bool inRegisters : {false, true})
      for (bool eager : {false, true}) {
        ProductTest test;
        test.type = type;
        test.leftInRegisters = inRegisters;
        test.eager = eager;
        EXPECT_EQ(test.run(), "") << type << inRegisters << eager;
      }
}

TEST(Wgmma, Widths) {
  for (unsigned n : {8, 24, 128, 256}) {
    ProductTest test;
    test.n = n;
    test.seed = n;
    EXPECT_EQ(test.run(), "") << n;
  }
}

TEST(Wgmma, HalfSums) {
  for (bool inRegisters : {false, true}) {
    ProductTest test;
    test.sums = "f16";
    test.leftInRegisters = inRegisters;
    EXPECT_EQ(test.run(), "");
  }
}

TEST(Wgmma, Layouts) {
  for (unsigned swizzle : {1, 2, 3})
    for (Layout left : {Layout::K, Layout::MN})
      for (Layout right : {Layout::K, Layout::MN}) {
        ProductTest test;
        test.swizzle = swizzle;
        test.leftLayout = left;
        test.rightLayout = right;
        EXPECT_EQ(test.run(), "")
            << swizzle << (left == Layout::MN) << (right == Layout::MN);
      }
  for (Layout right : {Layout::K, Layout::MN}) {
    ProductTest plain;
    plain.swizzle = 0;
    plain.rightLayout = right;
    EXPECT_EQ(plain.run(), "");
  }
}

TEST(Wgmma, WrongSwizzle) {
  ProductTest test;
  test.from = "%db = add i64 %right, %start";
  // From 128 bytes to none.
  test.to = "%none = and i64 %right, 4611686018427387903\n"
            "  %db = add i64 %none, %start";
  EXPECT_THAT(test.run(), HasSubstr("row "));
}

TEST(Wgmma, WrongLayout) {
  ProductTest test;
  test.from = ", p, 1, 1, 0, 0";
  test.to = ", p, 1, 1, 0, 1";
  EXPECT_THAT(test.run(), HasSubstr("row "));
}

TEST(Wgmma, MissingWait) {
  ProductTest test;
  test.from = "  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)\n";
  EXPECT_THAT(test.run(),
              HasSubstr("a result of wgmma is used before wgmma.wait_group "
                        "(store"));
  test.to = "  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 1)\n";
  EXPECT_THAT(test.run(), HasSubstr("is used before wgmma.wait_group"));
}

TEST(Wgmma, MissingCommit) {
  ProductTest test;
  test.from = "  call void @llvm.nvvm.wgmma.commit_group.sync.aligned()\n";
  EXPECT_THAT(test.run(), HasSubstr("is used before wgmma.wait_group"));
}

TEST(Wgmma, MissingFence) {
  ProductTest test;
  test.from = "  call void @llvm.nvvm.wgmma.fence.sync.aligned()\n";
  EXPECT_THAT(test.run(), HasSubstr("no wgmma.fence between other uses of its "
                                    "registers and it"));
}

constexpr const char *kFence =
    "  call void @llvm.nvvm.wgmma.fence.sync.aligned()\n";

TEST(Wgmma, LateFence) {
  // A part of the left factor is loaded after the fence.
  ProductTest test;
  test.leftInRegisters = true;
  std::string load = "  %a3 = load i32, ptr %rp3\n";
  test.from = load + kFence;
  test.to = kFence + load;
  EXPECT_THAT(test.run(), HasSubstr("a register of it is written after the "
                                    "last wgmma.fence"));
}

TEST(Wgmma, AccumulatorReadAfterFence) {
  ProductTest test;
  test.from = "  %d1 = call";
  std::string wait =
      "  call void @llvm.nvvm.wgmma.commit_group.sync.aligned()\n"
      "  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)\n";
  std::string read = "  store float %c0, ptr %out\n";
  test.to = wait + kFence + read + test.from;
  EXPECT_THAT(test.run(), HasSubstr("an accumulator of it is read after the "
                                    "last wgmma.fence"));
  test.to = wait + read + kFence + test.from;
  // All threads write the same place, later numbers of its own thread last.
  EXPECT_EQ(test.run(), "");
}

TEST(Wgmma, OverwrittenTooEarly) {
  // The other factor comes into shared memory while the product may read it.
  ProductTest test;
  test.from = "  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)\n";
  test.to = "  %x = getelementptr i32, ptr addrspace(3) @memory, i32 %tid\n"
            "  store i32 0, ptr addrspace(3) %x\n" +
            test.from;
  EXPECT_THAT(test.run(), HasSubstr("reads shared +1024 through the "
                                    "asynchronous proxy, written by warp 0"));
}

TEST(Wgmma, OrdinaryWritesNeedAFence) {
  ProductTest test;
  test.from = "  call void @llvm.nvvm.wgmma.fence.sync.aligned()\n";
  std::string write =
      "  %x = getelementptr i32, ptr addrspace(3) @memory, i32 %tid\n"
      "  %old = load i32, ptr addrspace(3) %x\n"
      "  store i32 %old, ptr addrspace(3) %x\n";
  std::string barrier =
      "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n";
  std::string fence = "  call void @llvm.nvvm.fence.proxy.async()\n";
  test.to = write + barrier + test.from;
  EXPECT_THAT(test.run(), HasSubstr("without fence.proxy.async after it"));
  test.to = write + fence + barrier + test.from;
  EXPECT_EQ(test.run(), "");
}

TEST(Wgmma, DescriptorOutside) {
  ProductTest test;
  test.from = "%db = add i64 %right, %start";
  test.to = "%far = add i64 %right, 4096\n  %db = add i64 %far, %start";
  EXPECT_THAT(test.run(), HasSubstr("the descriptor reaches shared +"));
}

TEST(Wgmma, AllFourWarpsTakePart) {
  ProductTest test;
  test.from = "  call void @llvm.nvvm.wgmma.fence.sync.aligned()\n";
  test.to = "  %last = icmp uge i32 %tid, 96\n"
            "  br i1 %last, label %leave, label %stay\n"
            "leave:\n  ret void\nstay:\n" +
            test.from;
  EXPECT_THAT(test.run(), HasSubstr("deadlock"));
}

} // namespace
