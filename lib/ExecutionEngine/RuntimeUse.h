//===- RuntimeUse.h - What code asks the runtime for ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_RUNTIMEUSE_H
#define FOVEA_LIB_EXECUTIONENGINE_RUNTIMEUSE_H

#include "fovea/ExecutionEngine/CompilationTrace.h"

namespace llvm {
class Module;
} // namespace llvm

namespace fovea::detail {

/// The memory that `module` asks for. Allocations in loops are not known.
Workspace findWorkspace(const llvm::Module &module);

/// The parallel loops and the launches of `module`, function by function.
std::vector<ParallelLoop> findParallelLoops(const llvm::Module &module);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_RUNTIMEUSE_H
