//===- RunPasses.cpp - Passes over LLVM IR --------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/LLVM/RunPasses.h"
#include "fovea/Target/LLVM/SplitAddresses.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"

using namespace llvm;

void fovea::runPasses(Module &module, TargetMachine *machine,
                      function_ref<ModulePassManager(PassBuilder &)> build) {
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager sccs;
  ModuleAnalysisManager modules;
  PassBuilder builder(machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  build(builder).run(module, modules);
}

ModulePassManager fovea::buildDefaultPipeline(PassBuilder &builder,
                                              unsigned level) {
  const OptimizationLevel levels[] = {
      OptimizationLevel::O0, OptimizationLevel::O1, OptimizationLevel::O2,
      OptimizationLevel::O3};
  if (level == 0)
    return builder.buildO0DefaultPipeline(OptimizationLevel::O0);
  return builder.buildPerModuleDefaultPipeline(levels[level]);
}

ModulePassManager fovea::buildLightPipeline(PassBuilder &builder) {
  ModulePassManager passes;
  cantFail(builder.parsePassPipeline(passes,
                                     "function(sroa,early-cse,simplifycfg)"));
  return passes;
}

ModulePassManager fovea::buildKernelPipeline(PassBuilder &builder) {
  FunctionPassManager passes;
  cantFail(builder.parsePassPipeline(passes, "sroa,early-cse,simplifycfg"));
  passes.addPass(SplitAddressesPass());
  cantFail(builder.parsePassPipeline(
      passes, "early-cse,loop-mssa(licm),"
              "instcombine<max-iterations=1;no-verify-fixpoint>"));
  ModulePassManager result;
  result.addPass(createModuleToFunctionPassAdaptor(std::move(passes)));
  return result;
}

void fovea::collectErrors(LLVMContext &context, std::string &errors) {
  context.setDiagnosticHandlerCallBack(
      [](const DiagnosticInfo *info, void *text) {
        if (info->getSeverity() != DS_Error)
          return;
        raw_string_ostream os(*static_cast<std::string *>(text));
        DiagnosticPrinterRawOStream printer(os);
        info->print(printer);
        os << '\n';
      },
      &errors);
}
