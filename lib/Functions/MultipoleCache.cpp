//===- MultipoleCache.cpp - Fast multipole attention by tokens ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/MultipoleCache.h"
#include "ArrayFile.h"
#include "AttentionCall.h"
#include "NewTokens.h"
#include "SummaryFamilies.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static constexpr StringLiteral kKind = "fovea.MultipoleCache";
static constexpr StringLiteral kSideNames[] = {"key", "value"};
/// Intervals that are kept at each level.
static constexpr int64_t kPlaces = 4;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Error MultipoleCache::Side::allocate(int64_t batch, int64_t heads,
                                     int64_t group, int64_t rank) {
  ArrayRef<int64_t> shape = levels.front().weights.getShape();
  ElementType type = levels.front().weights.getElementType();
  ElementType state = getStateType(type);
  int64_t width = shape.back(), count = levels.size();
  auto make = [&](OwnedTensor &memory, ElementType elements,
                  const Shape &extents) -> Error {
    Expected<OwnedTensor> made = allocateTensor(elements, extents);
    if (!made)
      return createStringError(
          std::make_error_code(std::errc::not_enough_memory),
          toString(made.takeError()));
    memory = std::move(*made);
    return Error::success();
  };
  if (Error error = make(tokens, type, {batch, heads, 2 * group + 1, width}))
    return error;
  if (Error error =
          make(sums, state, {batch, heads, count, kPlaces, rank, width}))
    return error;
  return make(far, state, {batch, heads, 2 * rank * count + 1, width});
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
  if (check.hasFailed())
    return check.takeError();
  MultipoleCache cache;
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
    if (Error error = side.allocate(batch, heads, group, cache.rank))
      return std::move(error);
  }
  Expected<OwnedTensor> weights =
      allocate(cache.sides[0].sums.getElementType(),
               {1, 1, 2 * cache.rank * cache.numLevels});
  if (!weights)
    return weights.takeError();
  cache.logWeights = std::move(*weights);
  cache.listFarRows(/*closed=*/0);
  return std::move(cache);
}

int64_t MultipoleCache::getNumBytes() const {
  int64_t bytes = logWeights.getNumBytes();
  for (const Side &side : sides)
    bytes += side.tokens.getNumBytes() + side.sums.getNumBytes() +
             side.far.getNumBytes();
  return bytes;
}

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

/// The summaries of one interval and head in `sums`: `rank` rows.
static char *getSums(const OwnedTensor &sums, int64_t head, int64_t level,
                     int64_t interval) {
  ArrayRef<int64_t> shape = sums.getShape();
  int64_t block = (head * shape[2] + level) * kPlaces + interval % kPlaces;
  return sums.getDataAs<char>() +
         block * shape[4] * shape[5] * getByteWidth(sums.getElementType());
}

template <typename T>
static void addElements(const void *from, void *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    static_cast<T *>(to)[i] += static_cast<const T *>(from)[i];
}

/// The shares of a group of tokens in the summaries of an interval.
static Expected<OwnedTensor> sumUp(StringRef name, const TensorRef &tokens,
                                   const TensorRef &weights,
                                   ElementType state) {
  Checker check;
  Call call("summarize", Target::CPU);
  call.operands(
      {Argument(name, tokens), Argument((name + "_weights").str(), weights)});
  call.operandIf(std::nullopt);
  call.result(
      check, "summaries", state,
      {tokens.shape[0], tokens.shape[1], weights.shape[1], tokens.shape[3]});
  return call.runFor<OwnedTensor, 1>(check);
}

/// Starts an interval from its biases, or zeros.
static void startSums(const OwnedTensor &sums, const OwnedTensor &bias,
                      int64_t level, int64_t interval) {
  ArrayRef<int64_t> shape = sums.getShape();
  ElementType state = sums.getElementType();
  int64_t size = shape[4] * shape[5];
  for (int64_t head = 0; head < shape[0] * shape[1]; ++head) {
    char *to = getSums(sums, head, level, interval);
    std::memset(to, 0, size * getByteWidth(state));
    if (!bias.getData())
      continue;
    int64_t shared = shape[1] / bias.getShape()[0],
            set = head % shape[1] / shared;
    SmallVector<int64_t, 4> strides = getStrides(bias.getRef());
    for (int64_t i = 0; i < size; ++i)
      setElement(to, state, i,
                 getElement(bias.getData(), bias.getElementType(),
                            set * strides[0] + i / shape[5] * strides[1] +
                                i % shape[5] * strides[2]));
  }
}

