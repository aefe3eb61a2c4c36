//===- InvocationScope.h - Which kernels run --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_INVOCATIONSCOPE_H
#define FOVEA_EXECUTIONENGINE_INVOCATIONSCOPE_H

#include "fovea/ExecutionEngine/Kernel.h"
#include <vector>

namespace fovea {

/// Remembers which kernels its thread invokes while it lives, and on arguments
/// of which shapes. The innermost scope does.
class InvocationScope {
public:
  InvocationScope();
  ~InvocationScope();
  InvocationScope(const InvocationScope &) = delete;
  InvocationScope &operator=(const InvocationScope &) = delete;

  struct Invocation {
    Kernel kernel;
    llvm::SmallVector<llvm::SmallVector<int64_t>> shapes;
  };
  llvm::ArrayRef<Invocation> getInvocations() const { return invocations; }

  /// Used by Kernel::invoke.
  static void add(const Kernel &kernel, llvm::ArrayRef<TensorRef> inputs);

private:
  InvocationScope *outer;
  std::vector<Invocation> invocations;
};

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_INVOCATIONSCOPE_H
