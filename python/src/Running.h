//===- Running.h - Where and how kernels run --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PYTHON_SRC_RUNNING_H
#define FOVEA_PYTHON_SRC_RUNNING_H

#include "Arrays.h"

namespace fovea::python {

/// The CUDA stream that kernels of this thread run on, if it has chosen one.
std::optional<intptr_t> getStream();
void setStream(std::optional<intptr_t> stream);

/// Runs kernels where the arrays of a call lie, while it lives. Functions of
/// Python that a call calls may make calls of their own.
class PlaceScope {
public:
  explicit PlaceScope(const Placement &placement);
  ~PlaceScope();

private:
  bool isActive;
  const Placement *outer;
};

/// Lets handlers of signals run while a kernel does, and end it by an
/// exception, as Ctrl-C does.
class SignalScope {
public:
  SignalScope();
  ~SignalScope();

private:
  bool isOuter;
};

/// Copies what lies where the arrays of a call do.
void copyResult(const Placement &placement, void *to, const void *from,
                int64_t bytes);

/// The GPU that a result lies on, if it does.
std::optional<int> findGPU(const Placement &placement,
                           const OwnedTensor &result);

/// What a call that failed raises: ValueError for bad arguments, MemoryError
/// where there is none for arrays, FoveaError for all others.
[[noreturn]] void raise(llvm::Error error);
[[noreturn]] void raiseValueError(const llvm::Twine &text);

/// Runs `function`, which returns an Error or an Expected, while other threads
/// of Python go on.
template <typename Function>
auto runKernels(const Placement &placement, Function function) {
  auto result = [&] {
    nanobind::gil_scoped_release release;
    PlaceScope place(placement);
    SignalScope signals;
    return function();
  }();
  constexpr bool isError = std::is_same_v<decltype(result), llvm::Error>;
  llvm::Error error = llvm::Error::success();
  if constexpr (isError)
    error = std::move(result);
  else if (!result)
    error = result.takeError();
  // Of a handler, or of a function of Python that was called.
  if (PyErr_Occurred()) {
    llvm::consumeError(std::move(error));
    throw nanobind::python_error();
  }
  if (error)
    raise(std::move(error));
  if constexpr (!isError)
    return std::move(*result);
}

} // namespace fovea::python

#endif // FOVEA_PYTHON_SRC_RUNNING_H
