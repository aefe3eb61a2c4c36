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

void Families::checkWeight(const Argument &weight, const Argument &of,
                           int64_t level) {
  int64_t sets = weight.shape[0], heads = of.shape[1];
  check.check(sets != 0 && heads % sets == 0,
              weight.name + ": found W = " + Twine(sets) +
                  ", needed 1 or a divisor of the " + Twine(heads) +
                  " heads of " + of.name);
  if (!rank) {
    rank = weight.shape[1];
    check.check(*rank != 0 && group % *rank == 0,
                "group: found " + Twine(group) +
                    ", needed a multiple of the rank p = " + Twine(*rank) +
                    " of " + weight.name);
  }
  check.match(weight.name, "rank p =", weight.shape[1], *rank);
  // As many as all levels before are enough for.
  check.match(weight.name, "interval", weight.shape[2],
              attn::getMostTokens(group, level - 1));
  check.match(weight.name, "width", weight.shape[3], of.shape[3]);
}

void Families::add(StringRef name, const SummaryWeights &family,
                   const Argument &of) {
  checkCount((name + "_weights").str(), family.weights.size());
  if (family.biases)
    checkCount((name + "_biases").str(), family.biases->size());
  if (check.hasFailed())
    return;
  weights.push_back({(name + "_weights").str(), {}});
  biases.push_back({(name + "_biases").str(), {}});
  for (int64_t level = 0; level < *levels; ++level) {
    std::string index = "[" + std::to_string(level) + "]";
    Argument weight =
        check.operand(weights.back().first, weights.back().first + index,
                      family.weights[level]);
    checkWeight(weight, of, level);
    weights.back().second.push_back(weight);
    if (!family.biases)
      continue;
    Argument bias =
        check.operand(biases.back().first, biases.back().first + index,
                      (*family.biases)[level]);
    check.match(bias.name, "shape", bias.shape,
                {weight.shape[0], *rank, of.shape[3]});
    biases.back().second.push_back(bias);
  }
}

void Families::addTo(Call &call) const {
  for (const auto *lists : {&weights, &biases})
    for (const auto &[name, arguments] : *lists)
      call.operand(arguments);
}

void Families::addGradientsTo(Call &call) const {
  for (const auto *lists : {&weights, &biases})
    for (const auto &[name, arguments] : *lists)
      call.results(check, "d_", arguments);
}

void Families::takeGradients(MutableArrayRef<OwnedTensor> results,
                             ArrayRef<SummaryGradients *> gradients) const {
  auto *next = results.begin();
  auto take = [&](const auto &lists,
                  SmallVector<OwnedTensor> SummaryGradients::*member) {
    for (const auto &[list, gradient] : zip_equal(lists, gradients))
      for (size_t level = 0; level < list.second.size(); ++level)
        (gradient->*member).push_back(std::move(*next++));
  };
  take(weights, &SummaryGradients::weights);
  take(biases, &SummaryGradients::biases);
}
