//===- CausalSumKernel.cpp - Low-rank attention under a causal mask -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CausalSumKernel.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

CausalSumKernel::CausalSumKernel(OpBuilder &builder, Location loc,
                                 const LowRankSum &sum, RegisterFile registers)
    : LowRankKernel(builder, loc, sum, registers),
      module(builder.getInsertionBlock()
                 ->getParentOp()
                 ->getParentOfType<ModuleOp>()),
      turns(b, module) {
  // A vector would be a lot for one or two columns.
  if (constexpr int64_t kMaxTails = 2;
      width > lanes && width % lanes <= kMaxTails)
    numTails = width % lanes;
  // As few panels as can be, or one more where that leaves fewer empty vectors.
  int64_t numVectors = llvm::divideCeil(width - numTails, lanes);
  numPanels = llvm::divideCeil(numVectors, registers.getTileVectors());
  auto allVectors = [&](int64_t panels) {
    return panels ? llvm::alignTo(numVectors, panels) : 0;
  };
  if (numPanels > 1 && allVectors(numPanels + 1) < allVectors(numPanels))
    ++numPanels;
  panel = numPanels ? allVectors(numPanels) / numPanels * lanes : 0;

  // The sums of a segment shall stay in the second cache level.
  constexpr int64_t kBytes = 512 << 10, kMaxChunks = 16;
  int64_t bytes = paddedRank() * numPanels * panel * state.getWidth() / 8;
  numChunks =
      std::clamp<int64_t>(kBytes / std::max<int64_t>(bytes, 1), 2, kMaxChunks);
  int64_t rows = cast<MemRefType>(sum.left.rows.getType()).getDimSize(2);
  hasSegments = ShapedType::isDynamic(rows) || rows > numChunks * kChunk;
}

void CausalSumKernel::emit() {
  if (hasSegments)
    emitSegments();
  else
    emitHeads();
}

/// A task for every head.
void CausalSumKernel::emitHeads() {
  b.forAll({numBatches(), numRowHeads()}, [&](ValueRange ivs) {
    batch = ivs[0];
    rowHead = ivs[1];
    allocateScratch();
    running = makeState(
        [&](ArrayRef<int64_t> shape) { return b.scratch(shape, state); });
    heads.forQueryHeads(b, rowHead, [&](Value head, Value isFirst) {
      queryHead = head;
      isFirstHead = isFirst;
      startHead();
      b.loop(b.index(0), numRows(), numChunks * kChunk,
             [&](Value first) { emitSegment(first, /*turn=*/Value()); });
    });
    b.freeScratch();
  });
}

/// A task for every segment; with twice as many heads as threads, where one
/// more or less is no longer felt, for all segments of a head.
void CausalSumKernel::emitSegments() {
  Value one = b.index(1), segmentRows = b.index(numChunks * kChunk);
  Value numSegments = b.ceilDiv(numRows(), numChunks * kChunk);
  Value numChains = b.mul(numBatches(), numRowHeads());
  Value threads = RuntimeCalls::emitLoopThreads(b, module);
  Value isDivided = b.less(numChains, b.mul(threads, 2));
  Value numItems = b.select(isDivided, numSegments, one);
  Value itemRows = b.select(isDivided, segmentRows, numRows());
  // Tasks of whole heads have the state in the memory of their thread.
  Value leading[] = {numBatches(),
                     b.select(isDivided, numQueryHeads(), b.index(0))};
  State shared = makeState([&](ArrayRef<int64_t> shape) {
    return b.allocate(leading, shape, state);
  });
  auto emitItem = [&](Value item, Value chain) {
    Value begin = b.mul(b.sub(b.sub(numItems, one), item), itemRows);
    Value end = b.min(b.add(begin, itemRows), numRows());
    batch = b.div(chain, numRowHeads());
    rowHead = b.rem(chain, numRowHeads());
    allocateScratch();
    State own = makeState(
        [&](ArrayRef<int64_t> shape) { return b.scratch(shape, state); });
    heads.forQueryHeads(b, rowHead, [&](Value head, Value isFirst) {
      queryHead = head;
      isFirstHead = isFirst;
      auto choose = [&](Value shared, Value own) {
        Value view = b.rowView(shared, {batch, head});
        own = memref::CastOp::create(b, view.getType(), own);
        return b.select(isDivided, view, own);
      };
      running = {choose(shared.sums, own.sums),
                 choose(shared.carries, own.carries),
                 choose(shared.keySums, own.keySums),
                 choose(shared.keyCarries, own.keyCarries)};
      b.ifThen(b.equal(begin, b.index(0)), [&] { startHead(); });
      // Heads that share a row take one turn after the other.
      Value members = b.div(numQueryHeads(), numRowHeads());
      Value member = sum.transposed ? b.rem(head, members) : b.index(0);
      b.loop(begin, end, numChunks * kChunk,
             [&](Value first) { emitSegment(first, b.add(member, 1)); });
    });
    turns.end(b.index(Turns::kLast));
    b.freeScratch();
  };
  turns.forAll(numItems, numChains, /*isOrdered=*/true, emitItem);
  for (Value buffer :
       {shared.sums, shared.carries, shared.keySums, shared.keyCarries})
    memref::DeallocOp::create(b, buffer);
}

