//===- Stream.cpp - Attention to a list of sources ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Stream.h"
#include "AttentionCall.h"
#include "CallText.h"
#include "ScoreArguments.h"
#include "fovea/Dialect/Attn/IR/SourceContract.h"
#include "llvm/ADT/STLExtras.h"
#include <deque>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

/// What a source without ranges reads.
static const std::string kAllRows[] = {"(b)[rows, n] -> (0, rows)"};

namespace {
/// Operands and attributes of both functions, and what was made of arguments:
/// lives as long as the call.
class StreamArguments {
public:
  /// `contract` declares keys and values; that of the gradient is stricter.
  StreamArguments(Checker &check, const attn::Contract &contract,
                  const TensorRef &q, ArrayRef<Source> sources,
                  const StreamFormOptions &options, Target target);

  void addTo(Call &call) const;
  /// Query, keys and values as those of attention to the first source.
  const Checker::Attention &getFirst() const { return first; }
  /// Whether no query has a key, nor a sink.
  bool readNothing() const;
  /// `error` of a call, or what in the ranges has led to it.
  Error explain(Error error) const;

  SmallVector<Element> keys, values, logWeights, biases;
  std::optional<Argument> sink;

private:
  void addSource(const attn::Contract &contract, const Source &source,
                 const StreamFormOptions &options);
  void addScore(ArrayRef<Source> sources, const StreamFormOptions &options);

  Checker &check;
  Target target;
  Checker::Attention first;
  int64_t block;
  double scale;
  SmallVector<SourceValue, 0> attributes;
  std::deque<SequenceLengths> lengths;
  std::optional<SequenceLengths> queryLengths;
  std::optional<ScoreArguments> score;
};
} // namespace

StreamArguments::StreamArguments(Checker &check, const attn::Contract &contract,
                                 const TensorRef &q, ArrayRef<Source> sources,
                                 const StreamFormOptions &options,
                                 Target target)
    : check(check), target(target) {
  first.q = check.operand("query", "q", q);
  check.notEmpty(first.q);
  check.check(!sources.empty(), "sources: found none, needed at least 1");
  block = check.integer("block", options.block, 0);
  scale = check.scale(options.scale, first.q.shape[3]);
  queryLengths.emplace(check, "query_lengths", options.queryLengths,
                       first.q.shape[0], first.q.shape[2], target);
  for (const Source &source : sources)
    addSource(contract, source, options);
  if (options.sink)
    sink = check.scoreTerm("sink", *options.sink, first.q.elementType,
                           {first.q.shape[0], first.q.shape[1]});
  addScore(sources, options);
}

void StreamArguments::addSource(const attn::Contract &contract,
                                const Source &source,
                                const StreamFormOptions &options) {
  unsigned number = keys.size();
  std::string name = ("sources[" + Twine(number) + "].").str();
  auto addRows = [&](SmallVector<Element> &list, StringRef spec, StringRef what,
                     const TensorRef &array) -> const Argument & {
    Declared declared{contract.find(spec), number};
    list.push_back(
        {check.operand(*declared.spec, name + what.str(), array), declared});
    return list.back().argument;
  };
  const Argument &k = addRows(keys, "keys", "k", source.k);
  const Argument &v = addRows(values, "values", "v", source.v);
  check.notEmpty(v);
  if (number == 0)
    first.k = k, first.v = v;
  const auto &q = first.q;
  int64_t numKeys = k.shape[2];
  auto addTerm = [&](SmallVector<Element> &list, StringRef what,
                     const std::optional<TensorRef> &array,
                     ArrayRef<int64_t> shape) {
    if (array)
      list.push_back(
          {check.scoreTerm(name + what.str(), *array, q.elementType, shape),
           {attn::getSourceContract().find(what), number}});
  };
  addTerm(logWeights, "log_weight", source.logWeight,
          {q.shape[0], v.shape[1], numKeys});
  addTerm(biases, "bias", source.bias,
          {q.shape[0], q.shape[1], q.shape[2], numKeys});
  lengths.emplace_back(check, name + "lengths", source.lengths, q.shape[0],
                       numKeys, target);
  check.check(source.ranges.size() <= 1 ||
                  (!source.lengths && !options.queryLengths),
              name + "ranges: found " + Twine(source.ranges.size()) +
                  " beside lengths, needed at most 1");
  SourceValue attribute;
  attribute.mask = checkMask(check, name, source, q.shape[2], numKeys);
  attribute.ranges = source.ranges;
  if (source.ranges.empty())
    attribute.ranges = kAllRows;
  // A mask says only what it admits.
  if (source.window == 0)
    attribute.ranges = {};
  attribute.hasLogWeight = source.logWeight.has_value();
  attribute.hasBias = source.bias.has_value();
  attribute.hasLengths = source.lengths.has_value();
  attribute.hasBlocks = block != 0;
  attributes.push_back(attribute);
}

