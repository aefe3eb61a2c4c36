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

/// How wide elements of a type are, and what they are called.
struct ElementInfo {
  ElementType type;
  unsigned byteWidth;            // an I1 takes a whole byte
  llvm::StringLiteral name;      // in IR
  llvm::StringLiteral arrayName; // in NumPy
  llvm::StringLiteral npyDescr;  // in an .npy file; bf16 is pairs of bytes
  llvm::StringLiteral cType;     // in C, which has neither f16 nor bf16
};
const ElementInfo &getElementInfo(ElementType type);

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
