//===- MatrixProducts.h - Products of matrices on a GPU ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_SUPPORT_MATRIXPRODUCTS_H
#define FOVEA_SUPPORT_MATRIXPRODUCTS_H

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/CommandLine.h"
#include <optional>

namespace fovea::attn {

/// What computes products of matrices around attention on a GPU.
enum class MatrixProducts {
  Library, // cuBLASLt
  Loops    // a thread for each element
};

/// The names of these, for options of pipelines.
inline llvm::cl::ValuesClass getMatrixProductsValues() {
  return llvm::cl::values(
      clEnumValN(MatrixProducts::Library, "library", "cuBLASLt"),
      clEnumValN(MatrixProducts::Loops, "loops", "a thread for each element"));
}

/// What one of these names means.
inline std::optional<MatrixProducts>
symbolizeMatrixProducts(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<MatrixProducts>>(name)
      .Case("library", MatrixProducts::Library)
      .Case("loops", MatrixProducts::Loops)
      .Default(std::nullopt);
}

} // namespace fovea::attn

#endif // FOVEA_SUPPORT_MATRIXPRODUCTS_H
