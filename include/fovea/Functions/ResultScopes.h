//===- ResultScopes.h - What becomes of results -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compilers of array programs call functions in another way than users do:
// first with types and shapes alone, later with memory for the results.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_RESULTSCOPES_H
#define FOVEA_FUNCTIONS_RESULTSCOPES_H

#include "fovea/ExecutionEngine/Kernel.h"

namespace fovea {

/// While it lives, functions that this thread calls check their arguments, but
/// neither read them nor compile or compute anything. The data of arguments is
/// kAbstractData, as that of their results is.
class DescribeScope {
public:
  DescribeScope();
  ~DescribeScope();
  DescribeScope(const DescribeScope &) = delete;
  DescribeScope &operator=(const DescribeScope &) = delete;

  static bool isActive();
  static OwnedTensor makeAbstract(ElementType type,
                                  llvm::ArrayRef<int64_t> shape);

private:
  bool outer;
};

/// While it lives, calls of this thread in a DescribeScope add the work that
/// they ask for, as UsefulFlops.h counts it.
class FlopScope {
public:
  FlopScope();
  ~FlopScope();
  FlopScope(const FlopScope &) = delete;
  FlopScope &operator=(const FlopScope &) = delete;

  /// The innermost one of this thread, or null.
  static FlopScope *getActive();

  double flops = 0;

private:
  FlopScope *outer;
};

/// Nobody's memory, though no null pointer, which would be no array.
extern void *const kAbstractData;

/// While it lives, the results of functions that this thread calls lie in
/// `destinations`, in order, where kernels can write there. A result that does
/// not is in memory of its own: callers look where it lies, and copy it.
class DestinationScope {
public:
  explicit DestinationScope(llvm::ArrayRef<TensorRef> destinations);
  ~DestinationScope();
  DestinationScope(const DestinationScope &) = delete;
  DestinationScope &operator=(const DestinationScope &) = delete;

  /// The next one, if it is of this type and shape.
  static std::optional<TensorRef> take(ElementType type,
                                       llvm::ArrayRef<int64_t> shape);

private:
  llvm::ArrayRef<TensorRef> rest;
  DestinationScope *outer;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_RESULTSCOPES_H
