//===- VarlenBatch.cpp - Packed sequences on GPUs -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VarlenBatch.h"
#include "PackedRows.h"
#include "TokenMask.h"
#include "fovea/Functions/ResultScopes.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

/// What the longest sequence has at most: that which is given, or that which
/// the host reads.
static int64_t findLongest(Checker &check, const Argument &starts,
                           int64_t numRows, std::optional<int64_t> given,
                           Target target) {
  int64_t most = std::max<int64_t>(numRows, 1), longest = 1;
  if (given)
    return std::min(*given, most);
  if (isCaptured(starts.data, target)) {
    check.fail(createStringError(
        "varlen: the host reads cu_seqlens, which a CUDA graph that is being "
        "captured cannot hold: give max_q and max_k"));
    return 1;
  }
  SmallVector<int64_t> found = readStarts(check, starts, numRows, target);
  for (auto [begin, end] : zip(found, drop_begin(found)))
    longest = std::max(longest, end - begin);
  return std::min(longest, most);
}

namespace {
/// Queries and keys of all sequences in a batch.
struct Batch {
  Batch(Checker &check, const VarlenArguments &arguments,
        const VarlenFormOptions &options);

  std::optional<PackedRows> queries, keys;
  OwnedTensor q, k, v;
};
} // namespace

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

Batch::Batch(Checker &check, const VarlenArguments &arguments,
             const VarlenFormOptions &options) {
  const auto &[argQ, argK, argV, queryStarts, keyStarts] = arguments;
  int64_t numQueries = argQ.shape[0], numKeys = argK.shape[0];
  for (auto [starts, numRows] :
       {std::pair(&queryStarts, numQueries), std::pair(&keyStarts, numKeys)})
    check.check(starts->shape[0] > 1 || numRows == 0,
                starts->name + ": found 0 at the end, needed " +
                    Twine(numRows) + ", the number of rows");
  Target target = options.target;
  int64_t mostQueries = findLongest(check, queryStarts, numQueries,
                                    options.maxQueries, target),
          mostKeys =
              findLongest(check, keyStarts, numKeys, options.maxKeys, target);
  arguments.checkSequences(check);
  if (check.hasFailed())
    return;
  queries.emplace(check, "cu_seqlens_q", queryStarts, numQueries, mostQueries,
                  target);
  keys.emplace(check, "cu_seqlens_k", keyStarts, numKeys, mostKeys, target);
  q = ::pad(check, *queries, argQ);
  k = ::pad(check, *keys, argK);
  v = ::pad(check, *keys, argV);
}

/// The memory of one result of several.
static ResultMemory getMemory(const ResultMemory &all, size_t place) {
  ResultMemory memory(all.getName());
  if (place < all.getPlaces().size()) {
    const ResultMemory::Place &own = all.getPlaces()[place];
    memory.add(own.name, own.array);
  }
  return memory;
}

Expected<AttentionResult>
functions::varlenInBatch(const VarlenArguments &arguments,
                         const VarlenOptions &options) {
  Checker check;
  checkPlaces(check, options.out, options.returnLse ? 2 : 1);
  AttentionResult found;
  std::optional<Batch> batch;
  {
    // What a batch has is nobody's result.
    DestinationScope none({});
    BoundedLengthsScope bounded;
    batch.emplace(check, arguments, options);
    if (check.hasFailed())
      return check.takeError();
    auto call = makeDenseOptions<DenseOptions>(options);
    call.returnLse = options.returnLse;
    call.lengths = batch->keys->getLengths();
    call.queryLengths = batch->queries->getLengths();
    Expected<AttentionResult> made =
        dense(batch->q.getRef(), batch->k.getRef(), batch->v.getRef(), call);
    if (!made)
      return made;
    found = std::move(*made);
  }
  AttentionResult result;
  Expected<OwnedTensor> rows =
      batch->queries->unpad(found.output, getMemory(options.out, 0));
  if (!rows)
    return rows.takeError();
  result.output = std::move(*rows);
  if (!options.returnLse)
    return std::move(result);
  Expected<OwnedTensor> lse =
      batch->queries->unpad(found.lse, getMemory(options.out, 1));
  if (!lse)
    return lse.takeError();
  result.lse = std::move(*lse);
  return std::move(result);
}

static OwnedTensor reshape(OwnedTensor array, ArrayRef<int64_t> shape) {
  void *data = array.getData();
  ElementType type = array.getElementType();
  auto [base, deleter] = array.release();
  return OwnedTensor(base, deleter, data, type, shape);
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
  if (check.hasFailed())
    return check.takeError();
  std::optional<TensorRef> sinkPlace;
  if (options.sink && !options.gradients.getPlaces().empty())
    sinkPlace = options.gradients.getPlaces()[3].array;
  std::optional<Argument> place;
  DenseGradients found;
  std::optional<Batch> batch;
  {
    // What a batch has is nobody's result.
    DestinationScope none({});
    BoundedLengthsScope bounded;
    batch.emplace(check, arguments, options);
    if (check.hasFailed())
      return check.takeError();
    const PackedRows &queries = *batch->queries;
    OwnedTensor dOutRows = pad(check, queries, dOut),
                outRows = pad(check, queries, out),
                lseRows = pad(check, queries, lse), dLseRows;
    if (dLse)
      dLseRows = pad(check, queries, *dLse);
    if (check.hasFailed())
      return check.takeError();
    auto call = makeDenseOptions<DenseBackwardOptions>(options);
    call.lengths = batch->keys->getLengths();
    call.queryLengths = queries.getLengths();
    if (dLse)
      call.dLse = dLseRows.getRef();
    // That of the sink goes to its place at once.
    if (sinkPlace) {
      place.emplace("", *sinkPlace);
      place->extendTo(2);
      call.gradients = {std::nullopt, std::nullopt, std::nullopt,
                        place->getRef()};
    }
    Expected<DenseGradients> made = dense_backward(
        dOutRows.getRef(), batch->q.getRef(), batch->k.getRef(),
        batch->v.getRef(), outRows.getRef(), lseRows.getRef(), call);
    if (!made)
      return made.takeError();
    found = std::move(*made);
  }
  VarlenGradients gradients;
  if (sinkPlace)
    gradients.sink = getView(*sinkPlace);
  else if (options.sink)
    gradients.sink = reshape(std::move(found.sink), options.sink->shape);
  const struct {
    const PackedRows &side;
    const OwnedTensor &rows;
    OwnedTensor &result;
  } parts[] = {{*batch->queries, found.q, gradients.q},
               {*batch->keys, found.k, gradients.k},
               {*batch->keys, found.v, gradients.v}};
  for (auto [place, part] : enumerate(parts)) {
    Expected<OwnedTensor> rows =
        part.side.unpad(part.rows, getMemory(options.gradients, place));
    if (!rows)
      return rows.takeError();
    part.result = std::move(*rows);
  }
  return std::move(gradients);
}
