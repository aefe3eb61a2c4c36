//===- RecoverGradient.cpp - Loops of attn.conv_recover_backward ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   dH[r][i] = d_basis[r, i - c_r] - d_basis[r + 1, i - c_r]   bases by rows
//
//   forall (batch, head, chunk of rows)
//     d_query = scale dH^T key[c]             the keys where bases begin
//   for each of the heads that share a key head
//     forall (batch, key head, some bases)
//       d_key[c] += scale dH query            chunks of rows, in order
//
// A row before a basis has nothing to do with it: no product counts it as 0,
// which times a NaN would be one.
//
//===----------------------------------------------------------------------===//

#include "RecoverKernel.h"
#include "fovea/Kernels/ProductBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of a chunk, and bases whose gradients are made at a time.
static constexpr int64_t kRows = 64, kBases = 16;
/// Bases of a task that sums gradients of their keys: few heads have few bases.
static constexpr int64_t kTaskBases = 4;

static MemRefType typeOf(Value memref) {
  return cast<MemRefType>(memref.getType());
}

namespace {
class RecoverGradient {
public:
  RecoverGradient(OpBuilder &builder, ConvRecoverBackwardOp op, FloatType state,
                  int64_t lanes)
      : op(op), b(op.getLoc(), builder, state, lanes), state(state),
        width(typeOf(op.getKey()).getDimSize(3)) {}

  void emit();

private:
  void emitQueries(Value firstRow, Value numRows);
  void emitKeys(Value firstBasis, Value numBases);
  void packScores(Value firstBasis, Value numBases, Value firstRow,
                  Value numRows);
  void forEachProduct(
      Value firstBasis, Value count, Value firstRow, Value numRows,
      function_ref<void(Value place, Value count, Value begin)> emit);
  void clear(Value sums, Value numRows);
  void addTo(KernelBuilder &k, Value sums, ValueRange at, Value number);
  Value sizeOf(Value basis) {
    return b.loadIndex(op.getSizes(), {batch, head, basis});
  }
  Value startOf(Value basis) { return b.sub(numTokens, sizeOf(basis)); }

  ConvRecoverBackwardOp op;
  ProductBuilder b;
  FloatType state;
  int64_t width;
  Value numTokens, numBases;
  /// Sums for d_key, in place where it holds the state type.
  Value keySums;
  // The present task: its heads, and for some bases dH and the keys where they
  // begin.
  Value batch, head, keyHead, dScores, keys;
};
} // namespace

void RecoverGradient::clear(Value sums, Value numRows) {
  b.loop(b.index(0), numRows, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), sums, {row, column});
    });
  });
}

void RecoverGradient::addTo(KernelBuilder &k, Value sums, ValueRange at,
                            Value number) {
  k.storeVector(k.fadd(k.loadVector(sums, at), number), sums, at);
}

/// Gradients of the scores of a chunk of rows with the keys where bases begin.
void RecoverGradient::packScores(Value firstBasis, Value count, Value firstRow,
                                 Value numRows) {
  b.loop(b.index(0), count, 1, [&](Value place) {
    Value basis = b.add(firstBasis, place), next = b.add(basis, 1);
    Value start = startOf(basis);
    memref::StoreOp::create(b, start, keys, place);
    Value begin = b.clamp(b.sub(start, firstRow), b.index(0), numRows);
    auto lagOf = [&](Value row) { return b.sub(b.add(firstRow, row), start); };
    b.forColumns(begin, numRows, [&](KernelBuilder &k, Value row) {
      Value at[] = {batch, head, basis, lagOf(row)};
      k.storeVector(k.loadVector(op.getDBasis(), at), dScores, {place, row});
    });
    b.ifThen(b.less(next, numBases), [&] {
      // Lags that the next basis has too.
      Value end =
          b.clamp(b.sub(b.add(start, sizeOf(next)), firstRow), begin, numRows);
      b.forColumns(begin, end, [&](KernelBuilder &k, Value row) {
        Value at[] = {batch, head, next, lagOf(row)};
        Value old = k.loadVector(dScores, {place, row});
        k.storeVector(k.fsub(old, k.loadVector(op.getDBasis(), at)), dScores,
                      {place, row});
      });
    });
  });
}

/// Calls `emit` with the bases, of some, that begin before a chunk of rows, and
/// then with each of the others, and its own first row of the chunk.
void RecoverGradient::forEachProduct(
    Value firstBasis, Value count, Value firstRow, Value numRows,
    function_ref<void(Value place, Value count, Value begin)> emit) {
  Value zero = b.index(0), one = b.index(1);
  auto beginOf = [&](Value place) {
    return b.sub(startOf(b.add(firstBasis, place)), firstRow);
  };
  Value whole =
      b.loop(zero, count, 1, zero,
             [&](Value place, ValueRange whole) -> KernelBuilder::Values {
               Value isWhole = b.less(beginOf(place), one);
               return {b.select(isWhole, b.add(place, 1), whole[0])};
             })
          .front();
  b.loop(zero, b.add(b.sub(count, whole), 1), 1, [&](Value number) {
    Value isFirst = b.equal(number, zero);
    Value place = b.select(isFirst, zero, b.sub(b.add(whole, number), one));
    Value begin = b.select(isFirst, zero, b.min(beginOf(place), numRows));
    emit(place, b.select(isFirst, whole, one), begin);
  });
}

