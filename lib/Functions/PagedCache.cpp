//===- PagedCache.cpp - Keys and values in pages --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArrayFile.h"
#include "NewTokens.h"
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

Expected<PagedCache> PagedCache::create(int64_t pages, int64_t page,
                                        int64_t heads, int64_t width,
                                        const PagedCacheOptions &options) {
  Checker check;
  check.integer("pages", pages, 1);
  check.check(pages <= std::numeric_limits<int32_t>::max(),
              "pages: found " + Twine(pages) + ", needed at most 2147483647");
  check.integer("page", page, 1);
  check.integer("heads", heads, 1);
  check.integer("width", width, 1);
  int64_t valueWidth =
      check.integer("value_width", options.valueWidth.value_or(width), 1);
  check.integer("batch", options.batch, 1);
  check.check(isFloat(options.elementType),
              "dtype: found " + getArrayTypeName(options.elementType) +
                  ", needed a floating-point type");
  if (check.hasFailed())
    return check.takeError();
  PagedCache cache;
  cache.tokensFirst = options.tokensFirst;
  for (auto [memory, columns] :
       {std::pair(&cache.keys, width), std::pair(&cache.values, valueWidth)}) {
    Shape shape{pages, heads, page, columns};
    if (options.tokensFirst)
      std::swap(shape[1], shape[2]);
    Expected<OwnedTensor> made = allocateTensor(options.elementType, shape);
    if (!made)
      return createStringError(
          std::make_error_code(std::errc::not_enough_memory),
          "pages: found " + Twine(pages) +
              ", needed memory for them: " + toString(made.takeError()));
    *memory = std::move(*made);
  }
  cache.lengths.assign(options.batch, 0);
  cache.tables.resize(options.batch);
  for (int64_t number = pages; number-- > 0;)
    cache.freePages.push_back(static_cast<int32_t>(number));
  return std::move(cache);
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

Error PagedCache::append(const TensorRef &k, const TensorRef &v,
                         const std::optional<TensorRef> &given) {
  Checker check;
  StridedView own[] = {toHeadsFirst(keys, tokensFirst),
                       toHeadsFirst(values, tokensFirst)};
  // Of a sequence, whose pages are anywhere.
  SmallVector<Shape, 2> shapes;
  SmallVector<TensorRef, 2> sequences;
  for (const StridedView &side : own) {
    TensorRef pages = side;
    shapes.push_back({getBatch(), pages.shape[1], 0, pages.shape[3]});
  }
  for (const Shape &shape : shapes)
    sequences.push_back({nullptr, getElementType(), shape});
  NewTokens tokens(check, k, v, sequences[0], sequences[1]);
  SmallVector<int64_t, 4> added =
      countNewTokens(check, given, getBatch(), tokens.getLength());
  if (check.hasFailed())
    return check.takeError();
  int64_t page = getPage(), needed = 0;
  for (auto [count, length, table] : zip_equal(added, lengths, tables))
    needed += static_cast<int64_t>(divideCeil(length + count, page)) -
              static_cast<int64_t>(table.size());
  check.check(needed <= getNumFreePages(),
              "k: found tokens for " + Twine(needed) +
                  " more pages, needed at most " + Twine(getNumFreePages()) +
                  ", those of " + Twine(getNumPages()) + " that are free");
  if (check.hasFailed())
    return check.takeError();
  if (Error error = tokens.makeReadable())
    return error;
  for (auto [entry, count] : enumerate(added))
    for (int64_t done = 0; done < count;) {
      std::vector<int32_t> &table = tables[entry];
      int64_t place = lengths[entry] % page;
      if (place == 0) {
        table.push_back(freePages.back());
        freePages.pop_back();
      }
      int64_t run = std::min(count - done, page - place);
      for (auto [side, memory] : enumerate(own))
        copyElements(tokens.getRows(side, done, run).slice(0, entry, 1),
                     memory.slice(0, table.back(), 1).slice(2, place, run));
      done += run;
      lengths[entry] += run;
    }
  return Error::success();
}

std::vector<int32_t> PagedCache::makeTable(int64_t &width) const {
  width = 0;
  for (const std::vector<int32_t> &pages : tables)
    width = std::max<int64_t>(width, pages.size());
  std::vector<int32_t> table(getBatch() * width, -1);
  for (auto [entry, pages] : enumerate(tables))
    copy(pages, table.begin() + static_cast<int64_t>(entry) * width);
  return table;
}

Expected<AttentionResult>
PagedCache::attend(const TensorRef &q, const PagedOptions &options) const {
  Checker check;
  Argument query = check.tensor("q", q, 4, "[B,H,N,D]");
  check.elementType(query, {getElementType()});
  check.match("q", "batch", query.shape[0], getBatch());
  if (check.hasFailed())
    return check.takeError();
  int64_t width;
  std::vector<int32_t> table = makeTable(width);
  int64_t tableShape[] = {getBatch(), width}, countShape[] = {getBatch()};
  return paged(
      q, toHeadsFirst(keys, tokensFirst), toHeadsFirst(values, tokensFirst),
      {table.data(), ElementType::I32, tableShape},
      {const_cast<int64_t *>(lengths.data()), ElementType::I64, countShape},
      options);
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
      freePages.push_back(table.back());
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
  TensorRef pages = keys.getRef();
  Expected<PagedCache> copy =
      create(getNumPages(), getPage(), pages.shape[tokensFirst ? 2 : 1],
             pages.shape[3],
             {getBatch(), getValueWidth(), getElementType(), tokensFirst});
  if (!copy)
    return copy;
  for (auto [from, to] :
       {std::pair(&keys, &copy->keys), std::pair(&values, &copy->values)})
    for (const std::vector<int32_t> &table : tables)
      for (int32_t page : table)
        copyElements(StridedView(from->getRef()).slice(0, page, 1),
                     StridedView(to->getRef()).slice(0, page, 1));
  copy->lengths = lengths;
  copy->tables = tables;
  copy->freePages = freePages;
  return copy;
}

Error PagedCache::save(StringRef path) const {
  int64_t width, used = 0;
  std::vector<int32_t> table = makeTable(width);
  for (int32_t page : table)
    used = std::max<int64_t>(used, page + 1);
  int64_t tableShape[] = {getBatch(), width}, countShape[] = {getBatch()};
  TensorRef counts{const_cast<int64_t *>(lengths.data()), ElementType::I64,
                   countShape};
  // Pages that nobody has hold anything.
  StridedView ownKeys = StridedView(keys.getRef()).slice(0, 0, used),
              ownValues = StridedView(values.getRef()).slice(0, 0, used);
  return writeArrays(path, kKind,
                     {{"pages", getNumPages()}, {"tokens_first", tokensFirst}},
                     {{"keys", ownKeys},
                      {"values", ownValues},
                      {"table", {table.data(), ElementType::I32, tableShape}},
                      {"lengths", counts}});
}

Expected<PagedCache> PagedCache::load(StringRef path) {
  Expected<ArrayFile> file =
      ArrayFile::read(path, kKind, {"pages", "tokens_first"});
  if (!file)
    return file.takeError();
  Expected<TensorRef> stored = file->find("keys", 4),
                      storedValues = file->find("values", 4),
                      storedTable = file->find("table", 2);
  if (!stored || !storedValues || !storedTable)
    return joinErrors(stored.takeError(), joinErrors(storedValues.takeError(),
                                                     storedTable.takeError()));
  bool tokensFirst = file->getNumber("tokens_first");
  int64_t used = stored->shape[0], page = stored->shape[tokensFirst ? 1 : 2];
  Expected<PagedCache> cache =
      create(file->getNumber("pages"), page, stored->shape[tokensFirst ? 2 : 1],
             stored->shape[3],
             {storedTable->shape[0], storedValues->shape[3],
              stored->elementType, tokensFirst});
  if (!cache)
    return cache;
  if (used > cache->getNumPages())
    return file->fail("which has more pages than its pool");
  int64_t width = storedTable->shape[1], countShape[] = {cache->getBatch()};
  std::vector<int32_t> table(cache->getBatch() * width);
  TensorRef counts{cache->lengths.data(), ElementType::I64, countShape};
  TensorRef entries{table.data(), ElementType::I32, storedTable->shape};
  StridedView ownKeys = StridedView(cache->keys.getRef()).slice(0, 0, used),
              ownValues = StridedView(cache->values.getRef()).slice(0, 0, used);
  for (auto [name, to] : {std::pair(StringRef("keys"), TensorRef(ownKeys)),
                          {"values", ownValues},
                          {"table", entries},
                          {"lengths", counts}})
    if (Error error = file->load(name, to))
      return std::move(error);
  BitVector isUsed(cache->getNumPages());
  for (auto [entry, length] : enumerate(cache->lengths)) {
    if (length < 0 || length > width * page)
      return file->fail("which has lengths beyond its pages");
    for (int64_t place = 0; place * page < length; ++place) {
      int32_t number = table[static_cast<int64_t>(entry) * width + place];
      if (number < 0 || number >= used || isUsed.test(number))
        return file->fail("whose table names a page that it does not have, or "
                          "one twice");
      isUsed.set(number);
      cache->tables[entry].push_back(number);
    }
  }
  erase_if(cache->freePages,
           [&](int32_t number) { return isUsed.test(number); });
  return cache;
}
