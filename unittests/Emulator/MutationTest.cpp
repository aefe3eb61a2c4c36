//===- MutationTest.cpp - Kernels with mistakes ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A product of matrices as the compiler's kernels do it: cp.async into two
// stages, a swizzle, ldmatrix and mma.sync. Each mistake that such a kernel can
// have must show.
//
//===----------------------------------------------------------------------===//

#include "EmulatorTestUtils.h"

#include <cstring>

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::HasSubstr;

namespace {

enum class Mistake {
  None,
  MissingWait,
  LaxWait,
  MissingCommit,
  MissingBarrier,
  MissingLastBarrier,
  DivergentBarrier,
  NoSwizzle,
  WrongSwizzle,
  WrongFragments,
  Transposed,
  WrongMask,
  RowsOutside
};

/// c[m][n] = sum_k a[m][k] b[n][k], of f16 with sums in f32: blocks of 64 x 64,
/// 4 warps of 16 x 64, 32 columns of k at a time in lines of 64 bytes.
class Kernel {
public:
  explicit Kernel(Mistake mistake) : mistake(mistake) {}
  std::string make();

private:
  void add(const std::string &line) { text += "  " + line + "\n"; }
  std::string value(const std::string &expression) {
    std::string name = "%v" + std::to_string(++counter);
    add(name + " = " + expression);
    return name;
  }
  std::string i32(const std::string &op, const std::string &a,
                  const std::string &b) {
    return value(op + " i32 " + a + ", " + b);
  }
  /// Address of 16 bytes in shared memory: stages of 4 KiB for a, then b.
  std::string address(const std::string &stage, int matrix,
                      const std::string &row, const std::string &chunk,
                      bool reads);
  void load(const std::string &stage, const std::string &step);
  void product(const std::string &stage);

