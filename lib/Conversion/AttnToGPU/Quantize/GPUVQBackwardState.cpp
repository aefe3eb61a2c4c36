//===- GPUVQBackwardState.cpp - Gradients through the state of attn.vq ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUVQBackward.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Codes and values of the tokens kept that are read one by one, and then those
/// of the window: a thread for each number.
void VQBackwardLoops::prependKept() {
  const VQWindow &window = problem.window;
  Value start = b.sub(window.position, window.numBefore);
  auto prepend = [&](Value kept, Value &rows) {
    Type type = cast<MemRefType>(rows.getType()).getElementType();
    Values extents = getExtents(rows);
    extents[2] = window.numTokens;
    Value all = allocate(extents, type);
    parallelLoop(b, extents, [&](ValueRange at) {
      auto load = [&](Value from, Value row) -> Value {
        Values place(at);
        place[2] = row;
        return memref::LoadOp::create(b, from, place);
      };
      Value number = b.select(
          b.less(at[2], window.numBefore), type,
          [&] {
            Value token = b.add(start, at[2]);
            return load(kept, b.rem(token, 2 * problem.getBlock()));
          },
          [&] { return load(rows, b.sub(at[2], window.numBefore)); });
      memref::StoreOp::create(b, number, all, at);
    });
    rows = all;
  };
  prepend(op.getState()[2], problem.codes);
  prepend(op.getState()[3], problem.values);
}

/// What the mean of the next state at (batch, head, code, column) gives each of
/// its tokens.
Value VQBackwardLoops::loadNextMean(ValueRange at) {
  Value wholeBlocks = b.div(problem.window.numTokens, problem.getBlock());
  Value entry = b.max(b.sub(wholeBlocks, b.index(1)), 0);
  Value count = b.loadIndex(problem.counts, {at[0], at[1], entry, at[2]});
  return b.select(
      b.less(b.index(0), count), b.getF32Type(),
      [&]() -> Value {
        return arith::DivFOp::create(b, b.loadScalar(op.getDNextState()[0], at),
                                     b.toNumber(count));
      },
      [&] { return b.scalar(0.0); });
}

/// All tokens of a mean get `sum`.
void VQBackwardLoops::storeMean(ValueRange at, Value sum) {
  Value count = b.loadIndex(op.getState()[1], at.take_front(3));
  b.storeScalar(b.fmul(sum, b.toNumber(count)), op.getDState()[0], at);
}

/// The rows of a state, oldest first, and those of the window are one list, of
/// which the next state keeps the last ones: row i of the window, from -2 L on,
/// is row (position + i) mod 2 L of either state.
void VQBackwardLoops::storeTokens(Value gradient, unsigned part,
                                  function_ref<Value(ValueRange)> sum) {
  const VQWindow &window = problem.window;
  int64_t numKept = 2 * problem.getBlock();
  Value zero = b.index(0);
  Value state = op.getDState().empty() ? Value() : op.getDState()[part];
  Value next = hasNext() ? op.getDNextState()[part] : Value();
  Values extents = getExtents(gradient);
  if (state)
    extents[2] = b.add(extents[2], numKept);
  auto orZero = [&](Value exists, function_ref<Value()> load) {
    return b.select(exists, b.getF32Type(), load,
                    [&] { return b.scalar(0.0); });
  };
  parallelLoop(b, extents, [&](ValueRange at) {
    Value row = at[2], stateRow;
    if (state)
      row = b.sub(row, b.index(numKept));
    if (state || next)
      stateRow = b.rem(b.add(b.add(window.position, row), numKept), numKept);
    auto placeOf = [&](Value row) { return Values{at[0], at[1], row, at[3]}; };
    Value token = b.add(row, window.numBefore);
    auto loadSum = [&] { return sum(placeOf(token)); };
    Value total =
        state ? orZero(b.less(b.index(-1), token), loadSum) : loadSum();
    if (next) {
      Value isKept = b.less(b.sub(window.length, b.index(numKept + 1)), row);
      total = b.fadd(total, orZero(isKept, [&] {
                       return b.loadScalar(next, placeOf(stateRow));
                     }));
    }
    if (!state)
      return b.storeScalar(total, gradient, at);
    b.ifThenElse(
        b.less(row, zero),
        [&] { b.storeScalar(total, state, placeOf(stateRow)); },
        [&] { b.storeScalar(total, gradient, placeOf(row)); });
  });
}
