//===- MultipoleCache.cpp - Fast multipole attention by tokens ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/MultipoleCache.h"
#include "AttentionCall.h"
#include "MultipoleSums.h"
#include "NewTokens.h"
#include "SummaryFamilies.h"
#include "TokenFile.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static constexpr StringLiteral kKind = "fovea.MultipoleCache";

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Weights and biases that kernels read where the cache is.
static void checkWeights(Checker &check, const CachePlace &place,
                         const Argument &weights) {
  if (place.target == Target::CPU)
    return;
  check.elementType(weights,
                    {ElementType::F16, ElementType::BF16, ElementType::F32});
  checkPlace(check, place, weights);
  check.check(place.target != Target::GPU || weights.hasContiguousRows(),
              weights.name + ": found an array with gaps in its rows on a GPU, "
                             "needed one whose last axis is contiguous");
}

Error MultipoleCache::takeMemory(int64_t batch, int64_t heads) {
  ElementType type = sides[0].levels.front().weights.getElementType(),
              state = getStateType(type);
  auto make = [&](OwnedTensor &memory, ElementType elements,
                  const Shape &extents) -> Error {
    Expected<OwnedTensor> made =
        allocateFor(place, "key_weights: found " + Twine(numLevels) + " levels",
                    elements, extents);
    if (!made)
      return made.takeError();
    memory = std::move(*made);
    return Error::success();
  };
  for (Side &side : sides) {
    int64_t width = side.getWidth();
    if (Error error =
            make(side.tokens, type, {batch, heads, 2 * group + 1, width}))
      return error;
    if (Error error =
            make(side.sums, state,
                 {batch, heads, numLevels, kMultipolePlaces, rank, width}))
      return error;
    if (Error error = make(side.far, state,
                           {batch, heads, 2 * rank * numLevels + 1, width}))
      return error;
  }
  return make(logWeights, state, {1, 1, 2 * rank * numLevels});
}

Expected<MultipoleCache>
MultipoleCache::create(int64_t batch, int64_t heads,
                       const SummaryWeights &keyWeights,
                       const SummaryWeights &valueWeights, int64_t group,
                       const MultipoleCacheOptions &options) {
  Checker check("fast_multipole");
  check.integer("batch", batch, 1);
  check.integer("heads", heads, 1);
  check.integer("group", group, 1);
  check.check(!keyWeights.weights.empty(),
              "key_weights: found no levels, needed at least 1");
  if (check.hasFailed())
    return check.takeError();
  Families families(check, /*length=*/0, group);
  for (auto [name, family] :
       zip_equal(kSideNames, std::array{&keyWeights, &valueWeights})) {
    // What these are the weights of has heads, and as many columns as they
    // have.
    Argument rows;
    rows.name = "the cache";
    rows.shape = {batch, heads, 0,
                  family->weights.empty() || family->weights[0].shape.empty()
                      ? 1
                      : family->weights[0].shape.back()};
    check.check(!family->summaries,
                name + "_summaries: found them, needed weights: a cache makes "
                       "summaries of tokens as they come");
    families.add(name, *family, rows);
    if (check.hasFailed())
      return check.takeError();
    for (const Argument &weight : families.getWeights(families.size() - 1))
      check.check(weight.shape.size() == 4,
                  weight.name + ": found rank 5, needed rank 4: a cache does "
                                "not mix columns");
  }
  MultipoleCache cache;
  cache.place = choosePlace(check, options.target);
  for (size_t side = 0; side < families.size() && !check.hasFailed(); ++side)
    for (ArrayRef<Argument> list : {ArrayRef(families.getWeights(side)),
                                    ArrayRef(families.getBiases(side))})
      for (const Argument &each : list)
        checkWeights(check, cache.place, each);
  if (check.hasFailed())
    return check.takeError();
  cache.group = group;
  cache.rank = families.getRank();
  cache.numLevels = families.getWeights(0).size();
  cache.scale =
      check.scale(options.scale, families.getWeights(0)[0].shape.back());
  cache.multiplicity = options.multiplicity;
  if (check.hasFailed())
    return check.takeError();
  for (auto [index, side] : enumerate(cache.sides)) {
    for (const Argument &weight : families.getWeights(index)) {
      side.levels.emplace_back();
      side.levels.back().weights = getView(weight.getRef());
    }
    for (auto [level, bias] : zip(side.levels, families.getBiases(index)))
      level.bias = getView(bias.getRef());
  }
  if (Error error = cache.takeMemory(batch, heads))
    return std::move(error);
  if (Error error = cache.listFarRows())
    return std::move(error);
  if (options.target == Target::CPU)
    return std::move(cache);
  Expected<MultipoleCache> spare = cache.makeLike();
  if (!spare)
    return spare;
  cache.spare = std::make_unique<MultipoleCache>(std::move(*spare));
  return std::move(cache);
}

