//===- VQBackwardChunks.cpp - A head by several tasks ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a chunk of blocks shares with others is small: U, one row for each code,
// and the gradients of the tokens of the blocks before it that its first block
// reads. Chunks have both for themselves. Behind all tasks, U of a chunk gets
// those of all later ones, which its tokens have not seen yet.
//
// How a head is divided follows from its length, so that sums have one order.
//
//===----------------------------------------------------------------------===//

#include "VQBackwardKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// Tokens of a chunk that is worth sums of its own, the fewest where there
/// would be less than so many chunks otherwise, and the most chunks.
static constexpr int64_t kTokens = 1024, kMinTokens = 512, kMinChunks = 4,
                         kMaxChunks = 16;

/// Rows whose type says nothing about where they lie.
static Value castToAnyRows(KernelBuilder &b, Value rows) {
  auto type = cast<MemRefType>(rows.getType());
  int64_t dynamic = ShapedType::kDynamic;
  auto layout = StridedLayoutAttr::get(b.getContext(), dynamic, {dynamic, 1});
  return memref::CastOp::create(b,
                                MemRefType::get({dynamic, type.getDimSize(1)},
                                                type.getElementType(), layout),
                                rows);
}

void VQBackwardKernel::divideTokens() {
  int64_t unit = op.getCausal() ? block : tile;
  Value units = b.ceilDiv(window.numTokens, unit);
  Value chunkUnits = b.clamp(b.ceilDiv(units, kMinChunks),
                             b.index(llvm::divideCeil(kMinTokens, unit)),
                             b.index(llvm::divideCeil(kTokens, unit)));
  // A chunk reads tokens of one other at most.
  chunkUnits = b.max(b.max(chunkUnits, b.ceilDiv(units, kMaxChunks)),
                     op.getCausal() ? memory : 0);
  numChunks = b.div(b.add(units, b.sub(chunkUnits, b.index(1))), chunkUnits);
  numChunks = b.max(numChunks, 1);
  // Sums over queries have one order.
  if (sumsBias) {
    chunkUnits = units;
    numChunks = b.index(1);
  }
  chunkTokens = b.mul(chunkUnits, unit);
  Value leading[] = {b.extent(window.values, 0), b.extent(window.values, 1),
                     numChunks};
  chunkSums = loops.allocate(leading, {numCodes, valueWidth}, state);
  if (!op.getCausal() || memory == 0)
    return;
  // Nothing is before the first chunk.
  leading[2] = b.sub(numChunks, b.index(1));
  if (getConstantIntValue(leading[2]) == 0)
    return;
  keysBefore = loops.allocate(leading, {getReach(), width}, state);
  if (op.hasLocalTerms())
    valuesBefore = loops.allocate(leading, {getReach(), valueWidth}, state);
}

void VQBackwardKernel::beginChunk(Value batchIndex, Value headIndex,
                                  Value chunkIndex) {
  batch = batchIndex;
  keyHead = headIndex;
  chunk = chunkIndex;
  sums = b.rowView(chunkSums, {batch, keyHead, chunk});
  chunkBegin = b.mul(chunk, chunkTokens);
  chunkEnd = b.min(b.add(chunkBegin, chunkTokens), window.numTokens);
  rows = {castToAnyRows(b, b.rowView(dKey, {batch, keyHead})),
          castToAnyRows(b, b.rowView(dValue, {batch, keyHead})), zero};
}

void VQBackwardKernel::forTokens(
    Value low, Value high,
    function_ref<void(const TokenRows &, Value, Value)> body) {
  if (!keysBefore)
    return body(rows, low, high);
  // The code for both parts is the same.
  Value middle = b.clamp(chunkBegin, low, high);
  Value previous = b.max(b.sub(chunk, b.index(1)), 0);
  b.loop(zero, b.index(2), 1, [&](Value part) {
    Value isOther = b.equal(part, zero);
    auto select = [&](Value others, Value own) {
      if (!others)
        return own;
      Value view = b.rowView(others, {batch, keyHead, previous});
      return b.select(isOther, castToAnyRows(b, view), own);
    };
    Value firstOther = b.sub(chunkBegin, b.index(getReach()));
    body({select(keysBefore, rows.keys), select(valuesBefore, rows.values),
          b.select(isOther, firstOther, zero)},
         b.select(isOther, low, middle), b.select(isOther, middle, high));
  });
}

/// Adds U of the chunks from `later` on to the gradients of tokens' values.
void VQBackwardKernel::addValueGradients(Value low, Value high, Value later) {
  b.ifThen(b.less(later, numChunks), [&] {
    Value owed = b.rowView(chunkSums, {batch, keyHead, later});
    b.loop(low, high, 1, [&](Value token) {
      Value code = b.loadIndex(window.codes, {batch, keyHead, token});
      b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
        Value old = k.loadVector(rows.values, {token, column});
        Value sum = loops.loadPresent(
            k, code, [&] { return k.loadVector(owed, {code, column}); });
        k.storeVector(k.fadd(old, sum), rows.values, {token, column});
      });
    });
  });
}

/// Behind all tasks: what chunks have for each other.
void VQBackwardKernel::addChunks() {
  Value batches = b.extent(window.values, 0),
        heads = b.extent(window.values, 1);
  // Where no token of the window goes to a mean, those of the state stay there.
  Value isLeft;
  if (loops.hasNext())
    isLeft = b.less(b.div(window.numTokens, block),
                    b.index(op.hasLocalTerms() ? 1 : memory + 1));
  loops.addLaterSums(chunkSums, isLeft);
  b.forAll({batches, heads, numChunks}, [&](ValueRange at) {
    beginChunk(at[0], at[1], at[2]);
    // All queries read all tokens.
    if (!op.getCausal()) {
      sums = b.rowView(chunkSums, {batch, keyHead, zero});
      return takeValueGradients(rows, chunkBegin, chunkEnd);
    }
    Value next = b.add(chunk, 1);
    b.ifThen(b.less(next, numChunks), [&] {
      // With a bias, U of the next chunk is for tokens before the last blocks:
      // those of these were read by its first block one by one.
      Value end = chunkEnd;
      if (op.hasLocalTerms()) {
        end = b.sub(chunkEnd, b.index(getReach()));
        addValueGradients(end, chunkEnd, b.add(next, 1));
      }
      addValueGradients(chunkBegin, end, next);
      if (!keysBefore)
        return;
      auto addRows = [&](Value from, Value to) {
        Value begin = b.sub(chunkEnd, b.index(getReach()));
        b.loop(zero, b.index(getReach()), 1, [&](Value row) {
          b.forColumns(
              cast<MemRefType>(to.getType()).getDimSize(1),
              [&](KernelBuilder &k, Value column) {
                Value at[] = {k.add(begin, row), column};
                Value more =
                    k.loadVector(from, {batch, keyHead, chunk, row, column});
                k.storeVector(k.fadd(k.loadVector(to, at), more), to, at);
              });
        });
      };
      addRows(keysBefore, rows.keys);
      if (op.hasLocalTerms())
        addRows(valuesBefore, rows.values);
    });
  });
}
