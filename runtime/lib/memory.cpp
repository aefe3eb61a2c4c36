//===- memory.cpp - Blocks of running kernels -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// Every block is preceded by a 64-byte header, which makes freeing and tracking
// constant-time without a table. Blocks below `mappedBlockBytes` come from the
// C library. Larger ones are mapped, and some of them are kept after they are
// freed: a fresh mapping costs a page fault and the zeroing of every page,
// which for a kernel that only streams through its output is a good part of its
// time. The C library gives blocks of this size back just as well.
//
//===----------------------------------------------------------------------===//

#include "memory.h"

#include "fovea_rt/fovea_rt.h"
#include "gpu/queue.h"
#include "pages.h"
#include "statistics.h"
#include "status.h"

#include <cinttypes>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FOVEA_RT_SANITIZED 1
#endif
#endif

using namespace fovea::rt;

/// From this size on a block is mapped, and from that on with huge pages.
static constexpr int64_t mappedBlockBytes = int64_t(64) << 10;
static constexpr int64_t hugeBlockBytes = int64_t(4) << 20;
static constexpr int maxCachedBlocks = 64;
static constexpr size_t maxCachedBytes = size_t(512) << 20;

static constexpr uint64_t liveMark = 0x666f7665612d6c76;
static constexpr uint64_t freedMark = 0x666f7665612d6672;

struct alignas(64) fovea::rt::Block {
  uint64_t mark;
  /// Start of the C library's allocation or of the mapping.
  void *base;
  /// Length of the mapping, zero for memory of the C library.
  size_t mappedBytes;
  /// The size asked for.
  int64_t bytes;
  /// Null once the invocation is over, and for blocks of the host.
  Invocation *owner;
  Block *previous;
  Block *next;

  void *data() { return this + 1; }
  Mapping mapping() { return {base, mappedBytes, data()}; }
};
static_assert(sizeof(Block) == minAlignment, "data would not be aligned");

//===----------------------------------------------------------------------===//
// Cache of freed mappings
//===----------------------------------------------------------------------===//

namespace {

class BlockCache {
public:
  /// Takes the smallest mapping that holds `bytes` without wasting more than a
  /// quarter of itself; its `data` is null if there is none.
  Mapping take(size_t bytes, size_t alignment) {
    std::lock_guard<std::mutex> guard(lock);
    int best = -1;
    for (int i = 0; i < count; ++i) {
      size_t capacity = entries[i].capacity();
      if (reinterpret_cast<uintptr_t>(entries[i].data) % alignment == 0 &&
          capacity >= bytes && capacity - bytes <= capacity / 4 &&
          (best < 0 || capacity < entries[best].capacity()))
        best = i;
    }
    return best < 0 ? Mapping() : remove(best);
  }

  /// Keeps `mapping`, letting go of the ones that were freed first.
  void put(const Mapping &mapping) {
    if (mapping.bytes > maxCachedBytes) {
      unmap(mapping);
      return;
    }
    std::lock_guard<std::mutex> guard(lock);
    while (count == maxCachedBlocks || total + mapping.bytes > maxCachedBytes)
      unmap(remove(0));
    entries[count++] = mapping;
    total += mapping.bytes;
    cacheGauge.add(static_cast<int64_t>(mapping.bytes));
  }

  void clear() {
    std::lock_guard<std::mutex> guard(lock);
    while (count > 0)
      unmap(remove(count - 1));
  }

private:
  Mapping remove(int index) {
    Mapping mapping = entries[index];
    for (int i = index + 1; i < count; ++i)
      entries[i - 1] = entries[i];
    --count;
    total -= mapping.bytes;
    cacheGauge.subtract(static_cast<int64_t>(mapping.bytes));
    return mapping;
  }

  std::mutex lock;
  /// Oldest first.
  Mapping entries[maxCachedBlocks];
  int count = 0;
  size_t total = 0;
};

} // namespace

