//===- CHeader.h - C headers of compiled functions --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_CHEADER_H
#define FOVEA_LIB_EXECUTIONENGINE_CHEADER_H

#include "KernelImpl.h"
#include "fovea/ExecutionEngine/CompilationTrace.h"

namespace fovea::detail {

/// A header that declares `packedName` and a function that calls it with
/// pointers and extents. An error for names that C does not have.
llvm::Expected<std::string> writeCHeader(const Kernel::Impl &impl,
                                         llvm::StringRef packedName,
                                         llvm::StringRef target,
                                         const Workspace &workspace);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_CHEADER_H
