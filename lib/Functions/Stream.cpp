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
#include "Codes.h"
#include "ScoreArguments.h"
#include "fovea/Dialect/Attn/IR/SourceContract.h"
#include "llvm/ADT/STLExtras.h"
#include <deque>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

/// What a source without ranges reads, and one whose window is 0.
static const std::string kAllRows[] = {"(b)[rows, n] -> (0, rows)"};
static const std::string kNoRows[] = {"(b)[rows, n] -> (0, 0)"};

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
  /// The captured arrays that have a gradient.
  ScoreArguments::Differentiable getDifferentiable() const {
    return score->getDifferentiable();
  }
  /// Query, keys and values as those of attention to the first source.
  const Checker::Attention &getFirst() const { return first; }
  /// Whether no query has a key, nor a sink.
  bool readNothing() const;
  /// `error` of a call, or what in the ranges has led to it.
  Error explain(Error error) const;

  SmallVector<Element> keys, values, logWeights, biases;
  std::optional<Argument> sink;

private:
  /// Checks the lists of a source that has them.
  void addRows(const Source &source, const Twine &name, int64_t keyHeads,
               unsigned number);
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
  std::deque<Codes> lists;
  SmallVector<Element> rows;
  std::optional<SequenceLengths> queryLengths;
  bool readsLengths;
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
  // Positions in documents are counted by lengths.
  readsLengths = any_of(sources, [](const Source &source) {
    return source.segments.has_value();
  });
  queryLengths.emplace(check, "query_lengths", options.queryLengths,
                       first.q.shape[0], first.q.shape[2], target,
                       readsLengths);
  for (const Source &source : sources)
    addSource(contract, source, options);
  if (options.sink)
    sink = check.scoreTerm("sink", *options.sink, first.q.elementType,
                           {first.q.shape[0], first.q.shape[1]});
  addScore(sources, options);
}

void StreamArguments::addRows(const Source &source, const Twine &name,
                              int64_t keyHeads, unsigned number) {
  check.check(source.rows || (source.unit == 1 && !source.hasListedPositions),
              name + (source.unit == 1 ? "positions" : "unit") +
                  ": found it without rows, needed lists of rows");
  if (!source.rows || check.hasFailed())
    return;
  std::string list = (name + "rows").str();
  // Without positions, a unit of more rows than there are is all of them.
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  constexpr int64_t mostOfPositions = 1 << 30;
  check.integer((name + "unit").str(), source.unit, 1,
                source.hasListedPositions ? mostOfPositions : most);
  check.check(Codes::areCodes(*source.rows),
              list + ": found element type " +
                  getArrayTypeName(source.rows->elementType) +
                  ", needed int32 or int64");
  check.check(!source.hasListedPositions || !source.bias,
              name + "bias: found it beside listed positions, needed none");
  Declared declared{attn::getSourceContract().find("rows"), number};
  lists.emplace_back(check, list, *source.rows, target);
  rows.push_back({lists.back().get(check, *declared.spec, list), declared});
  if (check.hasFailed())
    return;
  const auto &shape = rows.back().argument.shape;
  const auto &q = first.q.shape;
  auto needs = [&](unsigned dim, ArrayRef<int64_t> allowed) {
    std::string text;
    for (int64_t extent : allowed)
      text += (text.empty() ? "" : " or ") + std::to_string(extent);
    check.check(is_contained(allowed, shape[dim]),
                list + ": found extent " + Twine(shape[dim]) +
                    " in dimension " + Twine(dim) + ", needed " + text);
  };
  SmallVector<int64_t> heads = {1};
  for (int64_t extent : {keyHeads, q[1]})
    if (!is_contained(heads, extent))
      heads.push_back(extent);
  needs(0, q[0] == 1 ? ArrayRef<int64_t>{1} : ArrayRef<int64_t>{1, q[0]});
  needs(1, heads);
  if (shape[2] == 1)
    return;
  int64_t blocks = block ? divideCeil(q[2], block) : 1;
  check.check(block != 0, "block: found 0, needed at least 1, since " + list +
                              " has a list for each block");
  check.check(shape[2] >= blocks, list + ": found extent " + Twine(shape[2]) +
                                      " in dimension 2, needed 1 or at least " +
                                      Twine(blocks) +
                                      ", the blocks of queries");
}

