//===- CompilerThread.h - Compilations that may give up ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_COMPILERTHREAD_H
#define FOVEA_LIB_EXECUTIONENGINE_COMPILERTHREAD_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"
#include <optional>

namespace fovea::detail {

/// Calls `body` on a thread of its own and waits for it. An error if there is
/// not the memory to begin with, and if LLVM runs out of it or gives up, which
/// would otherwise end the process. `body` is then left where it is, without
/// destructors: what it held is lost.
llvm::Error runOnCompilerThread(llvm::function_ref<void()> body);

/// Gives up unless there is memory for another step of a compilation: not all
/// of LLVM and MLIR looks whether it got any. On a compiler thread; elsewhere
/// it does nothing.
void checkHeadroom();

/// `runOnCompilerThread` for a function with a result.
template <typename T>
llvm::Expected<T>
compileOnThread(llvm::function_ref<llvm::Expected<T>()> body) {
  std::optional<llvm::Expected<T>> result;
  if (llvm::Error error = runOnCompilerThread([&] { result.emplace(body()); }))
    return std::move(error);
  return std::move(*result);
}

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_COMPILERTHREAD_H
