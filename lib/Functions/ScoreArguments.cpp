//===- ScoreArguments.cpp - Functions of scores and places ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScoreArguments.h"
#include "RowArguments.h"
#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/ResultScopes.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

template <typename Function>
void ScoreArguments::addFunction(StringLiteral name, const Function &function) {
  check.check(numPositions < attn::kMaxScorePositions,
              name + ": found " + Twine(numPositions) +
                  " positions, needed fewer than " +
                  Twine(attn::kMaxScorePositions));
  parts.push_back({name, function.body, unsigned(function.captures.size()),
                   std::is_same_v<Function, ScoreFunction>});
  for (const TensorRef &array : function.captures)
    captures.emplace_back(("captures[" + Twine(captures.size()) + "]").str(),
                          array);
}

void ScoreArguments::add(const std::optional<ScoreFunction> &score) {
  if (score)
    addFunction("score", *score);
}

void ScoreArguments::add(const std::optional<AdmitFunction> &admit) {
  if (admit)
    addFunction("admit", *admit);
}

/// The position of a query, without how many keys come before the first one, is
/// its row.
static constexpr StringLiteral kSameSegment = R"(
  %lag = tensor.extract %capture2[%batch] : tensor<?xi32>
  %before = arith.index_cast %lag : i32 to index
  %row = arith.subi %query, %before : index
  %own = tensor.extract %capture0[%batch, %row] : tensor<?x?xi32>
  %other = tensor.extract %capture1[%batch, %key] : tensor<?x?xi32>
  %same = arith.cmpi eq, %own, %other : i32
  attn.yield %same : i1
)";

void ScoreArguments::add(StringRef name,
                         const std::optional<Segments> &segments, int64_t batch,
                         int64_t numQueries, int64_t numKeys,
                         const SequenceLengths &queryLengths,
                         const SequenceLengths &lengths) {
  if (!segments)
    return;
  const std::pair<TensorRef, int64_t> sides[] = {
      {segments->queries, numQueries}, {segments->keys, numKeys}};
  for (auto [index, side] : enumerate(sides)) {
    const auto &[array, length] = side;
    Argument ids = checkPart(check, (name + "[" + Twine(index) + "]").str(),
                             array, ElementType::I32, {batch, length},
                             /*numFree=*/1);
    if (check.hasFailed())
      return;
    if (ids.shape[0] != batch) {
      ids.strides = {0, ids.strides.empty() ? 1 : ids.strides[1]};
      ids.shape[0] = batch;
    }
    captures.push_back(ids);
  }
  if (DescribeScope::isActive()) {
    lags = DescribeScope::makeAbstract(ElementType::I32, {batch});
  } else {
    Expected<OwnedTensor> made = allocate(ElementType::I32, {batch});
    if (!made)
      return check.fail(made.takeError());
    lags = std::move(*made);
    auto count = [](const SequenceLengths &given, int64_t all, int64_t entry) {
      return given.get()
                 ? static_cast<const int32_t *>(given.get()->data)[entry]
                 : all;
    };
    for (int64_t entry = 0; entry < batch; ++entry)
      lags.getDataAs<int32_t>()[entry] =
          static_cast<int32_t>(count(lengths, numKeys, entry) -
                               count(queryLengths, numQueries, entry));
  }
  captures.emplace_back("lags", lags.getRef());
  parts.push_back({"segments", kSameSegment, 3, /*isScore=*/false});
}

void ScoreArguments::addTo(Call &call) const {
  call.operand(captures);
  if (!parts.empty())
    call.scoreRegion(parts);
}

SmallVector<Argument> ScoreArguments::getDifferentiable() const {
  SmallVector<Argument> found;
  copy_if(captures, std::back_inserter(found),
          [](const Argument &capture) { return isFloat(capture.elementType); });
  return found;
}
