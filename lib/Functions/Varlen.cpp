//===- Varlen.cpp - Attention of packed sequences -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every sequence is a call of dense attention on views of its rows, by the
// kernel for all lengths. Long ones run one after the other, each on all
// threads; short ones, which have too little for several threads, at the same
// time, the longest first. GPUs take a batch instead; see VarlenBatch.h.
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Varlen.h"
#include "StridedView.h"
#include "VarlenBatch.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/ResultScopes.h"
#include "fovea_rt/abi.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>
#include <tuple>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

namespace {
/// Where the sequences of `numRows` rows begin and end, checked.
class Starts {
public:
  Starts(Checker &check, const Argument &given, int64_t numRows);

  size_t size() const { return starts.size() - 1; }
  int64_t getLength(size_t sequence) const {
    return starts[sequence + 1] - starts[sequence];
  }
  /// The rows of a sequence of [T,H,D] as [1,H,N,D].
  StridedView getRows(const TensorRef &array, size_t sequence) const {
    return StridedView(array)
        .slice(0, starts[sequence], getLength(sequence))
        .swap(0, 1)
        .lead();
  }
  /// Those of [H,T] as [1,H,N].
  StridedView getColumns(const TensorRef &array, size_t sequence) const {
    return StridedView(array)
        .slice(1, starts[sequence], getLength(sequence))
        .lead();
  }

private:
  SmallVector<int64_t> starts{0};
};

/// The arguments of both functions on a CPU.
struct Packed {
  Packed(Checker &check, const VarlenArguments &arguments)
      : q(arguments.q), k(arguments.k), v(arguments.v),
        queries(check, arguments.queryStarts, q.shape[0]),
        keys(check, arguments.keyStarts, k.shape[0]) {
    arguments.checkSequences(check);
  }

  /// Calls `run` for every sequence, of several threads, and returns the error
  /// of the first sequence that has one.
  Error forEach(function_ref<Error(size_t)> run) const;

  const Argument &q, &k, &v;
  Starts queries, keys;
};
} // namespace

Starts::Starts(Checker &check, const Argument &given, int64_t numRows) {
  if (check.hasFailed())
    return;
  // As good as any: all rows are of the first sequence.
  bool isAbstract = given.data == kAbstractData;
  starts = isAbstract ? SmallVector<int64_t>(given.shape[0], numRows)
                      : readStarts(check, given, numRows, Target::CPU);
  starts.front() = 0;
}

SmallVector<int64_t> functions::readStarts(Checker &check,
                                           const Argument &given,
                                           int64_t numRows, Target target) {
  if (check.hasFailed())
    return {0};
  SmallVector<int64_t> starts;
  const std::string &name = given.name;
  OwnedTensor copy;
  Expected<TensorRef> readable = prepareOnHost(given, target, copy);
  if (!readable) {
    check.fail(readable.takeError());
    return {0};
  }
  for (int64_t i = 0; i < given.shape[0]; ++i) {
    int64_t found = readable->elementType == ElementType::I32
                        ? static_cast<const int32_t *>(readable->data)[i]
                        : static_cast<const int64_t *>(readable->data)[i];
    int64_t least = starts.empty() ? 0 : starts.back();
    check.check(found >= least && found <= numRows,
                name + ": found " + Twine(found) + " at place " + Twine(i) +
                    ", needed " + Twine(least) + " to " + Twine(numRows));
    starts.push_back(found);
  }
  check.check(starts.front() == 0, name + ": found " + Twine(starts.front()) +
                                       " at place 0, needed 0");
  check.check(starts.back() == numRows,
              name + ": found " + Twine(starts.back()) +
                  " at the end, needed " + Twine(numRows) +
                  ", the number of rows");
  return starts;
}

static Argument checkStarts(Checker &check, StringRef name,
                            const TensorRef &array) {
  Argument given(name, array);
  check.elementType(given, {ElementType::I32, ElementType::I64});
  check.check(given.shape.size() == 1 && given.shape[0] >= 1,
              name + ": found shape " + toTuple(given.shape) +
                  ", needed one number more than there are sequences");
  return given;
}

void VarlenArguments::checkSequences(Checker &check) const {
  check.match("cu_seqlens_k", "sequences", keyStarts.shape[0] - 1,
              queryStarts.shape[0] - 1);
}

