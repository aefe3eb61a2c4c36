//===- BulkCopies.cpp - TMA and bulk copies -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"

#include <algorithm>
#include <cstring>

using namespace fovea::simt;

//===----------------------------------------------------------------------===//
// Boxes
//===----------------------------------------------------------------------===//

const char *fovea::simt::checkTensorMap(const TensorMap &map) {
  if (map.rank < 1 || map.rank > 5)
    return "the rank must be 1 to 5";
  if (map.base % 16 != 0)
    return "the address must be a multiple of 16";
  for (unsigned axis = 0; axis < map.rank; ++axis) {
    if (map.extent[axis] == 0)
      return "every extent must be at least 1";
    if (map.box[axis] == 0 || map.box[axis] > 256)
      return "every extent of the box must be 1 to 256";
    if (axis && (map.stride[axis - 1] % 16 != 0 || map.stride[axis - 1] == 0 ||
                 map.stride[axis - 1] >= (1ull << 40)))
      return "every stride must be a multiple of 16, from 16 on and below 2^40";
  }
  unsigned inner = map.box[0] * map.elementBytes;
  if (inner % 16 != 0)
    return "the inner extent of the box must be a multiple of 16 bytes";
  if (map.swizzle != Swizzle::None && inner > 16u << unsigned(map.swizzle))
    return "the inner extent of the box must not exceed the swizzle";
  return nullptr;
}

/// Where the byte at `offset` of shared memory lies under a swizzle.
static uint32_t swizzle(uint32_t offset, Swizzle mode) {
  uint32_t mask = (1u << unsigned(mode)) - 1;
  return offset ^ ((offset >> 7 & mask) << 4);
}

/// Calls move(address, offset, bytes) for every 16 bytes or element of the box
/// in global and in shared memory; `address` is null outside the tensor.
template <typename Move> static void visitBox(const BulkCopy &copy, Move move) {
  const TensorMap &map = copy.map;
  uint32_t rows = map.getBoxBytes() / (map.box[0] * map.elementBytes);
  uint32_t offset = copy.offset;
  for (uint32_t row = 0; row < rows; ++row) {
    int64_t address = map.base;
    bool inside = true;
    for (uint32_t axis = 1, rest = row; axis < map.rank; ++axis) {
      int64_t position = copy.coordinates[axis] + int64_t(rest % map.box[axis]);
      rest /= map.box[axis];
      inside &= position >= 0 && position < int64_t(map.extent[axis]);
      address += position * int64_t(map.stride[axis - 1]);
    }
    for (uint32_t i = 0; i < map.box[0]; ++i) {
      int64_t position = copy.coordinates[0] + int64_t(i);
      bool here = inside && position >= 0 && position < int64_t(map.extent[0]);
      char *element =
          here ? reinterpret_cast<char *>(address + position * map.elementBytes)
               : nullptr;
      move(element, swizzle(offset, map.swizzle), map.elementBytes);
      offset += map.elementBytes;
    }
  }
}

/// Byte by byte and volatile, so that a bad address shows here.
static void moveBytes(char *to, const char *from, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; ++i)
    to[i] = static_cast<const volatile char *>(from)[i];
}

static void readTensorMap(Thread &thread, const Op &op, Slot address,
                          BulkCopy &copy) {
  auto *map = reinterpret_cast<const TensorMap *>(address);
  if (address % 64 != 0 || map->magic != TensorMap::kMagic)
    fail(&op, "there is no tensor map at address 0x%llx",
         static_cast<unsigned long long>(address));
  copy.map = *map;
  copy.isTensor = true;
  copy.bytes = map->getBoxBytes();
  if (map->rank != unsigned(op.param[0]))
    fail(&op, "the tensor map has %u axes", map->rank);
}

static BulkCopy makeCopy(Thread &thread, const Op &op) {
  BulkCopy copy;
  copy.op = &op;
  copy.issuer = thread.warp;
  copy.clock = thread.warp->clock;
  return copy;
}

static void checkBox(Thread &thread, const Op &op, Slot address,
                     BulkCopy &copy) {
  copy.offset = thread.block->getOffset(address, copy.bytes, op);
  uint32_t alignment = !copy.isTensor ? 16
                       : copy.map.swizzle == Swizzle::None
                           ? 128
                           : 128u << unsigned(copy.map.swizzle);
  if (copy.offset % alignment != 0)
    fail(&op, "the box at shared +%u is not aligned to %u bytes", copy.offset,
         alignment);
  if (!copy.isTensor && (copy.bytes % 16 != 0 ||
                         reinterpret_cast<uintptr_t>(copy.address) % 16 != 0))
    fail(&op, "a copy of %u bytes at address %p: both must be multiples of 16",
         copy.bytes, static_cast<void *>(copy.address));
}

