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

void ScoreArguments::enterSource(unsigned number) {
  source = number;
  prefix = ("sources[" + Twine(number) + "].").str();
}

void ScoreArguments::leaveSources() {
  source.reset();
  prefix.clear();
}

void ScoreArguments::addPart(StringRef name, StringRef body, bool isScore,
                             ArrayRef<Argument> reads) {
  parts.push_back({name.str(), body, unsigned(reads.size()), isScore, source});
  captures.append(reads.begin(), reads.end());
}

template <typename Function>
void ScoreArguments::addFunction(StringRef name, const Function &function) {
  check.check(numPositions < attn::kMaxScorePositions,
              prefix + name.str() + ": found " + Twine(numPositions) +
                  " positions, needed fewer than " +
                  Twine(attn::kMaxScorePositions));
  SmallVector<Argument> reads;
  for (const TensorRef &array : function.captures)
    reads.emplace_back(
        ("captures[" + Twine(captures.size() + reads.size()) + "]").str(),
        array);
  addPart(prefix + name.str(), function.body,
          std::is_same_v<Function, ScoreFunction>, reads);
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

void ScoreArguments::add(const std::optional<Segments> &segments, int64_t batch,
                         int64_t numQueries, int64_t numKeys,
                         const SequenceLengths &queryLengths,
                         const SequenceLengths &lengths) {
  if (!segments)
    return;
  std::string name = prefix + "segments";
  SmallVector<Argument> reads;
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
    reads.push_back(ids);
  }
  OwnedTensor &lag = lags.emplace_back();
  if (DescribeScope::isActive()) {
    lag = DescribeScope::makeAbstract(ElementType::I32, {batch});
  } else {
    Expected<OwnedTensor> made = allocate(ElementType::I32, {batch});
    if (!made)
      return check.fail(made.takeError());
    lag = std::move(*made);
    auto count = [](const SequenceLengths &given, int64_t all, int64_t entry) {
      return given.get()
                 ? static_cast<const int32_t *>(given.get()->data)[entry]
                 : all;
    };
    for (int64_t entry = 0; entry < batch; ++entry)
      lag.getDataAs<int32_t>()[entry] =
          static_cast<int32_t>(count(lengths, numKeys, entry) -
                               count(queryLengths, numQueries, entry));
  }
  reads.emplace_back("lags", lag.getRef());
  addPart(name, kSameSegment, /*isScore=*/false, reads);
}

bool ScoreArguments::hasOf(unsigned source) const {
  return any_of(parts,
                [&](const RegionPart &part) { return part.source == source; });
}

void ScoreArguments::addTo(Call &call) const {
  call.operand(captures);
  if (!parts.empty())
    call.scoreRegions(parts);
}

ScoreArguments::Differentiable ScoreArguments::getDifferentiable() const {
  Differentiable found;
  ArrayRef<Argument> rest(captures);
  for (const RegionPart &part : parts) {
    for (const Argument &capture : rest.take_front(part.numCaptures))
      if (isFloat(capture.elementType)) {
        found.captures.push_back(capture);
        found.sources.push_back(part.source);
      }
    rest = rest.drop_front(part.numCaptures);
  }
  return found;
}
