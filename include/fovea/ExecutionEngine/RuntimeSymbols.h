//===- RuntimeSymbols.h - What generated code may call ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_RUNTIMESYMBOLS_H
#define FOVEA_EXECUTIONENGINE_RUNTIMESYMBOLS_H

#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/Mangling.h"
#include "llvm/IR/IRBuilder.h"

namespace fovea {

/// The functions that generated code may call without looking them up in the
/// process: runtime, mathematics, memory and conversions of half precision.
llvm::orc::SymbolMap getRuntimeSymbols(llvm::orc::MangleAndInterner &mangle);

/// A call of one of these functions, whose type `result` and `operands` tell.
llvm::CallInst *emitCall(llvm::IRBuilderBase &builder, llvm::StringRef name,
                         llvm::Type *result,
                         llvm::ArrayRef<llvm::Value *> operands);

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_RUNTIMESYMBOLS_H
