//===- Codes.h - Codes of codewords -----------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_CODES_H
#define FOVEA_LIB_FUNCTIONS_CODES_H

#include "Memory.h"

namespace fovea::functions {

/// An array of codes as calls take it: of i32, or of i64 where the kernel
/// narrows it; otherwise a copy. Owns the copy: lives as long as the call.
class Codes {
public:
  /// Any other array is left as it is.
  Codes(Checker &check, llvm::StringRef name, const TensorRef &array,
        Target target);

  static bool areCodes(const TensorRef &array) {
    return array.elementType == ElementType::I32 ||
           array.elementType == ElementType::I64;
  }
  /// The argument, checked as that of an operand, given by name or declaration.
  template <typename Operand>
  Argument get(Checker &check, const Operand &operand,
               llvm::StringRef name) const {
    TensorRef narrowed = array;
    if (array.elementType == ElementType::I64)
      narrowed.elementType = ElementType::I32;
    Argument argument = check.operand(operand, name, narrowed);
    argument.elementType = array.elementType;
    return argument;
  }

private:
  void narrow(Checker &check, llvm::StringRef name, Target target);

  TensorRef array;
  OwnedTensor memory;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_CODES_H
