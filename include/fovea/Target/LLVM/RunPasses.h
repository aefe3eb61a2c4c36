//===- RunPasses.h - Passes over LLVM IR ------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every target does with the LLVM IR of its kernels.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_LLVM_RUNPASSES_H
#define FOVEA_TARGET_LLVM_RUNPASSES_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/IR/PassManager.h"
#include <string>

namespace llvm {
class LLVMContext;
class PassBuilder;
class TargetMachine;
} // namespace llvm

namespace fovea {

/// Runs the passes that `build` makes on `module`. Without a `machine` they
/// know nothing of the target.
void runPasses(
    llvm::Module &module, llvm::TargetMachine *machine,
    llvm::function_ref<llvm::ModulePassManager(llvm::PassBuilder &)> build);

/// LLVM's own pipeline of level 0 to 3.
llvm::ModulePassManager buildDefaultPipeline(llvm::PassBuilder &builder,
                                             unsigned level);

/// Cleans up code that has been optimised before, in a tenth of the time of the
/// standard pipeline of level 1: what is left is traffic with stack slots.
llvm::ModulePassManager buildLightPipeline(llvm::PassBuilder &builder);

/// The same, and the arithmetic of addresses in loops: kernels run no faster
/// after the standard pipeline.
llvm::ModulePassManager buildKernelPipeline(llvm::PassBuilder &builder);

/// Appends the errors that the back end reports to `errors`, one per line. They
/// would otherwise be printed, or end the process.
void collectErrors(llvm::LLVMContext &context, std::string &errors);

} // namespace fovea

#endif // FOVEA_TARGET_LLVM_RUNPASSES_H
