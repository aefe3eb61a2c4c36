//===- StreamAdmission.cpp - Tiles that a score region removes ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tiles of long ranges are those of a kernel without skipping, so that sums
// have the same order: one that the region removes whole is not visited, of one
// that begins or ends with removed rows the others are, and one that it admits
// whole takes the body without its conditions.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of a tile that are trimmed together: those of AMX's registers.
static constexpr int64_t kUnit = kAMXDepth;

LogicalResult StreamKernel::expandMath() {
  for (auto &function : scoreFunctions)
    if (failed(function->expandMath()))
      return failure();
  return success();
}

bool StreamKernel::skipsTiles() {
  return llvm::any_of(scoreFunctions, [](const auto &function) {
    return bool(function->admission);
  });
}

void StreamKernel::enterAdmission() {
  if (!hasScores())
    return;
  for (auto [index, source] : llvm::enumerate(sources)) {
    ScoreAdmission &admission = getScore(index).admission;
    if (!admission)
      continue;
    Value first = firstPosition(source);
    Value last = b.sub(b.add(first, blockQueries), b.index(1));
    source.admission = admission.enterQueries(b, {first, last});
  }
}

StreamKernel::Values
StreamKernel::ifAdmitted(const Segment &tile, ValueRange values,
                         function_ref<Values(const Segment &)> body) {
  // Rows of a diagonal are all needed by some query, and those with a stride
  // stand apart.
  const SourceView &source = sources[tile.source];
  if (!hasScores() || !getScore(tile.source).admission ||
      tile.kind == Segment::Table || tile.kind == Segment::Diagonal ||
      source.attr.getMask().hasStride())
    return body(tile);
  ScoreAdmission::Part admitted =
      getScore(tile.source)
          .admission.trim(b, source.admission, tile.row, tile.count, kUnit);
  Segment part = slice(tile, admitted.begin, /*size=*/0);
  part.count = b.sub(admitted.end, admitted.begin);
  auto choose = [&](Value condition, function_ref<Values()> then,
                    function_ref<Values()> otherwise) -> Values {
    auto choice =
        scf::IfOp::create(b, values.getTypes(), condition,
                          /*addThenBlock=*/true, /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(b);
    for (auto [block, branch] : {std::pair(choice.thenBlock(), then),
                                 std::pair(choice.elseBlock(), otherwise)}) {
      b.setInsertionPointToEnd(block);
      Values results = branch();
      if (block->empty() || !block->back().hasTrait<OpTrait::IsTerminator>())
        scf::YieldOp::create(b, results);
    }
    return Values(choice.getResults());
  };
  return choose(
      b.less(admitted.begin, admitted.end),
      [&] {
        return choose(
            admitted.admitsAll,
            [&] {
              admitsAll = true;
              Values results = body(tile);
              admitsAll = false;
              return results;
            },
            [&] { return body(part); });
      },
      [&] { return Values(values); });
}

void StreamKernel::remarkOnAdmission() {
  SmallVector<const ScoreAdmission *> admissions;
  for (const auto &function : scoreFunctions)
    admissions.push_back(&function->admission);
  fovea::attn::remarkOnAdmission(op, admissions);
}
