//===- KernelMutationTest.cpp - Mistakes in the compiler's kernels --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestUtils.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/SIMT/GPUDriver.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <map>

using namespace llvm;
using namespace fovea;
using namespace fovea::test;


namespace {

/// Dense attention with several tiles of keys, the last one ragged.
constexpr const char *kDense = R"(
func.func @dense(%q: tensor<1x1x150x64xf16>, %k: tensor<1x1x600x64xf16>, %v: tensor<1x1x600x64xf16>) -> tensor<1x1x150x64xf16> {
  %init = tensor.empty() : tensor<1x1x150x64xf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x150x64xf16>, tensor<1x1x600x64xf16>, tensor<1x1x600x64xf16>)
       outs(%init : tensor<1x1x150x64xf16>) {mask = #attn.mask<causal>} -> tensor<1x1x150x64xf16>
  return %r : tensor<1x1x150x64xf16>
})";

struct Half {
  Half(std::vector<int64_t> shape, double phase) : shape(std::move(shape)) {
    int64_t count = 1;
    for (int64_t extent : this->shape)
      count *= extent;
    bits.resize(count);
    for (int64_t i = 0; i < count; ++i)
      setElement(bits.data(), ElementType::F16, i,
                 std::sin(12.9898 * i + phase));
  }
  operator TensorRef() {
    return {bits.data(), ElementType::F16, shape, {}, true};
  }
  std::vector<int64_t> shape;
  std::vector<uint16_t> bits;
};

/// The result, or the text of an error.
std::string run(StringRef chip, std::vector<float> &output) {
  CompileOptions options;
  options.target = Target::GPUEmulator;
  options.chip = chip.str();
  Kernel kernel = compileOrDie(kDense, options);
  Half q({1, 1, 150, 64}, 0), k({1, 1, 600, 64}, 1), v({1, 1, 600, 64}, 2);
  SmallVector<OwnedTensor> results;
  if (Error error = kernel.invoke({q, k, v}, results))
    return toString(std::move(error));
  output.clear();
  for (int64_t i = 0; i < results[0].getNumElements(); ++i)
    output.push_back(getElement(results[0].getData(), ElementType::F16, i));
  return "";
}

std::string nameOf(CallBase &call) {
  if (auto *code = dyn_cast<InlineAsm>(call.getCalledOperand()))
    return code->getAsmString().str();
  Function *callee = call.getCalledFunction();
  return callee ? callee->getName().str() : "";
}

TEST(Explore, Mutants) {
  for (const char *chip : {"sm_80", "sm_90a"}) {
    std::vector<float> expected, found;
    simt::setModuleEditor(nullptr);
    outs() << chip << " " << run(chip, expected) << "\n";
    for (const char *pattern :
         {"wgmma.wait", "wgmma.fence", "wgmma.commit", "mbarrier.try_wait",
          "mbarrier.arrive", "mbarrier.init", "barrier.cta", "fence.", "cp.async.cg",
          "cp.async.bulk", "cp.async.commit", "cp.async.wait"}) {
      int sites = 1;
      for (unsigned seed : {0u, 3u, 8u, 21u})
      for (int site = 0; site < sites; ++site) {
        std::string what;
        simt::Options o; o.seed = seed; simt::setEmulatorOptions(o);
        simt::setModuleEditor([&](Module &module) {
          SmallVector<Instruction *> all;
          for (Function &function : module)
            for (Instruction &instruction : instructions(function)) {
              if (auto *call = dyn_cast<CallBase>(&instruction)) {
                if (StringRef(nameOf(*call)).contains(pattern))
                  all.push_back(call);
              } else if (instruction.getOpcode() == Instruction::Xor &&
                         StringRef(pattern) == "xor")
                all.push_back(&instruction);
            }
          sites = all.size();
          if (all.empty())
            return;
          Instruction *chosen = all[site];
          raw_string_ostream os(what);
          os << *chosen;
          if (!chosen->getType()->isVoidTy())
            chosen->replaceAllUsesWith(
                chosen->getOperand(0)->getType() == chosen->getType()
                    ? chosen->getOperand(0)
                    : Constant::getNullValue(chosen->getType()));
          chosen->eraseFromParent();
        });
        std::string text = run(chip, found);
        if (!sites)
          break;
        double error = 0;
        if (text.empty())
          for (size_t i = 0; i < found.size(); ++i) {
            double d = std::abs(found[i] - expected[i]);
            error = d <= error ? error : d;
          }
        outs() << seed << (text.empty() && error == 0 ? "SURVIVES " : "killed   ") << pattern << " " << site << ": "
               << (text.empty() ? std::to_string(error) : text.substr(0, 150)) << "   | " << (text.empty() && error == 0 ? what.substr(0, 150) : "") << "\n";
        outs().flush();
      }
    }
  }
}
} // namespace
