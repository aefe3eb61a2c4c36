//===- RuntimeUse.cpp - What code asks the runtime for --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeUse.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"

using namespace llvm;
using namespace fovea;

static std::optional<int64_t> getConstant(const CallBase &call,
                                          unsigned index) {
  if (auto *value = dyn_cast<ConstantInt>(call.getArgOperand(index)))
    return value->getSExtValue();
  return std::nullopt;
}

/// Calls `visit` for every call of a function by its name.
static void
visitCalls(const Module &module,
           function_ref<void(const CallBase &call, StringRef callee)> visit) {
  for (const Function &function : module)
    for (const Instruction &instruction : instructions(function))
      if (auto *call = dyn_cast<CallBase>(&instruction))
        if (const Function *callee = call->getCalledFunction())
          visit(*call, callee->getName());
}

Workspace fovea::detail::findWorkspace(const Module &module) {
  Workspace workspace;
  visitCalls(module, [&](const CallBase &call, StringRef name) {
    std::optional<int64_t> bytes;
    if (name == "fovea_rt_parallel_for") {
      bytes = getConstant(call, 1);
      workspace.scratchBytes =
          std::max(workspace.scratchBytes, bytes.value_or(0));
      return;
    }
    if (name == "_mlir_memref_to_llvm_alloc")
      bytes = getConstant(call, 0);
    else if (name == "_mlir_memref_to_llvm_aligned_alloc" ||
             name == "fovea_rt_gpu_alloc" ||
             name == "fovea_rt_gpu_alloc_result")
      bytes = getConstant(call, 1);
    else
      return;
    if (bytes && workspace.allocatedBytes)
      *workspace.allocatedBytes += *bytes;
    else
      workspace.allocatedBytes.reset();
  });
  return workspace;
}

std::vector<ParallelLoop>
fovea::detail::findParallelLoops(const Module &module) {
  std::vector<ParallelLoop> loops;
  visitCalls(module, [&](const CallBase &call, StringRef name) {
    if (name == "fovea_rt_parallel_for") {
      loops.push_back(
          {call.getArgOperand(2)->getName().str(), getConstant(call, 0)});
    } else if (name == "fovea_rt_gpu_launch") {
      ParallelLoop launch{"", 1};
      for (unsigned axis : {2, 3, 4}) {
        std::optional<int64_t> blocks = getConstant(call, axis);
        launch.tasks = launch.tasks && blocks
                           ? std::optional(*launch.tasks * *blocks)
                           : std::nullopt;
      }
      loops.push_back(launch);
    }
  });
  return loops;
}
