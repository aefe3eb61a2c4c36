//===- EmitCode.h - Machine code of a module --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_LLVM_EMITCODE_H
#define FOVEA_TARGET_LLVM_EMITCODE_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CodeGen.h"
#include "llvm/Support/Error.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace fovea {

/// Appends an object file or assembly of `module` to `code`. With
/// `splitAddresses`, SplitAddressesPass has run, and loop strength reduction,
/// up to two thirds of the time of code generation, is left out.
llvm::Error emitCode(llvm::Module &module, llvm::TargetMachine &machine,
                     llvm::CodeGenFileType type, bool splitAddresses,
                     llvm::SmallVectorImpl<char> &code);

} // namespace fovea

#endif // FOVEA_TARGET_LLVM_EMITCODE_H
