//===- PagedCache.cpp - Keys and values in pages --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PagePool.h"
#include "TokenFile.h"
#include "TokenMask.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/Paged.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static constexpr StringLiteral kKind = "fovea.PagedCache";

PagedCache::PagedCache(std::shared_ptr<PagePool> pool, int64_t batch)
    : pool(std::move(pool)), lengths(batch, 0), tables(batch) {}

PagedCache &PagedCache::operator=(PagedCache &&other) {
  std::swap(pool, other.pool);
  std::swap(lengths, other.lengths);
  std::swap(tables, other.tables);
  return *this;
}

PagedCache::~PagedCache() {
  for (const std::vector<int32_t> &table : tables)
    pool->release(table);
}

int64_t PagedCache::getNumPages() const { return pool->getNumPages(); }
int64_t PagedCache::getNumFreePages() const { return pool->getNumFree(); }
int64_t PagedCache::getPage() const { return pool->getMemory().getNumRows(); }

int64_t PagedCache::getValueWidth() const {
  return pool->getMemory().valueWidth;
}

bool PagedCache::hasValuesInKeys() const {
  return pool->getMemory().valuesAreKeys;
}

bool PagedCache::isTokensFirst() const {
  return pool->getMemory().hasTokensFirst;
}

ElementType PagedCache::getElementType() const {
  return pool->getMemory().getElementType();
}

Target PagedCache::getTarget() const { return pool->getMemory().target; }
int32_t PagedCache::getDevice() const { return pool->getMemory().device; }

int64_t PagedCache::getNumBytes() const {
  return pool->getMemory().getNumBytes();
}