Error MultipoleCache::closeGroup() {
  int64_t number = length / group - 1;
  SmallVector<OwnedTensor> shares;
  for (auto [name, side] : zip_equal(kSideNames, sides))
    for (auto [level, each] : enumerate(side.levels)) {
      int64_t first = (number & ((int64_t(1) << level) - 1)) * group;
      Expected<OwnedTensor> share =
          sumUp(name, StridedView(side.tokens.getRef()).slice(2, group, group),
                StridedView(each.weights.getRef()).slice(2, first, group),
                side.sums.getElementType());
      if (!share)
        return share.takeError();
      shares.push_back(std::move(*share));
    }
  // Nothing fails from here on.
  auto *share = shares.begin();
  for (Side &side : sides) {
    ArrayRef<int64_t> shape = side.sums.getShape();
    int64_t size = shape[4] * shape[5];
    auto add = side.sums.getElementType() == ElementType::F64
                   ? addElements<double>
                   : addElements<float>;
    for (auto [level, each] : enumerate(side.levels)) {
      int64_t interval = number >> level;
      if (interval << level == number)
        startSums(side.sums, each.bias, level, interval);
      for (int64_t head = 0; head < shape[0] * shape[1]; ++head)
        add(share->getDataAs<char>() +
                head * size * getByteWidth(share->getElementType()),
            getSums(side.sums, head, level, interval), size);
      ++share;
    }
    StridedView tokens(side.tokens.getRef());
    copyElements(tokens.slice(2, group, group), tokens.slice(2, 0, group));
  }
  listFarRows(number + 1);
  return Error::success();
}

