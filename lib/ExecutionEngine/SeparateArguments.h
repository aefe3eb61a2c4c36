//===- SeparateArguments.h - Memory that must not overlap -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifiers refuse a gradient that is written to a buffer of another operand.
// Two arguments of the function are two buffers to them; whether these overlap
// is known, and checked, at every call.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_SEPARATEARGUMENTS_H
#define FOVEA_LIB_EXECUTIONENGINE_SEPARATEARGUMENTS_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class FunctionOpInterface;
} // namespace mlir

namespace fovea::detail {

/// Two arguments whose memory must not overlap.
struct SeparateArguments {
  /// The one that gets a gradient, and the other.
  unsigned written, other;
  /// The operation that asks for it, such as "attn.dense_backward".
  std::string op;

  std::string
  getMessage(llvm::function_ref<std::string(unsigned)> describeArgument) const;

  llvm::Error
  check(llvm::ArrayRef<TensorRef> inputs,
        llvm::function_ref<std::string(unsigned)> describeArgument) const;
};

/// Arguments of `function` that its operations write gradients to, each with
/// all others that the same operation reads or writes.
llvm::SmallVector<SeparateArguments>
collectSeparateArguments(mlir::FunctionOpInterface function);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_SEPARATEARGUMENTS_H
