//===- VarlenBatch.cpp - Packed sequences on GPUs -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VarlenBatch.h"
#include "Call.h"
#include "PackedRows.h"
#include "TokenMask.h"
#include "fovea/Functions/ResultScopes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

namespace {
/// Sequences that are one batch, with as many places for each.
struct Group {
  int64_t mostQueries, mostKeys;
  /// Which of them, where these are not all.
  std::optional<SmallVector<int32_t>> sequences;
};

/// Queries and keys of some sequences in a batch.
struct Batch {
  Batch(Checker &check, const VarlenArguments &arguments, const Group &group,
        Target target);

  PackedRows queries, keys;
  OwnedTensor q, k, v;
};
} // namespace

/// With the longest lengths all sequences are one group. Otherwise the host
/// reads the starts, and those whose lengths are between the same powers of two
/// are: a batch is less than twice as large as its rows, however long others
/// are.
static SmallVector<Group> findGroups(Checker &check,
                                     const VarlenArguments &arguments,
                                     const VarlenFormOptions &options) {
  const auto &[q, k, v, queryStarts, keyStarts] = arguments;
  int64_t numQueries = q.shape[0], numKeys = k.shape[0];
  for (auto [starts, numRows] :
       {std::pair(&queryStarts, numQueries), std::pair(&keyStarts, numKeys)})
    check.check(starts->shape[0] > 1 || numRows == 0,
                starts->name + ": found 0 at the end, needed " +
                    Twine(numRows) + ", the number of rows");
  if (options.maxQueries) {
    arguments.checkSequences(check);
    return {{std::min(*options.maxQueries, std::max<int64_t>(numQueries, 1)),
             std::min(*options.maxKeys, std::max<int64_t>(numKeys, 1)),
             std::nullopt}};
  }
  Target target = options.target;
  for (const Argument *starts : {&queryStarts, &keyStarts})
    if (isCaptured(starts->data, target))
      check.fail(createStringError(
          "varlen: the host reads cu_seqlens, which a CUDA graph that is being "
          "captured cannot hold: give max_q and max_k"));
  SmallVector<int64_t> ofQueries =
                           readStarts(check, queryStarts, numQueries, target),
                       ofKeys = readStarts(check, keyStarts, numKeys, target);
  arguments.checkSequences(check);
  if (check.hasFailed())
    return {};
  std::map<std::pair<int64_t, int64_t>, SmallVector<int32_t>> found;
  for (size_t i = 0; i + 1 < ofQueries.size(); ++i) {
    int64_t length = ofQueries[i + 1] - ofQueries[i];
    int64_t numSeen = std::max<int64_t>(ofKeys[i + 1] - ofKeys[i], 1);
    if (length > 0)
      found[{PowerOf2Ceil(length), PowerOf2Ceil(numSeen)}].push_back(i);
  }
  SmallVector<Group> groups;
  for (auto &[most, sequences] : found)
    groups.push_back({most.first, most.second, std::move(sequences)});
  // Results are zeros where there are no queries.
  if (groups.empty())
    groups.push_back({1, 1, SmallVector<int32_t>()});
  return groups;
}

static OwnedTensor pad(Checker &check, const PackedRows &side,
                       const Argument &rows) {
  if (check.hasFailed())
    return {};
  Expected<OwnedTensor> made = side.pad(rows);
  if (made)
    return std::move(*made);
  check.fail(made.takeError());
  return {};
}

static std::optional<Argument> getSequences(const Group &group) {
  if (!group.sequences)
    return std::nullopt;
  Argument list;
  list.name = "sequences";
  list.elementType = ElementType::I32;
  list.shape = {int64_t(group.sequences->size())};
  list.data = const_cast<int32_t *>(group.sequences->data());
  list.isReadOnly = true;
  return list;
}

