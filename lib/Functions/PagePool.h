//===- PagePool.h - Pages that sequences share ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_PAGEPOOL_H
#define FOVEA_LIB_FUNCTIONS_PAGEPOOL_H

#include "NewTokens.h"
#include "RowRuns.h"
#include <memory>
#include <mutex>
#include <vector>

namespace fovea::functions {

/// Memory of keys [P,G,page,D] and values [P,G,page,E], and how many sequences
/// have each page. May be used by several threads at once: a page that has one
/// owner only is written by that one alone.
class PagePool {
public:
  /// Of all pages in `memory`, which are free.
  explicit PagePool(TokenMemory memory);

  const TokenMemory &getMemory() const { return memory; }
  int64_t getNumPages() const { return memory.keys.getShape()[0]; }

  int64_t getNumFree() const;
  bool isShared(int32_t page) const;
  /// As many free pages, or nothing if there are fewer.
  std::optional<std::vector<int32_t>> take(int64_t count);
  /// One more sequence has these pages, or one less.
  void share(llvm::ArrayRef<int32_t> pages);
  void release(llvm::ArrayRef<int32_t> pages);
  /// Takes pages that are free, or shares them.
  void claim(llvm::ArrayRef<int32_t> pages);

  /// Copies rows of tokens, or of other pages if there are none, to pages.
  llvm::Error copy(llvm::ArrayRef<StridedView> tokens,
                   llvm::ArrayRef<RowRun> runs);

private:
  TokenMemory memory;
  mutable std::mutex mutex;
  /// Emulated kernels write all of the memory.
  std::mutex emulated;
  /// Of each page.
  std::vector<int32_t> numOwners;
  /// The next to be taken is the last one.
  std::vector<int32_t> freePages;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_PAGEPOOL_H
