//===- KernelCache.cpp - Compile once -------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/KernelCache.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/xxhash.h"
#include <atomic>
#include <condition_variable>

using namespace llvm;
using namespace fovea;

struct KernelCache::Entry {
  Entry(StringRef text, const CompileOptions &options)
      : text(text), options(options) {}

  bool matches(StringRef otherText, const CompileOptions &other) const {
    // The source name only shows in diagnostics of compilations that fail, and
    // those are not kept.
    return options.target == other.target &&
           options.optLevel == other.optLevel && options.cpu == other.cpu &&
           options.chip == other.chip && options.f32 == other.f32 &&
           options.raise == other.raise && options.entry == other.entry &&
           options.vjps == other.vjps && text == otherText;
  }

  const std::string text;
  const CompileOptions options;
  /// Guarded by the cache's mutex.
  uint64_t lastUse = 0;

  std::mutex mutex;
  std::condition_variable finished;
  std::atomic<bool> isFinished = false;
  Kernel kernel;
  std::string error;
};

/// What is seldom different alone is compared only.
static uint64_t hashKey(StringRef text, const CompileOptions &options) {
  uint64_t hash =
      hash_combine(xxh3_64bits(text), options.target, options.vjps.size());
  // The highest values are reserved by the map.
  return hash >> 2;
}

KernelCache::~KernelCache() = default;

KernelCache &KernelCache::getGlobal() {
  // Never destroyed: threads may still run kernels while the process ends.
  static auto *cache = new KernelCache(
      /*capacity=*/1024, DiskCache::fromEnvironment());
  return *cache;
}

std::shared_ptr<KernelCache::Entry>
KernelCache::find(uint64_t hash, StringRef text,
                  const CompileOptions &options) {
  auto bucket = entries.find(hash);
  if (bucket != entries.end())
    for (const std::shared_ptr<Entry> &entry : bucket->second)
      if (entry->matches(text, options))
        return entry;
  return nullptr;
}

void KernelCache::erase(uint64_t hash, const Entry *entry) {
  auto bucket = entries.find(hash);
  if (bucket == entries.end())
    return;
  size_t before = bucket->second.size();
  erase_if(bucket->second, [&](const std::shared_ptr<Entry> &candidate) {
    return candidate.get() == entry;
  });
  size -= before - bucket->second.size();
  if (bucket->second.empty())
    entries.erase(bucket);
}

void KernelCache::evictOldest() {
  uint64_t oldestHash = 0;
  const Entry *oldest = nullptr;
  for (const auto &bucket : entries)
    for (const std::shared_ptr<Entry> &entry : bucket.second)
      if (!oldest || entry->lastUse < oldest->lastUse) {
        oldestHash = bucket.first;
        oldest = entry.get();
      }
  if (oldest)
    erase(oldestHash, oldest);
}

Expected<Kernel> KernelCache::getOrCompile(StringRef text,
                                           const CompileOptions &options) {
  if (!options.constantsPath.empty())
    return compile(text, options);
  return getOrCompile(text, options, [&] { return compile(text, options); });
}

Expected<Kernel>
KernelCache::getOrCompile(StringRef text, const CompileOptions &options,
                          function_ref<Expected<Kernel>()> compile) {
  uint64_t hash = hashKey(text, options);
  std::shared_ptr<Entry> entry;
  bool isNew = false;
  {
    std::lock_guard<std::mutex> lock(mutex);
    entry = find(hash, text, options);
    if (!entry) {
      isNew = true;
      while (size >= capacity && size > 0)
        evictOldest();
      entry = std::make_shared<Entry>(text, options);
      entries[hash].push_back(entry);
      ++size;
    }
    ++(isNew ? misses : hits);
    entry->lastUse = ++clock;
  }

  if (isNew) {
    std::optional<Kernel> loaded = disk.load(text, options);
    Expected<Kernel> kernel = loaded ? *loaded : compile();
    std::string error;
    if (!kernel) {
      error = toString(kernel.takeError());
      std::lock_guard<std::mutex> lock(mutex);
      erase(hash, entry.get());
    } else if (loaded) {
      std::lock_guard<std::mutex> lock(mutex);
      ++loads;
    } else {
      disk.store(text, options, *kernel);
    }
    std::lock_guard<std::mutex> lock(entry->mutex);
    if (error.empty())
      entry->kernel = std::move(*kernel);
    entry->error = std::move(error);
    entry->isFinished = true;
    entry->finished.notify_all();
  }

  if (!entry->isFinished) {
    std::unique_lock<std::mutex> lock(entry->mutex);
    entry->finished.wait(lock, [&] { return bool(entry->isFinished); });
  }
  if (!entry->error.empty())
    return createStringError(entry->error);
  return entry->kernel;
}

void KernelCache::clear() {
  std::lock_guard<std::mutex> lock(mutex);
  entries.clear();
  size = 0;
}

KernelCache::Statistics KernelCache::getStatistics() const {
  std::lock_guard<std::mutex> lock(mutex);
  return {size, hits, misses, loads};
}
