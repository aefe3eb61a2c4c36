//===- KernelOrigin.h - What a kernel was compiled from ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_KERNELORIGIN_H
#define FOVEA_EXECUTIONENGINE_KERNELORIGIN_H

#include "fovea/ExecutionEngine/Compiler.h"

namespace fovea {

/// The module, as text, and the options; alive as long as the kernel is.
struct KernelOrigin {
  llvm::StringRef text;
  const CompileOptions &options;
};

KernelOrigin getOrigin(const Kernel &kernel);

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_KERNELORIGIN_H