void MultipoleCache::listFarRows(int64_t closed) {
  numFar = 0;
  for (int64_t level = 0; level < numLevels; ++level) {
    int64_t own = closed >> level;
    // The second one belongs to the children of the parent's neighbour.
    for (int64_t interval = std::max<int64_t>(own - 2 - own % 2, 0);
         interval <= own - 2; ++interval) {
      for (Side &side : sides) {
        ArrayRef<int64_t> shape = side.sums.getShape(),
                          farShape = side.far.getShape();
        int64_t rowBytes =
            shape[5] * int64_t(getByteWidth(side.sums.getElementType()));
        for (int64_t head = 0; head < shape[0] * shape[1]; ++head)
          std::memcpy(side.far.getDataAs<char>() +
                          (head * farShape[2] + numFar) * rowBytes,
                      getSums(side.sums, head, level, interval),
                      rank * rowBytes);
      }
      double weight =
          multiplicity ? std::log(double(group << level) / double(rank)) : 0.0;
      for (int64_t row = 0; row < rank; ++row)
        setElement(logWeights.getData(), logWeights.getElementType(), numFar++,
                   weight);
    }
  }
  if (numFar != 0)
    return;
  // One row that counts nothing, so that one kernel serves all lengths.
  numFar = 1;
  setElement(logWeights.getData(), logWeights.getElementType(), 0,
             -std::numeric_limits<double>::infinity());
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

int64_t MultipoleCache::getCapacity() const {
  return attn::getMostTokens(group, numLevels);
}

Error MultipoleCache::append(const TensorRef &k, const TensorRef &v) {
  Checker check;
  NewTokens tokens(check, k, v, sides[0].tokens.getRef(),
                   sides[1].tokens.getRef());
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
  // Sums of a group may fail. The first ones come before anything has changed
  // if the present group is full; those that come later are made on a copy.
  int64_t numInGroup = getNumInGroup(),
          numSums = (std::max<int64_t>(numInGroup + count, 1) - 1) / group;
  if (numSums <= (numInGroup == group ? 1 : 0))
    return add(tokens);
  Expected<MultipoleCache> next = fork();
  if (!next)
    return next.takeError();
  if (Error error = next->add(tokens))
    return error;
  *this = std::move(*next);
  return Error::success();
}

Error MultipoleCache::add(const NewTokens &tokens) {
  int64_t count = tokens.getLength();
  for (int64_t done = 0; done < count;) {
    if (getNumInGroup() == group)
      if (Error error = closeGroup())
        return error;
    int64_t place = length % group,
            taken = std::min(group - place, count - done);
    for (auto [index, side] : enumerate(sides))
      copyElements(
          tokens.getRows(index, done, taken),
          StridedView(side.tokens.getRef()).slice(2, group + place, taken));
    length += taken;
    done += taken;
  }
  return Error::success();
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

/// The queries of one token, for a cache that has `keys`.
static Argument checkQuery(Checker &check, const TensorRef &q,
                           const OwnedTensor &keys) {
  ArrayRef<int64_t> own = keys.getShape();
  Argument query = check.tensor("q", q, 4, "[B,H,1,D]");
  check.elementType(query, {keys.getElementType()});
  check.match("q", "batch", query.shape[0], own[0]);
  check.check(query.shape[1] % own[1] == 0,
              "q: found " + Twine(query.shape[1]) +
                  " heads, needed a multiple of the " + Twine(own[1]) +
                  " of keys");
  check.match("q", "length", query.shape[2], 1);
  check.match("q", "head width", query.shape[3], own[3]);
  return query;
}

Expected<AttentionResult>
MultipoleCache::attend(const TensorRef &q,
                       const MultipoleAttendOptions &options) const {
  Checker check;
  Call call(getContract(), Target::CPU, options.out);
  const auto &[keys, values] = sides;
  Argument query = checkQuery(check, q, keys.tokens);
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
  return runAttention(call, check, {query, query, rows}, options,
                      /*readsNothing=*/length == 0);
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static Error copyTo(OwnedTensor &to, const OwnedTensor &from) {
  Expected<OwnedTensor> copy = copyArray(from.getRef());
  if (!copy)
    return copy.takeError();
  to = std::move(*copy);
  return Error::success();
}

Expected<MultipoleCache> MultipoleCache::fork() const {
  MultipoleCache copy;
  copy.group = group;
  copy.numLevels = numLevels;
  copy.rank = rank;
  copy.length = length;
  copy.scale = scale;
  copy.multiplicity = multiplicity;
  copy.numFar = numFar;
  for (auto [own, other] : zip_equal(sides, copy.sides)) {
    for (const Side::Level &level : own.levels) {
      other.levels.emplace_back();
      other.levels.back().weights = getView(level.weights.getRef());
      if (level.bias.getData())
        other.levels.back().bias = getView(level.bias.getRef());
    }
    for (OwnedTensor Side::*part : {&Side::tokens, &Side::sums, &Side::far})
      if (Error error = copyTo(other.*part, own.*part))
        return std::move(error);
  }
  if (Error error = copyTo(copy.logWeights, logWeights))
    return std::move(error);
  return std::move(copy);
}

Error MultipoleCache::save(StringRef path) const {
  SmallVector<NamedArray> arrays;
  for (auto [name, side] : zip_equal(kSideNames, sides)) {
    arrays.push_back({(name + "_tokens").str(), side.tokens.getRef()});
    arrays.push_back({(name + "_sums").str(), side.sums.getRef()});
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
  for (auto [name, side] : zip_equal(kSideNames, copy->sides)) {
    if (Error error =
            file->load((name + "_tokens").str(), side.tokens.getRef()))
      return error;
    if (Error error = file->load((name + "_sums").str(), side.sums.getRef()))
      return error;
  }
  copy->length = stored;
  copy->listFarRows(stored == 0 ? 0 : (stored - 1) / group);
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
  const OwnedTensor &keys = cache.sides[0].tokens,
                    &values = cache.sides[1].tokens;
  Argument query = checkQuery(check, q, keys);
  NewTokens tokens(check, k, v, keys.getRef(), values.getRef());
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
  if (Error error = cache.append(k, v))
    return std::move(error);
  return cache.attend(q, options);
}
