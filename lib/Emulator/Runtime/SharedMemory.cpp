//===- SharedMemory.cpp - Addresses of shared memory ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

using namespace fovea::simt;

uint32_t Block::getOffset(Slot address, uint32_t bytes, const Op &op) {
  uint32_t offset;
  if (address >> 32) {
    uint64_t distance = address - reinterpret_cast<uintptr_t>(shared);
    if (distance >= (256 << 10))
      fail(&op, "address 0x%llx is not in the shared memory of the block",
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

Block *Cluster::findShared(const void *address) {
  auto *byte = static_cast<const char *>(address);
  for (Block &block : blocks)
    if (byte >= block.shared && byte < block.shared + (256 << 10))
      return &block;
  return nullptr;
}

Block &Block::findOwner(Slot address) {
  Block *owner = cluster->findShared(reinterpret_cast<void *>(address));
  return owner ? *owner : *this;
}

void Block::visit(Warp &warp, const Op &op) {
  if (!live)
    fail(&op, "block %u of the cluster has left the kernel", rank);
  visits[warp.agent] = warp.clock.time[warp.agent];
  lastVisit = &op;
}

char *fovea_simt_shared(void) { return currentBlock->shared; }

void fovea_simt_access(const void *address, uint32_t bytes, uint32_t kind,
                       uint32_t alignment, const Op *op) {
  Block &block = *currentBlock;
  if (reinterpret_cast<uintptr_t>(address) & (alignment - 1))
    fail(op, "misaligned access: address %p is no multiple of %u", address,
         alignment);
  Block *owner = block.cluster->findShared(address);
  if (!owner)
    return;
  uint32_t offset =
      owner->getOffset(reinterpret_cast<uintptr_t>(address), bytes, *op);
  static constexpr Access kinds[] = {Access::Read, Access::Write,
                                     Access::Atomic};
  Warp &warp = *block.current->warp;
  if (owner != &block)
    owner->visit(warp, *op);
  owner->races.access(warp, offset, bytes, kinds[kind], *op);
  if (block.options->bankConflicts && owner == &block)
    warp.banks.note(op, block.current->lane, offset, bytes);
}
