//===- Accumulators.h - Results of warpgroup products -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// wgmma writes registers some time between its issue and the wait for it. In
// the IR its results are ordinary values, which are there at once. So a result
// is a tag, a signalling NaN that no arithmetic makes, and every use of a value
// that may be a tag asks for its meaning: that is an error before the wait.
//
// Registers that a product takes may be touched by other instructions only
// before the last wgmma.fence: values that become its operands are stamped with
// the number of fences when they are written, tags when they are read.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_ACCUMULATORS_H
#define FOVEA_LIB_EMULATOR_RUNTIME_ACCUMULATORS_H

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace fovea::simt {

struct Op;
struct Warpgroup;

/// Registers of one thread that warpgroup products write.
struct Accumulators {
  static constexpr uint32_t kTag = 0x7fa00000, kTagMask = 0xffe00000;
  static constexpr uint32_t kIndexBits = 12;
  static constexpr uint32_t kEntries = 1 << kIndexBits;

  struct Entry {
    uint32_t tag = 0;
    uint32_t value = 0;
    /// Number of the product among those of the warp.
    uint32_t product = 0;
    /// WarpProducts::fences, plus one, when it was last read.
    uint32_t read = 0;
  };
  std::vector<Entry> entries;
  uint32_t next = 0;

  static bool isTag(uint32_t bits) { return (bits & kTagMask) == kTag; }

  /// A register for a result of `product`.
  uint32_t add(uint32_t product) {
    if (entries.empty())
      entries.resize(kEntries);
    uint32_t tag = kTag | (next++ & ~kTagMask);
    Entry &entry = entries[tag & (kEntries - 1)];
    entry = {tag, 0, product, 0};
    return tag;
  }

  /// Null if the register has been given to a later product.
  Entry *find(uint32_t tag) {
    if (entries.empty())
      return nullptr;
    Entry &entry = entries[tag & (kEntries - 1)];
    return entry.tag == tag ? &entry : nullptr;
  }
};

/// A warpgroup product that has been issued.
struct Product {
  const Op *op = nullptr;
  Warpgroup *group = nullptr;
  bool done = false;
  uint64_t descriptorA = 0, descriptorB = 0;
  bool accumulate = false;
  int scaleA = 1, scaleB = 1;
  bool transposeA = false, transposeB = false;
  /// Of the 128 threads, one after another: accumulators as given, values or
  /// tags; tags of the results; registers with the left factor.
  std::vector<uint32_t> accumulators, results, left;
};

/// Products of one warp, oldest first. Those of its three fellows hold the
/// same objects.
struct WarpProducts {
  uint32_t issued = 0;
  /// Products up to this number may be read.
  uint32_t waitedFor = 0;
  /// An ordinary use of registers since the last fence must be followed by one.
  bool fenced = false;
  /// Fences so far.
  uint32_t fences = 0;
  std::vector<std::shared_ptr<Product>> open;
  std::deque<std::vector<std::shared_ptr<Product>>> groups;
};

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_ACCUMULATORS_H