//===----------------------------------------------------------------------===//
// Global to shared memory
//===----------------------------------------------------------------------===//

static void performLoad(Block &block, BulkCopy &copy) {
  block.races.copyWrites(block, *copy.issuer, copy.clock, copy.offset,
                         copy.bytes, *copy.op, /*done=*/true);
  if (copy.isTensor)
    visitBox(copy, [&](char *from, uint32_t offset, uint32_t bytes) {
      if (from)
        moveBytes(block.shared + offset, from, bytes);
      else
        memset(block.shared + offset, 0, bytes);
    });
  else
    moveBytes(block.shared + copy.offset, copy.address, copy.bytes);
  block.counters->copiedBytes += copy.bytes;
}

/// The front copy of `barrier` has ended.
static void finishCopy(Block &block, MBarrier &barrier, const BulkCopy &copy) {
  barrier.clock.join(copy.clock);
  if (copy.arrives) {
    --barrier.pending;
  } else {
    barrier.clock.time[kCopyEngine + block.rank] = block.races.engineTime++;
    barrier.transactions -= copy.bytes;
  }
  ++block.cluster->progress;
  updateMBarrier(block, barrier);
}

static void performOne(Block &block, MBarrier &barrier, size_t which) {
  BulkCopy &copy = barrier.copies[which];
  if (copy.arrives) {
    if (!block.options->eager)
      for (const AsyncCopy &part : copy.threadCopies)
        performCopy(*copy.issuer, copy.clock, part);
  } else {
    performLoad(block, copy);
  }
  finishCopy(block, barrier, copy);
  barrier.copies.erase(barrier.copies.begin() + which);
}

void fovea::simt::performBulkCopy(Block &block) {
  bool someoneRuns = false;
  for (const Warp &warp : block.warps)
    someoneRuns |= warp.ready != 0;
  uint32_t turn = block.options->seed ? block.random() : 0;
  size_t count = block.mbarriers.size();
  auto it = block.mbarriers.begin();
  if (count)
    std::advance(it, turn % count);
  for (size_t i = 0; i < count; ++i, ++it) {
    if (it == block.mbarriers.end())
      it = block.mbarriers.begin();
    if (it->second.copies.empty())
      continue;
    // When nothing runs, only a copy that is waited for helps.
    bool wanted = someoneRuns;
    for (const Thread &thread : block.threads)
      wanted |= thread.wait == Wait::Poll && thread.barrier == it->first;
    if (!wanted)
      continue;
    return performOne(block, it->second, turn / 64 % it->second.copies.size());
  }
}

/// Starts the part of a copy that block `target` of the cluster gets.
static void startLoad(Thread &thread, const Op &op, Block &target,
                      uint32_t barrierOffset, const BulkCopy &copy,
                      bool isFirst) {
  MBarrier &barrier = findMBarrier(thread, op, target, barrierOffset);
  noteArrival(thread, op, EventKind::Load, barrier.point, target, copy.bytes,
              /*flag=*/!isFirst);
  target.races.copyWrites(target, *thread.warp, copy.clock, copy.offset,
                          copy.bytes, op, /*done=*/false);
  barrier.copies.push_back(copy);
  if (target.options->eager)
    performOne(target, barrier, barrier.copies.size() - 1);
}

FOVEA_SIMT_LANE(fovea::simt::bulkLoad) {
  Block &block = *thread.block;
  unsigned rank = op.param[0];
  BulkCopy copy = makeCopy(thread, op);
  unsigned barrierAt, sourceAt;
  if (rank) {
    barrierAt = op.param[1] >= 0 ? op.param[1] : 2 + rank;
    sourceAt = barrierAt == 1 ? 2 : 1;
    readTensorMap(thread, op, in[sourceAt], copy);
    for (unsigned axis = 0; axis < rank; ++axis)
      copy.coordinates[axis] = int32_t(in[sourceAt + 1 + axis]);
  } else {
    barrierAt = op.param[1] >= 0 ? op.param[1] : 3;
    sourceAt = barrierAt == 1 ? 2 : 1;
    copy.address = reinterpret_cast<char *>(in[sourceAt]);
    copy.bytes = in[sourceAt + 1];
  }
  checkBox(thread, op, in[0], copy);
  uint32_t barrierOffset = block.getOffset(in[barrierAt], 8, op);
  std::vector<Block> &blocks = block.cluster->blocks;
  uint32_t mask = op.param[2] ? uint16_t(in[op.param[2]]) : 1u << block.rank;
  if (mask == 0 || mask >> blocks.size())
    fail(&op, "a copy to the blocks of mask 0x%x of a cluster of %zu", mask,
         blocks.size());
  // Each block gets the copy, and its barrier the bytes, in the same place.
  for (uint32_t rank = 0; rank < blocks.size(); ++rank)
    if (mask >> rank & 1)
      startLoad(thread, op, blocks[rank], barrierOffset, copy,
                /*isFirst=*/!(mask & ((1u << rank) - 1)));
  ++thread.warp->clock.time[thread.warp->agent];
}

