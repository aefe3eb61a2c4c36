//===- DiskCache.h - Compiled code in a folder ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_DISKCACHE_H
#define FOVEA_EXECUTIONENGINE_DISKCACHE_H

#include "fovea/ExecutionEngine/Compiler.h"
#include <optional>

namespace fovea {

/// Compiled code in a folder, for other processes. Code of the host only: that
/// of GPUs is compiled anew.
///
/// An entry holds for the same key and options, the same CPU with the same
/// features, and the very same compiler. Nothing here is an error: what cannot
/// be read, is damaged or is somebody else's is not there, and what cannot be
/// written is not kept. Any number of processes may share a folder.
class DiskCache {
public:
  static constexpr uint64_t kDefaultBytes = uint64_t(256) << 20;

  /// No folder: nothing is ever there.
  DiskCache() = default;
  /// Keeps up to `maxBytes` in files of `folder`, which is made when needed;
  /// those unused for longest make room.
  explicit DiskCache(llvm::StringRef folder, uint64_t maxBytes = kDefaultBytes)
      : folder(folder), maxBytes(maxBytes) {}

  /// The folder FOVEA_CACHE_DIR, by default `fovea` in the user's cache folder,
  /// with up to FOVEA_CACHE_BYTES. An empty variable is no folder.
  static DiskCache fromEnvironment();

  /// The kernel that was kept for a text, or a key that stands for one.
  std::optional<Kernel> load(llvm::StringRef text,
                             const CompileOptions &options) const;
  /// Keeps a kernel that was just compiled. Frees what only this needs of it.
  void store(llvm::StringRef text, const CompileOptions &options,
             const Kernel &kernel) const;

private:
  std::string folder;
  uint64_t maxBytes = 0;

  std::string getPath(llvm::StringRef key) const;
  void evict() const;
};

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_DISKCACHE_H
