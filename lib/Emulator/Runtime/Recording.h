//===- Recording.h - What warps did, in their order -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order in which the emulator runs threads says nothing of time. So each
// warp of a cluster leaves a list of events, in its own order, and clocks run
// through the lists of all warps when the blocks have ended: see Replay.h.
//
// Who waits for whom is a point: one phase of a barrier. Events contribute to
// it, and others wait until all have.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_RECORDING_H
#define FOVEA_LIB_EMULATOR_RUNTIME_RECORDING_H

#include "Ops.h"

#include <array>

namespace fovea::simt {

/// Pipes of a quarter of a multiprocessor.
enum Pipe { Issue, Fma, Alu, Mufu, Lsu, Multiply, NumPipes };

/// What instructions without events ask for.
struct Work {
  /// Cycles of each pipe; of Issue, instructions.
  std::array<float, NumPipes> cycles = {};
  /// Basic blocks that load from global memory.
  float loads = 0;
  /// Loaded from global memory and stored to it, by a thread.
  float bytes = 0;

  void add(const Work &other);
  /// Without what `other` has, as far as there is any. Bytes are of each lane.
  void subtract(const Work &other);
  void takeMost(const Work &other);
};

enum class EventKind : uint8_t {
  /// Only the work ahead of it.
  Nothing,
  /// Barriers with a number and of a cluster, and mbarriers.
  Arrive,
  ArriveAtMBarrier,
  /// Arrives, and waits.
  Sync,
  Wait,
  WaitForMBarrier,
  Product,
  CommitProducts,
  WaitForProducts,
  /// TMA, to shared memory and from it.
  Load,
  Store,
  CommitStores,
  WaitForStores,
  /// cp.async.
  Copy,
  CommitCopies,
  WaitForCopies,
  ArriveAfterCopies
};

struct Event {
  const Op *op = nullptr;
  EventKind kind = EventKind::Nothing;
  /// The point, or the number of the product.
  uint32_t point = 0;
  /// Bytes, columns of a product, or groups that a wait leaves.
  uint32_t amount = 0;
  /// The block of the cluster that it is about.
  uint32_t block = 0;
  /// Of a product: its left factor is in shared memory. Of a load: one more
  /// block gets what the load before it does. Of a wait: only for the reading.
  bool flag = false;
  /// Ahead of it.
  Work work;
  /// Lanes that took part.
  uint32_t lanes = 0;
};

/// What the warps of a cluster did.
class Recording {
public:
  struct Trace {
    std::vector<Event> events;
    /// What each lane did since its last event, and where it is.
    std::array<Work, 32> work;
    std::array<uint32_t, 32> cursors = {};
  };

  explicit Recording(unsigned warps) : traces(warps) {}

  void spend(unsigned warp, unsigned lane, const Work &work) {
    traces[warp].work[lane].add(work);
  }

  /// An event of one lane. Lanes do not run in step here: what another lane has
  /// done next by the same operation is the same event of the warp.
  void add(unsigned warp, unsigned lane, Event event);
  /// An event of the lanes of `mask` together.
  void addTogether(unsigned warp, uint32_t mask, Event event);

  /// A point that nobody contributes to so far.
  uint32_t addPoint() {
    needed.push_back(0);
    return needed.size() - 1;
  }
  uint32_t addProduct() { return numProducts++; }

  std::vector<Trace> traces;
  /// Contributions to each point. There is none with number 0.
  std::vector<uint32_t> needed = {0};
  uint32_t numProducts = 0;

private:
  /// A lane has come to the event at `at`. What it did on its way is work of
  /// that, unless events in between, of other lanes, have it.
  void arrive(Trace &trace, unsigned lane, size_t at);
};

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_RECORDING_H
