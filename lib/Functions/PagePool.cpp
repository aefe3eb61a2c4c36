//===- PagePool.cpp - Pages that sequences share --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PagePool.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

PagePool::PagePool(TokenMemory taken)
    : memory(std::move(taken)), numOwners(getNumPages(), 0) {
  for (int64_t number = getNumPages(); number-- > 0;)
    freePages.push_back(static_cast<int32_t>(number));
}

int64_t PagePool::getNumFree() const {
  std::lock_guard lock(mutex);
  return freePages.size();
}

bool PagePool::isShared(int32_t page) const {
  std::lock_guard lock(mutex);
  return numOwners[page] > 1;
}

std::optional<std::vector<int32_t>> PagePool::take(int64_t count) {
  std::lock_guard lock(mutex);
  if (count > static_cast<int64_t>(freePages.size()))
    return std::nullopt;
  std::vector<int32_t> taken(freePages.rbegin(), freePages.rbegin() + count);
  freePages.resize(freePages.size() - count);
  for (int32_t page : taken)
    numOwners[page] = 1;
  return taken;
}

void PagePool::share(ArrayRef<int32_t> pages) {
  std::lock_guard lock(mutex);
  for (int32_t page : pages)
    ++numOwners[page];
}

void PagePool::release(ArrayRef<int32_t> pages) {
  std::lock_guard lock(mutex);
  for (int32_t page : reverse(pages))
    if (--numOwners[page] == 0)
      freePages.push_back(page);
}

void PagePool::claim(ArrayRef<int32_t> pages) {
  share(pages);
  std::lock_guard lock(mutex);
  erase_if(freePages, [&](int32_t page) { return numOwners[page] > 0; });
}

Error PagePool::copy(ArrayRef<StridedView> tokens, ArrayRef<RowRun> runs) {
  std::unique_lock lock(emulated, std::defer_lock);
  if (memory.target == Target::GPUEmulator)
    lock.lock();
  return copyRuns(tokens, getHeadsFirst(memory), runs, memory.target);
}
