//===- EmitCode.cpp - Machine code of a module ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/LLVM/EmitCode.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Pass.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar.h"

using namespace llvm;

namespace {
/// The passes of code generation; a target does not say which ones it adds.
class CodegenPasses : public legacy::PassManager {
public:
  explicit CodegenPasses(bool reduceStrength)
      : reduceStrength(reduceStrength),
        reduction(createLoopStrengthReducePass()) {}

  void add(Pass *pass) override {
    if (!reduceStrength && pass->getPassID() == reduction->getPassID())
      delete pass;
    else
      legacy::PassManager::add(pass);
  }

private:
  bool reduceStrength;
  std::unique_ptr<Pass> reduction;
};
} // namespace

Error fovea::emitCode(Module &module, TargetMachine &machine,
                      CodeGenFileType type, bool splitAddresses,
                      SmallVectorImpl<char> &code) {
  raw_svector_ostream os(code);
  CodegenPasses passes(/*reduceStrength=*/!splitAddresses);
  if (machine.addPassesToEmitFile(passes, os, nullptr, type))
    return createStringError("LLVM cannot generate code of this kind for " +
                             machine.getTargetTriple().str());
  passes.run(module);
  return Error::success();
}
