//===- State.h - Threads, warps and blocks ----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_STATE_H
#define FOVEA_LIB_EMULATOR_RUNTIME_STATE_H

#include "Accumulators.h"
#include "BankConflicts.h"
#include "Fiber.h"
#include "Ops.h"
#include "Races.h"
#include "Recording.h"
#include "fovea/Emulator/Runtime/Launch.h"
#include "fovea/Emulator/Runtime/TensorMap.h"

#include <cstdarg>
#include <deque>
#include <map>
#include <random>

namespace fovea::simt {

struct Block;
struct Cluster;

/// Why a thread does not run.
enum class Wait : uint8_t {
  Nothing,
  /// For the other lanes of a warp operation.
  Warp,
  /// For the other threads of a warpgroup operation.
  Warpgroup,
  /// At a named barrier.
  Barrier,
  /// Until something changes that it polls, such as an mbarrier.
  Poll,
  /// It has left the kernel.
  Exited
};

/// A cp.async that is under way.
struct AsyncCopy {
  char *to;
  const char *from;
  uint32_t bytes;
  /// The rest is filled with zeros.
  uint32_t validBytes;
  const Op *op;
};

/// A copy by the bulk-copy engine that is under way: of a box of a tensor, or
/// of `bytes` bytes at `address`.
struct BulkCopy {
  const Op *op = nullptr;
  Warp *issuer = nullptr;
  bool isTensor = false;
  /// No copy, but cp.async copies of one thread, after which it arrives.
  bool arrives = false;
  TensorMap map;
  int32_t coordinates[5] = {};
  /// Of the box in shared memory.
  uint32_t offset = 0;
  uint32_t bytes = 0;
  char *address = nullptr;
  std::vector<AsyncCopy> threadCopies;
  /// What the issuer had seen.
  Clock clock;
};

struct Thread {
  Block *block = nullptr;
  Warp *warp = nullptr;
  uint32_t id = 0, lane = 0;
  Dim3 position;
  Fiber fiber;
  Wait wait = Wait::Nothing;
  /// The operation that the thread is in.
  const Op *op = nullptr;
  const Slot *in = nullptr;
  Slot *out = nullptr;
  /// Number of the barrier or offset of the mbarrier that it waits for.
  uint32_t barrier = 0;
  /// Cluster::phase and Cluster::point when it arrived.
  uint64_t clusterPhase = 0;
  uint32_t clusterPoint = 0;
  /// Cluster::progress when it began to poll.
  uint64_t polledAt = 0;
  /// cp.async: not yet committed, and by group.
  std::vector<AsyncCopy> copies;
  std::deque<std::vector<AsyncCopy>> copyGroups;
  /// Bulk copies from shared to global memory.
  std::vector<BulkCopy> stores;
  std::deque<std::vector<BulkCopy>> storeGroups;
  /// Results of warpgroup products.
  Accumulators accumulators;
};

struct Warp {
  Block *block = nullptr;
  uint32_t id = 0;
  /// Its number in clocks.
  uint32_t agent = 0;
  /// Lanes by state: may run, have not left, wait in a warp operation.
  uint32_t ready = 0, live = 0, arrived = 0;
  Clock clock;
  /// Proxy fences so far, and the clock at the last one.
  uint32_t proxyFences = 0;
  Clock fencedClock;
  WarpProducts products;
  BankCounter banks;

  Thread &getThread(unsigned lane) const;
};

struct Warpgroup {
  Block *block = nullptr;
  uint32_t id = 0;
  uint32_t arrived = 0;

  Thread &getThread(unsigned index) const;
};

struct NamedBarrier {
  uint32_t arrived = 0;
  /// Threads that a phase needs; 0: all that have not left.
  uint32_t expected = 0;
  /// Threads that arrived with a predicate that holds.
  uint32_t votes = 0;
  Clock clock;
  /// Of the recording.
  uint32_t point = 0;
};

struct MBarrier {
  uint32_t expected = 0, pending = 0;
  int64_t transactions = 0;
  uint64_t phase = 0;
  Clock clock;
  std::deque<BulkCopy> copies;
  /// Of the recording: of this phase, and of the one before.
  uint32_t point = 0, lastPoint = 0;
};

struct Block {
  // Of the launch.
  Dim3 grid, extent;
  const Options *options = nullptr;
  Counters *counters = nullptr;
  std::vector<uint64_t> *executions = nullptr;
  const std::string *kernel = nullptr;
  void (*entry)(void **) = nullptr;
  void **params = nullptr;
  Stacks *stacks = nullptr;
  uint32_t dynamicShared = 0;
  std::mt19937 random;

  // Of the running block.
  Cluster *cluster = nullptr;
  /// In the cluster.
  uint32_t rank = 0;
  Dim3 place;
  Dim3 index;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Warpgroup> groups;
  NamedBarrier barriers[16];
  std::map<uint32_t, MBarrier> mbarriers;
  RaceDetector races;
  char *shared = nullptr;
  uint32_t sharedBytes = 0;
  uint32_t live = 0;
  /// When warps of other blocks last used its shared memory, and how.
  uint32_t visits[kCopyEngine] = {};
  const Op *lastVisit = nullptr;
  /// Of its threads among the stacks.
  uint32_t firstStack = 0;
  /// The warp that ran last.
  uint32_t lastWarp = 0;

