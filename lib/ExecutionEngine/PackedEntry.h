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

/// Adds `void packed(void **)` that calls the C interface of the entry as
/// Kernel::Impl describes, and records the layout of its results in `impl`.
/// Returns the name of the new function.
llvm::Expected<llvm::StringRef> addPackedEntry(llvm::Module &module,
                                               Kernel::Impl &impl);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_PACKEDENTRY_H
