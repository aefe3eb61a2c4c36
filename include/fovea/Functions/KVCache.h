//===- KVCache.h - Keys and values of the tokens so far ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A token that is decoded reads the keys and values of all tokens before it:
//
//   llvm::Expected<fovea::KVCache> cache =
//       fovea::KVCache::create(batch, heads, width, capacity);
//   cache->append(k, v);              // one token or many
//   cache->attend(q);                 // as many queries, the newest tokens
//
// Functions that do not change a cache may be called from several threads at
// once. One that fails leaves it as it was.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_KVCACHE_H
#define FOVEA_FUNCTIONS_KVCACHE_H

#include "fovea/Functions/Dense.h"
#include "fovea/Functions/TokenMemory.h"

namespace fovea {

struct KVCacheOptions {
  /// Columns of values, by default as many as of keys.
  std::optional<int64_t> valueWidth;
  ElementType elementType = ElementType::F32;
  /// Whether the heads of a token lie side by side: memory of [B,M,G,D], not
  /// [B,G,M,D].
  bool tokensFirst = false;
  /// Whether values are the first columns of keys, as many as `valueWidth`
  /// says, which are then kept once.
  bool valuesAreKeys = false;
  /// Where `attend` runs. With Target::GPU memory is that of the GPU that the
  /// calling thread has chosen, where arrays of all calls have to lie, too, but
  /// for lengths.
  Target target = Target::CPU;
};

/// Those of `dense` but for `lengths`, which the cache knows.
struct AttendOptions : DenseOptions {
  AttendOptions() { causal = true; }
};

/// The memory for `capacity` tokens in each of `batch` sequences, which is
/// taken at once. On a GPU `append` and `attend` are work of the stream that
/// the calling thread has chosen, which another stream has to wait for; all
/// else waits for the GPU.
class KVCache {
public:
  static llvm::Expected<KVCache> create(int64_t batch, int64_t heads,
                                        int64_t width, int64_t capacity,
                                        const KVCacheOptions &options = {});

  /// Adds the tokens k [B,G,N,D] and v [B,G,N,E], which is none where values
  /// are columns of keys. With `lengths` [B] of i32 or
  /// i64, batch entry b has that many of them, and rows behind are not read.
  llvm::Error append(const TensorRef &k, const std::optional<TensorRef> &v = {},
                     const std::optional<TensorRef> &lengths = {});
  /// `dense` over all tokens, of which the queries [B,H,N,D] are the last ones.
  llvm::Expected<AttentionResult>
  attend(const TensorRef &q, const AttendOptions &options = {}) const;

  /// Forgets what comes after the first `length` tokens of every entry, or
  /// after the first `lengths` [B].
  llvm::Error truncate(int64_t length);
  llvm::Error truncate(const TensorRef &lengths);
  /// A cache of the same capacity and content. Neither sees what the other
  /// appends from then on.
  llvm::Expected<KVCache> fork() const;

  /// The content in a file, in the format of safetensors, which replaces one
  /// that is there.
  llvm::Error save(llvm::StringRef path) const;
  static llvm::Expected<KVCache> load(llvm::StringRef path,
                                      Target target = Target::CPU);

  int64_t getBatch() const { return lengths.size(); }
  int64_t getCapacity() const { return capacity; }
  int64_t getValueWidth() const { return memory.valueWidth; }
  bool hasValuesInKeys() const { return memory.valuesAreKeys; }
  bool isTokensFirst() const { return memory.hasTokensFirst; }
  ElementType getElementType() const { return memory.getElementType(); }
  Target getTarget() const { return memory.target; }
  /// The GPU whose memory it is, or -1.
  int32_t getDevice() const { return memory.device; }
  /// The tokens of each batch entry.
  llvm::ArrayRef<int64_t> getLengths() const { return lengths; }
  /// What keys and values take, used or not.
  int64_t getNumBytes() const { return memory.getNumBytes(); }

private:
  KVCache() = default;
  llvm::Error truncate(llvm::ArrayRef<int64_t> found, llvm::StringRef name);

  int64_t capacity = 0;
  /// One row more than the capacity in every sequence, so that there is a gap
  /// behind any content and one kernel serves all.
  TokenMemory memory;
  llvm::SmallVector<int64_t, 4> lengths;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_KVCACHE_H
