//===- KVCache.cpp - Keys and values of the tokens so far -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/KVCache.h"
#include "ArrayFile.h"
#include "NewTokens.h"
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
  check.integer("heads", heads, 1);
  check.integer("width", width, 1);
  int64_t valueWidth =
      check.integer("value_width", options.valueWidth.value_or(width), 1);
  check.integer("capacity", capacity, 1);
  check.check(isFloat(options.elementType),
              "dtype: found " + getArrayTypeName(options.elementType) +
                  ", needed a floating-point type");
  if (check.hasFailed())
    return check.takeError();
  KVCache cache;
  cache.capacity = capacity;
  cache.tokensFirst = options.tokensFirst;
  for (auto [memory, columns] :
       {std::pair(&cache.keys, width), std::pair(&cache.values, valueWidth)}) {
    Shape shape{batch, heads, capacity + 1, columns};
    if (options.tokensFirst)
      std::swap(shape[1], shape[2]);
    Expected<OwnedTensor> made = allocateTensor(options.elementType, shape);
    if (!made)
      return createStringError(
          std::make_error_code(std::errc::not_enough_memory),
          "capacity: found " + Twine(capacity) +
              " tokens, needed memory for them: " + toString(made.takeError()));
    *memory = std::move(*made);
  }
  cache.lengths.assign(batch, 0);
  return std::move(cache);
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

Error KVCache::append(const TensorRef &k, const TensorRef &v,
                      const std::optional<TensorRef> &given) {
  Checker check;
  StridedView own[] = {toHeadsFirst(keys, tokensFirst),
                       toHeadsFirst(values, tokensFirst)};
  NewTokens tokens(check, k, v, own[0], own[1]);
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
  for (auto [entry, count, length] : enumerate(added, lengths)) {
    for (auto [side, memory] : enumerate(own))
      copyElements(tokens.getRows(side, 0, count).slice(0, entry, 1),
                   memory.slice(2, length, count).slice(0, entry, 1));
    length += count;
  }
  return Error::success();
}

Expected<AttentionResult> KVCache::attend(const TensorRef &q,
                                          const AttendOptions &options) const {
  Checker check;
  check.elementType(Argument("q", q), {getElementType()});
  check.check(!options.lengths,
              "lengths: found some, needed none: the cache knows them");
  if (check.hasFailed())
    return check.takeError();
  DenseOptions call = options;
  SmallVector<int64_t, 1> shape{getBatch()};
  if (!all_equal(lengths))
    call.lengths = TensorRef{const_cast<int64_t *>(lengths.data()),
                             ElementType::I64, shape};
  int64_t length = *max_element(lengths);
  return dense(q, toHeadsFirst(keys, tokensFirst).slice(2, 0, length),
               toHeadsFirst(values, tokensFirst).slice(2, 0, length), call);
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
  TensorRef ownKeys = keys.getRef(), ownValues = values.getRef();
  unsigned headAxis = tokensFirst ? 2 : 1;
  Expected<KVCache> copy =
      create(getBatch(), ownKeys.shape[headAxis], ownKeys.shape[3], capacity,
             {ownValues.shape[3], getElementType(), tokensFirst});
  if (!copy)
    return copy;
  int64_t length = *max_element(lengths);
  unsigned rowAxis = tokensFirst ? 1 : 2;
  copyElements(StridedView(ownKeys).slice(rowAxis, 0, length),
               StridedView(copy->keys.getRef()).slice(rowAxis, 0, length));
  copyElements(StridedView(ownValues).slice(rowAxis, 0, length),
               StridedView(copy->values.getRef()).slice(rowAxis, 0, length));
  copy->lengths = lengths;
  return copy;
}

Error KVCache::save(StringRef path) const {
  int64_t length = *max_element(lengths);
  StridedView ownKeys = toHeadsFirst(keys, tokensFirst).slice(2, 0, length),
              ownValues = toHeadsFirst(values, tokensFirst).slice(2, 0, length);
  SmallVector<int64_t, 1> shape{getBatch()};
  TensorRef counts{const_cast<int64_t *>(lengths.data()), ElementType::I64,
                   shape};
  return writeArrays(
      path, kKind, {{"capacity", capacity}, {"tokens_first", tokensFirst}},
      {{"keys", ownKeys}, {"values", ownValues}, {"lengths", counts}});
}

Expected<KVCache> KVCache::load(StringRef path) {
  Expected<ArrayFile> file =
      ArrayFile::read(path, kKind, {"capacity", "tokens_first"});
  if (!file)
    return file.takeError();
  Expected<TensorRef> stored = file->find("keys", 4),
                      storedValues = file->find("values", 4);
  if (!stored || !storedValues)
    return joinErrors(stored.takeError(), storedValues.takeError());
  bool tokensFirst = file->getNumber("tokens_first");
  int64_t length = stored->shape[2];
  Expected<KVCache> cache =
      create(stored->shape[0], stored->shape[1], stored->shape[3],
             file->getNumber("capacity"),
             {storedValues->shape[3], stored->elementType, tokensFirst});
  if (!cache)
    return cache;
  if (length > cache->capacity)
    return file->fail("which has more tokens than its capacity");
  SmallVector<int64_t, 1> shape{cache->getBatch()};
  TensorRef counts{cache->lengths.data(), ElementType::I64, shape};
  for (auto [name, to] :
       {std::pair(StringRef("keys"),
                  toHeadsFirst(cache->keys, tokensFirst).slice(2, 0, length)),
        {"values",
         toHeadsFirst(cache->values, tokensFirst).slice(2, 0, length)},
        {"lengths", StridedView(counts)}})
    if (Error error = file->load(name, to))
      return std::move(error);
  if (any_of(cache->lengths,
             [&](int64_t count) { return count < 0 || count > length; }))
    return file->fail("which has lengths beyond its tokens");
  return cache;
}