//===----------------------------------------------------------------------===//
// Shared to global memory
//===----------------------------------------------------------------------===//

FOVEA_SIMT_LANE(fovea::simt::bulkStore) {
  unsigned rank = op.param[0];
  BulkCopy copy = makeCopy(thread, op);
  if (rank) {
    unsigned mapAt = op.param[1] ? 0 : 1, fromAt = op.param[1] ? 1 + rank : 0;
    readTensorMap(thread, op, in[mapAt], copy);
    for (unsigned axis = 0; axis < rank; ++axis)
      copy.coordinates[axis] = int32_t(in[mapAt + 1 + axis]);
    checkBox(thread, op, in[fromAt], copy);
  } else {
    copy.address = reinterpret_cast<char *>(in[0]);
    copy.bytes = in[2];
    checkBox(thread, op, in[1], copy);
  }
  thread.block->races.access(*thread.warp, copy.offset, copy.bytes,
                             Access::AsyncRead, op);
  note(thread, &op, EventKind::Store, copy.bytes);
  thread.stores.push_back(std::move(copy));
  if (thread.block->options->eager)
    performStore(thread, thread.stores.back());
}

void fovea::simt::performStore(Thread &thread, const BulkCopy &copy) {
  Block &block = *thread.block;
  block.races.access(*thread.warp, copy.offset, copy.bytes, Access::AsyncRead,
                     *copy.op);
  if (copy.isTensor)
    visitBox(copy, [&](char *to, uint32_t offset, uint32_t bytes) {
      if (to)
        moveBytes(to, block.shared + offset, bytes);
    });
  else
    moveBytes(copy.address, block.shared + copy.offset, copy.bytes);
  block.counters->copiedBytes += copy.bytes;
}

FOVEA_SIMT_LANE(fovea::simt::bulkCommit) {
  note(thread, &op, EventKind::CommitStores);
  thread.storeGroups.push_back(std::move(thread.stores));
  thread.stores.clear();
}

FOVEA_SIMT_LANE(fovea::simt::bulkWait) {
  note(thread, &op, EventKind::WaitForStores, in[0], op.param[0]);
  // Global memory is not emulated in such detail that a wait for the reading
  // alone would differ.
  while (thread.storeGroups.size() > in[0]) {
    if (!thread.block->options->eager)
      for (const BulkCopy &copy : thread.storeGroups.front())
        performStore(thread, copy);
    thread.storeGroups.pop_front();
  }
}

/// The last thread of a block takes its shared memory with it.
static void checkVisits(Block &block) {
  for (const auto &[offset, barrier] : block.mbarriers)
    for (const BulkCopy &copy : barrier.copies)
      if (copy.issuer->block != &block)
        fail(copy.op,
             "the block leaves the kernel while block %u of the cluster "
             "copies to it",
             copy.issuer->block->rank);
  uint32_t known[kCopyEngine] = {};
  for (const Warp &warp : block.warps)
    for (unsigned agent = 0; agent < kCopyEngine; ++agent)
      known[agent] = std::max(known[agent], warp.clock.time[agent]);
  for (unsigned agent = 0; agent < kCopyEngine; ++agent)
    if (block.visits[agent] > known[agent])
      fail(block.lastVisit,
           "the block leaves the kernel without a barrier after what warp %u "
           "of block %u of the cluster did in its shared memory",
           block.cluster->getWarp(agent).id,
           block.cluster->getWarp(agent).block->rank);
}

void fovea::simt::copiesAtExit(Thread &thread) {
  if (thread.block->live == 1)
    checkVisits(*thread.block);
  if (thread.block->options->eager)
    return;
  const Op *op = nullptr;
  for (const auto &group : thread.storeGroups)
    for (const BulkCopy &copy : group)
      op = copy.op;
  for (const BulkCopy &copy : thread.stores)
    op = copy.op;
  if (op)
    fail(op, "the thread leaves the kernel without waiting for its store, "
             "which may read shared memory that is gone");
}
