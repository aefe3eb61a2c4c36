//===- KernelCache.h - Compile once -----------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_KERNELCACHE_H
#define FOVEA_EXECUTIONENGINE_KERNELCACHE_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/ExecutionEngine/DiskCache.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <mutex>

namespace fovea {

/// Kernels by text, or a key that stands for one, and options. Threads that ask
/// for the same kernel at the same time compile it once; the others wait for
/// it. Failures are not kept.
class KernelCache {
public:
  /// Keeps up to `capacity` kernels; the one unused for longest makes room.
  /// What is not here may be on `disk`, and gets there.
  explicit KernelCache(size_t capacity = 1024, DiskCache disk = {})
      : disk(std::move(disk)), capacity(capacity) {}
  KernelCache(const KernelCache &) = delete;
  KernelCache &operator=(const KernelCache &) = delete;
  ~KernelCache();

  /// The cached kernel, or a new one.
  llvm::Expected<Kernel> getOrCompile(llvm::StringRef text,
                                      const CompileOptions &options = {});
  /// The same for a key that stands for what `compile` compiles.
  llvm::Expected<Kernel>
  getOrCompile(llvm::StringRef key, const CompileOptions &options,
               llvm::function_ref<llvm::Expected<Kernel>()> compile);

  /// Forgets all kernels, but not those on disk. Handles that are still held
  /// stay valid.
  void clear();

  struct Statistics {
    size_t size = 0;
    uint64_t hits = 0;
    uint64_t misses = 0;
    /// Misses that were found on disk.
    uint64_t loads = 0;
  };
  Statistics getStatistics() const;

  /// The cache of the process, with the disk cache that the environment asks
  /// for.
  static KernelCache &getGlobal();

private:
  struct Entry;

  const DiskCache disk;
  mutable std::mutex mutex;
  size_t capacity;
  size_t size = 0;
  uint64_t clock = 0, hits = 0, misses = 0, loads = 0;
  /// Entries by hash of text and options.
  llvm::DenseMap<uint64_t, llvm::SmallVector<std::shared_ptr<Entry>, 1>>
      entries;

  std::shared_ptr<Entry> find(uint64_t hash, llvm::StringRef text,
                              const CompileOptions &options);
  void erase(uint64_t hash, const Entry *entry);
  void evictOldest();
};

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_KERNELCACHE_H
