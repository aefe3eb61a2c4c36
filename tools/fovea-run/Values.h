//===- Values.h - Tensors on the command line -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEARUN_VALUES_H
#define FOVEA_TOOLS_FOVEARUN_VALUES_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/Support/raw_ostream.h"

namespace fovea::run {

/// Standard normal numbers, or integers from 0 to 7; the same for the same seed
/// on every machine.
void fillRandom(OwnedTensor &tensor, uint64_t seed);

/// The scalar that `text` spells.
llvm::Expected<OwnedTensor> parseScalar(llvm::StringRef text, ElementType type);

/// "f32[1x8x512x64]"; the type alone for a scalar.
std::string describe(const OwnedTensor &tensor);

struct Summary {
  double min = 0, max = 0, mean = 0;
  int64_t numNaN = 0;
};
Summary summarize(const OwnedTensor &tensor);

/// The elements, in nested brackets.
void printElements(const OwnedTensor &tensor, llvm::raw_ostream &os);

/// How far a result is from the one it should be.
struct Comparison {
  /// Largest difference, and divided by the largest expected magnitude.
  double maxAbsolute = 0, maxRelative = 0;
  int64_t numCompared = 0;
  /// Elements that are NaN, or infinite, in one tensor but not in the other.
  int64_t numUnordered = 0;
  /// Where shape or type differ; nothing else is valid then.
  std::string mismatch;
};
Comparison compare(const OwnedTensor &found, const OwnedTensor &expected);

/// The bound that results of this type keep against the reference.
double getRelativeBound(ElementType type);

} // namespace fovea::run

#endif // FOVEA_TOOLS_FOVEARUN_VALUES_H