VarlenArguments::VarlenArguments(Checker &check, const TensorRef &queries,
                                 const TensorRef &keys, const TensorRef &values,
                                 const TensorRef &queryStarts,
                                 const TensorRef &keyStarts,
                                 const VarlenFormOptions &options)
    : q(check.tensor("q", queries, 3, "[T,H,D]")),
      k(check.tensor("k", keys, 3, "[S,G,D]")),
      v(check.tensor("v", values, 3, "[S,G,E]")),
      queryStarts(checkStarts(check, "cu_seqlens_q", queryStarts)),
      keyStarts(checkStarts(check, "cu_seqlens_k", keyStarts)) {
  for (const Argument *other : {&k, &v})
    check.elementType(*other, {q.elementType});
  if (check.hasFailed())
    return;
  check.match("k", "head width", k.shape[2], q.shape[2]);
  check.match("v", "length", v.shape[0], k.shape[0]);
  check.match("v", "heads", v.shape[1], k.shape[1]);
  check.check(q.shape[1] == k.shape[1] ||
                  (k.shape[1] != 0 && q.shape[1] % k.shape[1] == 0),
              "q: found " + Twine(q.shape[1]) +
                  " heads, needed a multiple of the " + Twine(k.shape[1]) +
                  " of k");
  const std::pair<StringRef, std::optional<int64_t>> longest[] = {
      {"max_q", options.maxQueries}, {"max_k", options.maxKeys}};
  bool areKnown = options.maxQueries || options.maxKeys;
  for (auto [name, most] : longest) {
    check.check(most || !areKnown, name + ": found None, needed the longest "
                                          "length, as the other is given");
    if (most)
      check.integer(name.str(), *most, 1);
  }
}

Error Packed::forEach(function_ref<Error(size_t)> run) const {
  size_t count = queries.size();
  // One has the options of all, but each has work of its own.
  if (DescribeScope::isActive()) {
    size_t described =
        FlopScope::getActive() ? count : std::min<size_t>(count, 1);
    for (size_t i = 0; i < described; ++i)
      if (Error error = run(i))
        return error;
    return Error::success();
  }
  SmallVector<int64_t> work(count);
  for (size_t i = 0; i < count; ++i)
    work[i] = queries.getLength(i) * (keys.getLength(i) + 1);
  int64_t threads = fovea_rt_num_threads(),
          total = std::accumulate(work.begin(), work.end(), int64_t(0));
  // In the order of their work; loops hand out the last index first.
  SmallVector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t(0));
  sort(order, [&](size_t a, size_t b) {
    return std::tie(work[a], a) < std::tie(work[b], b);
  });
  std::vector<std::optional<Error>> failures(count);
  size_t numShort = threads == 1 ? 0 : count;
  while (numShort > 0 && work[order[numShort - 1]] * 4 * threads > total)
    --numShort;
  for (size_t sequence : ArrayRef(order).drop_front(numShort))
    failures[sequence].emplace(run(sequence));

  struct Loop {
    function_ref<Error(size_t)> run;
    ArrayRef<size_t> order;
    std::vector<std::optional<Error>> &failures;
  } loop{run, ArrayRef(order).take_front(numShort), failures};
  void *arguments[] = {&loop};
  fovea_rt_status status = fovea_rt_invoke(
      [](void **given) {
        auto &loop = *static_cast<Loop *>(given[0]);
        fovea_rt_parallel_for(
            loop.order.size(), /*scratch_bytes=*/0,
            [](int64_t index, void *, void *context) {
              auto &loop = *static_cast<Loop *>(context);
              size_t sequence = loop.order[index];
              loop.failures[sequence].emplace(loop.run(sequence));
            },
            &loop);
      },
      arguments);
  Error first = status == FOVEA_RT_OK
                    ? Error::success()
                    : createStringError(fovea_rt_last_error());
  for (std::optional<Error> &failure : failures) {
    if (!failure)
      continue;
    if (first)
      consumeError(std::move(*failure));
    else
      first = std::move(*failure);
  }
  return first;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// The memory for a result, or new memory.
static Expected<OwnedTensor> makeResult(const std::optional<Argument> &place,
                                        ElementType type,
                                        ArrayRef<int64_t> shape) {
  if (place)
    return getView(place->getRef());
  if (DescribeScope::isActive())
    return DescribeScope::makeAbstract(type, shape);
  if (std::optional<TensorRef> lent = DestinationScope::take(type, shape))
    return getView(*lent);
  return allocate(type, shape);
}

