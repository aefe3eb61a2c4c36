//===- pages.cpp - Memory from the operating system -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "pages.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace fovea::rt;

static size_t roundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

static size_t pageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Mapping fovea::rt::mapPages(size_t bytes, size_t prefixBytes) {
  const size_t prefix = roundUp(prefixBytes, minAlignment);
  const size_t mapped = roundUp(prefix + bytes, pageBytes());
  void *region = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED)
    return {};
  return {region, mapped, static_cast<char *>(region) + prefix};
}

Mapping fovea::rt::mapHuge(size_t bytes, size_t prefixBytes) {
  const size_t prefix = roundUp(prefixBytes, pageBytes());
  const size_t body = roundUp(bytes, pageBytes());
  const size_t reserved = prefix + body + hugePageBytes;

  void *region = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED)
    return {};

  // Keep [data - prefix, data + body) and give the rest of the slack back.
  const uintptr_t first = reinterpret_cast<uintptr_t>(region);
  const uintptr_t data = roundUp(first + prefix, hugePageBytes);
  const uintptr_t kept = data - prefix;
  if (kept > first)
    munmap(region, kept - first);
  const uintptr_t end = data + body;
  if (first + reserved > end)
    munmap(reinterpret_cast<void *>(end), first + reserved - end);

#ifdef MADV_HUGEPAGE
  // Advice only: a kernel without huge pages serves the same memory slower.
  madvise(reinterpret_cast<void *>(data), body, MADV_HUGEPAGE);
#endif

  Mapping mapping;
  mapping.base = reinterpret_cast<void *>(kept);
  mapping.bytes = prefix + body;
  mapping.data = reinterpret_cast<void *>(data);
  return mapping;
}

void fovea::rt::unmap(const Mapping &mapping) {
  if (mapping.base)
    munmap(mapping.base, mapping.bytes);
}

void fovea::rt::poison(void *data, size_t bytes) {
  static const bool isAsked = [] {
    const char *text = getenv("FOVEA_POISON_MEMORY");
    return text && strcmp(text, "1") == 0;
  }();
  if (isAsked)
    memset(data, 0xff, bytes);
}
