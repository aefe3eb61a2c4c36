//===- Dense.cpp - Dense attention of arrays ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Dense.h"
#include "AttentionCall.h"
#include "ScoreArguments.h"
#include "fovea/Kernels/HeadRows.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

namespace {
/// What lives as long as a call: log weights, biases and sinks, and what was
/// made of arguments.
struct Parts {
  std::optional<Argument> terms[3];
  std::optional<SequenceLengths> lengths[2];
  std::optional<ScoreArguments> score;
};
} // namespace

/// Operands and attributes of both functions. Returns whether no query has a
/// key.
template <typename Options>
static bool addDense(Call &call, Checker &check,
                     const Checker::Attention &arguments,
                     const Options &options, Parts &parts) {
  auto &[terms, lengths, score] = parts;
  const auto &[q, k, v] = arguments;
  int64_t length = q.shape[2], numKeys = k.shape[2];
  call.operands({q, k, v});
  call.attribute("scale", check.scale(options.scale, q.shape[3]));
  MaskValue mask = checkMask(check, "", options, length, numKeys);
  if (mask.causal || mask.window)
    call.attribute("mask", mask);
  if (options.logWeight)
    terms[0] = check.scoreTerm("log_weight", *options.logWeight, q.elementType,
                               {q.shape[0], k.shape[1], numKeys});
  if (options.bias)
    terms[1] = check.scoreTerm("bias", *options.bias, q.elementType,
                               {q.shape[0], q.shape[1], length, numKeys});
  if (options.sink)
    terms[2] = check.scoreTerm("sink", *options.sink, q.elementType,
                               {q.shape[0], q.shape[1]});
  for (const std::optional<Argument> &term : terms)
    call.operandIf(term);
  // Those that positions in documents are counted by.
  bool areRead = options.segments.has_value();
  lengths[0].emplace(check, "lengths", options.lengths, q.shape[0], numKeys,
                     options.target, areRead);
  // A sink is read all the same.
  if (options.sink && options.window == 0)
    lengths[0].emplace(
        SequenceLengths::makeZeros(check, "lengths", q.shape[0]));
  lengths[1].emplace(check, "query_lengths", options.queryLengths, q.shape[0],
                     length, options.target, areRead);
  for (const std::optional<SequenceLengths> &each : lengths)
    call.operandIf(each->get());
  score.emplace(check, std::max(length, numKeys));
  score->add(options.score);
  score->add(options.admit);
  score->add(options.segments, q.shape[0], length, numKeys, *lengths[1],
             *lengths[0]);
  score->addTo(call);
  return !options.sink && (numKeys == 0 || options.window == 0);
}

/// What kernels for GPUs leave open of numbers of queries and keys. Those for
/// few queries read keys whose number grows with each call, and read as much as
/// others: parts of keys are counted as they run. The queries of a cache are
/// prompts of any length.
static StringLiteral chooseOpen(const Argument &q, Target target,
                                bool isOfCache) {
  if ((target != Target::GPU && target != Target::GPUEmulator) ||
      getShapes() == Shapes::Static)
    return StringLiteral("");
  if (q.shape[2] <= attn::kMostFewQueries)
    return StringLiteral("M");
  return isOfCache ? StringLiteral("NM") : StringLiteral("");
}

static Expected<AttentionResult>
runDense(const TensorRef &q, const TensorRef &k, const TensorRef &v,
         const DenseOptions &options, bool isOfCache) {
  Checker check("dense");
  Checker::Attention arguments = check.attention(q, k, v);
  Call call("dense", options.target, options.out);
  Parts parts;
  bool readsNothing = addDense(call, check, arguments, options, parts);
  call.openLengths(chooseOpen(arguments.q, options.target, isOfCache));
  return runAttention(call, check, arguments, options, readsNothing);
}

Expected<AttentionResult> fovea::dense(const TensorRef &q, const TensorRef &k,
                                       const TensorRef &v,
                                       const DenseOptions &options) {
  return runDense(q, k, v, options, /*isOfCache=*/false);
}

Expected<AttentionResult> functions::denseOfCache(const TensorRef &q,
                                                  const TensorRef &k,
                                                  const TensorRef &v,
                                                  const DenseOptions &options) {
  return runDense(q, k, v, options, /*isOfCache=*/true);
}

Expected<DenseGradients>
fovea::dense_backward(const TensorRef &dOut, const TensorRef &q,
                      const TensorRef &k, const TensorRef &v,
                      const TensorRef &out, const TensorRef &lse,
                      const DenseBackwardOptions &options) {
  Checker check("dense_backward");
  Checker::Attention arguments = check.attention(q, k, v);
  Call call("dense_backward", options.target, options.gradients);
  Parts parts;
  bool readsNothing = addDense(call, check, arguments, options, parts);
  addBackward(call, check, arguments, {dOut, options.dLse, &out, &lse});
  const bool wanted[] = {options.returnDLogWeight, options.returnDBias, true};
  const auto &terms = parts.terms;
  for (auto [term, isWanted] : zip_equal(terms, wanted))
    call.results(check, "d_",
                 term && isWanted ? ArrayRef(*term) : ArrayRef<Argument>());
  SmallVector<Argument> captures;
  if (options.returnDCaptures && parts.score)
    captures = parts.score->getDifferentiable().captures;
  call.results(check, "d_", captures);
  Expected<SmallVector<OwnedTensor>> results =
      call.runChecked(check, is_contained(arguments.rows(), 0) || readsNothing);
  if (!results)
    return results.takeError();
  DenseGradients gradients;
  OwnedTensor *found[] = {&gradients.q,    &gradients.k,
                          &gradients.v,    &gradients.logWeight,
                          &gradients.bias, &gradients.sink};
  bool isThere[] = {true,
                    true,
                    true,
                    terms[0] && wanted[0],
                    terms[1] && wanted[1],
                    terms[2] && wanted[2]};
  auto *next = results->begin();
  for (auto [gradient, isWanted] : zip_equal(found, isThere))
    if (isWanted)
      *gradient = std::move(*next++);
  for (size_t i = 0; i < captures.size(); ++i)
    gradients.captures.push_back(std::move(*next++));
  return gradients;
}
