//===- Attributes.h - What compiled GPU modules carry -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_NVVM_ATTRIBUTES_H
#define FOVEA_TARGET_NVVM_ATTRIBUTES_H

#include "llvm/ADT/StringRef.h"

namespace fovea {

/// Attributes of a `gpu.module` whose code has been generated: PTX text, the
/// LLVM bitcode that it comes from, the compute capability that it needs, and
/// whether it runs on that one only.
constexpr llvm::StringLiteral kPTXAttrName = "attn.ptx";
constexpr llvm::StringLiteral kBitcodeAttrName = "attn.bitcode";
constexpr llvm::StringLiteral kCapabilityAttrName = "attn.capability";
constexpr llvm::StringLiteral kExactCapabilityAttrName =
    "attn.exact_capability";

/// The function of host code that unloads its GPU modules.
constexpr llvm::StringLiteral kUnloadName = "fovea_gpu_unload";

} // namespace fovea

#endif // FOVEA_TARGET_NVVM_ATTRIBUTES_H
