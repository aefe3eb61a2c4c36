//===- MultipoleCache.h - Fast multipole attention by tokens ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A token reads the tokens of its own and the previous group, and at each level
// one or two intervals: that and what is to be summed up is all that a cache
// keeps, whatever the number of tokens.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_MULTIPOLECACHE_H
#define FOVEA_FUNCTIONS_MULTIPOLECACHE_H

#include "fovea/Functions/FastMultipole.h"
#include "fovea/Functions/TokenMemory.h"
#include <memory>

namespace fovea {
namespace functions {
struct Argument;
class Checker;
class NewTokens;
class StridedView;
} // namespace functions

struct MultipoleCacheOptions {
  /// As for `fast_multipole`.
  std::optional<double> scale;
  bool multiplicity = true;
  /// As of KVCacheOptions. Weights lie where keys do.
  Target target = Target::CPU;
};

struct MultipoleAttendOptions {
  bool returnLse = false;
  ResultMemory out;
};

/// What `fast_multipole` needs of the tokens so far to answer the newest one.
/// Functions that do not change it may be called from several threads at once;
/// one that fails leaves it as it was, but for `fast_multipole_decode` without
/// memory, after which it may have the token. On a GPU `append`, `attend` and
/// `fast_multipole_decode` are work of the stream that the calling thread has
/// chosen, which another stream has to wait for; all else waits for the GPU.
class MultipoleCache {
public:
  /// For `batch` sequences with `heads` key heads. The weights are those of
  /// `fast_multipole`, L levels serve group 2^(L+1) tokens; they are read as
  /// long as the cache and its copies live.
  static llvm::Expected<MultipoleCache>
  create(int64_t batch, int64_t heads, const SummaryWeights &keyWeights,
         const SummaryWeights &valueWeights, int64_t group,
         const MultipoleCacheOptions &options = {});

  /// Adds the tokens k [B,G,N,D] and v [B,G,N,E].
  llvm::Error append(const TensorRef &k, const TensorRef &v);
  /// The last row of `fast_multipole` over all tokens: q is [B,H,1,D].
  llvm::Expected<AttentionResult>
  attend(const TensorRef &q, const MultipoleAttendOptions &options = {}) const;

  /// A cache of the same content and weights. Neither sees what the other
  /// appends from then on.
  llvm::Expected<MultipoleCache> fork() const;
  /// The content in a file, in the format of safetensors, which replaces one
  /// that is there. Weights are no part of it.
  llvm::Error save(llvm::StringRef path) const;
  /// Takes the content over from a file that a cache like this one wrote.
  llvm::Error restore(llvm::StringRef path);

  int64_t getLength() const { return length; }
  /// How many tokens the weights are for.
  int64_t getCapacity() const;
  /// What is kept of keys and values.
  int64_t getNumBytes() const;
  Target getTarget() const { return place.target; }
  /// The GPU whose memory it is, or -1.
  int32_t getDevice() const { return place.device; }

private:
  friend llvm::Expected<AttentionResult>
  fast_multipole_decode(const TensorRef &q, const TensorRef &k,
                        const TensorRef &v, MultipoleCache &cache,
                        const MultipoleAttendOptions &options);

  /// What is kept of keys, and of values.
  struct Side {
    /// Of the caller, for each level; biases may be none.
    struct Level {
      OwnedTensor weights, bias;
    };
    llvm::SmallVector<Level, 8> levels;
    /// The previous group and the present one, [B,G,2 m + 1,D]. One row more
    /// than is used leaves a gap behind, so that one kernel serves all lengths.
    OwnedTensor tokens;
    /// For each level the intervals u .. u + 3 in places u % 4: the open one
    /// and three that are whole, [B,G,L,4,p,D] in the type of sums.
    OwnedTensor sums;
    /// Those that the present group reads, [B,G,2 p L + 1,D].
    OwnedTensor far;

    int64_t getWidth() const {
      return levels.front().weights.getShape().back();
    }
    /// `count` intervals of a level from `interval` on, [B,G,count p,D].
    functions::StridedView getSums(int64_t level, int64_t interval,
                                   int64_t count = 1) const;
  };

  MultipoleCache() = default;
  /// The groups whose tokens are in summaries, and the tokens behind them.
  int64_t getNumClosed() const {
    return length == 0 ? 0 : (length - 1) / group;
  }
  int64_t getNumInGroup() const { return length - getNumClosed() * group; }
  /// Takes memory for sequences of these weights.
  llvm::Error takeMemory(int64_t batch, int64_t heads);
  /// One of these weights without content.
  llvm::Expected<MultipoleCache> makeLike() const;
  /// The arrays of the content.
  llvm::SmallVector<const OwnedTensor *, 7> getContent() const;
  /// Takes over the content of one of the same weights.
  llvm::Error copyFrom(const MultipoleCache &other);

  // The functions of these names once arrays fit, unless a check has failed.
  llvm::Error append(functions::Checker &check, functions::NewTokens &tokens);
  llvm::Expected<AttentionResult>
  attend(functions::Checker &check, const functions::Argument &query,
         const MultipoleAttendOptions &options) const;

  /// Adds `count` groups of tokens, the first of which has the number `first`,
  /// to the summaries, and keeps the last one as the previous group.
  llvm::Error closeGroups(llvm::ArrayRef<functions::StridedView> rows,
                          int64_t first, int64_t count);
  /// Adds to the summaries by kernels, any of which may fail.
  llvm::Error addToSums(llvm::ArrayRef<functions::StridedView> rows,
                        int64_t first);
  /// Adds a group.
  llvm::Error addToSumsOnHost(llvm::ArrayRef<functions::StridedView> rows,
                              int64_t number);
  /// Adds tokens that there is room for; where it fails, some may be there.
  llvm::Error add(const functions::NewTokens &tokens);
  /// Lists the summaries that the present group reads.
  llvm::Error listFarRows();

  CachePlace place;
  int64_t group = 0, numLevels = 0, rank = 0, length = 0;
  double scale = 1;
  bool multiplicity = true;
  Side sides[2];
  /// [1,1,2 p L], and how many are listed.
  OwnedTensor logWeights;
  int64_t numFar = 1;
  /// For GPUs: where groups are added to a copy of the content, which takes its
  /// place unless something fails.
  std::unique_ptr<MultipoleCache> spare;
};

/// One token of `fast_multipole`: adds k [B,G,1,D] and v [B,G,1,E] to `cache`,
/// and returns the result for q [B,H,1,D].
llvm::Expected<AttentionResult>
fast_multipole_decode(const TensorRef &q, const TensorRef &k,
                      const TensorRef &v, MultipoleCache &cache,
                      const MultipoleAttendOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_MULTIPOLECACHE_H
