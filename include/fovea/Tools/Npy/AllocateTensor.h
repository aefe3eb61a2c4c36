//===- AllocateTensor.h - Memory for tensors of the host --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_NPY_ALLOCATETENSOR_H
#define FOVEA_TOOLS_NPY_ALLOCATETENSOR_H

#include "fovea/ExecutionEngine/Kernel.h"

namespace fovea {

/// A zeroed tensor; fails when memory is short. Large ones lie in huge pages
/// where there are any, like those of kernels and of NumPy.
llvm::Expected<OwnedTensor> allocateTensor(ElementType type,
                                           llvm::ArrayRef<int64_t> shape);

} // namespace fovea

#endif // FOVEA_TOOLS_NPY_ALLOCATETENSOR_H
