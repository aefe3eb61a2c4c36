//===- FileEntry.h - Entry points of code in files --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_FILEENTRY_H
#define FOVEA_LIB_EXECUTIONENGINE_FILEENTRY_H

#include "KernelImpl.h"

namespace fovea::detail {

/// Adds a function `name` of the type of `packed` that checks what the
/// compiler's library checks before it calls that: the machine, once, and what
/// the host passes. Any machine can execute it.
llvm::Function *addFileEntry(llvm::Function *packed, llvm::StringRef name,
                             const Kernel::Impl &impl,
                             const llvm::TargetMachine &machine);

/// Makes code for `function` that any machine can execute.
void setBaselineCPU(llvm::Function &function,
                    const llvm::TargetMachine &machine);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_FILEENTRY_H