Batch::Batch(Checker &check, const VarlenArguments &arguments,
             const Group &group, Target target)
    : queries(check, "cu_seqlens_q", arguments.queryStarts,
              arguments.q.shape[0], group.mostQueries, getSequences(group),
              target),
      keys(check, "cu_seqlens_k", arguments.keyStarts, arguments.k.shape[0],
           group.mostKeys, getSequences(group), target),
      q(::pad(check, queries, arguments.q)), k(::pad(check, keys, arguments.k)),
      v(::pad(check, keys, arguments.v)) {}

/// The memory of one result of several.
static ResultMemory getMemory(const ResultMemory &all, size_t place) {
  ResultMemory memory(all.getName());
  if (place < all.getPlaces().size()) {
    const ResultMemory::Place &own = all.getPlaces()[place];
    memory.add(own.name, own.array);
  }
  return memory;
}

namespace {
/// What a batch gives of its queries, or of its keys.
struct BatchResult {
  bool isOfQueries;
  OwnedTensor array;
};
} // namespace

/// What `compute` gives of all batches, as rows.
static Expected<SmallVector<OwnedTensor>> computeInBatches(
    const VarlenArguments &arguments, ArrayRef<Group> groups, Target target,
    const ResultMemory &memory,
    function_ref<Expected<SmallVector<BatchResult>>(Checker &, const Batch &)>
        compute) {
  SmallVector<std::optional<OwnedTensor>> results;
  for (const Group &group : groups) {
    Checker check;
    std::optional<Batch> batch;
    SmallVector<BatchResult> found;
    {
      // What a batch has is nobody's result.
      DestinationScope none({});
      BoundedLengthsScope bounded;
      batch.emplace(check, arguments, group, target);
      if (check.hasFailed())
        return check.takeError();
      Expected<SmallVector<BatchResult>> made = compute(check, *batch);
      if (!made)
        return made.takeError();
      found = std::move(*made);
    }
    results.resize(found.size());
    for (auto [place, part] : enumerate(found)) {
      const PackedRows &side = part.isOfQueries ? batch->queries : batch->keys;
      if (Error error =
              side.unpad(part.array, getMemory(memory, place), results[place]))
        return std::move(error);
    }
  }
  return map_to_vector(results, [](std::optional<OwnedTensor> &result) {
    return std::move(*result);
  });
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

Expected<AttentionResult>
functions::varlenInBatch(const VarlenArguments &arguments,
                         const VarlenOptions &options) {
  Checker check;
  checkPlaces(check, options.out, options.returnLse ? 2 : 1);
  SmallVector<Group> groups = findGroups(check, arguments, options);
  if (check.hasFailed())
    return check.takeError();
  Expected<SmallVector<OwnedTensor>> results = computeInBatches(
      arguments, groups, options.target, options.out,
      [&](Checker &, const Batch &batch) -> Expected<SmallVector<BatchResult>> {
        auto call = makeDenseOptions<DenseOptions>(options);
        call.returnLse = options.returnLse;
        call.lengths = batch.keys.getLengths();
        call.queryLengths = batch.queries.getLengths();
        Expected<AttentionResult> made =
            dense(batch.q.getRef(), batch.k.getRef(), batch.v.getRef(), call);
        if (!made)
          return made.takeError();
        SmallVector<BatchResult> found;
        found.push_back({/*isOfQueries=*/true, std::move(made->output)});
        if (options.returnLse)
          found.push_back({/*isOfQueries=*/true, std::move(made->lse)});
        return found;
      });
  if (!results)
    return results.takeError();
  AttentionResult result;
  result.output = std::move(results->front());
  if (options.returnLse)
    result.lse = std::move(results->back());
  return std::move(result);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

static OwnedTensor reshape(OwnedTensor array, ArrayRef<int64_t> shape) {
  void *data = array.getData();
  ElementType type = array.getElementType();
  auto [base, deleter] = array.release();
  return OwnedTensor(base, deleter, data, type, shape);
}

/// The sum of numbers [A,H], or one of them, as elements of `type`.
static Expected<OwnedTensor> addAs(ElementType type, ArrayRef<Argument> terms,
                                   const ResultMemory &memory, Target target) {
  static const attn::Contract contract("sum_of_batches", "left: [A, H]\n"
                                                         "right?: [A, H]\n"
                                                         "sum: [A, H]");
  Checker check;
  Call call(contract, target, memory);
  call.operands({terms.front()});
  call.operandIf(terms.size() == 1 ? std::nullopt
                                   : std::optional(terms.back()));
  call.result(check, "sum", type, terms.front().shape);
  call.setBody([](mlir::OpBuilder &builder, mlir::ValueRange arguments,
                  mlir::ValueRange inits) {
    mlir::SmallVector<mlir::AffineMap> maps(arguments.size() + 1,
                                            builder.getMultiDimIdentityMap(2));
    mlir::SmallVector<mlir::utils::IteratorType> loops(
        2, mlir::utils::IteratorType::parallel);
    auto sum = mlir::linalg::GenericOp::create(
        builder, builder.getUnknownLoc(), inits[0].getType(), arguments, inits,
        maps, loops,
        [](mlir::OpBuilder &inner, mlir::Location loc,
           mlir::ValueRange elements) {
          mlir::ImplicitLocOpBuilder b(loc, inner);
          mlir::Type type = elements.back().getType();
          mlir::Value sum = elements.front();
          if (elements.size() == 3)
            sum = mlir::arith::AddFOp::create(b, sum, elements[1]);
          if (type.getIntOrFloatBitWidth() >
              sum.getType().getIntOrFloatBitWidth())
            sum = mlir::arith::ExtFOp::create(b, type, sum);
          else if (type != sum.getType())
            sum = mlir::arith::TruncFOp::create(b, type, sum);
          mlir::linalg::YieldOp::create(b, sum);
        });
    return mlir::SmallVector<mlir::Value>{sum.getResult(0)};
  });
  return call.runFor<OwnedTensor, 1>(check);
}

namespace {
/// The sink, and its gradients, which are rounded once: those of several
/// batches are added in the type of sums.
class SinkGradients {
public:
  SinkGradients(const VarlenBackwardOptions &options, size_t numBatches,
                ElementType state)
      : options(options), numBatches(numBatches), state(state) {}

  /// Tells a call its sink, and where the gradient of that goes at once.
  Error begin(DenseBackwardOptions &call);
  Error add(OwnedTensor share);
  Expected<OwnedTensor> finish();

private:
  /// As an array [1,H] or [1,1].
  static Argument getWhole(const TensorRef &array) {
    Argument whole("sink", array);
    whole.extendTo(2);
    return whole;
  }
  std::optional<TensorRef> getPlace() const {
    if (options.gradients.getPlaces().empty())
      return std::nullopt;
    return options.gradients.getPlaces()[3].array;
  }
  bool isWide() const {
    return numBatches > 1 && options.sink->elementType != state;
  }

  const VarlenBackwardOptions &options;
  size_t numBatches;
  ElementType state;
  OwnedTensor wide, total;
  std::optional<Argument> place;
};
} // namespace

Error SinkGradients::begin(DenseBackwardOptions &call) {
  if (!options.sink)
    return Error::success();
  if (numBatches == 1) {
    if (std::optional<TensorRef> given = getPlace()) {
      place = getWhole(*given);
      call.gradients = {std::nullopt, std::nullopt, std::nullopt,
                        place->getRef()};
    }
    return Error::success();
  }
  if (!isWide())
    return Error::success();
  if (!wide.getData()) {
    Expected<OwnedTensor> made =
        addAs(state, getWhole(*options.sink), {}, options.target);
    if (!made)
      return made.takeError();
    wide = reshape(std::move(*made), options.sink->shape);
  }
  call.sink = wide.getRef();
  return Error::success();
}

Error SinkGradients::add(OwnedTensor share) {
  if (!options.sink)
    return Error::success();
  if (!total.getData()) {
    total = std::move(share);
    return Error::success();
  }
  Expected<OwnedTensor> sum = addAs(
      share.getElementType(),
      {getWhole(total.getRef()), getWhole(share.getRef())}, {}, options.target);
  if (!sum)
    return sum.takeError();
  total = std::move(*sum);
  return Error::success();
}

Expected<OwnedTensor> SinkGradients::finish() {
  if (!options.sink)
    return OwnedTensor();
  std::optional<TensorRef> given = getPlace();
  if (numBatches == 1)
    return given ? getView(*given)
                 : reshape(std::move(total), options.sink->shape);
  ResultMemory memory("gradients");
  if (given) {
    place = getWhole(*given);
    memory.add("gradients[3]", place->getRef());
  }
  Expected<OwnedTensor> rounded =
      addAs(options.sink->elementType, getWhole(total.getRef()), memory,
            options.target);
  if (!rounded)
    return rounded;
  return given ? getView(*given)
               : reshape(std::move(*rounded), options.sink->shape);
}

Expected<VarlenGradients>
functions::varlenBackwardInBatch(const VarlenArguments &arguments,
                                 const Backward &backward,
                                 const VarlenBackwardOptions &options) {
  ElementType type = arguments.q.elementType, state = getStateType(type);
  Shape outputShape = arguments.getOutputShape(),
        lseShape = arguments.getLseShape();
  Checker check;
  Argument dOut = check.like("d_out", backward.dOut, type, outputShape),
           out = check.like("out", *backward.out, type, outputShape),
           lse = check.like("lse", *backward.lse, state, lseShape);
  std::optional<Argument> dLse =
      check.likeIf("d_lse", backward.dLse, state, lseShape);
  checkPlaces(check, options.gradients, options.sink ? 4 : 3);
  SmallVector<Group> groups = findGroups(check, arguments, options);
  if (check.hasFailed())
    return check.takeError();
  SinkGradients sink(options, groups.size(), state);
  Expected<SmallVector<OwnedTensor>> results = computeInBatches(
      arguments, groups, options.target, options.gradients,
      [&](Checker &check,
          const Batch &batch) -> Expected<SmallVector<BatchResult>> {
        const PackedRows &queries = batch.queries;
        OwnedTensor dOutRows = pad(check, queries, dOut),
                    outRows = pad(check, queries, out),
                    lseRows = pad(check, queries, lse), dLseRows;
        if (dLse)
          dLseRows = pad(check, queries, *dLse);
        if (check.hasFailed())
          return check.takeError();
        auto call = makeDenseOptions<DenseBackwardOptions>(options);
        call.lengths = batch.keys.getLengths();
        call.queryLengths = queries.getLengths();
        if (dLse)
          call.dLse = dLseRows.getRef();
        if (Error error = sink.begin(call))
          return std::move(error);
        Expected<DenseGradients> made = dense_backward(
            dOutRows.getRef(), batch.q.getRef(), batch.k.getRef(),
            batch.v.getRef(), outRows.getRef(), lseRows.getRef(), call);
        if (!made)
          return made.takeError();
        if (Error error = sink.add(std::move(made->sink)))
          return std::move(error);
        SmallVector<BatchResult> found;
        found.push_back({/*isOfQueries=*/true, std::move(made->q)});
        found.push_back({/*isOfQueries=*/false, std::move(made->k)});
        found.push_back({/*isOfQueries=*/false, std::move(made->v)});
        return found;
      });
  if (!results)
    return results.takeError();
  Expected<OwnedTensor> dSink = sink.finish();
  if (!dSink)
    return dSink.takeError();
  return VarlenGradients{std::move((*results)[0]), std::move((*results)[1]),
                         std::move((*results)[2]), std::move(*dSink)};
}
