//===- Scheduler.cpp - Runs the blocks of a launch ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Scheduler.h"
#include "Faults.h"
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
  block.progress += !op.polls;
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
  uint32_t bit = 1u << thread.lane;
  warp.live &= ~bit;
  --block.live;
  ++block.progress;
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
  block.progress = 0;
  block.current = nullptr;
  for (NamedBarrier &barrier : block.barriers)
    barrier = NamedBarrier();
  block.mbarriers.clear();
  block.clusterArrived = 0;
  block.clusterClock = Clock();
  block.races.reset(block.sharedBytes, block.options->races);
  for (uint32_t i = 0; i < block.warps.size(); ++i) {
    Warp &warp = block.warps[i];
    warp = Warp();
    warp.block = &block;
    warp.id = i;
    warp.clock.time[i] = 1;
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
    thread.fiber.start(block.stacks->get(i), Stacks::kBytes, runThread);
  }
  block.service.start(block.stacks->get(numThreads), Stacks::kBytes,
                      runService);
  // A NaN in every floating-point type.
  memset(block.shared, 0xff, block.sharedBytes);
}

/// The next thread to run; null if none can.
static Thread *pickThread(Block &block, uint32_t &warpIndex) {
  bool random = block.options->seed != 0;
  uint32_t numWarps = block.warps.size();
  uint32_t start = random ? block.random() % numWarps : warpIndex;
  for (uint32_t i = 0; i < numWarps; ++i) {
    Warp &warp = block.warps[(start + i) % numWarps];
    if (!warp.ready)
      continue;
    warpIndex = warp.id;
    if (!random)
      return &warp.getThread(__builtin_ctz(warp.ready));
    uint32_t turn = block.random() & 31;
    uint32_t turned = warp.ready >> turn | warp.ready << ((32 - turn) & 31);
    return &warp.getThread((__builtin_ctz(turned) + turn) & 31);
  }
  return nullptr;
}

/// Lets the bulk-copy engine do one copy.
static void serve(Block &block) {
  block.current = nullptr;
  block.inService = true;
  switchFiber(block.scheduler, block.service);
  block.inService = false;
}

/// Nothing can run: lets time pass. False if that does not help.
static bool wakeUp(Block &block) {
  uint64_t before = block.progress;
  serve(block);
  if (block.failed)
    return true;
  bool woken = block.progress != before;
  for (Thread &thread : block.threads)
    if (thread.wait == Wait::Poll && thread.polledAt != block.progress) {
      makeReady(thread);
      woken = true;
    }
  return woken;
}

