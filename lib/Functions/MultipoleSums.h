//===- MultipoleSums.h - Summaries of a cache -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_MULTIPOLESUMS_H
#define FOVEA_LIB_FUNCTIONS_MULTIPOLESUMS_H

#include "fovea/Functions/MultipoleCache.h"
#include "llvm/ADT/StringRef.h"

namespace fovea::functions {

/// Of the sides of a cache.
inline constexpr llvm::StringLiteral kSideNames[] = {"key", "value"};
/// Intervals that are kept at each level.
inline constexpr int64_t kMultipolePlaces = 4;

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_MULTIPOLESUMS_H
