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
#include <memory>
#include <mutex>
#include <vector>

namespace fovea::functions {

/// Memory of keys [P,G,page,D] and values [P,G,page,E], and how many sequences
/// have each page. May be used by several threads at once: a page that has one
/// owner only is written by that one alone.
class PagePool {
public:
  /// With sizes that are checked, all pages free.
  static llvm::Expected<std::shared_ptr<PagePool>>
  create(int64_t pages, int64_t page, int64_t heads, int64_t width,
         int64_t valueWidth, ElementType type, bool tokensFirst);

  bool isTokensFirst() const { return tokensFirst; }
  int64_t getNumPages() const { return keys.getShape()[0]; }
  int64_t getPage() const { return keys.getShape()[tokensFirst ? 1 : 2]; }
  int64_t getNumHeads() const { return keys.getShape()[tokensFirst ? 2 : 1]; }
  /// Keys, side 0, or values, in the order of their memory, and with heads
  /// first.
  const OwnedTensor &getMemory(size_t side) const {
    return side == 0 ? keys : values;
  }
  StridedView getPages(size_t side) const {
    return toHeadsFirst(getMemory(side), tokensFirst);
  }
  /// Copies the first `rows` of a page.
  void copyPage(int32_t from, int32_t to, int64_t rows) const;

  int64_t getNumFree() const;
  bool isShared(int32_t page) const;
  /// As many free pages, or nothing if there are fewer.
  std::optional<std::vector<int32_t>> take(int64_t count);
  /// One more sequence has these pages, or one less.
  void share(llvm::ArrayRef<int32_t> pages);
  void release(llvm::ArrayRef<int32_t> pages);
  /// Takes pages that are free, or shares them.
  void claim(llvm::ArrayRef<int32_t> pages);

private:
  bool tokensFirst = false;
  OwnedTensor keys, values;
  mutable std::mutex mutex;
  /// Of each page.
  std::vector<int32_t> numOwners;
  /// The next to be taken is the last one.
  std::vector<int32_t> freePages;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_PAGEPOOL_H
