//===- SummaryFamilies.cpp - Weights of summaries -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummaryFamilies.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

int64_t fovea::getNumLevels(int64_t length, int64_t group) {
  return attn::countLevels(length, group);
}

void Families::checkCount(StringRef name, size_t found) {
  int64_t needed = getNumLevels(length, group);
  check.check(int64_t(found) >= needed,
              name + ": found " + Twine(found) + " levels, needed " +
                  Twine(needed) + " for " + Twine(length) +
                  " tokens in groups of " + Twine(group));
  if (!levels)
    levels = found;
  check.check(int64_t(found) == *levels,
              name + ": found " + Twine(found) + " levels, needed " +
                  Twine(*levels) + " as for other weights");
}

int64_t Families::getInterval(int64_t level) const {
  // As many as all levels before are enough for.
  return attn::getMostTokens(group, level - 1);
}

void Families::checkRank(const Argument &of, unsigned dim) {
  if (!rank) {
    rank = of.shape[dim];
    check.check(*rank != 0 && group % *rank == 0,
                "group: found " + Twine(group) +
                    ", needed a multiple of the rank p = " + Twine(*rank) +
                    " of " + of.name);
  }
  check.match(of.name, "rank p =", of.shape[dim], *rank);
}

void Families::checkWeight(const Argument &weight, const Argument &of,
                           int64_t level) {
  int64_t sets = weight.shape[0], heads = of.shape[1];
  check.check(sets != 0 && heads % sets == 0,
              weight.name + ": found W = " + Twine(sets) +
                  ", needed 1 or a divisor of the " + Twine(heads) +
                  " heads of " + of.name);
  checkRank(weight, /*dim=*/1);
  check.match(weight.name, "interval", weight.shape[2], getInterval(level));
  // Columns of tokens, and those of summaries where weights mix them.
  for (int64_t width : ArrayRef(weight.shape).drop_front(3))
    check.match(weight.name, "width", width, of.shape[3]);
}

void Families::checkSummaries(const Argument &summaries, const Argument &of,
                              int64_t level) {
  checkRank(summaries, /*dim=*/3);
  check.match(summaries.name, "shape", summaries.shape,
              {of.shape[0], of.shape[1],
               int64_t(divideCeil(length, getInterval(level))), *rank,
               of.shape[3]});
}

void Families::add(StringRef name, const SummaryWeights &family,
                   const Argument &of) {
  std::string names[] = {(name + "_weights").str(), (name + "_biases").str(),
                         (name + "_summaries").str()};
  check.check(!family.summaries || (family.weights.empty() && !family.biases),
              names[Summaries] + ": found them beside " +
                  names[family.biases ? Biases : Weights] +
                  ", needed one of both");
  std::optional<ArrayRef<TensorRef>> given[] = {family.weights, family.biases,
                                                family.summaries};
  if (family.summaries)
    given[Weights].reset();
  for (Kind kind : {Weights, Biases, Summaries})
    if (given[kind])
      checkCount(names[kind], given[kind]->size());
  if (check.hasFailed())
    return;
  for (Kind kind : {Weights, Biases, Summaries}) {
    SmallVector<Argument> &list = lists[kind].emplace_back();
    for (int64_t level = 0; given[kind] && level < *levels; ++level) {
      list.push_back(check.operand(
          names[kind], names[kind] + "[" + std::to_string(level) + "]",
          (*given[kind])[level]));
      if (check.hasFailed())
        return;
      const Argument &argument = list.back();
      if (kind == Weights)
        checkWeight(argument, of, level);
      else if (kind == Summaries)
        checkSummaries(argument, of, level);
      else
        check.match(
            argument.name, "shape", argument.shape,
            {lists[Weights].back()[level].shape[0], *rank, of.shape[3]});
    }
  }
}

void Families::addTo(Call &call) const {
  for (const auto &kind : lists)
    for (const SmallVector<Argument> &arguments : kind)
      call.operand(arguments);
}

void Families::addGradientsTo(Call &call) const {
  for (const auto &kind : lists)
    for (const SmallVector<Argument> &arguments : kind)
      call.results(check, "d_", arguments);
}

void Families::takeGradients(MutableArrayRef<OwnedTensor> results,
                             ArrayRef<SummaryGradients *> gradients) const {
  auto *next = results.begin();
  SmallVector<OwnedTensor> SummaryGradients::*const members[] = {
      &SummaryGradients::weights, &SummaryGradients::biases,
      &SummaryGradients::summaries};
  for (auto [kind, member] : zip_equal(lists, members))
    for (const auto &[list, gradient] : zip_equal(kind, gradients))
      for (size_t level = 0; level < list.size(); ++level)
        (gradient->*member).push_back(std::move(*next++));
}
