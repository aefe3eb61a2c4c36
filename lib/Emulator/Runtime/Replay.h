//===- Replay.h - Clocks of a multiprocessor --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Clocks run through the events that warps have left. The warp that is
// furthest behind does its next event; a wait takes the latest of what it waits
// for. Pipes, tensor cores and copies serve in the order of time.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_REPLAY_H
#define FOVEA_LIB_EMULATOR_RUNTIME_REPLAY_H

#include "Rates.h"
#include "Recording.h"
#include "fovea/Emulator/Runtime/Clocks.h"

#include <iterator>
#include <map>
#include <memory>
#include <optional>

namespace fovea::simt {

/// What a warp waits for, beside a warp: their numbers are from 0 on.
enum Cause : int { Copies = -1, Products = -2, Loads = -3 };

/// What one level of memory makes of a recording.
struct Replayed {
  /// Cycles of the cluster, and of each pipe, of products and of copies.
  double cycles = 0;
  std::array<double, NumPipes + 2> busy = {};
  /// By warp, operation and cause, cycles.
  std::map<std::tuple<unsigned, const Op *, int>, double> waited;
  /// Of the warp with the most rounds of its main loop: tiles, those of them
  /// that no round but the last has, and how long each but the last took.
  double tiles = 0, tilesBeside = 0;
  std::vector<double> rounds;
};

/// Replays `copies` clusters that share multiprocessors of `device`, of which
/// `recording` is one; nothing if warps wait for each other for ever.
std::optional<Replayed> replay(const Recording &recording, unsigned blocks,
                               unsigned copies, const rates::Device &device,
                               const rates::Level &level);

/// Collects the clocks of a launch.
class Stopwatch {
public:
  /// Of blocks of `threads` and of so many bytes of shared memory.
  Stopwatch(uint64_t clusters, unsigned clusterBlocks, unsigned threads,
            size_t shared);

  /// The cluster with this number has run. False if clocks do not go on.
  bool add(uint64_t number, const Recording &recording);
  LaunchClocks finish();

private:
  struct Waits {
    double cycles = 0;
    uint64_t warps = 0;
  };
  std::string nameRole(unsigned warp) const;

  LaunchClocks result;
  /// Cycles of clusters, and blocks that a multiprocessor runs at a time.
  struct Grid {
    std::vector<Times> clusters;
    unsigned resident = 1;
  };
  std::array<Grid, std::size(rates::kDevices)> grids;
  /// There are products of warpgroups.
  bool hasWarpgroups = false;
  unsigned threads, warps;
  double longest = 0, totalCycles = 0;
  /// Of the longest block.
  double tilesBeside = 0;
  std::array<double, NumPipes + 2> busy = {};
  std::array<std::vector<double>, kNumLevels> rounds;
  std::map<std::tuple<std::string, std::string, std::string>, Waits> waits;
};

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_REPLAY_H
