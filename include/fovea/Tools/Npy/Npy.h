//===- Npy.h - NumPy's array files ------------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_NPY_NPY_H
#define FOVEA_TOOLS_NPY_NPY_H

#include "fovea/ExecutionEngine/Kernel.h"

namespace fovea {

/// Reads a `.npy` file of format 1, 2 or 3: little-endian, in C order. Elements
/// "|V2" or "<V2" are bf16. Unsigned 16-bit elements are bf16 where `expected`
/// is that. Errors name the file, what was found and what is needed.
llvm::Expected<OwnedTensor>
readNpy(llvm::StringRef path,
        std::optional<ElementType> expected = std::nullopt);

/// Writes a `.npy` file as `writeOutput` does.
llvm::Error writeNpy(llvm::StringRef path, const TensorRef &tensor);

} // namespace fovea

#endif // FOVEA_TOOLS_NPY_NPY_H