Expected<PagedCache> PagedCache::create(int64_t pages, int64_t page,
                                        int64_t heads, int64_t width,
                                        const PagedCacheOptions &options) {
  Checker check;
  check.integer("pages", pages, 1, std::numeric_limits<int32_t>::max());
  check.integer("page", page, 1);
  // Tables of more would end the process, not the call.
  check.integer("batch", options.batch, 1, 1 << 24);
  Expected<TokenMemory> memory =
      makeTokenMemory(check, "pages: found " + Twine(pages), pages, heads, page,
                      width, options);
  if (!memory)
    return memory.takeError();
  return PagedCache(std::make_shared<PagePool>(std::move(*memory)),
                    options.batch);
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

Error PagedCache::append(const TensorRef &k, const std::optional<TensorRef> &v,
                         const std::optional<TensorRef> &given) {
  Checker check;
  checkDevice(check, pool->getMemory());
  NewTokens tokens(check, k, v, pool->getMemory(), getBatch());
  SmallVector<int64_t, 4> added =
      countNewTokens(check, given, getBatch(), tokens.getLength());
  if (check.hasFailed())
    return check.takeError();
  if (Error error = tokens.makeReadable())
    return error;
  // The last page of a sequence, where another one has it as well.
  int64_t page = getPage(), needed = 0;
  SmallVector<int32_t, 4> shared;
  SmallVector<size_t, 4> sizes;
  for (auto [count, length, table] : zip_equal(added, lengths, tables)) {
    needed += static_cast<int64_t>(divideCeil(length + count, page)) -
              static_cast<int64_t>(table.size());
    bool isCopied =
        count > 0 && length % page != 0 && pool->isShared(table.back());
    needed += isCopied;
    shared.push_back(isCopied ? table.back() : -1);
    sizes.push_back(table.size());
  }
  std::optional<std::vector<int32_t>> taken = pool->take(needed);
  if (!taken) {
    check.fail("k: found tokens for " + Twine(needed) +
               " more pages, needed at most " + Twine(getNumFreePages()) +
               ", those of " + Twine(getNumPages()) + " that are free");
    return check.takeError();
  }
  SmallVector<RowRun, 4> copies, runs;
  auto next = taken->begin();
  for (auto [entry, count] : enumerate(added)) {
    std::vector<int32_t> &table = tables[entry];
    int64_t length = lengths[entry];
    if (shared[entry] >= 0) {
      table.back() = *next++;
      copies.push_back({shared[entry], 0, table.back(), 0, length % page});
    }
    for (int64_t done = 0; done < count;) {
      int64_t place = (length + done) % page;
      if (place == 0)
        table.push_back(*next++);
      int64_t run = std::min(count - done, page - place);
      runs.push_back(
          {static_cast<int64_t>(entry), done, table.back(), place, run});
      done += run;
    }
  }
  Error error = pool->copy({}, copies);
  if (!error)
    error = pool->copy(tokens.getSides(), runs);
  bool hasFailed(error);
  for (auto [entry, count] : enumerate(added)) {
    std::vector<int32_t> &table = tables[entry];
    if (!hasFailed)
      lengths[entry] += count;
    else
      table.resize(sizes[entry]);
    if (shared[entry] < 0)
      continue;
    if (hasFailed)
      table.back() = shared[entry];
    else
      pool->release(shared[entry]);
  }
  if (hasFailed)
    pool->release(*taken);
  return error;
}

std::vector<int32_t> PagedCache::makeTable(int64_t &width,
                                           Target target) const {
  width = 0;
  for (const std::vector<int32_t> &pages : tables)
    width = std::max<int64_t>(width, pages.size());
  if (target == Target::GPU || target == Target::GPUEmulator)
    width = static_cast<int64_t>(PowerOf2Ceil(width));
  std::vector<int32_t> table(getBatch() * width, -1);
  for (auto [entry, pages] : enumerate(tables))
    copy(pages, table.begin() + static_cast<int64_t>(entry) * width);
  return table;
}

Expected<AttentionResult>
PagedCache::attend(const TensorRef &q, const PagedOptions &options) const {
  Checker check;
  checkDevice(check, pool->getMemory());
  const TokenMemory &memory = pool->getMemory();
  checkQueries(check, q, "[B,H,N,D]", memory, getElementType(), getBatch(),
               memory.getNumHeads(), memory.getWidth());
  PagedOptions call = options;
  call.target = findTarget(check, pool->getMemory(), options.target);
  if (check.hasFailed())
    return check.takeError();
  int64_t width;
  std::vector<int32_t> table = makeTable(width, call.target);
  int64_t tableShape[] = {getBatch(), width}, countShape[] = {getBatch()};
  auto [keys, values] = getKeysAndValues(pool->getMemory());
  return paged(
      q, keys, values, {table.data(), ElementType::I32, tableShape},
      {const_cast<int64_t *>(lengths.data()), ElementType::I64, countShape},
      call);
}

Error PagedCache::truncate(ArrayRef<int64_t> found, StringRef name) {
  Checker check;
  checkTruncation(check, name, found, lengths);
  if (check.hasFailed())
    return check.takeError();
  for (auto [count, length, table] : zip_equal(found, lengths, tables)) {
    length = count;
    while (static_cast<int64_t>(table.size()) * getPage() >=
           count + getPage()) {
      pool->release(table.back());
      table.pop_back();
    }
  }
  return Error::success();
}

Error PagedCache::truncate(int64_t length) {
  return truncate(SmallVector<int64_t>(getBatch(), length), "length");
}

Error PagedCache::truncate(const TensorRef &given) {
  Checker check;
  SequenceLengths counts(check, "lengths", given, getBatch(),
                         getNumPages() * getPage(), Target::CPU);
  if (check.hasFailed())
    return check.takeError();
  const auto *numbers = static_cast<const int32_t *>(counts.get()->data);
  return truncate(SmallVector<int64_t>(numbers, numbers + getBatch()),
                  "lengths");
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

Expected<PagedCache> PagedCache::fork() const {
  return fork(to_vector(seq<int64_t>(0, getBatch())));
}

Expected<PagedCache> PagedCache::fork(ArrayRef<int64_t> sequences) const {
  Checker check;
  check.check(!sequences.empty(), "sequences: found none, needed at least 1");
  for (auto [place, number] : enumerate(sequences))
    check.check(number >= -1 && number < getBatch(),
                "sequences: found " + Twine(number) + " at [" + Twine(place) +
                    "], needed 0 to " + Twine(getBatch() - 1) +
                    ", or -1 for an empty one");
  if (check.hasFailed())
    return check.takeError();
  PagedCache copy(pool, sequences.size());
  for (auto [place, number] : enumerate(sequences)) {
    if (number < 0)
      continue;
    pool->share(tables[number]);
    copy.tables[place] = tables[number];
    copy.lengths[place] = lengths[number];
  }
  return std::move(copy);
}

Error PagedCache::save(StringRef path) const {
  Checker check;
  checkDevice(check, pool->getMemory());
  if (check.hasFailed())
    return check.takeError();
  if (Error error = waitForTokens(pool->getMemory()))
    return error;
  // Own pages alone, numbered as sequences have them.
  int64_t width;
  std::vector<int32_t> table = makeTable(width, Target::CPU), pages,
                       numbers(getNumPages(), -1);
  for (int32_t &page : table) {
    if (page < 0)
      continue;
    if (numbers[page] < 0) {
      numbers[page] = static_cast<int32_t>(pages.size());
      pages.push_back(page);
    }
    page = numbers[page];
  }
  int64_t used = pages.size(), tableShape[] = {getBatch(), width},
          countShape[] = {getBatch()};
  bool isInPlace =
      getTarget() != Target::GPU && equal(pages, seq<int32_t>(0, used));
  SmallVector<OwnedTensor, 2> copies;
  SmallVector<ElementCopy, 0> moves;
  SmallVector<StridedView, 2> own;
  for (const StridedView &memory : getSides(pool->getMemory())) {
    if (isInPlace) {
      own.push_back(memory.slice(0, 0, used));
      continue;
    }
    Shape shape(TensorRef(memory).shape);
    shape[0] = used;
    Expected<OwnedTensor> copy = allocateTensor(getElementType(), shape);
    if (!copy)
      return copy.takeError();
    own.emplace_back(copy->getRef());
    copies.push_back(std::move(*copy));
    for (auto [number, page] : enumerate(pages))
      moves.push_back({memory.slice(0, page, 1),
                       own.back().slice(0, static_cast<int64_t>(number), 1)});
  }
  if (Error error = copyAll(moves, getTarget()))
    return error;
  TensorRef counts{const_cast<int64_t *>(lengths.data()), ElementType::I64,
                   countShape};
  return writeArrays(
      path, kKind,
      {{"pages", getNumPages()},
       {"tokens_first", isTokensFirst()},
       {"values_in_keys", getValuesInKeys(pool->getMemory())}},
      nameArrays(own, {{"table", {table.data(), ElementType::I32, tableShape}},
                       {"lengths", counts}}));
}

Expected<PagedCache> PagedCache::load(StringRef path, Target target) {
  Expected<ArrayFile> file =
      ArrayFile::read(path, kKind, {"pages", "tokens_first", "values_in_keys"});
  if (!file)
    return file.takeError();
  Expected<TensorRef> stored = file->find("keys", 4),
                      storedTable = file->find("table", 2);
  if (!stored || !storedTable)
    return joinErrors(stored.takeError(), storedTable.takeError());
  Expected<int64_t> valueWidth = findValueWidth(*file);
  if (!valueWidth)
    return valueWidth.takeError();
  bool tokensFirst = file->getNumber("tokens_first");
  int64_t used = stored->shape[0], page = stored->shape[tokensFirst ? 1 : 2];
  Expected<PagedCache> cache =
      create(file->getNumber("pages"), page, stored->shape[tokensFirst ? 2 : 1],
             stored->shape[3],
             {storedTable->shape[0], *valueWidth, stored->elementType,
              tokensFirst, file->getNumber("values_in_keys") != 0, target});
  if (!cache)
    return cache;
  if (used > cache->getNumPages())
    return file->fail("which has more pages than its pool");
  int64_t width = storedTable->shape[1], countShape[] = {cache->getBatch()};
  std::vector<int32_t> table(cache->getBatch() * width);
  TensorRef counts{cache->lengths.data(), ElementType::I64, countShape};
  TensorRef entries{table.data(), ElementType::I32, storedTable->shape};
  PagePool &pool = *cache->pool;
  SmallVector<StridedView, 2> own = getSides(pool.getMemory());
  for (StridedView &side : own)
    side = side.slice(0, 0, used);
  if (Error error = loadArrays(
          *file, nameArrays(own, {{"table", entries}, {"lengths", counts}}),
          target))
    return std::move(error);
  // Sequences share pages, but none has one twice.
  std::vector<std::vector<int32_t>> tables(cache->getBatch());
  for (auto [entry, length] : enumerate(cache->lengths)) {
    if (length < 0 || length > width * page)
      return file->fail("which has lengths beyond its pages");
    BitVector isUsed(used);
    for (int64_t place = 0; place * page < length; ++place) {
      int32_t number = table[static_cast<int64_t>(entry) * width + place];
      if (number < 0 || number >= used || isUsed.test(number))
        return file->fail("whose table names a page that it does not have, or "
                          "one twice");
      isUsed.set(number);
      tables[entry].push_back(number);
    }
  }
  for (const std::vector<int32_t> &pages : tables)
    pool.claim(pages);
  cache->tables = std::move(tables);
  return cache;
}
