//===- PoolState.cpp - Pooled summaries of the tokens so far --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/PoolState.h"
#include "Memory.h"
#include "StridedView.h"
#include <algorithm>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

Expected<PoolState> PoolState::create(int64_t batch, int64_t heads,
                                      int64_t width, int64_t interval,
                                      const PoolStateOptions &options) {
  Checker check;
  check.integer("batch", batch, 1);
  check.integer("heads", heads, 1);
  check.integer("width", width, 1);
  if (check.hasFailed())
    return check.takeError();
  PoolState state;
  state.interval = interval;
  state.overlap = options.overlap;
  Shape none = {batch, heads, 0, width};
  for (OwnedTensor *array : {&state.x, &state.gate, &state.rows})
    *array = reserve(options.elementType, none);
  // Errors of the options are those of `pool`.
  Expected<OwnedTensor> checked =
      pool(state.x.getRef(), state.gate.getRef(), interval,
           {{options.overlap, options.positionBias}, {}});
  if (!checked)
    return checked.takeError();
  if (options.positionBias) {
    Expected<OwnedTensor> bias = copyArray(*options.positionBias);
    if (!bias)
      return bias.takeError();
    state.positionBias = std::move(*bias);
  }
  return std::move(state);
}

/// `count` rows of both, one behind the other: those of `first` from `begin`
/// on, and all of `second`.
static Expected<OwnedTensor> joinRows(const OwnedTensor &first, int64_t begin,
                                      int64_t count, const TensorRef *second) {
  Shape shape(first.getShape());
  shape[2] = count + (second ? second->shape[2] : 0);
  if (is_contained(shape, 0))
    return reserve(first.getElementType(), shape);
  Expected<OwnedTensor> joined = allocate(first.getElementType(), shape);
  if (!joined)
    return joined;
  StridedView all(joined->getRef());
  if (count > 0)
    copyElements(StridedView(first.getRef()).slice(2, begin, count),
                 all.slice(2, 0, count));
  if (second && second->shape[2] > 0)
    copyElements(*second, all.slice(2, count, second->shape[2]));
  return joined;
}

Error PoolState::append(const TensorRef &newX, const TensorRef &newGate) {
  Checker check;
  Argument given[] = {check.tensor("x", newX, 4, "[B,G,N,E]"),
                      check.tensor("gate", newGate, 4, "[B,G,N,E]")};
  if (check.hasFailed())
    return check.takeError();
  Shape shape(x.getShape());
  shape[2] = given[0].shape[2];
  for (const Argument &argument : given) {
    check.elementType(argument, {x.getElementType()});
    check.match(argument.name, "shape", argument.shape, shape);
  }
  if (check.hasFailed())
    return check.takeError();
  int64_t kept = length - begin, newLength = length + shape[2],
          done = length / interval, whole = newLength / interval;

  const OwnedTensor *kinds[] = {&x, &gate};
  OwnedTensor tokens[2];
  for (auto [argument, own, joined] : zip_equal(given, kinds, tokens)) {
    OwnedTensor copy;
    Expected<TensorRef> readable =
        prepare(argument, /*takesStrides=*/true, copy,
                [&name = argument.name] { return name; });
    if (!readable)
      return readable.takeError();
    Expected<OwnedTensor> all = joinRows(*own, 0, kept, &*readable);
    if (!all)
      return all.takeError();
    joined = std::move(*all);
  }

  OwnedTensor summaries;
  if (whole > done) {
    int64_t last = whole * interval - begin;
    PoolOptions options;
    options.overlap = overlap;
    if (positionBias.getData())
      options.positionBias = positionBias.getRef();
    Expected<OwnedTensor> found = pool(
        StridedView(tokens[0].getRef()).slice(2, 0, last),
        StridedView(tokens[1].getRef()).slice(2, 0, last), interval, options);
    if (!found)
      return found.takeError();
    if (whole > rows.getShape()[2]) {
      shape[2] = std::max(whole, 2 * done);
      Expected<OwnedTensor> more = allocate(x.getElementType(), shape);
      if (!more)
        return more.takeError();
      summaries = std::move(*more);
      if (done > 0)
        copyElements(StridedView(rows.getRef()).slice(2, 0, done),
                     StridedView(summaries.getRef()).slice(2, 0, done));
    }
    const OwnedTensor &target = summaries.getData() ? summaries : rows;
    copyElements(StridedView(found->getRef())
                     .slice(2, done - begin / interval, whole - done),
                 StridedView(target.getRef()).slice(2, done, whole - done));
  }

  int64_t newBegin = std::max(begin, (whole - 1) * interval - getReach());
  OwnedTensor rest[2];
  for (auto [all, part] : zip_equal(tokens, rest)) {
    Expected<OwnedTensor> taken = joinRows(
        all, newBegin - begin, newLength - newBegin, /*second=*/nullptr);
    if (!taken)
      return taken.takeError();
    part = std::move(*taken);
  }
  x = std::move(rest[0]);
  gate = std::move(rest[1]);
  if (summaries.getData())
    rows = std::move(summaries);
  begin = newBegin;
  length = newLength;
  return Error::success();
}

Error PoolState::truncate(int64_t kept) {
  int64_t least = begin > 0 ? begin + getReach() : 0;
  Checker check;
  check.check(kept >= least && kept <= length,
              "length: found " + Twine(kept) + ", needed " + Twine(least) +
                  " to " + Twine(length) +
                  ": of others summaries are kept alone");
  if (check.hasFailed())
    return check.takeError();
  length = kept;
  return Error::success();
}

Expected<PoolState> PoolState::fork() const {
  PoolState other;
  other.interval = interval;
  other.overlap = overlap;
  other.length = length;
  other.begin = begin;
  for (auto [from, to] :
       {std::pair(&x, &other.x), std::pair(&gate, &other.gate),
        std::pair(&rows, &other.rows)}) {
    Expected<OwnedTensor> copy =
        joinRows(*from, 0, from->getShape()[2], /*second=*/nullptr);
    if (!copy)
      return copy.takeError();
    *to = std::move(*copy);
  }
  if (positionBias.getData()) {
    Expected<OwnedTensor> copy = copyArray(positionBias.getRef());
    if (!copy)
      return copy.takeError();
    other.positionBias = std::move(*copy);
  }
  return std::move(other);
}

OwnedTensor PoolState::getSummaries() const {
  return getView(StridedView(rows.getRef()).slice(2, 0, length / interval));
}