  Fiber scheduler;
  /// Performs bulk copies when no thread can run.
  Fiber service;
  bool inService = false;
  Thread *current = nullptr;
  bool failed = false;
  std::string error;

  /// Offset of shared memory [address, address + bytes); fails the thread if
  /// it is not inside.
  uint32_t getOffset(Slot address, uint32_t bytes, const Op &op);
  /// The block of the cluster in whose shared memory `address` is; this one if
  /// there is none.
  Block &findOwner(Slot address);
  /// A warp of another block of the cluster uses this one's shared memory.
  void visit(Warp &warp, const Op &op);
};

/// Blocks that run together and see each other's shared memory.
struct Cluster {
  explicit Cluster(size_t size) : blocks(size) {}

  Dim3 extent;
  std::vector<Block> blocks;
  /// Threads that have not left.
  uint32_t live = 0;
  /// Counts what may let a polling thread go on.
  uint64_t progress = 0;
  /// Of the barrier of all threads.
  uint32_t arrived = 0;
  uint64_t phase = 0;
  Clock clock;
  uint32_t point = 0;
  /// For clocks; null without them.
  std::unique_ptr<Recording> recording;

  Warp &getWarp(unsigned agent) {
    size_t perBlock = blocks.front().warps.size();
    return blocks[agent / perBlock].warps[agent % perBlock];
  }
  /// The block whose shared memory has `address`; null if none has.
  Block *findShared(const void *address);
};

/// What a thread that waits for its cluster has in place of an mbarrier.
constexpr uint32_t kClusterBarrier = ~0u - 1;

inline Thread &Warp::getThread(unsigned lane) const {
  return block->threads[id * 32 + lane];
}

inline Thread &Warpgroup::getThread(unsigned index) const {
  return block->threads[id * 128 + index];
}

/// The block that this thread of the host runs; null outside a launch.
extern thread_local Block *currentBlock;

/// Ends the launch with an error about the running thread and does not return:
/// the stack is abandoned, so callers own nothing.
[[noreturn]] void fail(const Op *op, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// Ends the launch with a text that is already complete.
[[noreturn]] void failWith(Block &block, std::string *text);

/// Lets another thread run until this one is made ready again.
void suspend(Thread &thread, Wait wait);
/// The same, but the running thread goes on for now.
void setWait(Thread &thread, Wait wait);
void makeReady(Thread &thread);

/// A name for a thread's place: "block (0, 0, 0), thread 17".
std::string describe(const Thread &thread);

/// A sentence about threads of which none can go on.
std::string describeDeadlock(Cluster &cluster);

/// One operation of the running thread.
void execute(const Op &op, const Slot *in, Slot *out);

/// The value of a register that may hold a result of wgmma; fails the thread if
/// it has not waited for it.
uint32_t readAccumulator(Thread &thread, uint32_t bits, const Op &op);

/// Interprets inline assembly.
void runProgram(Thread &thread, const Op &op, const Slot *in, Slot *out);

//===----------------------------------------------------------------------===//
// Clocks: nothing happens without a recording
//===----------------------------------------------------------------------===//

/// Notes an event of a thread, or of lanes of a warp together.
void note(Thread &thread, const Op *op, EventKind kind, uint32_t amount = 0,
          bool flag = false);
void note(Warp &warp, uint32_t mask, const Op &op, EventKind kind,
          uint32_t amount = 0);
/// One that contributes to `point`, which is made if it is 0, in `block`.
void noteArrival(Thread &thread, const Op &op, EventKind kind, uint32_t &point,
                 const Block &block, uint32_t amount = 0, bool flag = false);
void noteArrival(Warp &warp, uint32_t mask, const Op &op, EventKind kind,
                 uint32_t &point);
/// One that waits for `point`, which nobody has contributed to if it is 0.
void noteWait(Thread &thread, const Op &op, EventKind kind, uint32_t point);
/// A product of a warpgroup, 64 x `columns`.
void noteProduct(Warpgroup &group, const Op &op, uint32_t columns,
                 bool fromShared);

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// A thread has left: barriers of all threads need one less.
void barriersAfterExit(Block &block);
/// The mbarrier at `address`, which is at `offset` of shared memory; fails the
/// thread if there is none.
MBarrier &findMBarrier(Thread &thread, const Op &op, Slot address,
                       uint32_t &offset);
/// The one at `offset` of `owner`, perhaps another block of the cluster.
MBarrier &findMBarrier(Thread &thread, const Op &op, Block &owner,
                       uint32_t offset);
/// Completes the phase of an mbarrier of `block` if nothing is missing.
void updateMBarrier(Block &block, MBarrier &barrier);

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Performs one bulk copy that an mbarrier waits for, if there is one.
void performBulkCopy(Block &block);
/// Performs one cp.async copy of a thread of `warp`.
void performCopy(Warp &warp, const Clock &clock, const AsyncCopy &copy);
void performStore(Thread &thread, const BulkCopy &copy);
/// Fails a thread that leaves while its bulk stores read shared memory, or, as
/// the last of its block, while other blocks may use the block's.
void copiesAtExit(Thread &thread);

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_STATE_H
