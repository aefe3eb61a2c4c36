//===- Scheduler.cpp - Runs the blocks of a launch ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Scheduler.h"
#include "Faults.h"
#include "Replay.h"
#include "State.h"
#include "fovea/Emulator/Runtime/Memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sys/mman.h>

using namespace fovea::simt;

thread_local Block *fovea::simt::currentBlock = nullptr;

//===----------------------------------------------------------------------===//
// Switching
//===----------------------------------------------------------------------===//

void fovea::simt::setWait(Thread &thread, Wait wait) {
  thread.wait = wait;
  uint32_t bit = 1u << thread.lane;
  if (wait == Wait::Nothing)
    thread.warp->ready |= bit;
  else
    thread.warp->ready &= ~bit;
}

void fovea::simt::makeReady(Thread &thread) { setWait(thread, Wait::Nothing); }

/// Goes on with the scheduler until the running thread is ready.
static void leave(Thread &thread) {
  Block &block = *thread.block;
  ++block.counters->switches;
  switchFiber(thread.fiber, block.scheduler);
}

void fovea::simt::suspend(Thread &thread, Wait wait) {
  setWait(thread, wait);
  leave(thread);
}

//===----------------------------------------------------------------------===//
// Operations of several threads
//===----------------------------------------------------------------------===//

static void count(Block &block, const Op &op) {
  ++(*block.executions)[op.index];
}

/// All lanes of `mask` have arrived: does the work. `current` takes part
/// unless it leaves the kernel.
static void completeWarp(Warp &warp, const Op &op, uint32_t mask,
                         Thread *current) {
  const Slot *in[32] = {};
  Slot *out[32] = {};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    Thread &thread = warp.getThread(lane);
    if (thread.op != &op)
      fail(&op, "divergent warp: lane %u waits in %s%s%s", lane,
           thread.op->name.c_str(), thread.op->where.empty() ? "" : ", ",
           thread.op->where.c_str());
    in[lane] = thread.in;
    out[lane] = thread.out;
  }
  warp.arrived &= ~mask;
  warp.banks.flush(*warp.block->counters);
  count(*warp.block, op);
  ++warp.block->counters->collectives;
  op.warp(warp, op, in, out, mask);
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) {
      Thread &thread = warp.getThread(lane);
      if (&thread != current && thread.wait == Wait::Warp)
        makeReady(thread);
    }
}

/// The lanes that take part in the warp operation that `thread` is in.
static uint32_t getMask(const Thread &thread) {
  int mask = thread.op->mask;
  return mask == AllLanes    ? 0xffffffffu
         : mask == LiveLanes ? thread.warp->live
                             : uint32_t(thread.in[mask]);
}

static void executeWarp(Thread &thread, const Op &op) {
  Warp &warp = *thread.warp;
  uint32_t mask = getMask(thread);
  if (!(mask >> thread.lane & 1))
    fail(&op, "lane %u is not in its own member mask 0x%08x", thread.lane,
         mask);
  if (mask & ~warp.live)
    fail(&op,
         "lanes 0x%08x of the member mask do not exist or have left the kernel",
         mask & ~warp.live);
  warp.arrived |= 1u << thread.lane;
  if ((warp.arrived & mask) != mask)
    return suspend(thread, Wait::Warp);
  completeWarp(warp, op, mask, &thread);
  if (thread.wait != Wait::Nothing)
    leave(thread);
}

static void executeGroup(Thread &thread, const Op &op) {
  Block &block = *thread.block;
  uint32_t number = thread.id / 128;
  if ((number + 1) * 128 > block.threads.size())
    fail(&op, "the last %zu threads of the block are no whole warpgroup",
         block.threads.size() % 128);
  Warpgroup &group = block.groups[number];
  if (++group.arrived < 128)
    return suspend(thread, Wait::Warpgroup);
  group.arrived = 0;
  const Slot *in[128];
  Slot *out[128];
  for (unsigned i = 0; i < 128; ++i) {
    Thread &other = group.getThread(i);
    if (other.op != &op)
      fail(&op, "divergent warpgroup: thread %u is in %s", other.id,
           other.op ? other.op->name.c_str() : "no operation");
    in[i] = other.in;
    out[i] = other.out;
  }
  count(block, op);
  ++block.counters->collectives;
  op.group(group, op, in, out);
  for (unsigned i = 0; i < 128; ++i)
    if (&group.getThread(i) != &thread)
      makeReady(group.getThread(i));
}

