//===- GPUDriver.h - The emulator as a device of the runtime ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EMULATOR_GPUDRIVER_H
#define FOVEA_EMULATOR_GPUDRIVER_H

#include "fovea/Emulator/Runtime/Launch.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <functional>

namespace llvm {
class Module;
} // namespace llvm

namespace fovea::simt {

/// Makes the emulator the runtime's FOVEA_RT_GPU_EMULATOR, which programs have
/// to do that compile for Target::GPUEmulator. May be called more than once.
void registerEmulator();

/// `options` with the changes that a list such as "seed=5,eager,races=0,banks"
/// names. An error names the entry that is unknown or has no such value.
llvm::Expected<Options> parseEmulatorOptions(llvm::StringRef list,
                                             Options options = {});

/// How launches through the runtime run from now on. At first as the
/// environment variable FOVEA_SIMT says, such a list; if it has mistakes, the
/// device cannot be opened.
void setEmulatorOptions(const Options &options);
Options getEmulatorOptions();

/// Calls `observer` after every launch through the runtime that succeeded;
/// null for none. What clocks say goes to stderr if there is none.
using LaunchObserver =
    std::function<void(const char *kernel, const Counters &counters)>;
void setLaunchObserver(LaunchObserver observer);

/// Calls `editor` with the code of every module that is loaded, ahead of its
/// translation, so that tests can make mistakes there; null for none. What is
/// loaded already is edited once, when a kernel is launched: kernels that the
/// editor leaves without a body run as they were loaded, the others as edited.
/// Not while kernels run.
using ModuleEditor = std::function<void(llvm::Module &module)>;
void setModuleEditor(ModuleEditor editor);

} // namespace fovea::simt

#endif // FOVEA_EMULATOR_GPUDRIVER_H
