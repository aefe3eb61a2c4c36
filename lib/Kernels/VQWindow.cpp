//===- VQWindow.cpp - Tokens that a window reads one by one ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/VQWindow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows of a task of a CPU.
static constexpr int64_t kTeamRows = 256;

static int64_t getWidth(Value memref) {
  return cast<MemRefType>(memref.getType()).getShape().back();
}

static Values append(ValueRange at, Value last) {
  Values place(at);
  place.push_back(last);
  return place;
}

/// `exists ? load() : 0`.
static Value loadIf(KernelBuilder &k, Value exists,
                    function_ref<Value()> load) {
  return k.select(exists, k.getVectorType(), load,
                  [&] { return k.splat(0.0); });
}

VQWindow::VQWindow(KernelBuilder &b, VQBackwardOp op)
    : queries(op.getQuery()), dOutputs(op.getDOutput()), codes(op.getCodes()),
      values(op.getValue()) {
  length = numTokens = b.extent(values, 2);
  position = numBefore = b.index(0);
  if (op.getState().empty())
    return;
  int64_t block = op.getBlock(), memory = op.getMemory();
  position = b.loadIndex(op.getState()[4], {});
  Value begun = b.rem(position, block);
  // The first blocks have fewer before them.
  Value before = b.min(b.sub(position, begun), b.index(memory * block));
  numBefore = b.add(begun, before);
  numTokens = b.add(numBefore, length);
}

VQWindowLoops::VQWindowLoops(TeamBuilder &builder, VQBackwardOp op)
    : b(builder), op(op), window(builder, op), block(op.getBlock()),
      memory(op.getMemory()),
      numCodes(cast<MemRefType>(op.getCodebook().getType()).getDimSize(1)),
      valueWidth(getWidth(op.getValue())), batches(b.extent(op.getValue(), 0)),
      heads(b.extent(op.getValue(), 1)) {}

void VQWindowLoops::freeBuffers() {
  for (Value buffer : llvm::reverse(buffers))
    memref::DeallocOp::create(b, buffer);
}

void VQWindowLoops::forElements(
    ArrayRef<Value> rows, int64_t width,
    function_ref<void(KernelBuilder &, ValueRange)> body) {
  b.forRows(rows.drop_back(), rows.back(), kTeamRows, [&](ValueRange row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      body(k, append(row, column));
    });
  });
}

void VQWindowLoops::fillRows(Value memref, Element element) {
  Value rows[] = {b.extent(memref, 0), b.extent(memref, 1),
                  b.extent(memref, 2)};
  forElements(rows, getWidth(memref), [&](KernelBuilder &k, ValueRange at) {
    k.storeVector(element(k, at), memref, at);
  });
}

//===----------------------------------------------------------------------===//
// Tokens, one by one and by their codes
//===----------------------------------------------------------------------===//

Value VQWindowLoops::loadPresent(KernelBuilder &k, Value code,
                                 function_ref<Value()> load) {
  return op.getPadded() ? loadIf(k, k.less(k.index(-1), code), load) : load();
}

/// Rows of queries of absent tokens take part in products like others, but hold
/// anything.
Value VQWindowLoops::clearAbsent(Value rows) {
  auto type = cast<MemRefType>(rows.getType());
  Value extents[] = {b.extent(rows, 0), b.extent(rows, 1), b.extent(rows, 2)};
  Value clean = allocate(extents, {type.getDimSize(3)}, type.getElementType());
  Value headsOfKey = b.max(b.div(extents[1], b.max(heads, 1)), 1);
  fillRows(clean, [&](KernelBuilder &k, ValueRange at) {
    Value keyHead = k.div(at[1], headsOfKey);
    Value code = k.loadIndex(op.getCodes(), {at[0], keyHead, at[2]});
    return loadPresent(k, code, [&] { return k.loadVector(rows, at); });
  });
  return clean;
}

void VQWindowLoops::gatherTokens(Reduction reduction, Type meanType) {
  if (op.getPadded()) {
    window.queries = clearAbsent(window.queries);
    window.dOutputs = clearAbsent(window.dOutputs);
  }
  if (hasState())
    prependKept();
  summarize(reduction, meanType);
}

/// Codes and values of the tokens kept that are read one by one, and then those
/// of the window.
void VQWindowLoops::prependKept() {
  window.codes =
      allocate({batches, heads, window.numTokens}, {}, b.getI32Type());
  window.values = allocateRows(
      valueWidth, cast<MemRefType>(op.getValue().getType()).getElementType());
  auto copy = [&](Value codes, Value values, Value row, ValueRange token) {
    Value from[] = {token[0], token[1], row};
    b.single(
        [&] { b.storeIndex(b.loadIndex(codes, from), window.codes, token); });
    b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.loadVector(values, append(from, column)), window.values,
                    append(token, column));
    });
  };
  Value start = b.sub(window.position, window.numBefore);
  b.forRows({batches, heads}, window.numTokens, kTeamRows, [&](ValueRange at) {
    b.ifThenElse(
        b.less(at[2], window.numBefore),
        [&] {
          Value row = b.rem(b.add(start, at[2]), (memory + 1) * block);
          copy(op.getState()[2], op.getState()[3], row, at);
        },
        [&] {
          copy(op.getCodes(), op.getValue(), b.sub(at[2], window.numBefore),
               at);
        });
  });
}

