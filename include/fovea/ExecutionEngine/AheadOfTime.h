//===- AheadOfTime.h - Code in files ----------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_AHEADOFTIME_H
#define FOVEA_EXECUTIONENGINE_AHEADOFTIME_H

#include "fovea/ExecutionEngine/Compiler.h"

namespace fovea {

/// What a compilation can be written as.
enum class CodeKind {
  MLIR,     // IR after the pipeline; for a GPU, kernels in the NVVM dialect
  LLVM,     // LLVM IR of the host's code
  Assembly, // its assembly
  Object,   // an object file, with the GPU's code inside
  SharedLibrary, // the same, linked
  PTX,           // PTX of all kernels
  Cubin          // their machine code, by ptxas
};

/// Compiled code, which needs the runtime library and nothing else.
struct CompiledCode {
  std::string code;
  /// A C header with the entry point, for objects and shared libraries.
  std::string header;
};

/// Compiles one function of a module given as text. `cpu` and `chip` of the
/// options need not be of this machine. It is called `name`, or as in the
/// module where that is empty.
llvm::Expected<CompiledCode> compileAheadOfTime(llvm::StringRef text,
                                                const CompileOptions &options,
                                                CodeKind kind,
                                                llvm::StringRef name = {});

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_AHEADOFTIME_H