/// Never destroyed: hosts may free blocks from their own static destructors.
static BlockCache &cache() {
  static BlockCache *instance = new BlockCache;
  return *instance;
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

static Block *allocateMapped(size_t bytes, size_t alignment) {
  auto map = alignment == hugePageBytes ? mapHuge : mapPages;
  Mapping mapping = cache().take(bytes, alignment);
  if (!mapping.data)
    mapping = map(bytes, sizeof(Block));
  if (!mapping.data) {
    cache().clear();
    mapping = map(bytes, sizeof(Block));
  }
  if (!mapping.data)
    return nullptr;
  Block *block = new (static_cast<char *>(mapping.data) - sizeof(Block)) Block;
  block->base = mapping.base;
  block->mappedBytes = mapping.bytes;
  return block;
}

static Block *allocateSmall(size_t bytes, size_t alignment) {
  // The header sits in the last 64 bytes before the first aligned address.
#ifdef FOVEA_RT_SANITIZED
  // Nothing behind the last byte, so that a sanitizer sees who goes there.
  void *base = nullptr;
  if (posix_memalign(&base, alignment, alignment + bytes) != 0)
    return nullptr;
  char *data = static_cast<char *>(base) + alignment;
#else
  // The C library is much slower in aligning what it gives.
  void *base = malloc(alignment + bytes + sizeof(Block));
  if (!base)
    return nullptr;
  const uintptr_t first = reinterpret_cast<uintptr_t>(base) + sizeof(Block);
  char *data = static_cast<char *>(base) + sizeof(Block) +
               (alignment - first % alignment) % alignment;
#endif
  Block *block = new (data - sizeof(Block)) Block;
  block->base = base;
  block->mappedBytes = 0;
  return block;
}

/// Null if there is no memory.
static Block *allocate(int64_t bytes, size_t alignment) {
  if (bytes > maxBufferBytes || alignment > static_cast<size_t>(maxBufferBytes))
    return nullptr;
  const size_t size = static_cast<size_t>(bytes);
  const size_t mappedAlignment =
      bytes >= hugeBlockBytes ? hugePageBytes : minAlignment;
  Block *block = bytes >= mappedBlockBytes && alignment <= mappedAlignment
                     ? allocateMapped(size, mappedAlignment)
                     : allocateSmall(size, alignment);
  if (!block)
    return nullptr;
  block->mark = liveMark;
  block->bytes = bytes;
  block->owner = nullptr;
  block->previous = block->next = nullptr;
  allocationGauge.add(bytes);
  poison(block->data(), size);
  return block;
}

static void release(Block *block) {
  allocationGauge.subtract(block->bytes);
  block->mark = freedMark;
  if (block->mappedBytes)
    cache().put(block->mapping());
  else
    free(block->base);
}

static void track(Invocation &owner, Block *block) {
  std::lock_guard<std::mutex> guard(owner.lock);
  block->owner = &owner;
  block->next = owner.blocks;
  if (owner.blocks)
    owner.blocks->previous = block;
  owner.blocks = block;
  owner.bytes += block->bytes;
}

static void untrack(Block *block) {
  Invocation &owner = *block->owner;
  std::lock_guard<std::mutex> guard(owner.lock);
  if (block->previous)
    block->previous->next = block->next;
  else
    owner.blocks = block->next;
  if (block->next)
    block->next->previous = block->previous;
  owner.bytes -= block->bytes;
}

static int64_t heldBytes(Invocation *invocation) {
  if (!invocation)
    return 0;
  std::lock_guard<std::mutex> guard(invocation->lock);
  return invocation->bytes;
}

void Invocation::disown() {
  for (Block *block = blocks; block;) {
    Block *next = block->next;
    block->owner = nullptr;
    block->previous = block->next = nullptr;
    block = next;
  }
  blocks = nullptr;
  bytes = 0;
}

void Invocation::freeAll() {
  for (Block *block = blocks; block;) {
    Block *next = block->next;
    release(block);
    block = next;
  }
  blocks = nullptr;
  bytes = 0;
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

void *fovea_rt_alloc(int64_t bytes, int64_t alignment) {
  if (bytes < 0)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "invalid allocation: kernel asked for %" PRId64
         " bytes, expected zero or more; an extent may have overflowed",
         bytes);
  if (alignment < 0 || (alignment & (alignment - 1)) != 0)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "invalid allocation: alignment is %" PRId64
         ", expected a power of two",
         alignment);

  size_t effective = static_cast<size_t>(alignment);
  if (effective < minAlignment)
    effective = minAlignment;
  Invocation *invocation = currentInvocation();
  Block *block = allocate(bytes, effective);
  if (!block)
    fail(FOVEA_RT_OUT_OF_MEMORY,
         "out of memory: kernel asked for %" PRId64 " bytes (%" PRId64
         " bytes already held by this invocation)",
         bytes, heldBytes(invocation));
  if (invocation)
    track(*invocation, block);
  return block->data();
}

void fovea_rt_free(void *pointer) {
  if (!pointer || releaseResult(pointer))
    return;
  if (reinterpret_cast<uintptr_t>(pointer) % minAlignment != 0)
    fatal("fovea_rt_free of a pointer that fovea_rt_alloc did not return");
  Block *block = static_cast<Block *>(pointer) - 1;
  if (block->mark != liveMark)
    fatal(
        block->mark == freedMark
            ? "fovea_rt_free of a block that was freed before"
            : "fovea_rt_free of a pointer that fovea_rt_alloc did not return");
  if (block->owner)
    untrack(block);
  release(block);
}

void *_mlir_memref_to_llvm_alloc(int64_t bytes) {
  return fovea_rt_alloc(bytes, 0);
}

void *_mlir_memref_to_llvm_aligned_alloc(int64_t alignment, int64_t bytes) {
  return fovea_rt_alloc(bytes, alignment);
}

void _mlir_memref_to_llvm_free(void *pointer) { fovea_rt_free(pointer); }

void fovea_rt_release_cache(void) { cache().clear(); }
