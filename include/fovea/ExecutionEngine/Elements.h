//===- Elements.h - Elements of tensors -------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What programs that hand tensors to kernels have to know of their elements.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_ELEMENTS_H
#define FOVEA_EXECUTIONENGINE_ELEMENTS_H

#include "fovea/ExecutionEngine/Kernel.h"

namespace fovea {

bool isFloat(ElementType type);

/// The type of integers of 8, 16, 32 or 64 bits. Kernels know no signs: what an
/// integer means is up to their operations.
std::optional<ElementType> getIntegerType(unsigned bits);

/// Element `index` of row-major data, which need not be aligned.
double getElement(const void *data, ElementType type, int64_t index);
/// Rounds `value` to the nearest element.
void setElement(void *data, ElementType type, int64_t index, double value);

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_ELEMENTS_H