CausalSumKernel::State CausalSumKernel::makeState(
    llvm::function_ref<Value(ArrayRef<int64_t>)> allocate) {
  int64_t padded = paddedRank(), panels[] = {numPanels, padded, panel},
          keys[] = {keySumRows(), padded};
  return {allocate(panels), allocate(panels), allocate(keys), allocate(keys)};
}

void CausalSumKernel::allocateScratch() {
  int64_t padded = paddedRank();
  left = b.scratch({numChunks, kChunk, padded}, state);
  right = b.scratch({1, kChunk, padded}, state);
  values = b.scratch({numChunks, numPanels, kChunk, panel}, state);
  scores = b.scratch({numChunks, kChunk, kChunk}, state);
  locals = b.scratch({numChunks + 1, numPanels, padded, panel}, state);
  bases = b.scratch({numPanels, padded, panel}, state);
  before = b.scratch({padded, panel}, state);
  if (numTails > 0) {
    packedTails = b.scratch({kChunk, lanes}, state);
    tails = b.scratch({numChunks, numTails, kChunk}, state);
  }
  keyLocals = b.scratch({numChunks + 1, keySumRows(), padded}, state);
  keyBases = b.scratch({keySumRows(), padded}, state);
  totals = b.scratch({keySumRows(), kChunk}, state);
  inverses = b.scratch({kChunk}, state);
  edge = b.scratch({lanes}, state);
  // Nothing comes before the first chunk of a segment.
  Value zero = b.index(0);
  for (int64_t c = 0; c < numKeySums(); ++c)
    fillZero(b, keyLocals, {zero, b.index(c)}, padded);
  forPanels([&](Value i) {
    b.loop(zero, b.index(padded), 1,
           [&](Value d) { fillZero(b, locals, {zero, i, d}, panel); });
  });
}

/// Sets the state of a query head to the sums of the keys before row 0's last
/// one.
void CausalSumKernel::startHead() {
  Value zero = b.index(0), padded = b.index(paddedRank());
  keyHead = columnHead(queryHead);
  for (int64_t c = 0; c < numKeySums(); ++c) {
    fillZero(b, running.keySums, b.index(c), paddedRank());
    fillZero(b, running.keyCarries, b.index(c), paddedRank());
  }
  forPanels([&](Value i) {
    b.loop(zero, padded, 1, [&](Value d) {
      fillZero(b, running.sums, {i, d}, panel);
      fillZero(b, running.carries, {i, d}, panel);
    });
  });
  // Their number need not be whole chunks: the first chunk begins before key 0.
  Value numKeys = b.max(diagonal(), 0);
  Value padding = b.sub(b.mul(b.ceilDiv(numKeys, kChunk), kChunk), numKeys);
  b.loop(zero, b.add(numKeys, padding), kChunk, [&](Value first) {
    packKeys(b.sub(first, padding));
    addKeys(zero, b.sub(first, padding));
    addToState(b.index(1));
  });
}