void RecoverGradient::emitQueries(Value firstRow, Value numRows) {
  dScores = b.scratch({kBases, kRows}, state);
  keys = b.scratch({kBases}, b.getIndexType());
  Value sums = b.scratch({kRows, width}, state);
  clear(sums, numRows);
  b.loop(b.index(0), numBases, kBases, [&](Value firstBasis) {
    Value count = b.min(b.sub(numBases, firstBasis), kBases);
    packScores(firstBasis, count, firstRow, numRows);
    forEachProduct(
        firstBasis, count, firstRow, numRows,
        [&](Value place, Value count, Value begin) {
          b.emitProduct(
              {b.sub(numRows, begin), count, width,
               [&](KernelBuilder &k, Value row, Value basis) {
                 return k.loadScalar(dScores,
                                     {k.add(place, basis), k.add(begin, row)});
               },
               [&](KernelBuilder &k, Value basis, Value column) {
                 Value key =
                     memref::LoadOp::create(k, keys, k.add(place, basis));
                 return k.loadVector(op.getKey(),
                                     {batch, keyHead, key, column});
               },
               [&](KernelBuilder &k, Value row, Value column, Value sum) {
                 addTo(k, sums, {k.add(begin, row), column}, sum);
               }});
        });
  });
  double scale = op.getScaleOrDefault();
  b.loop(b.index(0), numRows, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value sum = k.loadVector(sums, {row, column});
      k.storeVector(k.fmul(sum, k.splat(scale)), op.getDQuery(),
                    {batch, head, k.add(firstRow, row), column});
    });
  });
}

void RecoverGradient::emitKeys(Value firstBasis, Value count) {
  dScores = b.scratch({kTaskBases, kRows}, state);
  keys = b.scratch({kTaskBases}, b.getIndexType());
  Value sums = b.scratch({kTaskBases, width}, state);
  clear(sums, count);
  // Rows before the first of these bases have nothing.
  Value begin = b.roundDown(startOf(firstBasis), kRows);
  b.loop(begin, numTokens, kRows, [&](Value firstRow) {
    Value numRows = b.min(b.sub(numTokens, firstRow), kRows);
    packScores(firstBasis, count, firstRow, numRows);
    forEachProduct(
        firstBasis, count, firstRow, numRows,
        [&](Value place, Value count, Value begin) {
          b.emitProduct(
              {count, b.sub(numRows, begin), width,
               [&](KernelBuilder &k, Value basis, Value row) {
                 return k.loadScalar(dScores,
                                     {k.add(place, basis), k.add(begin, row)});
               },
               [&](KernelBuilder &k, Value row, Value column) {
                 Value at = k.add(firstRow, k.add(begin, row));
                 return k.loadVector(op.getQuery(), {batch, head, at, column});
               },
               [&](KernelBuilder &k, Value basis, Value column, Value sum) {
                 addTo(k, sums, {k.add(place, basis), column}, sum);
               }});
        });
  });
  double scale = op.getScaleOrDefault();
  b.loop(b.index(0), count, 1, [&](Value place) {
    Value start = startOf(b.add(firstBasis, place));
    b.ifThen(b.less(start, numTokens), [&] {
      b.forColumns(width, [&](KernelBuilder &k, Value column) {
        Value sum = k.loadVector(sums, {place, column});
        addTo(k, keySums, {batch, keyHead, start, column},
              k.fmul(sum, k.splat(scale)));
      });
    });
  });
}

void RecoverGradient::emit() {
  Value query = op.getQuery(), key = op.getKey(), dKey = op.getDKey();
  numTokens = b.extent(query, 2);
  numBases = b.extent(op.getDBasis(), 2);
  Value batches = b.extent(query, 0), heads = b.extent(query, 1),
        keyHeads = b.extent(key, 1);
  // Without heads there are no groups to divide by.
  Value shared = b.div(heads, b.max(keyHeads, 1));
  auto forAllKeys = [&](function_ref<void(KernelBuilder &, ValueRange)> body) {
    b.forAll({batches, keyHeads, b.ceilDiv(numTokens, kRows)},
             [&](ValueRange at) {
               Value first = b.mul(at[2], kRows);
               Value end = b.min(b.add(first, kRows), numTokens);
               b.loop(first, end, 1, [&](Value row) {
                 b.forColumns(width, [&](KernelBuilder &k, Value column) {
                   body(k, {at[0], at[1], row, column});
                 });
               });
             });
  };
  keySums = typeOf(dKey).getElementType() == state
                ? dKey
                : b.allocateLike(dKey, state);
  forAllKeys([&](KernelBuilder &k, ValueRange at) {
    k.storeVector(k.splat(0.0), keySums, at);
  });
  b.forAll({batches, heads, b.ceilDiv(numTokens, kRows)}, [&](ValueRange at) {
    batch = at[0];
    head = at[1];
    keyHead = b.div(head, b.max(shared, 1));
    Value first = b.mul(at[2], kRows);
    emitQueries(first, b.min(b.sub(numTokens, first), kRows));
    b.freeScratch();
  });
  b.loop(b.index(0), shared, 1, [&](Value place) {
    b.forAll({batches, keyHeads, b.ceilDiv(numBases, kTaskBases)},
             [&](ValueRange at) {
               batch = at[0];
               keyHead = at[1];
               head = b.add(b.mul(keyHead, shared), place);
               Value first = b.mul(at[2], kTaskBases);
               emitKeys(first, b.min(b.sub(numBases, first), kTaskBases));
               b.freeScratch();
             });
  });
  if (keySums == dKey)
    return;
  forAllKeys([&](KernelBuilder &k, ValueRange at) {
    k.storeVector(k.loadVector(keySums, at), dKey, at);
  });
  memref::DeallocOp::create(b, keySums);
}

void fovea::attn::emitConvRecoverBackward(OpBuilder &builder,
                                          ConvRecoverBackwardOp op,
                                          int64_t vectorBits) {
  FloatType state = getStateType(typeOf(op.getQuery()).getElementType());
  RecoverGradient(builder, op, state, vectorBits / state.getWidth()).emit();
}