void fovea::simt::execute(const Op &op, const Slot *in, Slot *out) {
  Block &block = *currentBlock;
  Thread &thread = *block.current;
  if (op.kind == OpKind::Program)
    return runProgram(thread, op, in, out);
  thread.op = &op;
  thread.in = in;
  thread.out = out;
  block.cluster->progress += !op.polls;
  switch (op.kind) {
  case OpKind::Lane:
    count(block, op);
    return op.lane(thread, op, in, out);
  case OpKind::Warp:
    return executeWarp(thread, op);
  default:
    return executeGroup(thread, op);
  }
}

/// The running thread has returned from the kernel.
static void exitThread(Thread &thread) {
  Block &block = *thread.block;
  Warp &warp = *thread.warp;
  copiesAtExit(thread);
  note(thread, /*op=*/nullptr, EventKind::Nothing);
  uint32_t bit = 1u << thread.lane;
  warp.live &= ~bit;
  --block.live;
  --block.cluster->live;
  ++block.cluster->progress;
  setWait(thread, Wait::Exited);
  if (!warp.live)
    warp.banks.flush(*block.counters);
  for (uint32_t waiting = warp.arrived; waiting; waiting &= waiting - 1) {
    Thread &other = warp.getThread(__builtin_ctz(waiting));
    if (other.op->mask != LiveLanes && (getMask(other) & bit))
      fail(other.op, "lane %u leaves the kernel while lane %u waits for it",
           thread.lane, other.lane);
  }
  if (warp.arrived && warp.arrived == warp.live) {
    // All that are left wait at an aligned barrier, which now needs no more.
    const Op &op = *warp.getThread(__builtin_ctz(warp.live)).op;
    if (op.mask == LiveLanes)
      completeWarp(warp, op, warp.live, nullptr);
  }
  barriersAfterExit(block);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

static void runThread() {
  Block &block = *currentBlock;
  Thread &thread = *block.current;
  block.entry(block.params);
  exitThread(thread);
  leave(thread);
  __builtin_unreachable();
}

/// Performs the bulk copies that the scheduler asks for, on a stack that a
/// failure may abandon.
static void runService() {
  Block &block = *currentBlock;
  for (;;) {
    performBulkCopy(block);
    switchFiber(block.service, block.scheduler);
  }
}

static void startBlock(Block &block) {
  uint32_t numThreads = block.threads.size();
  block.live = numThreads;
  block.cluster->live += numThreads;
  block.lastWarp = 0;
  memset(block.visits, 0, sizeof(block.visits));
  block.current = nullptr;
  for (NamedBarrier &barrier : block.barriers)
    barrier = NamedBarrier();
  block.mbarriers.clear();
  block.races.reset(block.sharedBytes, block.options->races);
  for (uint32_t i = 0; i < block.warps.size(); ++i) {
    Warp &warp = block.warps[i];
    warp = Warp();
    warp.block = &block;
    warp.id = i;
    warp.agent = block.rank * block.warps.size() + i;
    warp.clock.time[warp.agent] = 1;
  }
  for (uint32_t i = 0; i < block.groups.size(); ++i) {
    block.groups[i].block = &block;
    block.groups[i].id = i;
    block.groups[i].arrived = 0;
  }
  for (uint32_t i = 0; i < numThreads; ++i) {
    Thread &thread = block.threads[i];
    thread.block = &block;
    thread.warp = &block.warps[i / 32];
    thread.id = i;
    thread.lane = i % 32;
    thread.position = {i % block.extent.x, i / block.extent.x % block.extent.y,
                       i / block.extent.x / block.extent.y};
    thread.op = nullptr;
    thread.copies.clear();
    thread.copyGroups.clear();
    thread.stores.clear();
    thread.storeGroups.clear();
    thread.accumulators.next = 0;
    thread.warp->live |= 1u << thread.lane;
    makeReady(thread);
    thread.fiber.start(block.stacks->get(block.firstStack + i), Stacks::kBytes,
                       runThread);
  }
  block.service.start(block.stacks->get(block.firstStack + numThreads),
                      Stacks::kBytes, runService);
  // A NaN in every floating-point type.
  memset(block.shared, 0xff, block.sharedBytes);
}

/// The next thread to run; null if none can.
static Thread *pickThread(Block &block) {
  bool random = block.options->seed != 0;
  uint32_t numWarps = block.warps.size();
  uint32_t start = random ? block.random() % numWarps : block.lastWarp;
  for (uint32_t i = 0; i < numWarps; ++i) {
    Warp &warp = block.warps[(start + i) % numWarps];
    if (!warp.ready)
      continue;
    block.lastWarp = warp.id;
    if (!random)
      return &warp.getThread(__builtin_ctz(warp.ready));
    uint32_t turn = block.random() & 31;
    uint32_t turned = warp.ready >> turn | warp.ready << ((32 - turn) & 31);
    return &warp.getThread((__builtin_ctz(turned) + turn) & 31);
  }
  return nullptr;
}

/// Lets the bulk-copy engine do one copy to the block.
static void serve(Block &block) {
  currentBlock = &block;
  block.current = nullptr;
  block.inService = true;
  switchFiber(block.scheduler, block.service);
  block.inService = false;
}

/// Nothing can run: lets time pass. False if that does not help.
static bool wakeUp(Cluster &cluster) {
  uint64_t before = cluster.progress;
  for (Block &block : cluster.blocks) {
    serve(block);
    if (block.failed)
      return true;
  }
  bool woken = cluster.progress != before;
  for (Block &block : cluster.blocks)
    for (Thread &thread : block.threads)
      if (thread.wait == Wait::Poll && thread.polledAt != cluster.progress) {
        makeReady(thread);
        woken = true;
      }
  return woken;
}

/// Lets one thread of the cluster run, of block `turn` if it can. False if none
/// can.
static bool runSome(Cluster &cluster, size_t &turn) {
  for (size_t i = 0; i < cluster.blocks.size(); ++i) {
    Block &block = cluster.blocks[turn];
    if (Thread *thread = pickThread(block)) {
      currentBlock = &block;
      block.current = thread;
      switchFiber(block.scheduler, thread->fiber);
      return true;
    }
    turn = (turn + 1) % cluster.blocks.size();
  }
  return false;
}

/// Runs the blocks of a cluster; returns an error text, empty on success.
static std::string runCluster(Cluster &cluster) {
  Block &first = cluster.blocks.front();
  bool isRandom = first.options->seed != 0;
  cluster.live = 0;
  cluster.progress = 0;
  cluster.arrived = 0;
  cluster.clock = Clock();
  cluster.point = 0;
  if (first.options->clocks)
    cluster.recording =
        std::make_unique<Recording>(cluster.blocks.size() * first.warps.size());
  for (Block &block : cluster.blocks)
    startBlock(block);
  size_t turn = 0;
  while (cluster.live) {
    if (isRandom && cluster.blocks.size() > 1)
      turn = first.random() % cluster.blocks.size();
    if (isRandom && first.random() % 64 == 0)
      // An asynchronous copy may end at any time.
      serve(cluster.blocks[turn]);
    else if (!runSome(cluster, turn) && !wakeUp(cluster))
      return describeDeadlock(cluster);
    if (currentBlock->failed)
      return currentBlock->error;
  }
  first.counters->blocks += cluster.blocks.size();
  first.counters->threads += cluster.blocks.size() * first.threads.size();
  return "";
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

namespace {

/// Shared memory of the blocks of a cluster. That of each begins at a multiple
/// of 256 KiB, so that the low 18 bits of an address are the offset in it, as
/// descriptors of wgmma and 32-bit addresses in inline assembly need.
class SharedMemory {
public:
  static constexpr size_t kAlignment = 256 << 10;

  SharedMemory(size_t bytes, size_t blocks)
      : reservedBytes((blocks + 1) * kAlignment) {
    void *mapped = mmap(nullptr, reservedBytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
      return;
    reserved = static_cast<char *>(mapped);
    auto address = reinterpret_cast<uintptr_t>(reserved);
    start = reserved + (kAlignment - address % kAlignment) % kAlignment;
    size_t usable = std::max<size_t>((bytes + 4095) / 4096 * 4096, 4096);
    for (size_t i = 0; i < blocks; ++i)
      mprotect(start + i * kAlignment, usable, PROT_READ | PROT_WRITE);
  }
  ~SharedMemory() {
    if (reserved)
      munmap(reserved, reservedBytes);
  }
  explicit operator bool() const { return reserved; }
  char *get(size_t block) const { return start + block * kAlignment; }

private:
  size_t reservedBytes;
  char *reserved = nullptr, *start = nullptr;
};

/// Leaves the block that this thread of the host runs as it was.
class Running {
public:
  Running() : previous(currentBlock) {}
  ~Running() { currentBlock = previous; }

private:
  Block *previous;
};

} // namespace

static std::string toText(Dim3 extents) {
  return std::to_string(extents.x) + " x " + std::to_string(extents.y) + " x " +
         std::to_string(extents.z);
}

static std::string checkLaunch(const LoadedKernel &kernel, Dim3 grid,
                               Dim3 block, size_t shared,
                               const Options &options) {
  auto error = [&](const std::string &text) {
    return "kernel '" + kernel.name + "': " + text;
  };
  uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64)
    return error("a block has 1 to 1024 threads, at most 64 along z, but got " +
                 toText(block));
  if (kernel.required.x &&
      (kernel.required.x != block.x || kernel.required.y != block.y ||
       kernel.required.z != block.z))
    return error("needs blocks of " + toText(kernel.required) +
                 " threads, but got " + toText(block));
  if (threads > kernel.maxThreads)
    return error("allows blocks of at most " +
                 std::to_string(kernel.maxThreads) + " threads, but got " +
                 std::to_string(threads));
  if (options.clocks && !kernel.hasWork)
    return error("has no clocks, for which its module must be translated");
  if (shared > options.sharedLimit)
    return error("a block has at most " + std::to_string(options.sharedLimit) +
                 " bytes of shared memory, but got " + std::to_string(shared));
  if (grid.y > 65535 || grid.z > 65535)
    return error("a grid has at most 65535 blocks along y and z, but got " +
                 std::to_string(grid.y) + " and " + std::to_string(grid.z));
  Dim3 cluster = kernel.cluster;
  uint64_t blocks = uint64_t(cluster.x) * cluster.y * cluster.z;
  if (grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
    return error("needs a grid of clusters of " + toText(cluster) +
                 " blocks, but got " + toText(grid));
  if (blocks > 1 && (blocks > kMaxClusterBlocks ||
                     blocks * ((threads + 31) / 32) > kCopyEngine))
    return error("clusters have at most " + std::to_string(kMaxClusterBlocks) +
                 " blocks and " + std::to_string(kCopyEngine) +
                 " warps here, but got " + toText(cluster) + " blocks of " +
                 toText(block) + " threads");
  return "";
}

/// The place of a number among `extent`, x first.
static Dim3 split(uint64_t number, Dim3 extent) {
  return {uint32_t(number % extent.x), uint32_t(number / extent.x % extent.y),
          uint32_t(number / extent.x / extent.y)};
}

std::string fovea::simt::runGrid(const LoadedKernel &kernel, Dim3 grid,
                                 Dim3 extent, size_t dynamicShared,
                                 void **params, const Options &options,
                                 Counters &counters,
                                 std::vector<uint64_t> &executions) {
  size_t shared = kernel.staticShared + dynamicShared;
  std::string error = checkLaunch(kernel, grid, extent, shared, options);
  if (!error.empty())
    return error;
  // Unused stacks of a thread are address space only.
  static thread_local Stacks stacks;
  uint32_t numThreads = extent.x * extent.y * extent.z;
  Dim3 clusterExtent = kernel.cluster;
  Cluster cluster(clusterExtent.x * clusterExtent.y * clusterExtent.z);
  cluster.extent = clusterExtent;
  size_t numBlocks = cluster.blocks.size(), numStacks = numThreads + 1;
  SharedMemory memory(shared, numBlocks);
  if (!memory || !stacks.reserve(numBlocks * numStacks + 1))
    return "kernel '" + kernel.name + "': no memory for the emulation";

  Running running;
  for (size_t rank = 0; rank < numBlocks; ++rank) {
    Block &block = cluster.blocks[rank];
    block.cluster = &cluster;
    block.rank = rank;
    block.place = split(rank, clusterExtent);
    block.grid = grid;
    block.extent = extent;
    block.options = &options;
    block.counters = &counters;
    block.executions = &executions;
    block.kernel = &kernel.name;
    block.entry = kernel.entry;
    block.params = params;
    block.stacks = &stacks;
    block.firstStack = rank * numStacks;
    block.dynamicShared = dynamicShared;
    block.random.seed(options.seed + rank);
    block.threads.resize(numThreads);
    block.warps.resize((numThreads + 31) / 32);
    block.groups.resize((numThreads + 127) / 128);
    block.shared = memory.get(rank);
    block.sharedBytes = shared;
  }
  counters.sharedBytes = shared;
  std::optional<Stopwatch> stopwatch;

  FaultHandler faults(stacks.get(numBlocks * numStacks), Stacks::kBytes);
  Dim3 clusters = {grid.x / clusterExtent.x, grid.y / clusterExtent.y,
                   grid.z / clusterExtent.z};
  uint64_t numClusters = uint64_t(clusters.x) * clusters.y * clusters.z;
  if (options.clocks)
    stopwatch.emplace(numClusters, numBlocks, numThreads, shared);
  // Any order is right: a random one visits every cluster once, in steps that
  // have no factor in common with their number.
  uint64_t step = 1, position = 0;
  std::mt19937 &random = cluster.blocks.front().random;
  if (options.seed && numClusters > 2) {
    do
      step = 1 + random() % (numClusters - 1);
    while (std::gcd(step, numClusters) != 1);
    position = random() % numClusters;
  }
  for (uint64_t i = 0; i < numClusters; ++i) {
    Dim3 at = split(position, clusters);
    for (Block &block : cluster.blocks)
      block.index = {at.x * clusterExtent.x + block.place.x,
                     at.y * clusterExtent.y + block.place.y,
                     at.z * clusterExtent.z + block.place.z};
    error = runCluster(cluster);
    if (!error.empty())
      return error;
    if (stopwatch && !stopwatch->add(position, *cluster.recording))
      return "kernel '" + kernel.name +
             "': clocks do not go on: threads of a warp wait for each other";
    position = (position + step) % numClusters;
  }
  if (stopwatch)
    counters.clocks = std::make_shared<LaunchClocks>(stopwatch->finish());
  error = checkDevice();
  return error.empty() ? "" : "kernel '" + kernel.name + "': " + error;
}

uint64_t Counters::count(const std::string &part) const {
  uint64_t total = 0;
  for (const auto &[name, executed] : operations)
    if (name.find(part) != std::string::npos)
      total += executed;
  return total;
}

//===----------------------------------------------------------------------===//
// What code calls
//===----------------------------------------------------------------------===//

void fovea_simt_execute(const Op *op, const uint64_t *in, uint64_t *out) {
  execute(*op, in, out);
}

void fovea_simt_trap(const Op *op) { fail(op, "the kernel trapped"); }

void fovea_simt_pause(const Op *op) {
  Block &block = *currentBlock;
  Thread &thread = *block.current;
  thread.op = op;
  thread.barrier = ~0u;
  thread.polledAt = block.cluster->progress;
  suspend(thread, Wait::Poll);
}
