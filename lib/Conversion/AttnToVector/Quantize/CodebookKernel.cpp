//===- CodebookKernel.cpp - Loops of codebook updates ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CodebookKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

/// Vectors of columns that one task of an update sums.
static constexpr int64_t kVectorsPerSlice = 4;
/// Codewords that one task of an update divides.
static constexpr int64_t kCodesPerTask = 64;

static Type getElementType(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementType();
}

//===----------------------------------------------------------------------===//
// Update
//===----------------------------------------------------------------------===//

void fovea::attn::emitUpdate(OpBuilder &builder, CodebookUpdateOp op,
                             int64_t vectorBits) {
  FloatType state = getStateType(getElementType(op.getKey()));
  RowBuilder b(op.getLoc(), builder, state, vectorBits / state.getWidth());
  Value key = op.getKey(), codes = op.getCodes(), codebook = op.getCodebook();
  auto type = cast<MemRefType>(codebook.getType());
  int64_t numCodes = type.getDimSize(1), width = type.getDimSize(2);
  Value sets = b.extent(codebook, 0), zero = b.index(0);
  Value sums = b.allocateLike(codebook, state);
  Value counts = b.allocateLike(op.getCounts(), b.getI32Type());

  // The last slice takes what is left.
  int64_t sliceWidth = kVectorsPerSlice * b.getLanes();
  int64_t numSlices = std::max<int64_t>(1, width / sliceWidth);
  b.forAll({sets, b.index(numSlices)}, [&](ValueRange ivs) {
    Value set = ivs[0], slice = ivs[1];
    Value begin = b.mul(slice, sliceWidth), end = b.index(width);
    if (numSlices > 1)
      end = b.select(b.equal(slice, b.index(numSlices - 1)), end,
                     b.add(begin, sliceWidth));
    Value countsToo = b.equal(slice, zero);
    b.loop(zero, b.index(numCodes), 1, [&](Value code) {
      b.forColumns(begin, end, [&](KernelBuilder &k, Value column) {
        k.storeVector(k.splat(0.0), sums, {set, code, column});
      });
      b.ifThen(countsToo, [&] { b.storeIndex(zero, counts, {set, code}); });
    });
    bool isShared = type.getDimSize(0) == 1;
    Value firstHead = isShared ? zero : set;
    Value endHead = isShared ? b.extent(key, 1) : b.add(set, 1);
    b.loop(zero, b.extent(key, 0), 1, [&](Value batch) {
      b.loop(firstHead, endHead, 1, [&](Value head) {
        b.loop(zero, b.extent(key, 2), 1, [&](Value token) {
          Value code = b.loadIndex(codes, {batch, head, token});
          b.forColumns(begin, end, [&](KernelBuilder &k, Value column) {
            Value old = k.loadVector(sums, {set, code, column});
            Value part = k.loadVector(key, {batch, head, token, column});
            k.storeVector(k.fadd(old, part), sums, {set, code, column});
          });
          b.ifThen(countsToo, [&] {
            Value count = b.loadIndex(counts, {set, code});
            b.storeIndex(b.add(count, 1), counts, {set, code});
          });
        });
      });
    });
  });

  double rate = op.getRate().convertToDouble();
  int64_t numTasks = llvm::divideCeil(numCodes, kCodesPerTask);
  b.forAll({sets, b.index(numTasks)}, [&](ValueRange ivs) {
    Value set = ivs[0], begin = b.mul(ivs[1], kCodesPerTask);
    Value end = b.min(b.add(begin, kCodesPerTask), numCodes);
    b.loop(begin, end, 1, [&](Value code) {
      Value found = b.toNumber(b.loadIndex(counts, {set, code}));
      Value old = b.loadScalar(op.getCounts(), {set, code});
      Value count = b.fadd(b.fmul(old, b.scalar(rate)),
                           b.fmul(found, b.scalar(1.0 - rate)));
      b.storeScalar(count, op.getCounts(), {set, code});
      b.forColumns(width, [&](KernelBuilder &k, Value column) {
        Value at[] = {set, code, column};
        Value sum =
            k.fadd(k.fmul(k.loadVector(op.getSums(), at), k.splat(rate)),
                   k.fmul(k.loadVector(sums, at), k.splat(1.0 - rate)));
        k.storeVector(sum, op.getSums(), at);
        Value divisor = k.broadcast(count);
        Value isEmpty = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ,
                                              divisor, k.splat(0.0));
        Value mean = arith::DivFOp::create(k, sum, divisor);
        k.storeVector(arith::SelectOp::create(k, isEmpty, k.splat(0.0), mean),
                      codebook, at);
      });
    });
  });
  memref::DeallocOp::create(b, sums);
  memref::DeallocOp::create(b, counts);
}

//===----------------------------------------------------------------------===//
// Log weights
//===----------------------------------------------------------------------===//

/// Loops over the dimensions from `position.size()` on.
static void emitLogCounts(RowBuilder &b, LogCountOp op, Values position) {
  Value counts = op.getCount();
  int64_t rank = cast<MemRefType>(counts.getType()).getRank();
  int64_t dim = position.size();
  auto at = [&](Value i) {
    Values next(position);
    next.push_back(i);
    return next;
  };
  if (dim + 1 < rank)
    return b.loop(b.index(0), b.extent(counts, dim), 1,
                  [&](Value i) { emitLogCounts(b, op, at(i)); });
  b.forColumns(
      b.index(0), b.extent(counts, dim), [&](KernelBuilder &k, Value column) {
        auto type = VectorType::get({k.getLanes()}, k.getI32Type());
        Value count = vector::LoadOp::create(k, type, counts, at(column));
        k.storeVector(softmax::logCount(k, count), op.getLogWeight(),
                      at(column));
      });
}

void fovea::attn::emitLogCount(OpBuilder &builder, LogCountOp op,
                               int64_t vectorBits) {
  auto state = cast<FloatType>(getElementType(op.getLogWeight()));
  RowBuilder b(op.getLoc(), builder, state, vectorBits / state.getWidth());
  if (cast<MemRefType>(op.getCount().getType()).getRank() == 0) {
    KernelBuilder k(op.getLoc(), builder, state, /*lanes=*/1);
    auto type = VectorType::get({1}, k.getI32Type());
    Value count = vector::BroadcastOp::create(
        k, type, memref::LoadOp::create(k, op.getCount()).getResult());
    Value log = vector::ExtractOp::create(k, softmax::logCount(k, count),
                                          ArrayRef<int64_t>{0});
    k.storeScalar(log, op.getLogWeight(), {});
    return;
  }
  emitLogCounts(b, op, {});
}