static bool runBlock(Block &block) {
  startBlock(block);
  uint32_t warpIndex = 0;
  while (block.live) {
    if (block.options->seed && block.random() % 64 == 0) {
      // An asynchronous copy may end at any time.
      serve(block);
      if (block.failed)
        return false;
    }
    Thread *thread = pickThread(block, warpIndex);
    block.current = thread;
    if (thread) {
      switchFiber(block.scheduler, thread->fiber);
    } else if (!wakeUp(block)) {
      block.failed = true;
      block.error = describeDeadlock(block);
    }
    if (block.failed)
      return false;
  }
  ++block.counters->blocks;
  block.counters->threads += block.threads.size();
  return true;
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

namespace {

/// Shared memory of a block. It begins at a multiple of 256 KiB, so that the
/// low 18 bits of an address are the offset in it, as descriptors of wgmma and
/// 32-bit addresses in inline assembly need.
class SharedMemory {
public:
  static constexpr size_t kAlignment = 256 << 10;

  explicit SharedMemory(size_t bytes) {
    void *mapped = mmap(nullptr, 2 * kAlignment, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
      return;
    reserved = static_cast<char *>(mapped);
    auto address = reinterpret_cast<uintptr_t>(reserved);
    start = reserved + (kAlignment - address % kAlignment) % kAlignment;
    size_t usable = std::max<size_t>((bytes + 4095) / 4096 * 4096, 4096);
    mprotect(start, usable, PROT_READ | PROT_WRITE);
  }
  ~SharedMemory() {
    if (reserved)
      munmap(reserved, 2 * kAlignment);
  }
  char *get() const { return reserved ? start : nullptr; }

private:
  char *reserved = nullptr, *start = nullptr;
};

/// Makes `block` the one that this thread of the host runs.
class Running {
public:
  explicit Running(Block &block) : previous(currentBlock) {
    currentBlock = &block;
  }
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
  if (shared > options.sharedLimit)
    return error("a block has at most " + std::to_string(options.sharedLimit) +
                 " bytes of shared memory, but got " + std::to_string(shared));
  if (grid.y > 65535 || grid.z > 65535)
    return error("a grid has at most 65535 blocks along y and z, but got " +
                 std::to_string(grid.y) + " and " + std::to_string(grid.z));
  return "";
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
  SharedMemory memory(shared);
  if (!memory.get() || !stacks.reserve(numThreads + 2))
    return "kernel '" + kernel.name + "': no memory for the emulation";

  Block block;
  Running running(block);
  block.grid = grid;
  block.extent = extent;
  block.options = &options;
  block.counters = &counters;
  block.executions = &executions;
  block.kernel = &kernel.name;
  block.entry = kernel.entry;
  block.params = params;
  block.stacks = &stacks;
  block.dynamicShared = dynamicShared;
  block.random.seed(options.seed);
  block.threads.resize(numThreads);
  block.warps.resize((numThreads + 31) / 32);
  block.groups.resize((numThreads + 127) / 128);
  block.shared = memory.get();
  block.sharedBytes = shared;
  counters.sharedBytes = shared;

  FaultHandler faults(stacks.get(numThreads + 1), Stacks::kBytes);
  uint64_t numBlocks = uint64_t(grid.x) * grid.y * grid.z;
  // Any order is right: a random one visits every block once, in steps that
  // have no factor in common with their number.
  uint64_t step = 1, position = 0;
  if (options.seed && numBlocks > 2) {
    do
      step = 1 + block.random() % (numBlocks - 1);
    while (std::gcd(step, numBlocks) != 1);
    position = block.random() % numBlocks;
  }
  for (uint64_t i = 0; i < numBlocks; ++i) {
    block.index = {uint32_t(position % grid.x),
                   uint32_t(position / grid.x % grid.y),
                   uint32_t(position / grid.x / grid.y)};
    position = (position + step) % numBlocks;
    if (!runBlock(block))
      return block.error;
  }
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

char *fovea_simt_shared(void) { return currentBlock->shared; }

void fovea_simt_trap(const Op *op) { fail(op, "the kernel trapped"); }

void fovea_simt_pause(const Op *op) {
  Block &block = *currentBlock;
  Thread &thread = *block.current;
  thread.op = op;
  thread.barrier = ~0u;
  thread.polledAt = block.progress;
  suspend(thread, Wait::Poll);
}

uint32_t Block::getOffset(Slot address, uint32_t bytes, const Op &op) {
  uint32_t offset;
  if (address >> 32) {
    uint64_t distance = address - reinterpret_cast<uintptr_t>(shared);
    if (distance >= (256 << 10))
      fail(&op, "address 0x%llx is not in shared memory",
           static_cast<unsigned long long>(address));
    offset = distance;
  } else {
    offset = address & 0x3ffff;
  }
  if (offset + uint64_t(bytes) > sharedBytes)
    fail(&op,
         "%u bytes at shared +%u lie outside the block's %u bytes of shared "
         "memory",
         bytes, offset, sharedBytes);
  return offset;
}

bool Block::isShared(const void *address) const {
  auto *byte = static_cast<const char *>(address);
  return byte >= shared && byte < shared + (256 << 10);
}

void fovea_simt_access(const void *address, uint32_t bytes, uint32_t kind,
                       uint32_t alignment, const Op *op) {
  Block &block = *currentBlock;
  if (reinterpret_cast<uintptr_t>(address) & (alignment - 1))
    fail(op, "misaligned access: address %p is no multiple of %u", address,
         alignment);
  if (!block.isShared(address))
    return;
  uint32_t offset =
      block.getOffset(reinterpret_cast<uintptr_t>(address), bytes, *op);
  static constexpr Access kinds[] = {Access::Read, Access::Write,
                                     Access::Atomic};
  Warp &warp = *block.current->warp;
  block.races.access(warp, offset, bytes, kinds[kind], *op);
  if (block.options->bankConflicts)
    warp.banks.note(op, block.current->lane, offset, bytes);
}