/// Calls `body` with the number of each panel.
void CausalSumKernel::forPanels(llvm::function_ref<void(Value)> body) {
  if (panel == 0)
    return;
  b.loop(b.index(0), b.index(numPanels), 1, [&](Value i) {
    firstColumn = b.mul(i, panel);
    body(i);
  });
}

/// The segment of rows from `first` on, which adds to the state at `turn`.
void CausalSumKernel::emitSegment(Value first, Value turn) {
  keyHead = columnHead(queryHead);
  Value zero = b.index(0);
  Value count = b.min(b.ceilDiv(b.sub(numRows(), first), kChunk), numChunks);
  auto rowOf = [&](Value slot) { return b.add(first, b.mul(slot, kChunk)); };
  b.loop(zero, count, 1, [&](Value slot) { emitSums(slot, rowOf(slot)); });
  if (turn)
    turns.wait(turn);
  addToState(count);
  if (turn)
    turns.end(turn);
  b.loop(zero, count, 1, [&](Value slot) { emitOutputs(slot, rowOf(slot)); });
}

/// What the chunk of rows from `first` on has to be multiplied with, but for
/// what comes before its segment.
void CausalSumKernel::emitSums(Value slot, Value first) {
  Value firstKey = b.add(first, diagonal());
  setRows(slot, first, /*pack=*/true);
  packKeys(firstKey);
  emitScores(slot, first);
  addKeys(slot, firstKey);
}

void CausalSumKernel::emitOutputs(Value slot, Value first) {
  setRows(slot, first, /*pack=*/false);
  emitTotals(slot);
  if (sum.result == LowRankSum::Result::InverseTotals)
    return b.loop(
        first, b.min(b.add(first, kChunk), numRows()), 1, [&](Value row) {
          Value total = b.loadScalar(totals, {b.index(0), b.sub(row, first)});
          b.storeScalar(invertTotalOrZero(b, total), sum.output,
                        {batch, rowHead, position(row, numRows())});
        });
  forPanels([&](Value i) {
    setValues(slot, i, b.add(first, diagonal()), /*pack=*/false);
    emitRows(slot, i, b.index(0), first, /*isFirst=*/true);
    int64_t tile = registers.getTileRows(panel / lanes);
    b.loop(b.index(tile), b.index(kChunk), tile, [&](Value row) {
      emitRows(slot, i, row, b.add(first, row), /*isFirst=*/false);
    });
  });
  if (numTails > 0)
    storeTails(first);
}

/// Keeps the state and adds the sums of the segment before chunk `slot` to it.
void CausalSumKernel::addToState(Value slot) {
  auto add = [&](Value sums, Value carries, Value part, Value base,
                 ValueRange at) {
    Value old = b.loadVector(sums, at);
    b.storeVector(old, base, at);
    auto [next, carry] =
        addCompensated(b, part, old, b.loadVector(carries, at));
    b.storeVector(carry, carries, at);
    b.storeVector(next, sums, at);
  };
  forPanels([&](Value i) {
    b.loop(b.index(0), b.index(rank), 1, [&](Value d) {
      b.loop(b.index(0), b.index(panel), lanes, [&](Value column) {
        Value part = b.loadVector(locals, {slot, i, d, column});
        add(running.sums, running.carries, part, bases, {i, d, column});
      });
    });
  });
  b.loop(b.index(0), b.index(paddedRank()), lanes, [&](Value d) {
    for (int64_t c = 0; c < numKeySums(); ++c) {
      Value part = b.loadVector(keyLocals, {slot, b.index(c), d});
      add(running.keySums, running.keyCarries, part, keyBases, {b.index(c), d});
    }
  });
}

void fovea::attn::emitCausalSum(OpBuilder &builder, Location loc,
                                const LowRankSum &sum, RegisterFile registers) {
  CausalSumKernel(builder, loc, sum, registers).emit();
}
