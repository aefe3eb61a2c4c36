//===- NumberMutationTest.cpp - Numbers that kernels do not read ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels read the position of a state themselves, see SinkLoads.cpp. Without
// one of these loads, results must be others. FOVEA_EVERY=n removes one of n.
//
//===----------------------------------------------------------------------===//

#include "TestUtils.h"
#include "fovea/Emulator/GPUDriver.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include <cstdlib>

using namespace llvm;
using namespace fovea;
using namespace fovea::test;

/// A window of 9 tokens, in blocks of 4, behind what a state keeps of two.
static const char kWindow[] = R"(
!q = tensor<1x1x9x8xf32>
!z = tensor<1x1x9xi32>
!c = tensor<1x3x8xf32>
!m = tensor<1x1x3x8xf32>
!n = tensor<1x1x3xi32>
!k = tensor<1x1x8x8xf32>
!kz = tensor<1x1x8xi32>
func.func @window(%q: !q, %v: !q, %c: !c, %m: !m, %kv: !k, %p: tensor<i64>)
    -> (!q, !m, !n, !kz, !k, tensor<i64>) {
  %z = arith.constant dense<[[[0, 1, 2, 1, 0, 2, 2, 1, 0]]]> : !z
  %n = arith.constant dense<[[[3, 1, 2]]]> : !n
  %kz = arith.constant dense<[[[1, 2, 0, 0, 1, 1, 2, 0]]]> : !kz
  %o = tensor.empty() : !q
  %im = tensor.empty() : !m
  %in = tensor.empty() : !n
  %ikz = tensor.empty() : !kz
  %ik = tensor.empty() : !k
  %ip = tensor.empty() : tensor<i64>
  %r:6 = attn.vq ins(%q, %z, %v, %c : !q, !z, !q, !c)
      state(%m, %n, %kz, %kv, %p : !m, !n, !kz, !k, tensor<i64>)
      outs(%o : !q) next_state(%im, %in, %ikz, %ik, %ip : !m, !n, !kz, !k,
      tensor<i64>) {block = 4 : i64, causal} -> !q, !m, !n, !kz, !k, tensor<i64>
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !q, !m, !n, !kz, !k, tensor<i64>
})";

/// Its gradients, with those of what the state keeps.
static const char kGradients[] = R"(
!q = tensor<1x1x9x8xf32>
!z = tensor<1x1x9xi32>
!l = tensor<1x1x9xf32>
!c = tensor<1x3x8xf32>
!m = tensor<1x1x3x8xf32>
!n = tensor<1x1x3xi32>
!k = tensor<1x1x8x8xf32>
!kz = tensor<1x1x8xi32>
func.func @gradients(%q: !q, %v: !q, %c: !c, %m: !m, %kv: !k, %p: tensor<i64>)
    -> (!q, !q, !q, !m, !k, !k) {
  %z = arith.constant dense<[[[0, 1, 2, 1, 0, 2, 2, 1, 0]]]> : !z
  %n = arith.constant dense<[[[3, 1, 2]]]> : !n
  %kz = arith.constant dense<[[[1, 2, 0, 0, 1, 1, 2, 0]]]> : !kz
  %l = arith.constant dense<4.0> : !l
  %iq = tensor.empty() : !q
  %im = tensor.empty() : !m
  %ik = tensor.empty() : !k
  %r:6 = attn.vq_backward ins(%q, %z, %v, %c : !q, !z, !q, !c)
      state(%m, %n, %kz, %kv, %p : !m, !n, !kz, !k, tensor<i64>)
      forward(%v, %l : !q, !l) gradient(%q : !q)
      d_next_state(%m, %kv, %kv : !m, !k, !k)
      outs(%iq, %iq, %iq : !q, !q, !q) d_state(%im, %ik, %ik : !m, !k, !k)
      {block = 4 : i64, causal} -> !q, !q, !q, !m, !k, !k
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !q, !q, !q, !m, !k, !k
})";

namespace {
class NumberMutation : public testing::TestWithParam<const char *> {
protected:
  using Sites = SmallVector<Instruction *>;

  void SetUp() override {
    if (isQuick())
      GTEST_SKIP() << "FOVEA_QUICK leaves out numbers that are wrong";
  }
  void TearDown() override { simt::setModuleEditor(nullptr); }

  static Kernel compileFunction() {
    CompileOptions options;
    options.target = Target::GPUEmulator;
    return compileOrDie(GetParam(), options);
  }

  /// What there is at positions in the middle of a block, at its end, and
  /// behind blocks that the state keeps no more, and where there is none:
  /// results or the text of an error.
  static std::string run(const Kernel &kernel) {
    std::string output;
    for (int64_t position :
         {int64_t(6), int64_t(8), int64_t(19), int64_t(-1)}) {
      Floats q({1, 1, 9, 8}), v({1, 1, 9, 8}), c({1, 3, 8}), m({1, 1, 3, 8}),
          kv({1, 1, 8, 8});
      for (size_t i = 0; i < kv.values.size(); ++i)
        kv.values[i] = float(i % 11) / 4;
      SmallVector<OwnedTensor> results;
      TensorRef number{&position, ElementType::I64, {}, {}, true};
      if (Error error = kernel.invoke({q, v, c, m, kv, number}, results))
        output += toString(std::move(error));
      for (const OwnedTensor &result : results)
        output.append(result.getDataAs<char>(), result.getNumBytes());
    }
    return output;
  }

  /// Expects results to be others, or an error, after `change` of each of what
  /// `find` finds.
  void expectMissed(function_ref<Sites(Module &)> find,
                    function_ref<void(Instruction &)> change) {
    std::vector<std::string> kernels;
    simt::setModuleEditor([&](Module &module) {
      for (Instruction *site : find(module))
        kernels.push_back(site->getFunction()->getName().str());
    });
    Kernel kernel = compileFunction();
    std::string expected = run(kernel);
    EXPECT_TRUE(StringRef(expected).ends_with(
        ": position of state[0, 0, 0] must be at least 0 and below "
        "2147483647, but got -1"))
        << StringRef(expected).take_back(200).str();
    EXPECT_GT(kernels.size(), 0u);
    const char *text = std::getenv("FOVEA_EVERY");
    size_t every = text ? std::max(1, std::atoi(text)) : 1;
    for (size_t site = 0; site < kernels.size(); site += every) {
      simt::setModuleEditor([&](Module &module) {
        Sites sites = find(module);
        ASSERT_LT(site, sites.size());
        change(*sites[site]);
      });
      EXPECT_TRUE(run(kernel) != expected) << site << " of " << kernels[site];
    }
  }
};

/// The position is a number of its own; others of 64 bits in memory are words
/// of rules, of which kernels look at those behind the first.
TEST_P(NumberMutation, EveryLoadIsMissed) {
  expectMissed(
      [](Module &module) {
        Sites sites;
        for (Function &function : module)
          for (Instruction &each : instructions(function))
            if (auto *load = dyn_cast<LoadInst>(&each);
                load && load->getType()->isIntegerTy(64) &&
                isa<llvm::Argument>(load->getPointerOperand()))
              sites.push_back(load);
        return sites;
      },
      [](Instruction &load) {
        load.replaceAllUsesWith(Constant::getNullValue(load.getType()));
        load.eraseFromParent();
      });
}

INSTANTIATE_TEST_SUITE_P(Functions, NumberMutation,
                         testing::Values(kWindow, kGradients));

} // namespace
