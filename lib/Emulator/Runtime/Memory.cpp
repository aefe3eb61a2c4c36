//===- Memory.cpp - Device memory of the emulator -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/Runtime/Memory.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sys/mman.h>

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 16;
/// What unused bytes around a block hold.
constexpr unsigned char kCanary = 0xa5;

struct DeviceBlock {
  char *mapped;
  size_t mappedBytes;
  char *start;
  size_t bytes;
};

struct Memory {
  std::mutex lock;
  /// By first mapped address.
  std::map<uintptr_t, DeviceBlock> blocks;
  /// Freed and inaccessible, oldest first.
  std::deque<DeviceBlock> freed;
  size_t freedBytes = 0;
};

} // namespace

/// Blocks may outlive every other object of the process.
static Memory &getMemory() {
  static auto *memory = new Memory;
  return *memory;
}

static const DeviceBlock *find(Memory &memory, const void *address) {
  auto it = memory.blocks.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (it == memory.blocks.begin())
    return nullptr;
  const DeviceBlock &block = std::prev(it)->second;
  return static_cast<const char *>(address) < block.mapped + block.mappedBytes
             ? &block
             : nullptr;
}

void *fovea::simt::allocateDevice(size_t bytes) {
  if (bytes > SIZE_MAX / 2)
    return nullptr;
  size_t used = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  size_t inner = (used + kPage - 1) / kPage * kPage;
  void *mapped = mmap(nullptr, inner + 2 * kPage, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return nullptr;
  auto *base = static_cast<char *>(mapped);
  if (inner && mprotect(base + kPage, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, inner + 2 * kPage);
    return nullptr;
  }
  DeviceBlock block{base, inner + 2 * kPage, base + kPage + inner - used,
                    bytes};
  memset(base + kPage, kCanary, inner);
  memset(block.start, 0xff, bytes);
  Memory &memory = getMemory();
  std::lock_guard<std::mutex> guard(memory.lock);
  memory.blocks[reinterpret_cast<uintptr_t>(base)] = block;
  return block.start;
}

bool fovea::simt::freeDevice(void *pointer) {
  Memory &memory = getMemory();
  std::lock_guard<std::mutex> guard(memory.lock);
  const DeviceBlock *found = find(memory, static_cast<char *>(pointer));
  if (!found || found->start != pointer)
    return false;
  DeviceBlock block = *found;
  memory.blocks.erase(reinterpret_cast<uintptr_t>(block.mapped));
  // Its pages go, its addresses stay out of use for a while.
  mmap(block.mapped, block.mappedBytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  memory.freed.push_back(block);
  memory.freedBytes += block.mappedBytes;
  while (memory.freed.size() > 1024 || memory.freedBytes > (size_t(1) << 36)) {
    memory.freedBytes -= memory.freed.front().mappedBytes;
    munmap(memory.freed.front().mapped, memory.freed.front().mappedBytes);
    memory.freed.pop_front();
  }
  return true;
}

bool fovea::simt::findDevice(const void *address, void **start, size_t *bytes) {
  Memory &memory = getMemory();
  std::lock_guard<std::mutex> guard(memory.lock);
  const DeviceBlock *block = find(memory, address);
  auto *byte = static_cast<const char *>(address);
  if (!block || byte < block->start ||
      // One past the end belongs to an empty block, too.
      byte > block->start + block->bytes)
    return false;
  *start = block->start;
  *bytes = block->bytes;
  return true;
}

std::string fovea::simt::describeDevice(const void *address) {
  Memory &memory = getMemory();
  std::lock_guard<std::mutex> guard(memory.lock);
  auto *byte = static_cast<const char *>(address);
  auto describe = [&](const DeviceBlock &block) {
    std::string text =
        "the block of " + std::to_string(block.bytes) + " bytes at 0x";
    char digits[20];
    snprintf(digits, sizeof(digits), "%zx",
             reinterpret_cast<size_t>(block.start));
    return text + digits;
  };
  if (const DeviceBlock *block = find(memory, address)) {
    if (byte < block->start)
      return std::to_string(block->start - byte) + " bytes before " +
             describe(*block);
    return std::to_string(byte - block->start) + " bytes into " +
           describe(*block);
  }
  for (const DeviceBlock &block : memory.freed)
    if (byte >= block.mapped && byte < block.mapped + block.mappedBytes)
      return "in freed memory, " + describe(block);
  return "";
}

std::string fovea::simt::checkDevice() {
  Memory &memory = getMemory();
  std::lock_guard<std::mutex> guard(memory.lock);
  for (const auto &[address, block] : memory.blocks) {
    char *first = block.mapped + kPage;
    char *last = block.mapped + block.mappedBytes - kPage;
    auto isWritten = [](char byte) {
      return static_cast<unsigned char>(byte) != kCanary;
    };
    // Alignment leaves less than a page before the block.
    for (char *byte = first; byte < block.start; ++byte)
      if (isWritten(*byte)) {
        *byte = char(kCanary);
        return "wrote " + std::to_string(block.start - byte) +
               " bytes before a block of " + std::to_string(block.bytes) +
               " bytes";
      }
    for (char *byte = block.start + block.bytes; byte < last; ++byte)
      if (isWritten(*byte)) {
        *byte = char(kCanary);
        return "wrote " + std::to_string(byte - block.start) +
               " bytes after the start of a block of " +
               std::to_string(block.bytes) + " bytes";
      }
  }
  return "";
}

size_t fovea::simt::countDevice() {
  Memory &memory = getMemory();
  std::lock_guard<std::mutex> guard(memory.lock);
  return memory.blocks.size();
}
