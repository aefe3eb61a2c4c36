//===- GPUStreamResults.cpp - Results of attn.stream on sm_90a ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Results leave by boxes through shared memory: a warp writes its rows there,
// and one of its lanes stores them. Threads would store 16 bytes of eight rows
// at a time.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Shared memory that a block of sm_90a can have.
static constexpr int64_t kSharedBytes = 227 << 10;

/// Boxes begin at multiples of 1024 bytes. They are the last thing that is
/// placed: keys are more worth.
void GPUStreamLayout::placeResults(int64_t queryRows) {
  int64_t begin = llvm::alignTo(bytes, 8 * kBoxBytes);
  int64_t end = begin + getBoxedBytes(queryRows, valueColumns);
  if (end > kSharedBytes)
    return;
  results = begin;
  bytes = end;
}

/// Stores the results of a warp: by boxes where it has all of its rows.
void GPUStreamKernel::finishRows(const State &state, const TensorMap &output) {
  auto byThreads = [&] { finish(state, b.i32(0)); };
  if (!output.map)
    return byThreads();
  // Where a lane stores takes no registers while tiles are multiplied.
  rarely([&] {
    Value end = b.add(warpRow, kWarpRows);
    b.ifThenElse(b.less(blockQueries, end), byThreads,
                 [&] { finishBoxes(state, output); });
  });
}

/// Lanes leave what they have where one of them stores it from.
void GPUStreamKernel::finishBoxes(const State &state, const TensorMap &output) {
  WarpgroupBuilder w(b);
  int64_t perBox = kBoxBytes / 2;
  int64_t numBoxes = llvm::divideCeil(layout.valueColumns, perBox);
  SharedMatrix results =
      b.sharedMatrix(*layout.results, numBoxes * queryTile, perBox, type);
  if (stays) {
    awaitBoxes();
    b.warpBarrier();
  }
  for (int64_t half : {0, 1}) {
    Value sum = sumOfRow(state, half), maximum = state.maximum[half];
    Value row = getOwnRow(half), factor = getFinalFactor(maximum, sum);
    for (auto [number, tile] : llvm::enumerate(state.output)) {
      int64_t box = number * 8 / perBox, chunk = number % (perBox / 8);
      // Rows of a warp begin at a multiple of eight.
      Value column = b.add(b.mul(b.bitXor(group, chunk), 8), pairColumn);
      Value pair = vector::FromElementsOp::create(
          b, VectorType::get({2}, b.getF32Type()),
          ValueRange{getMean(tile[2 * half], factor),
                     getMean(tile[2 * half + 1], factor)});
      pair = arith::TruncFOp::create(b, VectorType::get({2}, type), pair);
      Value at[] = {b.add(row, box * queryTile), column};
      vector::StoreOp::create(b, pair, results.memref, b.toIndices(at));
    }
    storeLse(maximum, sum, locateRow(row), b.i32(0));
  }
  w.publishWrites();
  b.warpBarrier();
  b.ifThen(b.equal(b.lane(), b.i32(0)), [&] {
    Values at = output.offsets;
    Value &row = at[at.size() - 2];
    row = b.add(row, b.add(blockQuery, warpRow));
    Value source =
        w.advance(w.getShared(*layout.results), b.mul(warpRow, kBoxBytes));
    w.storeBoxes(source, output.map, at, queryTile, layout.valueColumns);
    // Shared memory goes with the block.
    if (!stays)
      w.awaitStores();
  });
}

/// Waits until results that have been left there are on their way.
void GPUStreamKernel::awaitBoxes() {
  b.ifThen(b.equal(b.lane(), b.i32(0)),
           [&] { WarpgroupBuilder(b).awaitStores(); });
}
