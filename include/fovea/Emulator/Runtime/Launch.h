//===- Launch.h - What a launch takes and gives -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of the emulator's interface that needs no LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EMULATOR_RUNTIME_LAUNCH_H
#define FOVEA_EMULATOR_RUNTIME_LAUNCH_H

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fovea::simt {

struct LaunchClocks;

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

/// How kernels are run. The defaults find the most mistakes in one run; a set
/// of seeds finds more.
struct Options {
  /// Order of warps, lanes, blocks and of asynchronous copies: 0 is a fixed
  /// one, any other value a random one that the value determines.
  uint32_t seed = 0;
  /// Performs asynchronous copies and warpgroup products when they are issued,
  /// instead of as late as the kernel allows.
  bool eager = false;
  /// Finds accesses to shared memory that no barrier orders.
  bool races = true;
  /// Counts the bank conflicts of ordinary loads and stores of shared memory;
  /// those of ldmatrix and stmatrix always count.
  bool bankConflicts = false;
  /// Also models times, for kernels of modules that are translated for it.
  bool clocks = false;
  /// Has Fourier transforms, as a machine with cuFFT.
  bool transforms = true;
  /// Has products of matrices, as a machine with cuBLASLt.
  bool products = true;
  /// Most shared memory, static and dynamic, of a block.
  uint32_t sharedLimit = 227 * 1024;
  /// The GPU that kernels are compiled for when nothing else says so.
  std::string chip = "sm_80";
};

/// What the blocks of a launch did.
struct Counters {
  uint64_t blocks = 0;
  uint64_t threads = 0;
  /// Operations done once by a warp or a warpgroup.
  uint64_t collectives = 0;
  /// Completed barriers: named ones and phases of mbarriers.
  uint64_t barriers = 0;
  /// Passes over the banks of shared memory that ldmatrix and stmatrix took
  /// and would take without conflicts; the same for ordinary accesses.
  uint64_t matrixPhases = 0, matrixPhasesIdeal = 0;
  uint64_t accessPhases = 0, accessPhasesIdeal = 0;
  /// Bytes of asynchronous copies between global and shared memory.
  uint64_t copiedBytes = 0;
  /// Static and dynamic shared memory of a block.
  uint64_t sharedBytes = 0;
  /// Switches between fibers, the cost of the emulation.
  uint64_t switches = 0;
  /// With Options::clocks; else null. See Clocks.h.
  std::shared_ptr<const LaunchClocks> clocks;
  /// Executions by name of the intrinsic or instruction; of a collective, once
  /// for the warp.
  std::vector<std::pair<std::string, uint64_t>> operations;

  /// Executions of the operations whose name contains `part`.
  uint64_t count(const std::string &part) const;
};

} // namespace fovea::simt

#endif // FOVEA_EMULATOR_RUNTIME_LAUNCH_H
