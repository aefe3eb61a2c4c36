//===- Memory.h - Memory of arguments and results ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_MEMORY_H
#define FOVEA_LIB_FUNCTIONS_MEMORY_H

#include "Arguments.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fovea::functions {

/// Memory of any content, without data where there is none.
OwnedTensor reserve(ElementType type, llvm::ArrayRef<int64_t> shape);
/// Zeroed memory.
llvm::Expected<OwnedTensor> allocate(ElementType type,
                                     llvm::ArrayRef<int64_t> shape);

/// `argument` if it is contiguous and aligned, otherwise a view of a copy of it
/// in `copy`. `name` is what an error about memory calls it.
llvm::Expected<TensorRef>
toContiguous(const Argument &argument, OwnedTensor &copy,
             llvm::function_ref<std::string()> getName);

/// A contiguous view of memory that somebody else owns.
OwnedTensor getView(const TensorRef &array);

/// Whether only kernels for `target` can read the memory.
bool isOnDevice(const void *data, Target target);

/// Fails where the host cannot read memory that it has to.
void checkOnHost(Checker &check, llvm::StringRef name, const void *data,
                 Target target);

/// Whether two arrays have an address in common.
bool overlap(const Argument &left, const Argument &right);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_MEMORY_H
