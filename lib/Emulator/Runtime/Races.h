//===- Races.h - Which accesses are ordered ---------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_RACES_H
#define FOVEA_LIB_EMULATOR_RUNTIME_RACES_H

#include <cstdint>
#include <vector>

namespace fovea::simt {

struct Block;
struct Op;
struct Warp;

/// Most blocks of a cluster.
constexpr unsigned kMaxClusterBlocks = 8;
/// Who accesses shared memory: up to 32 warps of a cluster, and for each of its
/// blocks the engine that performs bulk copies to it, from kCopyEngine on.
constexpr unsigned kCopyEngine = 32;
constexpr unsigned kNumAgents = kCopyEngine + kMaxClusterBlocks;

/// A vector clock: how much of each agent's work is known to be done.
struct Clock {
  uint32_t time[kNumAgents] = {};

  void join(const Clock &other) {
    for (unsigned i = 0; i < kNumAgents; ++i)
      if (other.time[i] > time[i])
        time[i] = other.time[i];
  }
};

enum class Access : uint8_t {
  Read,
  Write,
  /// By an atomic operation: ordered with its like.
  Atomic,
  /// Through the asynchronous proxy, which does not see ordinary writes before
  /// a fence.
  AsyncRead
};

/// Finds accesses to shared memory by different warps that no barrier orders,
/// one of which writes. Lanes of a warp count as one: what they do to each
/// other is not checked.
class RaceDetector {
public:
  void reset(uint32_t bytes, bool enable);

  /// The warp that runs accesses [offset, offset + bytes); fails the thread if
  /// that is a race.
  void access(Warp &warp, uint32_t offset, uint32_t bytes, Access kind,
              const Op &op);
  /// The same for what the warp had started when its clock was `clock`.
  void access(Warp &warp, const Clock &clock, uint32_t offset, uint32_t bytes,
              Access kind, const Op &op);

  /// A bulk copy to `block`, issued by `warp` when its clock was `clock`,
  /// writes. With `done`, it has: whoever waits for it knows `engineTime` of
  /// the engine.
  void copyWrites(Block &block, Warp &warp, const Clock &clock, uint32_t offset,
                  uint32_t bytes, const Op &op, bool done);

  uint32_t engineTime = 1;

private:
  /// The last accesses to some bytes.
  struct Cell {
    uint64_t serial = 0;
    uint32_t writeTime = 0;
    uint32_t proxyFences = 0;
    uint8_t writer = 0;
    bool isAtomic = false;
    bool isAsync = false;
    /// Of a chunk: its cells differ.
    bool isSplit = false;
    const Op *writeOp = nullptr;
    uint32_t readTime[kCopyEngine];
  };
  /// Two bytes of shared memory: neighbours of 16 bits may belong to different
  /// warps.
  static constexpr uint32_t kCellBytes = 2;
  /// What copies and products access whole: one cell stands for all of a chunk
  /// until a part of it is accessed alone.
  static constexpr uint32_t kChunkBytes = 16;
  static constexpr uint32_t kChunkCells = kChunkBytes / kCellBytes;

  /// Calls `body` with each cell of [offset, offset + bytes) and where it
  /// begins. `overwrites`: it leaves the same in all of them.
  template <typename Body>
  void forEachCell(uint32_t offset, uint32_t bytes, bool overwrites, Body body);
  void accessCell(Warp &warp, const Clock &clock, Cell &cell, uint32_t offset,
                  Access kind, const Op &op);
  /// Fails unless ordinary writes of a cell have reached the asynchronous
  /// proxy, through which `warp` does something now.
  void requireFence(Warp &warp, const Cell &cell, uint32_t offset,
                    const char *what, const Op &op);

  std::vector<Cell> chunks;
  std::vector<Cell> cells;
  uint64_t serial = 0;
  bool enabled = false;
};

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_RACES_H
