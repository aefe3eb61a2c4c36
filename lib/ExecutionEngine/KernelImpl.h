//===- KernelImpl.h - What a kernel consists of -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_KERNELIMPL_H
#define FOVEA_LIB_EXECUTIONENGINE_KERNELIMPL_H

#include "SeparateArguments.h"
#include "ShapeConstraints.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/ExecutionEngine/JIT.h"

namespace fovea {

/// The calling convention: `packed` gets one pointer for each item of
///   - the struct of results, if there are results,
///   - every argument: a memref descriptor, or the value of a scalar.
struct Kernel::Impl {
  std::string name, cpu, diagnostics;
  /// What it was compiled from.
  std::string text;
  CompileOptions options;
  Signature signature;
  llvm::SmallVector<detail::ShapeConstraint> constraints;
  llvm::SmallVector<detail::SeparateArguments> separateArguments;
  CompileTimes times;

  /// Bytes of the struct of results and where in it each result lies.
  uint64_t resultBytes = 0;
  llvm::SmallVector<uint64_t, 2> resultOffsets;

  std::unique_ptr<detail::LoadedCode> code;
  void (*packed)(void **) = nullptr;

  void setCode(std::unique_ptr<detail::LoadedCode> loaded) {
    code = std::move(loaded);
    packed = code->getEntry<void(void **)>();
  }

  /// See Kernel::describeArgument.
  std::string describeArgument(size_t index) const;
};

} // namespace fovea

#endif // FOVEA_LIB_EXECUTIONENGINE_KERNELIMPL_H