/// Means and counts of the values before every block, or of all values.
void VQWindowLoops::summarize(Reduction reduction, Type meanType) {
  Values leading = {batches, heads};
  Value means, counts;
  if (hasState()) {
    means = op.getState()[0];
    counts = op.getState()[1];
  } else {
    means = allocate(leading, {numCodes, valueWidth}, b.getStateType());
    counts = allocate(leading, {numCodes}, b.getI32Type());
    b.forRows(leading, b.index(numCodes), kTeamRows, [&](ValueRange at) {
      b.single([&] { b.storeIndex(b.index(0), counts, at); });
      b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
        k.storeVector(k.splat(0.0), means, append(at, column));
      });
    });
  }
  if (!op.getCausal()) {
    window.means = means;
    window.counts = counts;
    CodebookAccumulateOp::create(b, TypeRange(), window.codes, window.values,
                                 means, counts);
    return;
  }
  // The last block reads the last entry; the next state may have one more. Of
  // a state there are as many as the latest position needs, so that the host
  // need not know which it is.
  Value blocks =
      hasState() ? b.ceilDiv(b.add(window.length, block - 1), block)
                 : b.sub(b.ceilDiv(window.numTokens, block), b.index(memory));
  Value entries = b.add(blocks, hasNext() ? 1 : 0);
  leading.push_back(b.max(entries, 1));
  window.means = allocate(leading, {numCodes, valueWidth}, meanType);
  window.counts = allocate(leading, {numCodes}, b.getI32Type());
  CodebookScanOp::create(b, TypeRange(), window.codes, window.values, means,
                         counts, window.means, window.counts,
                         b.getI64IntegerAttr(block),
                         ReductionAttr::get(b.getContext(), reduction));
}

//===----------------------------------------------------------------------===//
// Gradients of tokens
//===----------------------------------------------------------------------===//

Value VQWindowLoops::loadNextMean(KernelBuilder &k, ValueRange at) {
  Value wholeBlocks = k.div(window.numTokens, block);
  Value entry = k.max(k.sub(wholeBlocks, k.index(memory)), 0);
  Value count = k.loadIndex(window.counts, {at[0], at[1], entry, at[2]});
  return loadIf(k, k.less(k.index(0), count), [&]() -> Value {
    Value gradient = k.loadVector(op.getDNextState()[0], at);
    return arith::DivFOp::create(k, gradient, k.broadcast(k.toNumber(count)));
  });
}

void VQWindowLoops::addLaterSums(Value sums, Value addsNext) {
  Value rows[] = {batches, heads, b.index(numCodes)};
  forElements(rows, valueWidth, [&](KernelBuilder &k, ValueRange at) {
    Value start = k.splat(0.0), numGroups = k.extent(sums, 2);
    if (hasNext())
      start = loadIf(k, addsNext, [&] { return loadNextMean(k, at); });
    Value last = k.sub(numGroups, k.index(1));
    auto addGroup = [&](Value step, ValueRange later) -> Values {
      Value place[] = {at[0], at[1], k.sub(last, step), at[2], at[3]};
      Value sum = k.fadd(later[0], k.loadVector(sums, place));
      k.storeVector(sum, sums, place);
      return {sum};
    };
    Value total = k.loop(k.index(0), numGroups, 1, {start}, addGroup)[0];
    if (op.getDState().empty())
      return;
    // A mean of nothing is not read.
    Value count = k.loadIndex(op.getState()[1], at.take_front(3));
    Value gradient = k.fmul(total, k.broadcast(k.toNumber(count)));
    Value exists = k.less(k.index(0), count);
    k.storeVector(k.select(exists, gradient, k.splat(0.0)), op.getDState()[0],
                  at);
  });
}

/// The rows of a state, oldest first, and those of the window are one list, of
/// which the next state keeps the last ones: row i of the window, from
/// -(memory + 1) L on, is row (position + i) mod (memory + 1) L of either
/// state.
void VQWindowLoops::storeTokens(Value gradient, unsigned part, Element sum) {
  int64_t numKept = (memory + 1) * block;
  auto placeOf = [](ValueRange at, Value row) {
    return Values{at[0], at[1], row, at[3]};
  };
  auto addNext = [&](KernelBuilder &k, ValueRange at, Value row, Value total) {
    if (!hasNext())
      return total;
    Value isKept = k.less(k.sub(window.length, k.index(numKept + 1)), row);
    Value next = loadIf(k, isKept, [&] {
      Value kept = k.rem(k.add(k.add(window.position, row), numKept), numKept);
      return k.loadVector(op.getDNextState()[part], placeOf(at, kept));
    });
    return k.fadd(total, next);
  };
  auto fillPresent = [&](Value gradients, Value codes, Element gradient) {
    fillRows(gradients, [&](KernelBuilder &k, ValueRange at) {
      Value code = k.loadIndex(codes, at.take_front(3));
      return loadPresent(k, code, [&] { return gradient(k, at); });
    });
  };
  fillPresent(gradient, op.getCodes(), [&](KernelBuilder &k, ValueRange at) {
    Value token = k.add(at[2], window.numBefore);
    return addNext(k, at, at[2], sum(k, placeOf(at, token)));
  });
  if (op.getDState().empty())
    return;
  fillPresent(op.getDState()[part], op.getState()[2],
              [&](KernelBuilder &k, ValueRange at) {
                Value oldest = k.rem(window.position, numKept);
                Value age =
                    k.rem(k.add(k.sub(at[2], oldest), numKept), numKept);
                Value row = k.sub(age, k.index(numKept));
                Value token = k.add(row, window.numBefore);
                Value total = loadIf(k, k.less(k.index(-1), token), [&] {
                  return sum(k, placeOf(at, token));
                });
                return addNext(k, at, row, total);
              });
}
