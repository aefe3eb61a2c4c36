//===- GPUGradientSums.cpp - Sums of rows of gradients on sm_90a ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads has sums for rows of a source. Where others have sums for
// the same rows, of other queries or for other slots, each leaves its own, and
// a thread for each number of the result adds them up: in order, whichever was
// done first. So it is for a log weight that several rows, heads or batch
// entries share.
//
//===----------------------------------------------------------------------===//

#include "GPUGradientBlock.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// Of a block
//===----------------------------------------------------------------------===//

void GradientBlock::store(ValueRange sums, Value memref, double factor,
                          Value earlier) {
  auto element = cast<FloatType>(getMemRefType(memref).getElementType());
  int64_t bytes = element.getWidth() / 8;
  bool storesPairs = getCopyBytes(memref, bytes) >= 2 * bytes;
  Value place = getPlaceOfSums();
  for (int64_t half : {0, 1}) {
    Value row = k.toIndex(getOwnRow(half)), head = getOwnHead();
    if (!ofRows) {
      head = getHeadOfRow(head, row);
      row = getQuery(row);
    }
    k.ifThen(k.less(row, k.extent(memref, 2)), [&] {
      Value exists = k.less(row, ofRows ? ranges->getLength().rows
                                        : ranges->getNumQueries());
      for (size_t number = 0; number < sums.size() / 4; ++number) {
        Value column = k.toIndex(k.add(getPairColumn(), int64_t(number * 8)));
        Values pair;
        for (int64_t i : {0, 1}) {
          Value at[] = {place, head, row, k.add(column, i)};
          Value sum = k.fmul(sums[number * 4 + 2 * half + i], k.scalar(factor));
          // What lengths leave out is 0, whatever it would be.
          if ((source.lengths || op.getQueryLengths()) && !passes)
            sum = k.select(exists, sum, k.scalar(0.0));
          if (earlier)
            sum = k.fadd(k.loadScalar(earlier, at), sum);
          if (!storesPairs)
            k.storeScalar(sum, memref, at);
          pair.push_back(sum);
        }
        if (!storesPairs)
          continue;
        Value both = vector::FromElementsOp::create(
            k, VectorType::get({2}, k.getF32Type()), pair);
        if (!element.isF32())
          both =
              arith::TruncFOp::create(k, VectorType::get({2}, element), both);
        vector::StoreOp::create(k, both, memref,
                                ValueRange{place, head, row, column})
            .setAlignment(2 * bytes);
      }
    });
  }
}

// Four threads have a row, and each thread two.
void GradientBlock::placeOwnNumbers() {
  if (ofRows && source.logWeight)
    ownNumbersPlace = place(2 * ownRows * NumOwnNumbers * 2 * 4);
}

/// Where the thread's numbers are: that takes no register of the loop.
Values GradientBlock::getOwnPlace(OwnNumber which) {
  return {k.toIndex(k.recompute(k.thread())), k.index(2 * which)};
}

Values GradientBlock::loadOwn(OwnNumber which) {
  auto load = vector::LoadOp::create(k, VectorType::get({2}, k.getF32Type()),
                                     ownNumbers, getOwnPlace(which));
  load.setAlignment(8);
  Values pair;
  for (int64_t half : {0, 1})
    pair.push_back(vector::ExtractOp::create(k, load, half));
  return pair;
}

void GradientBlock::storeOwn(OwnNumber which, ValueRange pair) {
  Value both = vector::FromElementsOp::create(
      k, VectorType::get({2}, k.getF32Type()), pair);
  vector::StoreOp::create(k, both, ownNumbers, getOwnPlace(which))
      .setAlignment(8);
}

/// Four entries that follow each other are two of each row.
void GradientBlock::addScores(ValueRange gradients) {
  Values sums = loadOwn(ScoreSum);
  for (auto [half, sum] : llvm::enumerate(sums)) {
    Value ofTile;
    for (size_t i = 2 * half; i < gradients.size(); i += i % 2 ? 3 : 1)
      ofTile = ofTile ? k.fadd(ofTile, gradients[i]) : gradients[i];
    sum = k.fadd(sum, ofTile);
  }
  storeOwn(ScoreSum, sums);
}

