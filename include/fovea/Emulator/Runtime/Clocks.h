//===- Clocks.h - What clocks say of a launch -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Modelled, not measured: docs/GPUModel.md says what is known and what is not.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EMULATOR_RUNTIME_CLOCKS_H
#define FOVEA_EMULATOR_RUNTIME_CLOCKS_H

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fovea::simt {

/// Where all loads come from: the second-level cache, in the middle, memory,
/// and the cache when all multiprocessors load. Each gives times of its own.
constexpr unsigned kNumLevels = 4;
constexpr unsigned kMiddle = 1;
using Times = std::array<double, kNumLevels>;

/// Of one launch; cycles and shares in the middle if nothing else is said.
struct LaunchClocks {
  /// A table has a line for each group of threads, operation and cause.
  struct Wait {
    std::string who, where, whom;
    /// Of a warp that waits there, in a block.
    double cycles = 0;
    /// Of the time of its block.
    double share = 0;
  };
  struct Share {
    std::string pipe;
    double share = 0;
  };

  /// Of the launch, on a kind of GPU at its clock; none if the kernel has
  /// products of warpgroups, and the GPU does not.
  struct Estimate {
    std::string device;
    double gigahertz = 0;
    std::optional<Times> milliseconds;
  };

  /// Cycles of each cluster, in the order of the launch, on Hopper as all else
  /// but estimates.
  std::vector<Times> clusters;
  unsigned clusterBlocks = 1;
  /// Blocks that a multiprocessor runs at a time.
  unsigned resident = 1;
  /// Tiles of the longest block, how long half of all rounds of main loops take
  /// at most, and what the longest block takes beside its rounds and such tiles
  /// as no round has. None without loops of products or of waits for copies.
  double tiles = 0;
  Times tileCycles = {}, besideCycles = {};
  std::vector<Share> pipes;
  /// Longest first.
  std::vector<Wait> waits;
  /// Hopper first.
  std::vector<Estimate> estimates;

  /// Cycles of the longest block, of half of the blocks at most, and of the
  /// launch, whose clusters go to the multiprocessors that are free first.
  Times getLongest() const;
  Times getMedian() const;
  Times getTotal() const;
};

/// Text for people, of several lines.
std::string describeClocks(const std::string &kernel,
                           const LaunchClocks &clocks);

} // namespace fovea::simt

#endif // FOVEA_EMULATOR_RUNTIME_CLOCKS_H
