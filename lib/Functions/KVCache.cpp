//===- KVCache.cpp - Keys and values of the tokens so far -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/KVCache.h"
#include "AttentionCall.h"
#include "RowRuns.h"
#include "TokenFile.h"
#include "TokenMask.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static constexpr StringLiteral kKind = "fovea.KVCache";

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Expected<KVCache> KVCache::create(int64_t batch, int64_t heads, int64_t width,
                                  int64_t capacity,
                                  const KVCacheOptions &options) {
  Checker check;
  check.integer("batch", batch, 1);
  check.integer("capacity", capacity, 1);
  KVCache cache;
  cache.capacity = capacity;
  Expected<TokenMemory> memory =
      makeTokenMemory(check, "capacity: found " + Twine(capacity) + " tokens",
                      batch, heads, capacity + 1, width, options);
  if (!memory)
    return memory.takeError();
  cache.memory = std::move(*memory);
  cache.lengths.assign(batch, 0);
  return std::move(cache);
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

Error KVCache::append(const TensorRef &k, const std::optional<TensorRef> &v,
                      const std::optional<TensorRef> &given) {
  Checker check;
  checkDevice(check, memory);
  NewTokens tokens(check, k, v, memory, getBatch());
  SmallVector<int64_t, 4> added =
      countNewTokens(check, given, getBatch(), tokens.getLength());
  if (check.hasFailed())
    return check.takeError();
  for (auto [entry, count, length] : enumerate(added, lengths))
    check.check(count <= capacity - length,
                "k: found " + Twine(count) + " tokens for batch entry " +
                    Twine(entry) + " after " + Twine(length) +
                    ", needed at most " + Twine(capacity - length) +
                    " for a capacity of " + Twine(capacity));
  if (check.hasFailed())
    return check.takeError();
  if (Error error = tokens.makeReadable())
    return error;
  // Entries that get as many tokens in the same place are one run.
  SmallVector<RowRun, 2> runs;
  for (int64_t first = 0, end; first < getBatch(); first = end) {
    int64_t count = added[first], length = lengths[first];
    for (end = first + 1;
         end < getBatch() && added[end] == count && lengths[end] == length;)
      ++end;
    if (count > 0)
      runs.push_back({first, 0, first, length, count, end - first});
  }
  if (Error error = copyRuns(tokens.getSides(), getHeadsFirst(memory), runs,
                             memory.target))
    return error;
  for (auto [count, length] : zip_equal(added, lengths))
    length += count;
  return Error::success();
}

Expected<AttentionResult> KVCache::attend(const TensorRef &q,
                                          const AttendOptions &options) const {
  Checker check;
  checkDevice(check, memory);
  checkQueries(check, q, "[B,H,N,D]", memory, getElementType(), getBatch(),
               memory.getNumHeads(), memory.getWidth());
  check.check(!options.lengths,
              "lengths: found some, needed none: the cache knows them");
  DenseOptions call = options;
  call.target = findTarget(check, memory, options.target);
  if (check.hasFailed())
    return check.takeError();
  SmallVector<int64_t, 1> shape{getBatch()};
  if (!all_equal(lengths))
    call.lengths = TensorRef{const_cast<int64_t *>(lengths.data()),
                             ElementType::I64, shape};
  int64_t length = *max_element(lengths);
  auto [keys, values] = getKeysAndValues(memory);
  return denseOfCache(q, keys.slice(2, 0, length), values.slice(2, 0, length),
                      call);
}

Error KVCache::truncate(ArrayRef<int64_t> found, StringRef name) {
  Checker check;
  checkTruncation(check, name, found, lengths);
  if (check.hasFailed())
    return check.takeError();
  lengths.assign(found.begin(), found.end());
  return Error::success();
}

Error KVCache::truncate(int64_t length) {
  return truncate(SmallVector<int64_t>(getBatch(), length), "length");
}

Error KVCache::truncate(const TensorRef &given) {
  Checker check;
  SequenceLengths counts(check, "lengths", given, getBatch(), capacity,
                         Target::CPU);
  if (check.hasFailed())
    return check.takeError();
  const auto *numbers = static_cast<const int32_t *>(counts.get()->data);
  return truncate(SmallVector<int64_t>(numbers, numbers + getBatch()),
                  "lengths");
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

Expected<KVCache> KVCache::fork() const {
  Checker check;
  checkDevice(check, memory);
  if (check.hasFailed())
    return check.takeError();
  if (Error error = waitForTokens(memory))
    return std::move(error);
  Expected<KVCache> copy =
      create(getBatch(), memory.getNumHeads(), memory.getWidth(), capacity,
             {getValueWidth(), getElementType(), isTokensFirst(),
              hasValuesInKeys(), getTarget()});
  if (!copy)
    return copy;
  int64_t length = *max_element(lengths);
  SmallVector<ElementCopy, 2> copies;
  for (auto [from, to] :
       zip_equal(getHeadsFirst(memory), getHeadsFirst(copy->memory)))
    copies.push_back({from.slice(2, 0, length), to.slice(2, 0, length)});
  if (Error error = copyAll(copies, memory.target))
    return std::move(error);
  if (Error error = waitForTokens(memory))
    return std::move(error);
  copy->lengths = lengths;
  return copy;
}

Error KVCache::save(StringRef path) const {
  Checker check;
  checkDevice(check, memory);
  if (check.hasFailed())
    return check.takeError();
  if (Error error = waitForTokens(memory))
    return error;
  int64_t length = *max_element(lengths);
  SmallVector<StridedView, 2> sides = getHeadsFirst(memory);
  SmallVector<OwnedTensor, 2> copies(sides.size());
  for (auto [side, copy] : zip_equal(sides, copies)) {
    side = side.slice(2, 0, length);
    if (Error error = moveToHost(side, copy, memory.target))
      return error;
  }
  SmallVector<int64_t, 1> shape{getBatch()};
  TensorRef counts{const_cast<int64_t *>(lengths.data()), ElementType::I64,
                   shape};
  return writeArrays(path, kKind,
                     {{"capacity", capacity},
                      {"tokens_first", isTokensFirst()},
                      {"values_in_keys", getValuesInKeys(memory)}},
                     nameArrays(sides, {{"lengths", counts}}));
}

Expected<KVCache> KVCache::load(StringRef path, Target target) {
  Expected<ArrayFile> file = ArrayFile::read(
      path, kKind, {"capacity", "tokens_first", "values_in_keys"});
  if (!file)
    return file.takeError();
  Expected<TensorRef> stored = file->find("keys", 4);
  if (!stored)
    return stored.takeError();
  Expected<int64_t> valueWidth = findValueWidth(*file);
  if (!valueWidth)
    return valueWidth.takeError();
  int64_t length = stored->shape[2];
  Expected<KVCache> cache = create(
      stored->shape[0], stored->shape[1], stored->shape[3],
      file->getNumber("capacity"),
      {*valueWidth, stored->elementType, file->getNumber("tokens_first") != 0,
       file->getNumber("values_in_keys") != 0, target});
  if (!cache)
    return cache;
  if (length > cache->capacity)
    return file->fail("which has more tokens than its capacity");
  SmallVector<int64_t, 1> shape{cache->getBatch()};
  TensorRef counts{cache->lengths.data(), ElementType::I64, shape};
  SmallVector<StridedView, 2> sides = getHeadsFirst(cache->memory);
  for (StridedView &side : sides)
    side = side.slice(2, 0, length);
  if (Error error =
          loadArrays(*file, nameArrays(sides, {{"lengths", counts}}), target))
    return std::move(error);
  if (any_of(cache->lengths,
             [&](int64_t count) { return count < 0 || count > length; }))
    return file->fail("which has lengths beyond its tokens");
  return cache;
}