void StreamArguments::addScore(ArrayRef<Source> sources,
                               const StreamFormOptions &options) {
  int64_t numQueries = first.q.shape[2], numPositions = numQueries;
  for (const Element &each : keys)
    numPositions = std::max(numPositions, each.argument.shape[2]);
  score.emplace(check, numPositions);
  score->add(options.score);
  score->add(options.admit);
  for (auto [index, source] : enumerate(sources)) {
    std::string name = ("sources[" + Twine(index) + "].segments").str();
    check.check(!source.segments || sources.size() == 1,
                name + ": found them beside other sources, needed a single "
                       "source, or admit of the call, which holds for all");
    if (check.hasFailed())
      return;
    score->add(name, source.segments, first.q.shape[0], numQueries,
               keys[index].argument.shape[2], *queryLengths, lengths[index]);
  }
}

bool StreamArguments::readNothing() const {
  return !sink &&
         all_of_zip(keys, attributes,
                    [](const Element &each, const SourceValue &source) {
                      return each.argument.shape[2] == 0 ||
                             source.ranges.empty();
                    });
}

Error StreamArguments::explain(Error error) const {
  SmallVector<int64_t> rows;
  for (const Element &each : keys)
    rows.push_back(each.argument.shape[2]);
  Error reason = checkRanges(attributes, rows, block, first.q.shape[2]);
  if (!reason)
    return error;
  consumeError(std::move(error));
  return reason;
}

void StreamArguments::addTo(Call &call) const {
  call.operands({first.q});
  call.operand(keys);
  call.operand(values);
  call.operand(logWeights);
  call.operand(biases);
  call.attribute("sources", attributes);
  call.attribute("block", block);
  call.attribute("scale", scale);
  SmallVector<Element> given;
  for (auto [index, each] : enumerate(lengths))
    if (each.get())
      given.push_back(
          {*each.get(),
           {attn::getSourceContract().find("lengths"), unsigned(index)}});
  call.leaveOutBefore("lengths");
  call.operand(given);
  call.leaveOutBefore("sink");
  call.operandIf(sink);
  call.operandIf(queryLengths->get());
  score->addTo(call);
  call.leaveOutBefore("output");
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Expected<AttentionResult> fovea::stream(const TensorRef &q,
                                        ArrayRef<Source> sources,
                                        const StreamOptions &options) {
  Checker check("stream");
  StreamArguments arguments(check, attn::getSourceContract(), q, sources,
                            options, options.target);
  if (check.hasFailed())
    return check.takeError();
  Call call("stream", options.target, options.out);
  arguments.addTo(call);
  Expected<AttentionResult> result = runAttention(
      call, check, arguments.getFirst(), options, arguments.readNothing());
  if (!result)
    return arguments.explain(result.takeError());
  return result;
}

Expected<StreamGradients>
fovea::stream_backward(const TensorRef &dOut, const TensorRef &q,
                       ArrayRef<Source> sources, const TensorRef &out,
                       const TensorRef &lse,
                       const StreamBackwardOptions &options) {
  Checker check("stream_backward");
  StreamArguments arguments(check, *attn::findContract("attn.stream_backward"),
                            q, sources, options, options.target);
  if (check.hasFailed())
    return check.takeError();
  Call call("stream_backward", options.target, options.gradients);
  arguments.addTo(call);
  const Checker::Attention &first = arguments.getFirst();
  addForward(call, check, first, {dOut, options.dLse, &out, &lse});

  StreamGradients gradients;
  gradients.sources.resize(sources.size());
  SmallVector<OwnedTensor *> byResult{&gradients.q};
  auto add = [&](ArrayRef<Element> elements,
                 OwnedTensor SourceGradients::*member) {
    call.results(check, "d_", elements);
    for (const Element &each : elements)
      byResult.push_back(&(gradients.sources[each.declared.index].*member));
  };
  add(arguments.keys, &SourceGradients::k);
  add(arguments.values, &SourceGradients::v);
  add(options.returnDLogWeight ? ArrayRef<Element>(arguments.logWeights)
                               : ArrayRef<Element>(),
      &SourceGradients::logWeight);
  add(options.returnDBias ? ArrayRef<Element>(arguments.biases)
                          : ArrayRef<Element>(),
      &SourceGradients::bias);
  call.results(check, "d_",
               arguments.sink ? ArrayRef(*arguments.sink)
                              : ArrayRef<Argument>());
  if (arguments.sink)
    byResult.push_back(&gradients.sink);
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(
      check, is_contained(first.rows(), 0) || arguments.readNothing());
  if (!results)
    return arguments.explain(results.takeError());
  for (auto [gradient, result] : zip_equal(byResult, *results))
    *gradient = std::move(result);
  return std::move(gradients);
}