void StreamArguments::addSource(const attn::Contract &contract,
                                const Source &source,
                                const StreamFormOptions &options) {
  unsigned number = keys.size();
  std::string name = ("sources[" + Twine(number) + "].").str();
  auto addArray = [&](SmallVector<Element> &list, StringRef spec,
                      StringRef what,
                      const TensorRef &array) -> const Argument & {
    Declared declared{contract.find(spec), number};
    list.push_back(
        {check.operand(*declared.spec, name + what.str(), array), declared});
    return list.back().argument;
  };
  const Argument &k = addArray(keys, "keys", "k", source.k);
  // Batch entries may share a pool of pages.
  bool isPool = source.rows && source.hasListedPositions &&
                contract.find("pool of values");
  const Argument &v =
      addArray(values, isPool ? "pool of values" : "values", "v", source.v);
  check.notEmpty(v);
  if (number == 0)
    first.k = k, first.v = v;
  const auto &q = first.q;
  addRows(source, name, v.shape.size() == 4 ? v.shape[1] : 1, number);
  if (check.hasFailed())
    return;
  int64_t numStored = k.shape[2], numKeys = numStored;
  if (source.hasListedPositions)
    numKeys = rows.back().argument.shape[3] * source.unit;
  auto addTerm = [&](SmallVector<Element> &list, StringRef what,
                     const std::optional<TensorRef> &array,
                     ArrayRef<int64_t> shape) {
    if (array)
      list.push_back(
          {check.scoreTerm(name + what.str(), *array, q.elementType, shape),
           {attn::getSourceContract().find(what), number}});
  };
  addTerm(logWeights, "log_weight", source.logWeight,
          {q.shape[0], v.shape[1], numStored});
  addTerm(biases, "bias", source.bias,
          {q.shape[0], q.shape[1], q.shape[2], numStored});
  int64_t stride = check.integer(name + "stride", source.stride, 1);
  check.check(stride <= attn::MaskAttr::kMaxStride,
              name + "stride: found " + Twine(stride) + ", needed at most " +
                  Twine(attn::MaskAttr::kMaxStride));
  int64_t mostTokens = (numKeys + 1) * stride - 1;
  lengths.emplace_back(check, name + "lengths", source.lengths, q.shape[0],
                       mostTokens, target, readsLengths);
  check.check(source.ranges.size() <= 1 ||
                  (!source.lengths && !options.queryLengths),
              name + "ranges: found " + Twine(source.ranges.size()) +
                  " beside lengths, needed at most 1");
  SourceValue attribute;
  attribute.mask = checkMask(check, name, source, q.shape[2], mostTokens);
  attribute.mask.stride = stride;
  attribute.ranges = source.ranges;
  if (source.ranges.empty())
    attribute.ranges = kAllRows;
  // A mask says only what it admits.
  if (source.window == 0)
    attribute.ranges = kNoRows;
  attribute.hasLogWeight = source.logWeight.has_value();
  attribute.hasBias = source.bias.has_value();
  attribute.hasLengths = source.lengths.has_value();
  attribute.hasBlocks = block != 0;
  if (source.rows) {
    // Kernels visit all rows of a unit. One of more than there are is all of
    // them, unless the kernel is for more.
    attribute.unit =
        source.hasListedPositions || getShapes() == Shapes::Dynamic
            ? source.unit
            : std::min(source.unit, std::max<int64_t>(numStored, 1));
    attribute.hasListedPositions = source.hasListedPositions;
  }
  attributes.push_back(attribute);
}

void StreamArguments::addScore(ArrayRef<Source> sources,
                               const StreamFormOptions &options) {
  // A source with a mistake has no attributes.
  if (check.hasFailed())
    return;
  int64_t numQueries = first.q.shape[2], numPositions = numQueries;
  for (auto [each, source] : zip_equal(keys, attributes))
    numPositions = std::max(
        numPositions, (each.argument.shape[2] + 1) * source.mask.stride - 1);
  score.emplace(check, numPositions);
  for (auto [index, source] : enumerate(sources)) {
    check.check(!source.segments || source.stride == 1,
                "sources[" + Twine(index) +
                    "].segments: found them beside a stride, needed one of 1, "
                    "or admit");
    if (check.hasFailed())
      return;
    score->enterSource(index);
    score->add(source.score);
    score->add(source.admit);
    score->add(source.segments, first.q.shape[0], numQueries,
               keys[index].argument.shape[2], *queryLengths, lengths[index]);
    attributes[index].hasScore = score->hasOf(index);
  }
  score->leaveSources();
  score->add(options.score);
  score->add(options.admit);
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
  call.leaveOutBefore("row_lists");
  call.operand(rows);
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
  ScoreArguments::Differentiable captured;
  if (options.returnDCaptures)
    captured = arguments.getDifferentiable();
  call.results(check, "d_", captured.captures);
  auto capturesOf = [&](std::optional<unsigned> source) -> auto & {
    return source ? gradients.sources[*source].captures : gradients.captures;
  };
  for (std::optional<unsigned> source : captured.sources)
    capturesOf(source).emplace_back();
  // They stay where they are from now on.
  for (SourceGradients &source : gradients.sources)
    for (OwnedTensor &gradient : source.captures)
      byResult.push_back(&gradient);
  for (OwnedTensor &gradient : gradients.captures)
    byResult.push_back(&gradient);
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(
      check, is_contained(first.rows(), 0) || arguments.readNothing());
  if (!results)
    return arguments.explain(results.takeError());
  for (auto [gradient, result] : zip_equal(byResult, *results))
    *gradient = std::move(result);
  return std::move(gradients);
}
