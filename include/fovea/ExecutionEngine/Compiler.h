//===- Compiler.h - From IR to kernels --------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The embedding API:
//
//   llvm::Expected<fovea::Kernel> kernel = fovea::compile(text, options);
//   llvm::Error error = kernel->invoke(inputs, results);
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_COMPILER_H
#define FOVEA_EXECUTIONENGINE_COMPILER_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace fovea {

enum class Target {
  /// Parallel vector code.
  CPU,
  /// Plain loops in f64, the oracle for everything else.
  Reference,
  /// Kernels for an NVIDIA GPU.
  GPU,
  /// The same kernels, run by an emulator on the CPU.
  GPUEmulator
};

/// "cpu", "reference", "gpu" or "gpu-sim".
llvm::StringRef getName(Target target);

/// The target of that name; an error lists the valid ones.
llvm::Expected<Target> parseTarget(llvm::StringRef name);

/// What the vector-Jacobian product of a function is to return.
struct VJPOptions {
  /// Numbers of the arguments to differentiate with respect to; empty for all
  /// of a floating-point type.
  llvm::SmallVector<int64_t, 4> arguments;
  /// Whether it returns the results of the function, too, before the gradients.
  bool primalResults = false;

  bool operator==(const VJPOptions &other) const {
    return arguments == other.arguments && primalResults == other.primalResults;
  }
};

struct CompileOptions {
  Target target = Target::CPU;
  /// The CPU to generate code for, as LLVM names it. "native" is this machine
  /// with all its features; any other must not need features that this machine
  /// lacks.
  std::string cpu = "native";
  /// The GPU to generate code for, as LLVM names it. "native" is the one that
  /// the calling thread uses; for the emulator, the oldest that kernels run on.
  std::string chip = "native";
  /// How GPUs multiply f32 data: "tf32x3", nearly as accurate as f32,
  /// "tf32", or "exact": multiply-adds without tensor cores.
  std::string f32 = "tf32x3";
  /// Whether attention is found in linalg; the reference takes it as it is.
  bool raise = true;
  /// Name of the function to compile, with or without '@'; empty for the first
  /// public function with a body.
  std::string entry;
  /// Effort of LLVM's optimizer on the generated code, 0 to 3. Kernels arrive
  /// vectorised and unrolled, so that more than 1 costs time and gains nothing.
  unsigned optLevel = 1;
  /// Compiles not the entry, but its vector-Jacobian product, a function of its
  /// arguments and of one cotangent for each floating-point result; with
  /// several, the product of that function, and so on.
  std::vector<VJPOptions> vjps;
  /// A file with what the first arguments of the entry are, if they are
  /// constants, as `fovea.import_torch` writes it beside a module. Kernels with
  /// constants are in no cache.
  std::string constantsPath;
  /// What diagnostics call the text.
  std::string sourceName = "<kernel>";
};

/// The file of constants beside that of a module, which has its name and ends
/// in .safetensors; empty if there is none.
std::string findConstants(llvm::StringRef modulePath);

/// Compiles one function of a module given as text. An error carries all
/// diagnostics of the compiler; nothing is printed. May be called from several
/// threads at once.
llvm::Expected<Kernel> compile(llvm::StringRef text,
                               const CompileOptions &options = {});

/// Compiles one function of `module`, which is not changed.
llvm::Expected<Kernel> compile(mlir::ModuleOp module,
                               const CompileOptions &options = {});

/// Compiles the vector-Jacobian product of `kernel`, with the options that it
/// was compiled with.
llvm::Expected<Kernel> compileVJP(const Kernel &kernel,
                                  const VJPOptions &options = {});

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_COMPILER_H
