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
#include "StridedView.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Functions/ResultMemory.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fovea::functions {

/// Memory of any content, without data where there is none.
OwnedTensor reserve(ElementType type, llvm::ArrayRef<int64_t> shape);
/// Zeroed memory.
llvm::Expected<OwnedTensor> allocate(ElementType type,
                                     llvm::ArrayRef<int64_t> shape);

/// A contiguous copy.
llvm::Expected<OwnedTensor> copyArray(const TensorRef &array);

/// `argument` if a kernel can read it as it is, which may have strides or not,
/// otherwise a view of a contiguous copy in `copy`. `getName` gives what an
/// error about memory calls it.
llvm::Expected<TensorRef> prepare(const Argument &argument, bool takesStrides,
                                  OwnedTensor &copy,
                                  llvm::function_ref<std::string()> getName);

/// The same, contiguous and for the host: what only kernels for `target` can
/// read is copied by the stream of the caller, which the call waits for.
llvm::Expected<TensorRef> prepareOnHost(const Argument &argument, Target target,
                                        OwnedTensor &copy);

/// Copies elements to those of an array of the same shape and type.
void copyElements(const TensorRef &from, const TensorRef &to);

/// Zeroed memory of the GPU that the calling thread has chosen. Whoever frees
/// it waits for all work of that.
llvm::Expected<OwnedTensor> allocateOnGPU(ElementType type,
                                          llvm::ArrayRef<int64_t> shape);

/// Elements that go to others of the same shape and type.
struct ElementCopy {
  StridedView from, to;
};

/// Does so in that order. What lies on a GPU is copied by the stream of the
/// caller, which the call waits for if one side is memory of the host.
llvm::Error copyAll(llvm::ArrayRef<ElementCopy> copies, Target target);

/// Calls `take` with the bytes of all elements in row-major order.
void visitElements(const TensorRef &array,
                   llvm::function_ref<void(llvm::StringRef)> take);

/// Makes every element the number `value`.
void fillElements(const TensorRef &array, double value);

/// The memory for result `place`, if there is any, checked.
std::optional<Argument> getPlace(Checker &check, const ResultMemory &memory,
                                 size_t place, ElementType type,
                                 llvm::ArrayRef<int64_t> shape);

/// Fails unless there is memory for all results or none.
void checkPlaces(Checker &check, const ResultMemory &memory, size_t numResults);

/// Fails where `written` lies in what is read or written by others.
llvm::Error checkSeparate(const Argument &written, const Argument &other);

/// A view of memory that somebody else owns.
OwnedTensor getView(const TensorRef &array);

/// Whether only kernels for `target` can read the memory.
bool isOnDevice(const void *data, Target target);

/// Whether it is on a device where a graph is being captured.
bool isCaptured(const void *data, Target target);

/// Whether the kernel narrows an argument of 64-bit integers: the host need not
/// read what lies on a device.
bool isNarrowedByKernel(const TensorRef &array, Target target);

/// Fails where the host cannot read memory that it has to.
void checkOnHost(Checker &check, llvm::StringRef name, const void *data,
                 Target target);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_MEMORY_H
