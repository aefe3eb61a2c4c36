//===- FastMultipole.cpp - Hierarchical attention of arrays ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/FastMultipole.h"
#include "AttentionCall.h"
#include "TokenMask.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

int64_t fovea::getNumLevels(int64_t length, int64_t group) {
  int64_t groups = divideCeil(length, group);
  return groups <= 2 ? 0 : Log2_64_Ceil(groups) - 1;
}

namespace {
/// Weights and biases of the summaries of q, k and v, checked.
class Families {
public:
  Families(Call &call, Checker &check, int64_t length, int64_t group)
      : call(call), check(check), length(length), group(group) {}

  size_t size() const { return weights.size(); }
  /// `name` is "query", "key" or "value".
  void add(StringRef name, const SummaryWeights &family, const Argument &of);
  void addToCall();
  /// Makes a gradient of every weight and bias a result.
  void addGradients();
  /// Takes them from `results`, in order.
  void takeGradients(MutableArrayRef<OwnedTensor> results,
                     ArrayRef<SummaryGradients *> gradients) const;

private:
  void checkCount(StringRef name, size_t found);
  void checkWeight(const Argument &weight, const Argument &of, int64_t level);

  Call &call;
  Checker &check;
  int64_t length, group;
  /// Those that the first weights are for; all others are for as many.
  std::optional<int64_t> levels;
  std::optional<int64_t> rank;
  SmallVector<std::pair<std::string, SmallVector<Argument>>> weights, biases;
};
} // namespace

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
  auto interval = SaturatingMultiply<uint64_t>(
      group, level < 63 ? uint64_t(1) << level : UINT64_MAX);
  check.match(weight.name, "interval", weight.shape[2],
              std::min<uint64_t>(interval, INT64_MAX));
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

void Families::addToCall() {
  for (const auto *lists : {&weights, &biases})
    for (const auto &[name, arguments] : *lists)
      call.operand(arguments);
}

void Families::addGradients() {
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

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Operands and attributes of an operation and of its gradient.
template <typename Options>
static void addAttention(Call &call, Checker &check,
                         const Checker::Attention &arguments, int64_t group,
                         const Options &options) {
  const auto &[q, k, v] = arguments;
  call.operands({q, k, v});
  call.attribute("scale", check.scale(options.scale, q.shape[3]));
  call.attribute("group", check.integer("group", group, 1));
  call.flag("causal", options.causal);
}

/// Fails unless the caller knows what `causal` cannot do.
template <typename Options>
static void addLookahead(Call &call, Checker &check, const Options &options) {
  check.check(!options.causal || options.allowQueryLookahead,
              "causal: found True without allow_query_lookahead, needed both: "
              "a summary of queries mixes later queries of its interval into "
              "earlier rows");
  call.flag("allow_query_lookahead", options.causal);
}

Expected<AttentionResult>
fovea::fast_multipole(const TensorRef &queries, const TensorRef &keys,
                      const TensorRef &values, const SummaryWeights &keyWeights,
                      const SummaryWeights &valueWeights, int64_t group,
                      const FastMultipoleOptions &options) {
  Checker check("fast_multipole");
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  Call call("fast_multipole", options.target, options.out);
  addAttention(call, check, arguments, group, options);
  if (!options.multiplicity)
    call.attribute("multiplicity", false);
  Families families(call, check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  families.addToCall();
  call.operandIf(mask.get());
  return runAttention(call, check, arguments, options, /*readsNothing=*/false);
}

Expected<OwnedTensor> fovea::fast_multipole_linear(
    const TensorRef &queries, const TensorRef &keys, const TensorRef &values,
    const SummaryWeights &queryWeights, const SummaryWeights &keyWeights,
    const SummaryWeights &valueWeights, int64_t group,
    const FastMultipoleLinearOptions &options) {
  Checker check("fast_multipole_linear");
  Call call("fast_multipole_linear", options.target, options.out);
  addLookahead(call, check, options);
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  addAttention(call, check, arguments, group, options);
  Families families(call, check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("query", queryWeights, q);
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  families.addToCall();
  call.operandIf(mask.get());
  call.result(check, "output", q.elementType, arguments.output());
  return call.runFor<OwnedTensor, 1>(check, is_contained(arguments.rows(), 0));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

static Expected<FastMultipoleGradients>
runBackward(Call &call, Checker &check, const Checker::Attention &arguments,
            Families &families, const TokenMask &mask,
            const Backward &backward) {
  families.addToCall();
  call.operandIf(mask.get());
  addBackward(call, check, arguments, backward);
  families.addGradients();
  Expected<SmallVector<OwnedTensor>> results =
      call.runChecked(check, is_contained(arguments.rows(), 0));
  if (!results)
    return results.takeError();
  FastMultipoleGradients gradients;
  gradients.q = std::move((*results)[0]);
  gradients.k = std::move((*results)[1]);
  gradients.v = std::move((*results)[2]);
  SmallVector<SummaryGradients *> lists{&gradients.key, &gradients.value};
  if (families.size() == 3)
    lists.insert(lists.begin(), &gradients.query);
  families.takeGradients(MutableArrayRef(*results).drop_front(3), lists);
  return gradients;
}

Expected<FastMultipoleGradients> fovea::fast_multipole_backward(
    const TensorRef &dOut, const TensorRef &queries, const TensorRef &keys,
    const TensorRef &values, const SummaryWeights &keyWeights,
    const SummaryWeights &valueWeights, const TensorRef &out,
    const TensorRef &lse, int64_t group,
    const FastMultipoleBackwardOptions &options) {
  Checker check("fast_multipole_backward");
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  Call call("fast_multipole_backward", options.target, options.gradients);
  addAttention(call, check, arguments, group, options);
  if (!options.multiplicity)
    call.attribute("multiplicity", false);
  Families families(call, check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  return runBackward(call, check, arguments, families, mask,
                     {dOut, options.dLse, &out, &lse});
}

Expected<FastMultipoleGradients> fovea::fast_multipole_linear_backward(
    const TensorRef &dOut, const TensorRef &queries, const TensorRef &keys,
    const TensorRef &values, const SummaryWeights &queryWeights,
    const SummaryWeights &keyWeights, const SummaryWeights &valueWeights,
    int64_t group, const FastMultipoleLinearBackwardOptions &options) {
  Checker check("fast_multipole_linear_backward");
  Call call("fast_multipole_linear_backward", options.target,
            options.gradients);
  addLookahead(call, check, options);
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  addAttention(call, check, arguments, group, options);
  Families families(call, check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("query", queryWeights, q);
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  return runBackward(call, check, arguments, families, mask,
                     {dOut, std::nullopt});
}
