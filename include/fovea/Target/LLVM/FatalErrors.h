//===- FatalErrors.h - Where LLVM would end the process ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_LLVM_FATALERRORS_H
#define FOVEA_TARGET_LLVM_FATALERRORS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

namespace fovea {

/// Returns what `body` does, and an error where LLVM runs out of memory or
/// gives up on this thread meanwhile, which would otherwise end the process: it
/// cannot select an instruction, say. `body` is then left where it is, without
/// destructors: what it held is lost.
llvm::Error catchFatalErrors(llvm::function_ref<llvm::Error()> body);

/// Gives up, as above, unless `bytes` of address space can be had: not all of
/// LLVM and MLIR looks whether it got any memory. Outside of `catchFatalErrors`
/// it does nothing.
void requireMemory(size_t bytes);

} // namespace fovea

#endif // FOVEA_TARGET_LLVM_FATALERRORS_H