  Mistake mistake;
  std::string text;
  int counter = 0;
  std::vector<std::string> sums;
};

std::string Kernel::address(const std::string &stage, int matrix,
                            const std::string &row, const std::string &chunk,
                            bool reads) {
  std::string turned = chunk;
  bool plain = mistake == Mistake::NoSwizzle ||
               (mistake == Mistake::WrongSwizzle && reads);
  if (!plain)
    turned = i32("xor", chunk, i32("and", i32("lshr", row, "1"), "3"));
  std::string offset =
      i32("add", i32("shl", row, "6"), i32("shl", turned, "4"));
  offset = i32("add", offset, i32("shl", stage, "12"));
  offset = i32("add", offset, std::to_string(matrix * 8192));
  return value("getelementptr i8, ptr addrspace(3) @tiles, i32 " + offset);
}

void Kernel::load(const std::string &stage, const std::string &step) {
  for (int matrix = 0; matrix < 2; ++matrix) {
    std::string origin = matrix ? "%n0" : "%m0", rows = matrix ? "%n" : "%m";
    for (int part = 0; part < 2; ++part) {
      std::string piece = i32("add", "%tid", std::to_string(part * 128));
      std::string row = i32("lshr", piece, "2"), chunk = i32("and", piece, "3");
      std::string global = i32("add", origin, row);
      std::string inside = value("icmp ult i32 " + global + ", " + rows);
      std::string bytes = value("select i1 " + inside + ", i32 16, i32 0");
      std::string safe =
          value("select i1 " + inside + ", i32 " + global + ", i32 0");
      if (mistake == Mistake::RowsOutside) {
        bytes = "16";
        safe = global;
      }
      std::string column =
          i32("add", i32("shl", step, "5"), i32("shl", chunk, "3"));
      std::string index = i32("add", i32("mul", safe, "%k"), column);
      std::string from =
          value("getelementptr half, ptr addrspace(1) " +
                std::string(matrix ? "%b" : "%a") + ", i32 " + index);
      add("call void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr "
          "addrspace(3) " +
          address(stage, matrix, row, chunk, false) + ", ptr addrspace(1) " +
          from + ", i32 " + bytes + ")");
    }
  }
}

void Kernel::product(const std::string &stage) {
  auto loadMatrices = [&](int matrix, const std::string &row,
                          const std::string &chunk, bool transposed) {
    std::string loaded = value(
        "call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4" +
        std::string(transposed ? ".trans" : "") + ".b16.p3(ptr addrspace(3) " +
        address(stage, matrix, row, chunk, true) + ")");
    std::vector<std::string> parts;
    for (int i = 0; i < 4; ++i)
      parts.push_back(value("bitcast i32 " +
                            value("extractvalue { i32, i32, i32, i32 } " +
                                  loaded + ", " + std::to_string(i)) +
                            " to <2 x half>"));
    return parts;
  };
  for (int part = 0; part < 2; ++part) {
    std::string half = std::to_string(part * 2);
    std::string rowA =
        i32("add", i32("shl", "%warp", "4"), i32("and", "%lane", "15"));
    auto a = loadMatrices(0, rowA, i32("add", i32("lshr", "%lane", "4"), half),
                          false);
    if (mistake == Mistake::WrongFragments)
      std::swap(a[1], a[2]);
    for (int pair = 0; pair < 4; ++pair) {
      std::string rowB = i32("add", i32("and", "%lane", "7"),
                             i32("shl", i32("lshr", "%lane", "4"), "3"));
      rowB = i32("add", rowB, std::to_string(pair * 16));
      std::string chunkB =
          i32("add", i32("and", i32("lshr", "%lane", "3"), "1"), half);
      auto b = loadMatrices(1, rowB, chunkB, mistake == Mistake::Transposed);
      for (int tile = 0; tile < 2; ++tile) {
        std::string call = "call { float, float, float, float } "
                           "@llvm.nvvm.mma.m16n8k16.row.col.f32.f32(";
        for (const std::string &x : a)
          call += "<2 x half> " + x + ", ";
        call += "<2 x half> " + b[tile * 2] + ", <2 x half> " + b[tile * 2 + 1];
        std::string *sum = &sums[(pair * 2 + tile) * 4];
        for (int i = 0; i < 4; ++i)
          call += ", float " + sum[i];
        std::string result = value(call + ")");
        for (int i = 0; i < 4; ++i)
          sum[i] = value("extractvalue { float, float, float, float } " +
                         result + ", " + std::to_string(i));
      }
    }
  }
}

std::string Kernel::make() {
  const std::string barrier =
      "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)";
  const std::string commit = "call void @llvm.nvvm.cp.async.commit.group()";
  text = "@tiles = internal addrspace(3) global [16384 x i8] poison, align "
         "128\n"
         "define ptx_kernel void @gemm(ptr addrspace(1) %a, ptr addrspace(1) "
         "%b, ptr %c, i32 %m, i32 %n, i32 %k) {\nentry:\n";
  add("%tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()");
  add("%bx = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()");
  add("%by = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()");
  add("%lane = and i32 %tid, 31");
  add("%warp = lshr i32 %tid, 5");
  add("%m0 = shl i32 %bx, 6");
  add("%n0 = shl i32 %by, 6");
  add("%steps = lshr i32 %k, 5");
  load("0", "0");
  if (mistake != Mistake::MissingCommit)
    add(commit);
  add("br label %loop");
  text += "loop:\n";
  add("%step = phi i32 [ 0, %entry ], [ %next, %latch ]");
  std::string phis;
  for (int i = 0; i < 32; ++i) {
    sums.push_back("%s" + std::to_string(i));
    phis += "  %s" + std::to_string(i) + " = phi float [ 0.0, %entry ], [ SUM" +
            std::to_string(i) + "., %latch ]\n";
  }
  text += phis;
  add("%stage = and i32 %step, 1");
  add("%next = add i32 %step, 1");
  add("%other = and i32 %next, 1");
  add("%more = icmp ult i32 %next, %steps");
  add("br i1 %more, label %prefetch, label %compute");
  text += "prefetch:\n";
  load("%other", "%next");
  add("br label %compute");
  text += "compute:\n";
  if (mistake != Mistake::MissingCommit)
    add(commit);
  if (mistake != Mistake::MissingWait)
    add("call void @llvm.nvvm.cp.async.wait.group(i32 " +
        std::string(mistake == Mistake::LaxWait ? "2" : "1") + ")");
  if (mistake == Mistake::DivergentBarrier) {
    add("%half = icmp ult i32 %lane, 16");
    add("br i1 %half, label %some, label %joined");
    text += "some:\n";
    add(barrier);
    add("br label %joined");
    text += "joined:\n";
  } else if (mistake != Mistake::MissingBarrier) {
    add(barrier);
  }
  product("%stage");
  if (mistake != Mistake::MissingLastBarrier)
    add(barrier);
  add("br label %latch");
  text += "latch:\n";
  add("br i1 %more, label %loop, label %store");
  for (int i = 0; i < 32; ++i) {
    std::string name = "SUM" + std::to_string(i) + ".";
    text.replace(text.find(name), name.size(), sums[i]);
  }
  text += "store:\n";
  for (int i = 0; i < 32; ++i) {
    std::string row = i32("add", "%m0", i32("shl", "%warp", "4"));
    row = i32("add", row, i32("lshr", "%lane", "2"));
    row = i32("add", row, std::to_string(i / 2 % 2 * 8));
    std::string column =
        i32("add", "%n0", i32("shl", i32("and", "%lane", "3"), "1"));
    column = i32("add", column, std::to_string(i / 4 * 8 + i % 2));
    std::string relation = mistake == Mistake::WrongMask ? "ule" : "ult";
    std::string inside =
        value("and i1 " + value("icmp " + relation + " i32 " + row + ", %m") +
              ", " + value("icmp ult i32 " + column + ", %n"));
    std::string n = std::to_string(i);
    add("br i1 " + inside + ", label %put" + n + ", label %past" + n);
    text += "put" + n + ":\n";
    std::string index = i32("add", i32("mul", row, "%n"), column);
    add("store float " + sums[i] + ", ptr " +
        value("getelementptr float, ptr %c, i32 " + index));
    add("br label %past" + n);
    text += "past" + n + ":\n";
  }
  add("ret void");
  return text + "}\n";
}

struct Product {
  int m = 100, n = 72, k = 96;
  Options options;
  Counters counters;

