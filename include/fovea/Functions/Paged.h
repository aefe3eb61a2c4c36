//===- Paged.h - Attention to keys in pages ---------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sequences of a batch share a pool of pages, of so many tokens each, and a
// table says which pages are a sequence's. Nothing is copied: a sequence is a
// source whose rows stand where they are listed.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_PAGED_H
#define FOVEA_FUNCTIONS_PAGED_H

#include "fovea/Functions/Dense.h"
#include <memory>
#include <vector>

namespace fovea {

namespace functions {
class PagePool;
} // namespace functions

/// As for `dense`. The last query stands at the last token.
struct PagedOptions {
  bool causal = true;
  std::optional<int64_t> window;
  std::optional<double> scale;
  /// Broadcasts to [B,H].
  std::optional<TensorRef> sink;
  /// [B] of i32 or i64: the queries of each sequence.
  std::optional<TensorRef> queryLengths;
  /// What the longest sequence has at most, which counts whole pages: rows of
  /// the table are read up to there, and the host reads no lengths that lie on
  /// a GPU.
  std::optional<int64_t> maxLength;
  bool returnLse = false;
  Target target = Target::CPU;
  ResultMemory out;
};

/// `dense` of q [B,H,N,D]: sequence b has `lengths[b]` tokens, in the pages
/// that `blockTable` [B,R] names from the first on, of keyPages [P,G,page,D]
/// and valuePages [P,G,page,E]. Pages may have strides, such as those that
/// have a token's heads side by side. Table and lengths are of i32 or i64, and
/// entries behind the last page of a sequence hold anything. On a GPU, kernels
/// read those that lie there.
llvm::Expected<AttentionResult>
paged(const TensorRef &q, const TensorRef &keyPages,
      const TensorRef &valuePages, const TensorRef &blockTable,
      const TensorRef &lengths, const PagedOptions &options = {});

struct PagedCacheOptions {
  /// Sequences, which begin empty.
  int64_t batch = 1;
  /// Columns of values, by default as many as of keys.
  std::optional<int64_t> valueWidth;
  ElementType elementType = ElementType::F32;
  /// Whether the heads of a token lie side by side: memory of [P,page,G,D], not
  /// [P,G,page,D].
  bool tokensFirst = false;
  /// Whether values are the first columns of keys, as many as `valueWidth`
  /// says, which are then kept once.
  bool valuesAreKeys = false;
  /// As of KVCacheOptions.
  Target target = Target::CPU;
};

/// Memory for `pages` pages of `page` tokens, which is taken at once, and that
/// sequences share: each has as many pages as its tokens need. Forks have pages
/// of the same memory, which each copies before it writes to one that another
/// has, too. As of KVCache, functions that do not change a cache may be called
/// from several threads at once, and one that fails leaves it as it was. On a
/// GPU all forks are used in the order of one stream.
class PagedCache {
public:
  PagedCache(PagedCache &&other) = default;
  PagedCache &operator=(PagedCache &&other);
  ~PagedCache();

  static llvm::Expected<PagedCache>
  create(int64_t pages, int64_t page, int64_t heads, int64_t width,
         const PagedCacheOptions &options = {});

  /// Adds the tokens k [B,G,N,D] and v [B,G,N,E], which is none where values
  /// are columns of keys. With `lengths` [B] of i32 or
  /// i64, sequence b has that many of them, and rows behind are not read.
  llvm::Error append(const TensorRef &k, const std::optional<TensorRef> &v = {},
                     const std::optional<TensorRef> &lengths = {});
  /// `paged` of the queries [B,H,N,D] of the newest tokens.
  llvm::Expected<AttentionResult>
  attend(const TensorRef &q, const PagedOptions &options = {}) const;

  /// Forgets what comes after the first `length` tokens of every sequence, or
  /// after the first `lengths` [B]. Pages without tokens are free again.
  llvm::Error truncate(int64_t length);
  llvm::Error truncate(const TensorRef &lengths);
  /// A cache of the same content in the same pages, which lie there as long as
  /// one of all forks has them. Neither sees what the other appends from then
  /// on.
  llvm::Expected<PagedCache> fork() const;
  /// One of these sequences, any number of times each; -1 is an empty one.
  llvm::Expected<PagedCache> fork(llvm::ArrayRef<int64_t> sequences) const;

  /// The content in a file, in the format of safetensors, which replaces one
  /// that is there.
  llvm::Error save(llvm::StringRef path) const;
  static llvm::Expected<PagedCache> load(llvm::StringRef path,
                                         Target target = Target::CPU);

  int64_t getBatch() const { return lengths.size(); }
  /// Those of all forks, and those that none has.
  int64_t getNumPages() const;
  int64_t getNumFreePages() const;
  /// The tokens of a page.
  int64_t getPage() const;
  int64_t getValueWidth() const;
  bool hasValuesInKeys() const;
  bool isTokensFirst() const;
  ElementType getElementType() const;
  Target getTarget() const;
  /// The GPU whose memory it is, or -1.
  int32_t getDevice() const;
  /// The tokens of each sequence.
  llvm::ArrayRef<int64_t> getLengths() const { return lengths; }
  /// What keys and values of all pages take.
  int64_t getNumBytes() const;

private:
  PagedCache(std::shared_ptr<functions::PagePool> pool, int64_t batch);
  llvm::Error truncate(llvm::ArrayRef<int64_t> found, llvm::StringRef name);
  /// The pages of all sequences, in rows of equal length: [B,R]. For GPUs,
  /// which compile kernels for each R, that is a power of two.
  std::vector<int32_t> makeTable(int64_t &width, Target target) const;

  std::shared_ptr<functions::PagePool> pool;
  llvm::SmallVector<int64_t, 4> lengths;
  /// Of each sequence, in the order of its tokens.
  std::vector<std::vector<int32_t>> tables;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_PAGED_H
