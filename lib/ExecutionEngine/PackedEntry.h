//===- PackedEntry.h - One calling convention for all kernels ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_PACKEDENTRY_H
#define FOVEA_LIB_EXECUTIONENGINE_PACKEDENTRY_H

#include "KernelImpl.h"

namespace fovea::detail {

inline constexpr llvm::StringLiteral kPackedName = "fovea_packed_entry";

/// Adds `void packed(void **)` that calls the C interface of the entry as
/// Kernel::Impl describes, and records the layout of its results in `impl`.
/// Returns the name of the new function, `kPackedName`.
llvm::Expected<llvm::StringRef> addPackedEntry(llvm::Module &module,
                                               Kernel::Impl &impl);

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

#endif // FOVEA_LIB_EXECUTIONENGINE_PACKEDENTRY_H
