//===- StreamRowsHeads.cpp - Key heads that read rows together ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pages have rows of several heads beside each other, or one head's rows behind
// another's. A head alone would read pieces of them, which takes memory twice
// as long with the prefetchers of a Zen 3 or 4: heads that have 4 KB of a row
// in all are one task and go through it together. Other CPUs with 32 registers
// read pages of elements as wide as the state well without that, and narrower
// ones as slowly.
//
// Consecutive rows have other heads between them where tokens come first. On a
// Zen 4 heads go through these together, too, with the parts and the tiles of
// heads that are alone, so that results have the same bits:
//
//   per tile
//     per 16 keys, per head    score
//     per head                 exponentiate
//     per 16 keys, per head    accumulate
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Whether rows are those of pages, which all heads read.
static bool readsPages(const StreamSource &source) {
  return source.attr.getHasListedPositions() && !source.codes &&
         cast<MemRefType>(source.rowList.getType()).getDimSize(1) == 1;
}

/// Whether rows are consecutive, and their products are all there is of scores.
static bool isPlain(const StreamSource &source) {
  return !source.rowList && !source.codes && !source.bias &&
         !source.logWeight && !source.hasValueBlocks();
}

/// Sets `isPaged`, and the key heads whose sets may be one task.
void StreamRowsKernel::chooseHeadBlock() {
  SmallVector<StreamSource> sources = op.getSourceList();
  auto values = cast<MemRefType>(op.getValues().front().getType());
  isPaged = llvm::all_of(sources, readsPages);
  headRows =
      isPaged && usesPairs && maxRows > columnRows ? kAMXRows : kColumnRows;
  bool isNarrow = values.getElementType() != b.getStateType();
  bool isFaster = isPaged ? hasFewRegisters || isNarrow || splitVectors
                          : splitVectors && !hasAMX && !isLatent() &&
                                llvm::all_of(sources, isPlain);
  partHeads = isFaster && op.getScores().empty() ? countHeads(values) : 1;
  headBlock = isPaged || mayInterleave() ? partHeads : 1;
}

/// Key heads that have 4 KB of a row of pages in all, or 8 KB of consecutive
/// rows: few heads of wide rows read short pieces of memory.
int64_t StreamRowsKernel::countHeads(MemRefType values) const {
  const int64_t bytes = isPaged ? 4096 : 8192;
  int64_t rowBytes = values.getDimSize(3) *
                     values.getElementType().getIntOrFloatBitWidth() / 8;
  int64_t most = kMaxRows / headRows, heads = values.getDimSize(1);
  if (!ShapedType::isDynamic(heads))
    most = std::clamp<int64_t>(heads, 1, most);
  return std::clamp<int64_t>(bytes / std::max<int64_t>(rowBytes, 1), 1, most);
}

/// Whether strides that are known tell of no operand that its heads lie further
/// apart than its rows.
bool StreamRowsKernel::mayInterleave() {
  return llvm::none_of(op.getSourceList(), [](const StreamSource &source) {
    return llvm::any_of(ArrayRef{source.keys, source.values}, [](Value memref) {
      auto [strides, offset] =
          cast<MemRefType>(memref.getType()).getStridesAndOffset();
      return !ShapedType::isDynamic(strides[1]) &&
             !ShapedType::isDynamic(strides[2]) && strides[1] >= strides[2];
    });
  });
}

/// Whether the rows of a head lie between those of others, in all operands.
Value StreamRowsKernel::areInterleaved() {
  Value all;
  for (const StreamSource &source : op.getSourceList())
    for (Value memref : {source.keys, source.values}) {
      auto strides =
          memref::ExtractStridedMetadataOp::create(b, memref).getStrides();
      Value own = b.less(strides[1], strides[2]);
      all = all ? b.both(all, own) : own;
    }
  return all;
}

/// The view of `memref` without what lies before `first`.
static Value rowsFrom(KernelBuilder &b, Value memref, Value first) {
  auto type = cast<MemRefType>(memref.getType());
  auto zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets(type.getRank(), zero),
      sizes = memref::getMixedSizes(b, b.getLoc(), memref),
      strides(type.getRank(), one);
  offsets.front() = first;
  sizes.front() = b.sub(b.extent(memref, 0), first);
  return memref::SubViewOp::create(b, memref, offsets, sizes, strides);
}

/// The state of each head has as many rows as a head of several may have.
void StreamRowsKernel::enterHead(Value head) {
  headOfTask = head;
  setHead = b.add(setHead, head);
  keyHead = setHead;
  std::pair<Value *, int64_t> buffers[] = {
      {&packed, paddedWidth}, {&laneSums, lanes}, {&outputs, 1},
      {&maxima, 1},           {&sums, 1},         {&queryOf, 1}};
  for (auto [buffer, perRow] : buffers)
    if (*buffer)
      *buffer = rowsFrom(b, *buffer, b.mul(head, headRows * perRow));
}

/// Calls `body` for every head of the task.
void StreamRowsKernel::forHeads(function_ref<void()> body) {
  if (headBlock == 1)
    return body();
  Value *changed[] = {&packed,  &laneSums, &outputs, &maxima,    &sums,
                      &queryOf, &setHead,  &keyHead, &headOfTask};
  SmallVector<Value> saved =
      llvm::map_to_vector(changed, [](Value *value) { return *value; });
  b.loop(b.index(0), taskHeads, 1, [&](Value head) {
    enterHead(head);
    body();
  });
  for (auto [value, before] : llvm::zip(changed, saved))
    *value = before;
}

/// Calls `body` for every 16 keys of a tile and every head, whose scores lie
/// behind those of the head before.
void StreamRowsKernel::forPieces(const Tile &tile,
                                 function_ref<void(const Tile &)> body) {
  b.loop(b.index(0), tile.count, kHeadsTile, [&](Value begin) {
    Value count = b.min(b.sub(tile.count, begin), kHeadsTile);
    forHeads([&] {
      SourceView own = view(tile.source.operands);
      Tile piece = {own, tile.interval, b.add(tile.low, begin), count,
                    tile.isCut};
      scores.origin = b.add(getScoresOfHead(), begin);
      body(piece);
    });
  });
}

StreamRowsKernel::Value StreamRowsKernel::getScoresOfHead() {
  return b.mul(headOfTask, kColumnTile * kColumnRows);
}

/// `attendTile` for all heads of the task, of sources without terms: only masks
/// remove entries.
void StreamRowsKernel::attendTogether(const Tile &tile) {
  goesTogether = true;
  forPieces(tile, [&](const Tile &piece) {
    scoreKeys(rowsOf(piece, piece.source.keys), scores);
    addTerms(piece);
  });
  forHeads([&] {
    scores.origin = getScoresOfHead();
    weigh(tile);
  });
  forPieces(tile, [&](Tile piece) {
    piece.removesAny = piece.isCut;
    accumulate(piece);
  });
  scores.origin = Value();
  goesTogether = false;
}
