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

/// Remembers which kernels its thread invokes while it lives, on arguments of
/// which shapes, and what tensors of integers held. The innermost scope does.
class InvocationScope {
public:
  InvocationScope();
  ~InvocationScope();
  InvocationScope(const InvocationScope &) = delete;
  InvocationScope &operator=(const InvocationScope &) = delete;

  struct Invocation {
    Invocation() = default;
    Invocation(Invocation &&) = default;

    Kernel kernel;
    llvm::SmallVector<llvm::SmallVector<int64_t>> shapes;
    /// For each argument a copy, without memory where there is none: of
    /// floating point, of scalars, and on a GPU.
    llvm::SmallVector<OwnedTensor> data;
    /// For each argument the first one that is the same tensor.
    llvm::SmallVector<unsigned> sameAs;
  };
  std::vector<Invocation> takeInvocations() { return std::move(invocations); }

  /// Used by Kernel::invoke.
  static void add(const Kernel &kernel, llvm::ArrayRef<TensorRef> inputs);

private:
  InvocationScope *outer;
  std::vector<Invocation> invocations;
};

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_INVOCATIONSCOPE_H
