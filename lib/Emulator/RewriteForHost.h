//===- RewriteForHost.h - From device code to host code ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_REWRITEFORHOST_H
#define FOVEA_LIB_EMULATOR_REWRITEFORHOST_H

#include "Runtime/Ops.h"
#include "Runtime/Recording.h"
#include "Runtime/Scheduler.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

#include <deque>

namespace fovea::simt {

/// Prefix of the function that takes a kernel's parameters in memory.
inline constexpr llvm::StringLiteral kEntryPrefix = "fovea_simt_kernel.";

/// A kernel before it is loaded.
struct KernelInfo {
  LoadedKernel kernel;
  unsigned numParams = 0;
};

/// What device code has become.
struct Rewritten {
  OpTable table;
  /// For clocks; addresses of the elements are in the code.
  std::deque<Work> work;
  std::vector<KernelInfo> kernels;
};

/// The address of an element of the table.
llvm::Constant *getAddress(const Op &op, llvm::LLVMContext &context);

/// Makes an NVVM module run on the host, under the runtime: intrinsics and
/// inline assembly become calls, shared memory a part of the block's, and every
/// kernel gets a function of its name with `kEntryPrefix`. For `clocks`, it
/// says what work it does.
llvm::Expected<std::unique_ptr<Rewritten>>
rewriteForHost(llvm::Module &module, const llvm::Triple &triple,
               const llvm::DataLayout &layout, bool clocks);

/// Lets pieces of `function` say what they ask of the pipes of a
/// multiprocessor, each ahead of the operation that it leads to. To be called
/// before anything is rewritten.
void countWork(llvm::Function &function, std::deque<Work> &table);

/// Lets every use of a value that may be a result of wgmma ask the runtime for
/// its meaning. To be called before inline assembly is rewritten.
void guardAccumulators(
    llvm::Function &function, OpTable &table,
    llvm::function_ref<std::string(llvm::Instruction &)> describe);

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_REWRITEFORHOST_H
