//===- HostTarget.h - Code generation for this machine ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_CPU_HOSTTARGET_H
#define FOVEA_TARGET_CPU_HOSTTARGET_H

#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"
#include <memory>

namespace fovea::detail {

/// What LLVM knows of `cpu`, the name of a CPU, or "native" for the one this
/// runs on.
llvm::Expected<std::unique_ptr<llvm::MCSubtargetInfo>>
createSubtarget(llvm::StringRef cpu);

/// A target machine whose code this process can run. `cpu` is "native" or a
/// name that LLVM knows and whose features this machine has.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createHostTargetMachine(llvm::StringRef cpu);

/// The same for code in a file, which another machine may run.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createFileTargetMachine(llvm::StringRef cpu);

/// What code generated from `module` may need of the machine that runs it, as
/// LLVM names it, separated by commas.
std::string getNeededFeatures(const llvm::TargetMachine &machine,
                              const llvm::Module &module);

/// The CPU that every machine of this kind can stand in for.
llvm::StringRef getBaselineCPU(const llvm::Triple &triple);

} // namespace fovea::detail

#endif // FOVEA_TARGET_CPU_HOSTTARGET_H
