//===- F32Math.h - Products of f32 data on a GPU ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_SUPPORT_F32MATH_H
#define FOVEA_SUPPORT_F32MATH_H

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/CommandLine.h"
#include <optional>

namespace fovea::attn {

/// How products of f32 data are computed on a GPU.
enum class F32Math {
  TF32x3, // three products of operands cut in two: nearly f32
  TF32,   // one product of operands rounded to 11 bits
  Exact   // multiply-adds of f32, without tensor cores
};

/// The names of the ways, for options of passes and pipelines.
inline llvm::cl::ValuesClass getF32MathValues() {
  return llvm::cl::values(
      clEnumValN(F32Math::TF32x3, "tf32x3",
                 "three products of tensor cores, nearly as accurate as f32"),
      clEnumValN(F32Math::TF32, "tf32",
                 "one product of operands rounded to 11 bits"),
      clEnumValN(F32Math::Exact, "exact",
                 "multiply-adds of f32, without tensor cores"));
}

/// The way that one of these names means.
inline std::optional<F32Math> symbolizeF32Math(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<F32Math>>(name)
      .Case("tf32x3", F32Math::TF32x3)
      .Case("tf32", F32Math::TF32)
      .Case("exact", F32Math::Exact)
      .Default(std::nullopt);
}

} // namespace fovea::attn

#endif // FOVEA_SUPPORT_F32MATH_H