  /// Runs the kernel and compares: an error text, empty if all is right.
  std::string operator()(Mistake mistake) {
    auto module = compile(Kernel(mistake).make());
    if (!module)
      return "not compiled";
    Buffer<_Float16> a(m * k), b(n * k);
    Buffer<float> c(m * n);
    for (int i = 0; i < m * k; ++i)
      a[i] = static_cast<_Float16>(float(i * 7 % 11 - 5));
    for (int i = 0; i < n * k; ++i)
      b[i] = static_cast<_Float16>(float(i * 5 % 13 - 6));
    Launch launch(*module, {uint32_t(m + 63) / 64, uint32_t(n + 63) / 64},
                  {128});
    launch.options = options;
    std::string error = launch(a, b, c, m, n, k);
    counters = launch.counters;
    if (!error.empty())
      return error;
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column) {
        float expected = 0;
        for (int i = 0; i < k; ++i)
          expected += float(a[row * k + i]) * float(b[column * k + i]);
        if (!(c[row * n + column] == expected))
          return "wrong number";
      }
    return "";
  }
};

TEST(Mutation, TheKernelIsRight) {
  for (uint32_t seed : {0, 1, 2, 3}) {
    Product run;
    run.options.seed = seed;
    EXPECT_EQ(run(Mistake::None), "");
    EXPECT_EQ(run.counters.matrixPhases, run.counters.matrixPhasesIdeal);
  }
  for (int m : {1, 63, 64, 65}) {
    Product run;
    run.m = m;
    EXPECT_EQ(run(Mistake::None), "");
  }
  Product eager;
  eager.options.eager = true;
  EXPECT_EQ(eager(Mistake::None), "");
}

TEST(Mutation, CountsWhatTheKernelDoes) {
  Product run;
  ASSERT_EQ(run(Mistake::None), "");
  // 2 x 2 blocks of 4 warps, 3 steps of 2 parts.
  EXPECT_EQ(run.counters.blocks, 4u);
  EXPECT_EQ(run.counters.count("mma.m16n8k16"), 4u * 4 * 3 * 2 * 8);
  EXPECT_EQ(run.counters.count("ldmatrix"), 4u * 4 * 3 * 2 * 5);
  EXPECT_EQ(run.counters.count("cp.async.cg"), 4u * 3 * 512);
  EXPECT_EQ(run.counters.barriers, 4u * 3 * 2);
}

TEST(Mutation, EveryMistakeShows) {
  Product run;
  for (Mistake mistake :
       {Mistake::MissingWait, Mistake::LaxWait, Mistake::MissingCommit,
        Mistake::MissingBarrier, Mistake::MissingLastBarrier,
        Mistake::DivergentBarrier, Mistake::WrongSwizzle,
        Mistake::WrongFragments, Mistake::Transposed, Mistake::WrongMask,
        Mistake::RowsOutside})
    EXPECT_NE(run(mistake), "") << int(mistake);
}

TEST(Mutation, SaysWhatIsWrong) {
  Product run;
  EXPECT_THAT(run(Mistake::MissingBarrier),
              HasSubstr("kernel 'gemm', block (0, 0, 0), thread"));
  EXPECT_THAT(run(Mistake::MissingBarrier), HasSubstr("race on shared +"));
  EXPECT_THAT(run(Mistake::MissingLastBarrier), HasSubstr("race on shared +"));
  EXPECT_THAT(run(Mistake::DivergentBarrier), HasSubstr("divergent warp"));
  EXPECT_THAT(run(Mistake::RowsOutside), HasSubstr("no device memory"));
  EXPECT_EQ(run(Mistake::MissingWait), "wrong number");
  EXPECT_EQ(run(Mistake::MissingCommit), "wrong number");
  EXPECT_EQ(run(Mistake::LaxWait), "wrong number");
}

TEST(Mutation, MissingSwizzleCostsTime) {
  Product run;
  EXPECT_EQ(run(Mistake::NoSwizzle), "");
  EXPECT_EQ(run.counters.matrixPhases, 4 * run.counters.matrixPhasesIdeal);
}

} // namespace
