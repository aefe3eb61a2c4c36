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
// that begins or ends with removed rows the others are, and rows that it admits
// whole are scored by the body without its conditions.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of a tile that are looked at together: whole register tiles, and as few
/// as a diagonal of AVX2 has. AMX multiplies those of its registers.
static constexpr int64_t kUnit = 16;

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

bool StreamKernel::skipsLeadingTiles(unsigned index) {
  StreamOp::Source source = op.getSourceList()[index];
  return hasScores() && getScore(index).admission &&
         !findKeyTable(source.keys) && !source.attr.getMask().hasStride();
}

/// Before the tasks, all of which look for their first tile.
void StreamKernel::boundRuns() {
  scf::ForallOp tasks;
  for (auto loop = op->getParentOfType<scf::ForallOp>(); loop;
       loop = loop->getParentOfType<scf::ForallOp>())
    tasks = loop;
  if (!tasks || !ranges.hasLongRanges())
    return;
  OpBuilder::InsertionGuard guard(b);
  for (unsigned index = 0; index < op.getSourceList().size(); ++index) {
    if (!skipsLeadingTiles(index))
      continue;
    b.setInsertionPoint(tasks);
    SmallVector<Value> buffers =
        getScore(index).admission.boundRuns(b, [&](Value captured) {
          return !tasks->isAncestor(captured.getParentBlock()->getParentOp());
        });
    b.setInsertionPointAfter(tasks);
    for (Value buffer : buffers)
      memref::DeallocOp::create(b, buffer);
  }
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
  // Rows with a stride stand apart.
  const SourceView &source = sources[tile.source];
  if (!hasScores() || !getScore(tile.source).admission ||
      tile.kind == Segment::Table || source.attr.getMask().hasStride())
    return body(tile);
  ScoreAdmission &admission = getScore(tile.source).admission;
  if (tile.kind == Segment::Diagonal) {
    // All of its rows are needed by some query.
    Segment whole = tile;
    Value first = b.add(tile.row, tile.skip),
          last = b.sub(b.add(tile.row, tile.count), b.index(1));
    if (Value all = admission.admitsAll(b, source.admission, {first, last})) {
      whole.admittedBegin = b.index(0);
      whole.admittedEnd = b.select(all, tile.count, b.index(0));
    }
    return body(whole);
  }
  ScoreAdmission::Part admitted = admission.trim(
      b, source.admission, tile.row, tile.count, usesAMX ? kAMXDepth : kUnit);
  Segment part = slice(tile, admitted.begin, /*size=*/0);
  part.count = b.sub(admitted.end, admitted.begin);
  if (!addsBiasInSquares(tile)) {
    part.admittedBegin = b.sub(admitted.admittedBegin, admitted.begin);
    part.admittedEnd = b.sub(admitted.admittedEnd, admitted.begin);
  }
  auto choice = scf::IfOp::create(b, values.getTypes(),
                                  b.less(admitted.begin, admitted.end),
                                  /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  auto yield = [&](Block *block, ValueRange results) {
    if (block->empty() || !block->back().hasTrait<OpTrait::IsTerminator>())
      scf::YieldOp::create(b, results);
  };
  b.setInsertionPointToEnd(choice.thenBlock());
  yield(choice.thenBlock(), body(part));
  b.setInsertionPointToEnd(choice.elseBlock());
  yield(choice.elseBlock(), values);
  return Values(choice.getResults());
}

void StreamKernel::remarkOnAdmission() {
  SmallVector<const ScoreAdmission *> admissions;
  for (const auto &function : scoreFunctions)
    admissions.push_back(&function->admission);
  fovea::attn::remarkOnAdmission(op, admissions);
}
