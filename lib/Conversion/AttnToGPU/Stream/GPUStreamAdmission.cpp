//===- GPUStreamAdmission.cpp - Tiles that score regions leave ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tiles that a region removes whole are not visited. Each lane of a warp bounds
// the region for one of 32 tiles, and a vote says which of them are read: so
// long runs of tiles are passed over fast, and nothing is kept of them. All
// warps of a block find the same.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/HeadRows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace fovea::attn;

void GPUStreamKernel::remarkOnAdmission() {
  SmallVector<const ScoreAdmission *> all;
  for (const ScoreAdmission &admission : admissions)
    all.push_back(&admission);
  fovea::attn::remarkOnAdmission(op, all);
}

bool GPUStreamKernel::skipsTiles() {
  return llvm::any_of(segments, [&](const Segment &segment) {
    return !admissions.empty() && getOfSource(admissions, segment.source) &&
           !standsApart(segment);
  });
}

bool GPUStreamKernel::standsApart(const Segment &segment) {
  return segment.isTable || sources[segment.source].list;
}

/// Whether a tile has entries, unless that is not known.
Value GPUStreamKernel::isRead(Value number) {
  Value isRead = b.i1(true);
  for (const Segment &segment : segments) {
    ScoreAdmission &admission = getOfSource(admissions, segment.source);
    if (!admission || standsApart(segment))
      continue;
    Value place = b.sub(number, segment.firstTile);
    Value row = b.add(segment.low, b.mul(place, keyTile));
    // Tiles of other segments are before the first row or behind the last one.
    Value isOwn = b.both(b.less(b.i32(-1), place), b.less(row, segment.high));
    isRead = b.select(
        isOwn, b.getI1Type(),
        [&] {
          const SourceView &source = sources[segment.source];
          Value first =
              b.add(getFirstPosition(), b.sub(source.tokens, numRows));
          Value last = b.add(first, countSteps());
          ScoreAdmission::Interval heads = {head, head};
          if (rowsAreHeads && packedQueries > 1)
            heads.high = b.add(head, getKeyGroup(op) - 1);
          else if (rowsAreHeads)
            heads = {getRowHead(b.i32(0)),
                     getRowHead(b.sub(blockQueries, b.i32(1)))};
          admission.enterHeads({batch, batch}, heads);
          Value end = b.min(b.add(row, keyTile), segment.high);
          auto positionOf = [&](Value row) {
            return emitPosition(b, source.attr.getMask(), b.toIndex(row));
          };
          return admission.reads(
              b, admission.enterQueries(b, {first, last}),
              {positionOf(row), positionOf(b.sub(end, b.i32(1)))});
        },
        [&] { return isRead; });
  }
  return isRead;
}

GPUStreamKernel::Turn GPUStreamKernel::startTurns() {
  // No tile is left of those before the first one.
  return takeTurn({Value(), b.sub(beginTile, b.i32(kWarpSize)), b.i32(0)});
}

/// A bit for each of the 32 tiles from `group` on that is read.
Value GPUStreamKernel::voteOn(Value group) {
  Value number = b.add(group, b.lane());
  return b.ballot(b.select(
      b.less(number, endTile), b.getI1Type(), [&] { return isRead(number); },
      [&] { return b.i1(false); }));
}

GPUStreamKernel::Turn GPUStreamKernel::takeTurn(Turn turn) {
  Value none = b.i32(0);
  Values found = b.loopWhile(
      {turn.group, turn.later},
      [&](ValueRange state) {
        Value next = b.add(state[0], kWarpSize);
        return b.both(b.equal(state[1], none), b.less(next, endTile));
      },
      [&](ValueRange state) -> Values {
        Value next = b.add(state[0], kWarpSize);
        return {next, voteOn(next)};
      });
  Value group = found[0], votes = found[1];
  Value bit = LLVM::CountTrailingZerosOp::create(b, b.getI32Type(), votes,
                                                 /*is_zero_poison=*/false);
  Value number = b.select(b.equal(votes, none), endTile, b.add(group, bit));
  Value rest = b.createOrFold<arith::AndIOp>(votes, b.sub(votes, b.i32(1)));
  return {number, group, rest};
}

Value GPUStreamKernel::countTurns() {
  return b.loop(beginTile, endTile, kWarpSize, {b.i32(0)},
                [&](Value group, ValueRange count) -> Values {
                  Value votes = voteOn(group);
                  Value more = LLVM::CtPopOp::create(b, b.getI32Type(), votes);
                  return {b.add(count[0], more)};
                })[0];
}
