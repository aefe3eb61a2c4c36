//===- Module.h - Device code on the CPU ------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The emulator runs the NVVM LLVM module from which the PTX is made:
//
//   auto module = fovea::simt::Module::create(bitcode);
//   llvm::Error error = (*module)->launch("saxpy", grid, block, 0, params);
//
// docs/SIMTEmulator.md says what it models and what it finds.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EMULATOR_MODULE_H
#define FOVEA_EMULATOR_MODULE_H

#include "fovea/Emulator/Runtime/Launch.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace fovea::simt {

/// Kernels of an NVVM LLVM module, ready to run.
class Module {
public:
  /// Translates optimised NVVM LLVM IR, which is changed, for this machine. An
  /// intrinsic or an instruction in inline assembly that is not known is an
  /// error that names it. For Options::clocks, its kernels count their work.
  static llvm::Expected<std::unique_ptr<Module>> create(llvm::Module &module,
                                                        bool clocks = false);

  /// The same for a module as bitcode, after `editor`, if there is one.
  static llvm::Expected<std::unique_ptr<Module>>
  create(llvm::StringRef bitcode, llvm::StringRef name = "<bitcode>",
         const std::function<void(llvm::Module &)> &editor = nullptr,
         bool clocks = false);

  ~Module();

  /// Runs a kernel and returns when it has finished. `params` are those of
  /// cuLaunchKernel: params[i] points to the value of the i-th parameter. An
  /// error names the kernel, the block and the thread. `counters` may be null.
  llvm::Error launch(llvm::StringRef kernel, Dim3 grid, Dim3 block,
                     size_t dynamicShared, void **params,
                     const Options &options = {}, Counters *counters = nullptr);

  std::vector<std::string> getKernelNames() const;

  /// Shared memory that the module itself defines, in bytes.
  size_t getStaticShared() const;

  /// Number of parameters of a kernel; -1 if there is no such kernel.
  int getNumParams(llvm::StringRef kernel) const;

  /// Blocks of a cluster that a kernel demands.
  Dim3 getCluster(llvm::StringRef kernel) const;

private:
  struct Impl;
  explicit Module(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace fovea::simt

#endif // FOVEA_EMULATOR_MODULE_H
