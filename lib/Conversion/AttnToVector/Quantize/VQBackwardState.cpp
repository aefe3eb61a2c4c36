//===- VQBackwardState.cpp - Gradients through the state of attn.vq -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQBackwardKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

/// A buffer with a row for every token, `[B, G, tokens, width]`.
Value VQBackwardKernel::rowsOfTokens(int64_t columns, Type elementType) {
  return b.allocate(
      {b.extent(op.getValue(), 0), b.extent(op.getValue(), 1), numTokens},
      {columns}, elementType);
}

/// The row of the state that keeps token `token` of the sequence.
Value VQBackwardKernel::keptRow(Value token) { return b.rem(token, 2 * block); }

/// Codes and values of the tokens kept that are read one by one, and then those
/// of the window.
void VQBackwardKernel::prependKept() {
  OperandRange kept = op.getState();
  Value length = b.extent(op.getValue(), 2);
  Value batches = b.extent(op.getValue(), 0),
        heads = b.extent(op.getValue(), 1);
  codes = b.allocate({batches, heads, numTokens}, {}, b.getI32Type());
  values = rowsOfTokens(
      valueWidth, cast<MemRefType>(op.getValue().getType()).getElementType());
  b.forAll({batches, heads}, [&](ValueRange at) {
    auto copy = [&](Value fromCodes, Value fromValues, Value row, Value token) {
      Value code = b.loadIndex(fromCodes, {at[0], at[1], row});
      b.storeIndex(code, codes, {at[0], at[1], token});
      b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
        k.storeVector(k.loadVector(fromValues, {at[0], at[1], row, column}),
                      values, {at[0], at[1], token, column});
      });
    };
    Value start = b.sub(position, numBefore);
    b.loop(zero, numBefore, 1, [&](Value token) {
      copy(kept[2], kept[3], keptRow(b.add(start, token)), token);
    });
    b.loop(zero, length, 1, [&](Value row) {
      copy(op.getCodes(), op.getValue(), row, b.add(numBefore, row));
    });
  });
}

/// Adds the gradient for the means of the next state to U, if `nextBlock` is
/// the block that the next token lies in: the tokens of these means, which are
/// those up to the second block before it, take theirs from now on.
void VQBackwardKernel::addNextMean(Value nextBlock) {
  if (op.getDNextState().empty())
    return;
  Value wholeBlocks = b.div(numTokens, block);
  b.ifThen(b.equal(nextBlock, wholeBlocks), [&] {
    Value entry = b.max(b.sub(wholeBlocks, b.index(1)), 0);
    b.loop(zero, b.index(numCodes), 1, [&](Value code) {
      Value number = b.loadIndex(counts, {batch, keyHead, entry, code});
      b.ifThen(b.less(zero, number), [&] {
        Value share =
            arith::DivFOp::create(b, b.scalar(1.0), b.toNumber(number));
        b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
          Value gradient = k.loadVector(op.getDNextState()[0],
                                        {batch, keyHead, code, column});
          Value old = k.loadVector(sums, {code, column});
          k.storeVector(k.fma(gradient, k.broadcast(share), old), sums,
                        {code, column});
        });
      });
    });
  });
}

/// Every token of a mean gets the same gradient, the last U.
void VQBackwardKernel::storeMeanGradient() {
  if (op.getDState().empty())
    return;
  sums = b.rowView(chunkSums, {batch, keyHead, zero});
  // Where no token of the window goes to a mean, those of the state stay there.
  Value lag = b.index(op.getBias() ? 1 : 2);
  Value wholeBlocks = b.div(numTokens, block);
  b.ifThen(b.less(wholeBlocks, lag), [&] { addNextMean(wholeBlocks); });
  b.loop(zero, b.index(numCodes), 1, [&](Value code) {
    Value number =
        b.toNumber(b.loadIndex(op.getState()[1], {batch, keyHead, code}));
    b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
      Value sum = k.loadVector(sums, {code, column});
      // A mean of nothing is not read.
      Value isNothing = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ,
                                              number, k.scalar(0.0));
      Value gradient = arith::SelectOp::create(
          k, isNothing, k.splat(0.0), k.fmul(sum, k.broadcast(number)));
      k.storeVector(gradient, op.getDState()[0],
                    {batch, keyHead, code, column});
    });
  });
}

/// Stores the sums of all tokens where they belong: to `gradient` those of the
/// window, and to part `part` of the state's gradient those kept. A token of
/// the window that the next state keeps gets what the next state gets for it; a
/// row that the window leaves as it was passes that on.
void VQBackwardKernel::storeTokenGradients(Value sums, Value gradient,
                                           unsigned part) {
  int64_t columns = cast<MemRefType>(gradient.getType()).getDimSize(3);
  Value next = op.getDNextState().empty() ? Value() : op.getDNextState()[part];
  Value kept = op.getDState().empty() ? Value() : op.getDState()[part];
  Value length = b.extent(gradient, 2), numKept = b.index(2 * block);
  Values extents{b.extent(gradient, 0), b.extent(gradient, 1)};
  b.forAll(extents, [&](ValueRange at) {
    // `target[row] = sums[token] + next[nextRow]`; a null token or row is 0.
    auto store = [&](Value target, Value row, Value token, Value nextRow) {
      b.forColumns(columns, [&](KernelBuilder &k, Value column) {
        Value sum = k.splat(0.0);
        if (token)
          sum = k.loadVector(sums, {at[0], at[1], token, column});
        if (nextRow)
          sum =
              k.fadd(sum, k.loadVector(next, {at[0], at[1], nextRow, column}));
        k.storeVector(sum, target, {at[0], at[1], row, column});
      });
    };
    Value firstKept = length;
    if (next) {
      firstKept = b.max(b.sub(length, numKept), 0);
      b.loop(firstKept, length, 1, [&](Value row) {
        store(gradient, row, b.add(numBefore, row),
              keptRow(b.add(position, row)));
      });
    }
    b.loop(zero, firstKept, 1, [&](Value row) {
      store(gradient, row, b.add(numBefore, row), Value());
    });
    if (!kept)
      return;
    // By age: the first of these rows is that of the oldest token kept, the one
    // that is overwritten first.
    b.loop(zero, numKept, 1, [&](Value age) {
      Value row = keptRow(b.add(position, age));
      Value token = b.sub(age, b.sub(numKept, numBefore));
      auto storeKept = [&](Value nextRow) {
        b.ifThenElse(
            b.less(token, zero), [&] { store(kept, row, Value(), nextRow); },
            [&] { store(kept, row, token, nextRow); });
      };
      if (!next)
        return storeKept(Value());
      b.ifThenElse(
          b.less(age, length), [&] { storeKept(Value()); },
          [&] { storeKept(row); });
    });
  });
  memref::DeallocOp::create(b, sums);
}
