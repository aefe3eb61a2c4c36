//===- Exchange.h - Tensors that need no calls of Python --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A class of tensors with the attribute __dlpack_c_exchange_api__, which DLPack
// 1.2 specifies, lends its functions of C: a tensor is described in some
// nanoseconds, and memory becomes a tensor of the class.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PYTHON_SRC_EXCHANGE_H
#define FOVEA_PYTHON_SRC_EXCHANGE_H

#include "fovea/ExecutionEngine/Kernel.h"
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <optional>

namespace fovea::python {

struct ExchangeTable;

/// What one class of tensors lends; false for a class that lends nothing.
class Exchange {
public:
  Exchange() = default;
  static Exchange find(nanobind::handle object);

  explicit operator bool() const { return table; }

  /// The memory of `object`, which it keeps alive; raises what the class does.
  nanobind::dlpack::dltensor describe(nanobind::handle object) const;
  /// The same, or false with an exception of Python set.
  bool describe(nanobind::handle object,
                nanobind::dlpack::dltensor &tensor) const;
  /// A tensor of the class that owns the memory of `tensor`, on the host or on
  /// the GPU `device`.
  nanobind::object give(OwnedTensor tensor, std::optional<int> device) const;
  /// The CUDA stream on which the framework does the work of this thread.
  intptr_t getStream(int device) const;

private:
  explicit Exchange(const ExchangeTable *table) : table(table) {}

  const ExchangeTable *table = nullptr;
};

} // namespace fovea::python

#endif // FOVEA_PYTHON_SRC_EXCHANGE_H
