//===- JIT.h - LLVM IR to executable code -----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_JIT_H
#define FOVEA_EXECUTIONENGINE_JIT_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace fovea::detail {

/// Optimizes the host's code, which MLIR has simplified already.
void optimize(llvm::Module &module, llvm::TargetMachine &machine,
              unsigned optLevel);

/// Code that stays loaded as long as this object lives.
class LoadedCode {
public:
  /// Unloads what the code has loaded to GPUs.
  ~LoadedCode();

  /// Optimizes `module`, which is changed, and loads its machine code.
  /// Functions other than `entry` become internal. References to the runtime
  /// are bound to the one in this process, others to the C library.
  static llvm::Expected<std::unique_ptr<LoadedCode>>
  create(llvm::Module &module, llvm::StringRef entry,
         llvm::TargetMachine &machine, unsigned optLevel, CompileTimes &times);

  /// Loads the object code of a module that `create` compiled for `machine`.
  /// `unloads` says whether it has something to unload.
  static llvm::Expected<std::unique_ptr<LoadedCode>>
  load(std::unique_ptr<llvm::MemoryBuffer> object, llvm::StringRef entry,
       const llvm::TargetMachine &machine, CompileTimes &times,
       bool unloads = false);

  /// The object code, if `create` made this, there is nothing to unload and
  /// nobody has taken it.
  std::unique_ptr<llvm::MemoryBuffer> takeObject() { return std::move(object); }

  template <typename FunctionT> FunctionT *getEntry() const {
    return entry.toPtr<FunctionT *>();
  }

private:
  std::unique_ptr<llvm::MemoryBuffer> object;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::ExecutorAddr entry;
  void (*unload)() = nullptr;
};

} // namespace fovea::detail

#endif // FOVEA_EXECUTIONENGINE_JIT_H
