//===- StreamRowsLanes.cpp - Scores of four rows in lanes of 128 bits -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Vectors of the columns of one row take 30 shuffles for 16 sums across lanes.
// Where a vector of 512 bits has eight columns of four rows of bf16 instead,
// one row in each lane of 128 bits,
//
//   packed[row / 4][column / 8][row % 4][column % 8]
//
// and 128 bits of a key are loaded to all four, each product of pairs adds to
// sums of four rows. What is left to add lies in one lane: six shuffles for the
// 16 scores of four keys. Loads of 128 bits lie in one cache line wherever rows
// begin at multiples of 16 bytes. They are as slow as those of 512, which two
// products for each hide: eight rows are computed so, not four, and up to
// three groups of them in turn. f32 gains nothing.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <numeric>

using namespace mlir;
using namespace fovea::attn;

/// Rows of a vector, columns of a lane, and keys of a register tile.
static constexpr int64_t kLaneRows = 4, kLaneColumns = kAMXDepth / kLaneRows,
                         kKeys = 8;

/// Where eight columns of a row are packed.
StreamRowsKernel::Value StreamRowsKernel::placeInLanes(Value row,
                                                       Value column) {
  Value group = b.mul(b.div(row, kLaneRows), width * kLaneRows);
  Value lane = b.add(b.mul(b.div(column, kLaneColumns), kLaneRows),
                     b.rem(row, kLaneRows));
  return b.add(group, b.mul(lane, kLaneColumns));
}

/// The rows as they are, by fours.
void StreamRowsKernel::packLanes() {
  b.loop(b.index(0), paddedRows, 1, [&](Value row) {
    auto [head, query] = locate(row);
    Value at[] = {batch, head, query, Value()};
    b.loop(b.index(0), b.index(width), kLaneColumns, [&](Value column) {
      at[3] = column;
      Value part = vector::LoadOp::create(b, getNarrow(b, kLaneColumns),
                                          op.getQuery(), ValueRange(at));
      vector::StoreOp::create(b, part, packed, placeInLanes(row, column));
    });
  });
}

/// Eight elements in all lanes.
static Value loadToLanes(KernelBuilder &b, Value memref, ValueRange at) {
  Value part =
      vector::LoadOp::create(b, getNarrow(b, kLaneColumns), memref, at);
  SmallVector<int64_t> mask;
  for (int64_t element = 0; element < kAMXDepth; ++element)
    mask.push_back(element % kLaneColumns);
  return vector::ShuffleOp::create(b, part, part, mask);
}

void StreamRowsKernel::scoreInLanes(const Rows &keys, const Plane &target) {
  b.loop(b.index(0), keys.count, kKeys, [&](Value key) {
    // The keys stay in the first cache level.
    b.loop(b.index(0), paddedRows, kColumnRows,
           [&](Value row) { scoreInLanes(keys, target, key, row); });
  });
}

/// Scores of eight keys and eight rows. The first rows ask for keys.
void StreamRowsKernel::scoreInLanes(const Rows &keys, const Plane &target,
                                    Value key, Value firstRow) {
  constexpr int64_t kVectors = kColumnRows / kLaneRows;
  int64_t ahead = getAhead(keys, kLaneRows);
  // The columns have as many parts as divide the keys to ask for.
  int64_t numParts = std::gcd(width / kLaneColumns, kKeys);
  int64_t partWidth = width / numParts, perPart = kKeys / numParts;
  Values at;
  for (int64_t i = 0; i < kKeys; ++i)
    at.push_back(rowOf(keys, b.add(key, i)));
  auto addColumns = [&](Value column, ValueRange running) {
    Values rows, next(running);
    for (int64_t v = 0; v < kVectors; ++v)
      rows.push_back(vector::LoadOp::create(
          b, getNarrow(b, kAMXDepth), packed,
          placeInLanes(b.add(firstRow, v * kLaneRows), column)));
    for (int64_t i = 0; i < kKeys; ++i) {
      Value loaded = loadToLanes(b, keys.memref, {at[i], column});
      for (auto [v, row] : llvm::enumerate(rows)) {
        Value &sum = next[v * kKeys + i];
        sum = dotPairs(b, loaded, row, sum);
      }
    }
    return next;
  };
  auto addPart = [&](Value part, ValueRange running) {
    if (ahead)
      b.ifThen(b.equal(firstRow, b.index(0)), [&] {
        for (int64_t i = 0; i < perPart; ++i)
          askRow(keys, b.add(b.add(key, b.mul(part, perPart)), ahead + i));
      });
    Value low = b.mul(part, partWidth);
    return b.loop(low, b.add(low, partWidth), kLaneColumns, running,
                  addColumns);
  };
  Values zeros(kVectors * kKeys, b.splat(0.0));
  Values sums = b.loop(b.index(0), b.index(numParts), 1, zeros, addPart);
  // A lane has the sums of so many keys.
  int64_t perLane = lanes / kLaneRows;
  for (int64_t first = 0; first < kVectors * kKeys; first += perLane) {
    Value total = b.sumInLanes(ValueRange(sums).slice(first, perLane));
    total = b.fmul(total, b.splat(getScoreScale()));
    for (int64_t lane = 0; lane < kLaneRows; ++lane) {
      Value part = vector::ExtractStridedSliceOp::create(
          b, total, lane * perLane, perLane, /*strides=*/1);
      Value row = b.add(firstRow, first / kKeys * kLaneRows + lane);
      vector::StoreOp::create(b, part, target.memref,
                              target.at(b, b.add(key, first % kKeys), row));
    }
  }
}