/// Fails where results lie in what is read, or in one another.
static Error checkResults(ArrayRef<std::optional<Argument>> places,
                          ArrayRef<Argument> read) {
  for (auto [index, place] : enumerate(places)) {
    if (!place)
      continue;
    for (const Argument &argument : read)
      if (Error error = checkSeparate(*place, argument))
        return error;
    for (const std::optional<Argument> &other : places.take_front(index))
      if (other)
        if (Error error = checkSeparate(*place, *other))
          return error;
  }
  return Error::success();
}

/// What is described reads no starts, on any target.
static bool isInBatch(Target target) {
  return (target == Target::GPU || target == Target::GPUEmulator) &&
         !DescribeScope::isActive();
}

Expected<AttentionResult> fovea::varlen(const TensorRef &q, const TensorRef &k,
                                        const TensorRef &v,
                                        const TensorRef &queryStarts,
                                        const TensorRef &keyStarts,
                                        const VarlenOptions &options) {
  Checker check;
  VarlenArguments arguments(check, q, k, v, queryStarts, keyStarts, options);
  if (check.hasFailed())
    return check.takeError();
  if (isInBatch(options.target))
    return varlenInBatch(arguments, options);
  Packed packed(check, arguments);
  ElementType type = packed.q.elementType, state = getStateType(type);
  Shape outputShape = arguments.getOutputShape(),
        lseShape = arguments.getLseShape();
  checkPlaces(check, options.out, options.returnLse ? 2 : 1);
  std::optional<Argument> places[] = {
      getPlace(check, options.out, 0, type, outputShape),
      getPlace(check, options.out, 1, state, lseShape)};
  if (check.hasFailed())
    return check.takeError();
  if (Error error = checkResults(places, {packed.q, packed.k, packed.v}))
    return std::move(error);
  AttentionResult result;
  Expected<OwnedTensor> output = makeResult(places[0], type, outputShape);
  if (!output)
    return output.takeError();
  result.output = std::move(*output);
  if (options.returnLse) {
    Expected<OwnedTensor> lse = makeResult(places[1], state, lseShape);
    if (!lse)
      return lse.takeError();
    result.lse = std::move(*lse);
  }
  Error error = packed.forEach([&](size_t sequence) {
    auto call = makeDenseOptions<DenseOptions>(options);
    StridedView rows = packed.queries.getRows(result.output.getRef(), sequence);
    StridedView lse =
        options.returnLse
            ? packed.queries.getColumns(result.lse.getRef(), sequence)
            : rows;
    call.returnLse = options.returnLse;
    // What is described has no memory.
    if (!DescribeScope::isActive()) {
      if (options.returnLse)
        call.out = {TensorRef(rows), TensorRef(lse)};
      else
        call.out = TensorRef(rows);
    }
    return dense(packed.queries.getRows(packed.q.getRef(), sequence),
                 packed.keys.getRows(packed.k.getRef(), sequence),
                 packed.keys.getRows(packed.v.getRef(), sequence), call)
        .takeError();
  });
  if (error)
    return std::move(error);
  return std::move(result);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The sink in the type of sums, in which gradients of sequences add up.
static Expected<OwnedTensor> widen(const TensorRef &array, ElementType state) {
  Expected<OwnedTensor> contiguous = copyArray(array);
  if (!contiguous)
    return contiguous;
  Expected<OwnedTensor> wide = allocate(state, array.shape);
  if (!wide)
    return wide;
  for (int64_t i = 0; i < wide->getNumElements(); ++i)
    setElement(wide->getData(), state, i,
               getElement(contiguous->getData(), array.elementType, i));
  return wide;
}

Expected<VarlenGradients>
fovea::varlen_backward(const TensorRef &dOut, const TensorRef &q,
                       const TensorRef &k, const TensorRef &v,
                       const TensorRef &queryStarts, const TensorRef &keyStarts,
                       const TensorRef &out, const TensorRef &lse,
                       const VarlenBackwardOptions &options) {
  Checker check;
  VarlenArguments arguments(check, q, k, v, queryStarts, keyStarts, options);
  if (check.hasFailed())
    return check.takeError();
  if (isInBatch(options.target))
    return varlenBackwardInBatch(arguments, {dOut, options.dLse, &out, &lse},
                                 options);
  Packed packed(check, arguments);
  ElementType type = packed.q.elementType, state = getStateType(type);
  Shape outputShape = arguments.getOutputShape(),
        lseShape = arguments.getLseShape();
  Argument gradient = check.like("d_out", dOut, type, outputShape),
           output = check.like("out", out, type, outputShape),
           sums = check.like("lse", lse, state, lseShape);
  std::optional<Argument> dLse =
      check.likeIf("d_lse", options.dLse, state, lseShape);
  SmallVector<Argument, 5> wanted{packed.q, packed.k, packed.v};
  if (options.sink)
    wanted.push_back(
        check.scoreTerm("sink", *options.sink, type, {1, packed.q.shape[1]}));
  checkPlaces(check, options.gradients, wanted.size());
  SmallVector<std::optional<Argument>, 4> places;
  for (auto [index, argument] : enumerate(wanted))
    places.push_back(getPlace(
        check, options.gradients, index, argument.elementType,
        index == 3 ? ArrayRef(options.sink->shape) : ArrayRef(argument.shape)));
  if (check.hasFailed())
    return check.takeError();
  SmallVector<Argument, 8> read(wanted.begin(), wanted.end());
  read.append({gradient, output, sums});
  if (dLse)
    read.push_back(*dLse);
  if (Error error = checkResults(places, read))
    return std::move(error);
  SmallVector<OwnedTensor, 4> results;
  for (auto [argument, place] : zip_equal(wanted, places)) {
    Expected<OwnedTensor> result =
        makeResult(place, argument.elementType,
                   results.size() == 3 ? options.sink->shape : argument.shape);
    if (!result)
      return result.takeError();
    results.push_back(std::move(*result));
  }
  OwnedTensor sink;
  if (options.sink) {
    Expected<OwnedTensor> wide =
        DescribeScope::isActive()
            ? DescribeScope::makeAbstract(state, options.sink->shape)
            : widen(wanted[3].getRef(), state);
    if (!wide)
      return wide.takeError();
    sink = std::move(*wide);
  }

  std::vector<OwnedTensor> sinkShares(packed.queries.size());
  Error error = packed.forEach([&](size_t sequence) -> Error {
    auto call = makeDenseOptions<DenseBackwardOptions>(options);
    auto ofQueries = [&](const TensorRef &array) {
      return packed.queries.getRows(array, sequence);
    };
    auto ofKeys = [&](const TensorRef &array) {
      return packed.keys.getRows(array, sequence);
    };
    StridedView dq = ofQueries(results[0].getRef()),
                dk = ofKeys(results[1].getRef()),
                dv = ofKeys(results[2].getRef()),
                dSums = packed.queries.getColumns(
                    dLse ? dLse->getRef() : sums.getRef(), sequence);
    if (dLse)
      call.dLse = TensorRef(dSums);
    if (options.sink)
      call.sink = sink.getRef();
    if (!DescribeScope::isActive()) {
      if (options.sink)
        call.gradients = {TensorRef(dq), TensorRef(dk), TensorRef(dv),
                          std::nullopt};
      else
        call.gradients = {TensorRef(dq), TensorRef(dk), TensorRef(dv)};
    }
    Expected<DenseGradients> found = dense_backward(
        ofQueries(gradient.getRef()), ofQueries(packed.q.getRef()),
        ofKeys(packed.k.getRef()), ofKeys(packed.v.getRef()),
        ofQueries(output.getRef()),
        packed.queries.getColumns(sums.getRef(), sequence), call);
    if (!found)
      return found.takeError();
    sinkShares[sequence] = std::move(found->sink);
    return Error::success();
  });
  if (error)
    return std::move(error);
  VarlenGradients gradients{
      std::move(results[0]), std::move(results[1]), std::move(results[2]), {}};
  if (!options.sink)
    return std::move(gradients);
  if (DescribeScope::isActive()) {
    gradients.sink = std::move(results[3]);
    return std::move(gradients);
  }
  // In the order of the sequences, and rounded once.
  fillElements(results[3].getRef(), 0);
  std::vector<double> total(sink.getNumElements());
  for (const OwnedTensor &share : sinkShares)
    for (auto [index, sum] : enumerate(total))
      sum += getElement(share.getData(), state, index);
  OwnedTensor rounded = reserve(wanted[3].elementType, options.sink->shape);
  for (auto [index, sum] : enumerate(total))
    setElement(rounded.getData(), wanted[3].elementType, index, sum);
  copyElements(rounded.getRef(), results[3].getRef());
  gradients.sink = std::move(results[3]);
  return std::move(gradients);
}
