//===- ConvPieces.cpp - Pieces of segments, windows of profiles -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvTransforms.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

ConvPieces::ConvPieces(ConvBuilder &b, ConvSegments &segments,
                       ConvProfiles &profiles)
    : b(b), segments(segments), profiles(profiles) {
  int64_t lanes = b.plan.lanes;
  numBlocks = b.ceilDiv(b.numTokens, b.plan.block);
  // Pieces of a segment begin at least a block apart: of those that begin in
  // one block, all but one are the first of their segment. So pieces, and
  // blocks that none begins in, are fewer than blocks and segments together.
  maxPieces = b.add(numBlocks, b.numBases);
  // An odd number of vectors lets frequencies not compete for the same lines of
  // a cache.
  Value pairs = b.mul(b.numBases, b.ceilDiv(numBlocks, 2));
  Value vectors = b.add(b.mul(b.div(b.ceilDiv(pairs, lanes), 2), 2), 1);
  maxWindows = b.mul(vectors, 2 * lanes);
  Type index = b.getIndexType();
  pieces = b.allocate(index, {maxPieces, b.index(4)});
  ends = b.allocate(index, {b.max(numBlocks, b.index(1))});
  windows = b.allocate(index, {maxWindows});
  firsts = b.allocate(index, {b.numBases, b.index(2)});
}

ConvPieces::Piece ConvPieces::load(Value index) {
  auto entry = [&](int64_t k) {
    return b.loadIndex(pieces, {index, b.index(k)});
  };
  Value block = entry(0), begin = entry(1), end = entry(2);
  return {block, begin, end, entry(3)};
}

Value ConvPieces::count(Value segment) {
  Value columns = segments.length(segment);
  Value rest = b.max(b.sub(columns, b.index(b.plan.piece)), 0);
  return b.select(b.equal(columns, b.index(0)), b.index(0),
                  b.add(b.ceilDiv(rest, b.plan.block), 1));
}

void ConvPieces::cut() {
  Value zero = b.index(0), zeros[] = {zero, zero};
  b.loop(zero, numBlocks, 1,
         [&](Value block) { b.storeIndex(zero, ends, block); });
  Values found =
      b.loop(zero, b.numBases, 1, zeros, [&](Value segment, ValueRange done) {
        Value count = this->count(segment);
        b.storeIndex(done[0], firsts, {segment, b.index(0)});
        b.storeIndex(done[1], firsts, {segment, b.index(1)});
        cutSegment(segment, done[0], count);
        Value numWindows = b.select(
            b.equal(count, zero), b.getIndexType(), [&] { return zero; },
            [&] { return listWindows(segment, done[1]); });
        return Values{b.add(done[0], count), b.add(done[1], numWindows)};
      });
  numPieces = found[0];
  int64_t multiple = 2 * b.plan.lanes;
  numWindows = b.mul(b.ceilDiv(found[1], multiple), multiple);
  Value ofZeros = b.mul(b.numBases, profiles.weightRow);
  b.loop(found[1], numWindows, 1,
         [&](Value window) { b.storeIndex(ofZeros, windows, window); });
  b.loop(zero, numBlocks, 1, zero, [&](Value block, ValueRange before) {
    Value end = b.add(b.loadIndex(ends, block), before[0]);
    b.storeIndex(end, ends, block);
    return Values{end};
  });
}

/// Lists the pieces of a segment, and counts them where they begin.
void ConvPieces::cutSegment(Value segment, Value firstPiece, Value count) {
  b.loop(b.index(0), count, 1, [&](Value k) {
    Value begin = b.add(segments.first(segment), b.mul(k, b.plan.block));
    Value block = b.div(begin, b.plan.block);
    Value isLast = b.equal(b.add(k, 1), count);
    Value end =
        b.select(isLast, segments.end(segment), b.add(begin, b.plan.block));
    Value entries[] = {block, begin, end, firstWindow(segment)};
    for (auto [at, entry] : llvm::enumerate(entries))
      b.storeIndex(entry, pieces, {b.add(firstPiece, k), b.index(at)});
    b.storeIndex(b.add(b.loadIndex(ends, block), 1), ends, block);
  });
}

/// Lists the windows between a segment's pieces and the blocks from its first
/// one on, and one more where that makes their number even, which it returns.
Value ConvPieces::listWindows(Value segment, Value firstWindow) {
  Value first = segments.first(segment), block = firstBlock(segment);
  Value pairs = b.ceilDiv(b.sub(numBlocks, block), 2), count = b.mul(pairs, 2);
  // Of a piece that begins where its block does, the last column and the first
  // row of the block are as many lags before lag 0 as the longest piece has.
  Value origin = profiles.weightAt(
      segment, b.sub(b.index(-b.plan.piece), b.rem(first, b.plan.block)));
  b.loop(b.index(0), count, 1, [&](Value distance) {
    b.storeIndex(b.add(origin, b.mul(distance, b.plan.block)), windows,
                 b.add(firstWindow, distance));
  });
  return count;
}
