//===- Scheduler.h - Runs the blocks of a launch ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_SCHEDULER_H
#define FOVEA_LIB_EMULATOR_RUNTIME_SCHEDULER_H

#include "Ops.h"
#include "fovea/Emulator/Runtime/Launch.h"

namespace fovea::simt {

/// A kernel as machine code.
struct LoadedKernel {
  std::string name;
  /// Takes the parameters of cuLaunchKernel.
  void (*entry)(void **) = nullptr;
  uint32_t staticShared = 0;
  /// Threads of a block that the kernel demands, 0 if it leaves them open, and
  /// the most that it allows.
  Dim3 required{0, 0, 0};
  uint32_t maxThreads = 1024;
  /// Blocks of a cluster.
  Dim3 cluster{1, 1, 1};
  /// It says what work its code is: see fovea_simt_spend.
  bool hasWork = false;
};

/// Runs a grid on the calling thread; returns an error text, empty on success.
/// `executions` counts by Op::index.
std::string runGrid(const LoadedKernel &kernel, Dim3 grid, Dim3 block,
                    size_t dynamicShared, void **params, const Options &options,
                    Counters &counters, std::vector<uint64_t> &executions);

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_SCHEDULER_H