SmallVector<const OwnedTensor *, 7> MultipoleCache::getContent() const {
  SmallVector<const OwnedTensor *, 7> arrays{&logWeights};
  for (const Side &side : sides)
    append_range(arrays, std::array{&side.tokens, &side.sums, &side.far});
  return arrays;
}

int64_t MultipoleCache::getNumBytes() const {
  int64_t bytes = spare ? spare->getNumBytes() : 0;
  for (const OwnedTensor *array : getContent())
    bytes += array->getNumBytes();
  return bytes;
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

int64_t MultipoleCache::getCapacity() const {
  return attn::getMostTokens(group, numLevels);
}

Error MultipoleCache::append(const TensorRef &k, const TensorRef &v) {
  Checker check;
  checkDevice(check, place);
  NewTokens tokens(check, k, v, place, sides[0].tokens.getRef(),
                   sides[1].tokens.getRef());
  return append(check, tokens);
}

Error MultipoleCache::append(Checker &check, NewTokens &tokens) {
  int64_t count = tokens.getLength();
  check.check(count <= getCapacity() - length,
              "k: found " + Twine(count) + " tokens after " + Twine(length) +
                  ", needed at most " + Twine(getCapacity() - length) + ": " +
                  Twine(numLevels) + " levels of weights, in groups of " +
                  Twine(group) + ", are for " + Twine(getCapacity()));
  if (check.hasFailed())
    return check.takeError();
  if (Error error = tokens.makeReadable())
    return error;
  // Sums of a group may fail. On the CPU the first ones come before anything
  // has changed but rows behind the last token; all others are made on a copy.
  int64_t numSums = (std::max<int64_t>(getNumInGroup() + count, 1) - 1) / group;
  if (numSums == 0 || (!spare && numSums == 1)) {
    int64_t before = length;
    Error error = add(tokens);
    if (error)
      length = before;
    return error;
  }
  if (!spare) {
    Expected<MultipoleCache> next = fork();
    if (!next)
      return next.takeError();
    if (Error error = next->add(tokens))
      return error;
    *this = std::move(*next);
    return Error::success();
  }
  std::unique_ptr<MultipoleCache> next = std::move(spare);
  Error error = next->copyFrom(*this);
  if (!error)
    error = next->add(tokens);
  if (!error)
    std::swap(*this, *next);
  spare = std::move(next);
  return error;
}

Error MultipoleCache::add(const NewTokens &tokens) {
  int64_t count = tokens.getLength(), before = getNumClosed();
  for (int64_t done = 0; done < count;) {
    if (getNumInGroup() == group) {
      SmallVector<StridedView, 2> present;
      for (const Side &side : sides)
        present.push_back(
            StridedView(side.tokens.getRef()).slice(2, group, group));
      if (Error error = closeGroups(present, length / group - 1, 1))
        return error;
      // All behind it at once, but the last one, if kernels can read them.
      if (int64_t whole = (count - done - 1) / group;
          whole > 0 && tokens.haveContiguousRows()) {
        SmallVector<StridedView, 2> rows;
        for (size_t side = 0; side < std::size(sides); ++side)
          rows.push_back(tokens.getRows(side, done, whole * group));
        if (Error error = closeGroups(rows, length / group, whole))
          return error;
        length += whole * group;
        done += whole * group;
      }
    }
    int64_t row = length % group, taken = std::min(group - row, count - done);
    SmallVector<ElementCopy, 2> copies;
    for (auto [index, side] : enumerate(sides))
      copies.push_back(
          {tokens.getRows(index, done, taken),
           StridedView(side.tokens.getRef()).slice(2, group + row, taken)});
    if (Error error = copyAll(copies, place.target))
      return error;
    length += taken;
    done += taken;
  }
  return getNumClosed() == before ? Error::success() : listFarRows();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

static const attn::Contract &getContract() {
  static const attn::Contract contract("fast_multipole_decode",
                                       "query: T[B, H, 1, D!]\n"
                                       "near_key: T[B, G, M, D!]\n"
                                       "near_value: T[B, G, M, E!]\n"
                                       "far_key: sum[B, G, N, D!]\n"
                                       "far_value: sum[B, G, N, E!]\n"
                                       "log_weight: sum[1, 1, N]\n"
                                       "output: T[B, H, 1, E!]\n"
                                       "lse?: sum[B, H, 1]");
  return contract;
}

/// The queries of one token, for a cache that has `keys` there.
static Argument checkQuery(Checker &check, const TensorRef &q,
                           const CachePlace &place, const OwnedTensor &keys) {
  ArrayRef<int64_t> own = keys.getShape();
  Argument query = checkQueries(check, q, "[B,H,1,D]", place,
                                keys.getElementType(), own[0], own[1], own[3]);
  check.match("q", "length", query.shape[2], 1);
  return query;
}

Expected<AttentionResult>
MultipoleCache::attend(const TensorRef &q,
                       const MultipoleAttendOptions &options) const {
  Checker check;
  checkDevice(check, place);
  return attend(check, checkQuery(check, q, place, sides[0].tokens), options);
}

Expected<AttentionResult>
MultipoleCache::attend(Checker &check, const Argument &query,
                       const MultipoleAttendOptions &options) const {
  Call call(getContract(), place.target, options.out);
  const auto &[keys, values] = sides;
  bool isFirst = length <= group;
  int64_t first = isFirst ? group : 0,
          count = (isFirst ? 0 : group) + getNumInGroup();
  auto add = [&](StringRef name, const OwnedTensor &memory, unsigned axis,
                 int64_t begin, int64_t rows) {
    call.operand(
        Argument(name, StridedView(memory.getRef()).slice(axis, begin, rows)));
  };
  call.operand(query);
  add("near_key", keys.tokens, 2, first, count);
  add("near_value", values.tokens, 2, first, count);
  add("far_key", keys.far, 2, 0, numFar);
  add("far_value", values.far, 2, 0, numFar);
  add("log_weight", logWeights, 2, 0, numFar);
  call.attribute("scale", scale);
  call.setBody([&](mlir::OpBuilder &b, mlir::ValueRange arguments,
                   mlir::ValueRange inits) {
    attn::detail::RangeExprs exprs(b.getContext());
    attn::detail::StreamSources sources;
    sources.add(arguments[1], arguments[2], exprs.allRows());
    sources.add(arguments[3], arguments[4], exprs.allRows(), /*mask=*/{},
                arguments[5]);
    return llvm::to_vector_of<mlir::Value>(
        sources
            .build(b, b.getUnknownLoc(), arguments[0], inits[0],
                   options.returnLse ? inits[1] : mlir::Value(), /*block=*/0,
                   scale)
            ->getResults());
  });
  Argument rows;
  rows.shape = {1, 1, 1, values.tokens.getShape().back()};
  // Kernels answer from no tokens, where the results are not the host's.
  return runAttention(call, check, {query, query, rows}, options,
                      /*readsNothing=*/length == 0 &&
                          place.target == Target::CPU);
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

Expected<MultipoleCache> MultipoleCache::makeLike() const {
  MultipoleCache like;
  like.place = place;
  like.group = group;
  like.numLevels = numLevels;
  like.rank = rank;
  like.scale = scale;
  like.multiplicity = multiplicity;
  for (auto [own, other] : zip_equal(sides, like.sides))
    for (const Side::Level &level : own.levels) {
      other.levels.emplace_back();
      other.levels.back().weights = getView(level.weights.getRef());
      if (level.bias.getData())
        other.levels.back().bias = getView(level.bias.getRef());
    }
  ArrayRef<int64_t> shape = sides[0].tokens.getShape();
  if (Error error = like.takeMemory(shape[0], shape[1]))
    return std::move(error);
  return std::move(like);
}

Error MultipoleCache::copyFrom(const MultipoleCache &other) {
  SmallVector<ElementCopy, 7> copies;
  for (auto [from, to] : zip_equal(other.getContent(), getContent()))
    copies.push_back({StridedView(from->getRef()), StridedView(to->getRef())});
  if (Error error = copyAll(copies, place.target))
    return error;
  length = other.length;
  numFar = other.numFar;
  return Error::success();
}

Expected<MultipoleCache> MultipoleCache::fork() const {
  Checker check;
  checkDevice(check, place);
  if (check.hasFailed())
    return check.takeError();
  if (Error error = waitForTokens(place))
    return std::move(error);
  Expected<MultipoleCache> copy = makeLike();
  if (!copy)
    return copy;
  if (Error error = copy->copyFrom(*this))
    return std::move(error);
  if (!spare)
    return copy;
  Expected<MultipoleCache> more = makeLike();
  if (!more)
    return more;
  copy->spare = std::make_unique<MultipoleCache>(std::move(*more));
  if (Error error = waitForTokens(place))
    return std::move(error);
  return copy;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

Error MultipoleCache::save(StringRef path) const {
  Checker check;
  checkDevice(check, place);
  if (check.hasFailed())
    return check.takeError();
  if (Error error = waitForTokens(place))
    return error;
  SmallVector<NamedArray> arrays;
  SmallVector<StridedView, 4> views;
  SmallVector<OwnedTensor, 4> copies(2 * std::size(sides));
  views.reserve(copies.size());
  for (auto [name, side] : zip_equal(kSideNames, sides))
    for (auto [part, memory] :
         {std::pair("_tokens", &side.tokens), {"_sums", &side.sums}}) {
      StridedView &view = views.emplace_back(memory->getRef());
      if (Error error =
              moveToHost(view, copies[views.size() - 1], place.target))
        return error;
      arrays.push_back({(name + part).str(), view});
    }
  return writeArrays(path, kKind, {{"group", group}, {"length", length}},
                     arrays);
}

Error MultipoleCache::restore(StringRef path) {
  Expected<ArrayFile> file = ArrayFile::read(path, kKind, {"group", "length"});
  if (!file)
    return file.takeError();
  int64_t stored = file->getNumber("length");
  if (file->getNumber("group") != group)
    return file->fail("of a cache with groups of " +
                      Twine(file->getNumber("group")) + ", not " +
                      Twine(group));
  if (stored < 0 || stored > getCapacity())
    return file->fail("of a cache with " + Twine(stored) + " tokens");
  Expected<MultipoleCache> copy = fork();
  if (!copy)
    return copy.takeError();
  SmallVector<NamedArray> arrays;
  for (auto [name, side] : zip_equal(kSideNames, copy->sides))
    for (auto [part, memory] :
         {std::pair("_tokens", &side.tokens), {"_sums", &side.sums}})
      arrays.push_back({(name + part).str(), memory->getRef()});
  if (Error error = loadArrays(*file, arrays, place.target))
    return error;
  copy->length = stored;
  if (Error error = copy->listFarRows())
    return error;
  if (Error error = waitForTokens(place))
    return error;
  *this = std::move(*copy);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// One token
//===----------------------------------------------------------------------===//

Expected<AttentionResult>
fovea::fast_multipole_decode(const TensorRef &q, const TensorRef &k,
                             const TensorRef &v, MultipoleCache &cache,
                             const MultipoleAttendOptions &options) {
  // All that `attend` would refuse, before the token is added.
  Checker check;
  checkDevice(check, cache.place);
  const OwnedTensor &keys = cache.sides[0].tokens,
                    &values = cache.sides[1].tokens;
  Argument query = checkQuery(check, q, cache.place, keys);
  NewTokens tokens(check, k, v, cache.place, keys.getRef(), values.getRef());
  check.match("k", "length", tokens.getLength(), 1);
  Shape rows(ArrayRef(query.shape).take_front(3)), output = rows;
  output.push_back(values.getShape().back());
  ElementType type = keys.getElementType();
  checkPlaces(check, options.out, options.returnLse ? 2 : 1);
  std::optional<Argument> places[] = {
      getPlace(check, options.out, 0, type, output),
      getPlace(check, options.out, 1, getStateType(type), rows)};
  if (check.hasFailed())
    return check.takeError();
  for (const std::optional<Argument> &place : places)
    if (place)
      if (Error error = checkSeparate(*place, query))
        return std::move(error);
  if (Error error = cache.append(check, tokens))
    return std::move(error);
  return cache.attend(check, query, options);
}
