//===- pages.h - Memory from the operating system ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_PAGES_H
#define FOVEA_RT_LIB_PAGES_H

#include <cstddef>
#include <cstdint>

namespace fovea::rt {

/// Alignment that lets one x86-64 or (4 KiB granule) AArch64 page table entry
/// cover the start of a buffer.
constexpr size_t hugePageBytes = size_t(2) << 20;

/// Alignment of every block.
constexpr size_t minAlignment = 64;

/// No buffer is larger, so that sums of a few sizes cannot overflow.
constexpr int64_t maxBufferBytes = INT64_MAX / 4;

/// A mapping of whole pages.
struct Mapping {
  void *base = nullptr;
  size_t bytes = 0;
  /// First usable byte after the prefix; null if the mapping failed.
  void *data = nullptr;

  /// Bytes from `data` to the end of the mapping.
  size_t capacity() const {
    return bytes - static_cast<size_t>(static_cast<char *>(data) -
                                       static_cast<char *>(base));
  }
};

/// Maps `bytes` > 0 bytes at a multiple of `minAlignment`; `prefixBytes` more
/// bytes are usable directly before them.
Mapping mapPages(size_t bytes, size_t prefixBytes);

/// Maps `bytes` > 0 bytes at a multiple of `hugePageBytes` and asks for huge
/// pages; `prefixBytes` more bytes are usable directly before them.
Mapping mapHuge(size_t bytes, size_t prefixBytes);

/// Undoes either; nothing to do for a failed mapping.
void unmap(const Mapping &mapping);

/// With FOVEA_POISON_MEMORY=1, read once, fills memory with NaNs (-1 as
/// integers), so that a kernel that reads what nobody wrote is seen.
void poison(void *data, size_t bytes);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_PAGES_H