void GradientBlock::storeScores(Value memref) {
  for (auto [half, sum] : llvm::enumerate(loadOwn(ScoreSum))) {
    Value total = sum;
    for (int64_t distance : {1, 2})
      total = k.fadd(total, k.shuffleXor(total, distance));
    Value row = k.toIndex(getOwnRow(half));
    Value isThere = k.less(row, k.extent(memref, 2));
    k.ifThen(k.both(isThere, k.equal(getPairColumn(), k.i32(0))), [&] {
      // What lengths leave out is 0, whatever it would be.
      if (!passes)
        total = k.select(k.less(row, ranges->getLength().rows), total,
                         k.scalar(0.0));
      k.storeScalar(total, memref, {getPlaceOfSums(), getOwnHead(), row});
    });
  }
}

//===----------------------------------------------------------------------===//
// Of several blocks
//===----------------------------------------------------------------------===//

/// The source of which the results are gradients.
static const StreamSource &getOriginal(const StreamSource &source,
                                       const GatheredRows *gathered) {
  return gathered ? gathered->getOriginal() : source;
}

/// Whether an extent of 1, of a log weight, stands for all of its axis.
bool GradientBlock::standsForAll(Value result, int64_t dim) {
  Value keys = getOriginal(source, gathered).keys;
  return dim < 3 && getMemRefType(result).getDimSize(dim) == 1 &&
         getMemRefType(keys).getDimSize(dim) != 1;
}

bool GradientBlock::isShared(Value result) {
  return llvm::any_of(llvm::seq(3),
                      [&](int64_t dim) { return standsForAll(result, dim); });
}

/// Rows of `keys`, with the columns of `result`.
static Value allocateLike(RowBuilder &host, Value batches, Value keys,
                          Value result) {
  return host.allocate({batches, host.extent(keys, 1), host.extent(keys, 2)},
                       getMemRefType(result).getShape().drop_front(3),
                       host.getF32Type());
}

Value GradientBlock::allocateSums(Value result) {
  // Passes add to what is there, in f32.
  bool isRounded = passes && !getMemRefType(result).getElementType().isF32();
  if (numParts == 1 && !gathered && !isShared(result) && !isRounded)
    return result;
  Value batches = host.mul(host.extent(op.getQuery(), 0), numParts);
  return allocateLike(host, batches, source.keys, result);
}

void GradientBlock::addUpSums(Value sums, Value result) {
  if (sums == result)
    return;
  if (gathered && isShared(result)) {
    Value ofSlots = sums;
    sums = allocateLike(host, host.extent(op.getQuery(), 0),
                        gathered->getOriginal().keys, result);
    gathered->addUp(ofSlots, sums);
    memref::DeallocOp::create(host, ofSlots);
  }
  if (gathered && !isShared(result))
    gathered->addUp(sums, result);
  else
    addBlocks(sums, result);
  memref::DeallocOp::create(host, sums);
}

void GradientBlock::addBlocks(Value sums, Value result) {
  int64_t rank = getMemRefType(result).getRank();
  Values extents;
  for (int64_t dim = 0; dim < rank; ++dim)
    extents.push_back(host.extent(result, dim));
  parallelLoop(host, extents, [&](ValueRange at) {
    Values from(at);
    // One axis within the other.
    auto addAxes = [&](auto &self, int64_t dim, Value total) -> Value {
      if (dim == rank)
        return host.fadd(total, host.loadScalar(sums, from));
      bool isSummed = standsForAll(result, dim);
      if (!isSummed && (dim > 0 || numParts == 1))
        return self(self, dim + 1, total);
      Value begin = host.mul(at[dim], numParts);
      Value count = isSummed ? host.extent(sums, dim) : host.index(numParts);
      return host.loop(host.index(0), count, 1, {total},
                       [&](Value number, ValueRange running) -> Values {
                         from[dim] =
                             isSummed ? number : host.add(begin, number);
                         return {self(self, dim + 1, running[0])};
                       })[0];
    };
    host.storeScalar(addAxes(addAxes, 0, host.scalar(0.0)), result, at);
  });
}
