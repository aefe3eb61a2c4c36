//===- GPUBiasPairs.cpp - Elements of a bias for a thread -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUBiasPairs.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Whether two elements beside each other can be loaded at once, behind an even
/// number of them: the pointer and the rows must allow it.
static Value hasAlignedPairs(KernelBuilder &b, Value rows) {
  auto type = cast<MemRefType>(rows.getType());
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  if (getCopyBytes(rows, bytes) >= 2 * bytes)
    return arith::ConstantOp::create(b, b.getBoolAttr(true));
  auto layout = memref::ExtractStridedMetadataOp::create(b, rows);
  auto toIndex = [&](OpFoldResult number) {
    return getValueOrCreateConstantIndexOp(b, b.getLoc(), number);
  };
  Value pointer = memref::ExtractAlignedPointerAsIndexOp::create(b, rows);
  Value offset = toIndex(layout.getConstifiedMixedOffset());
  Value all = b.add(pointer, b.mul(offset, bytes));
  SmallVector<OpFoldResult> steps = layout.getConstifiedMixedStrides();
  for (auto [size, step] : llvm::zip(type.getShape().drop_back(), steps))
    if (size != 1)
      all = arith::OrIOp::create(b, all, b.mul(toIndex(step), bytes));
  return b.equal(b.rem(all, 2 * bytes), b.index(0));
}

Values fovea::attn::broadcastRow(GPUKernelBuilder &b, Value bias,
                                 ValueRange row) {
  Values at;
  for (auto [dim, index] : llvm::enumerate(row))
    at.push_back(b.broadcastIndex(bias, dim, index));
  return at;
}

Values fovea::attn::loadBiasPairs(GPUKernelBuilder &b, const BiasTile &tile) {
  auto type = cast<MemRefType>(tile.bias.getType());
  if (type.getShape().back() == 1 || !type.isLastDimUnitStride())
    return {};
  Type element = type.getElementType();
  auto pair = VectorType::get({2}, element);
  bool isOneRow = llvm::all_of(type.getShape().drop_back(),
                               [](int64_t size) { return size == 1; });
  int64_t halves = isOneRow ? 1 : 2;
  Value first = tile.firstColumn;
  Value isWhole = b.both(b.less(b.i32(tile.columns - 1), tile.count),
                         b.equal(b.bitAnd(first, 1), b.i32(0)));
  isWhole = b.both(isWhole, hasAlignedPairs(b, tile.bias));
  auto load = [&](bool inPairs) {
    Value column = b.toIndex(b.add(first, tile.pairColumn));
    Values pairs;
    for (int64_t number = 0; number < tile.columns / 8; ++number)
      for (int64_t half = 0; half < halves; ++half) {
        Values at = broadcastRow(b, tile.bias, tile.rows[half]);
        if (inPairs) {
          at.push_back(b.add(column, number * 8));
          auto both = vector::LoadOp::create(b, pair, tile.bias, at);
          both.setAlignment(element.getIntOrFloatBitWidth() / 4);
          pairs.push_back(both);
          continue;
        }
        Values both;
        for (int64_t i : {0, 1}) {
          Value offset = b.min(b.add(tile.pairColumn, number * 8 + i),
                               b.sub(tile.count, b.i32(1)));
          Values element(at);
          element.push_back(b.toIndex(b.add(first, offset)));
          both.push_back(memref::LoadOp::create(b, tile.bias, element));
        }
        pairs.push_back(vector::FromElementsOp::create(b, pair, both));
      }
    return pairs;
  };
  size_t count = halves * tile.columns / 8;
  auto choice = scf::IfOp::create(b, SmallVector<Type>(count, pair), isWhole,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool inPairs : {true, false}) {
    b.setInsertionPointToStart(inPairs ? choice.thenBlock()
                                       : choice.elseBlock());
    scf::YieldOp::create(b, load(inPairs));
  }
  Values pairs;
  for (int64_t number = 0; number < tile.columns / 8; ++number)
    for (int64_t half : {0, 1})
      pairs.push_back(
          choice.getResult(halves * number + (halves == 2 ? half : 0)));
  return pairs;
}

Value fovea::attn::getBiasEntry(GPUKernelBuilder &b, ValueRange pairs,
                                size_t index) {
  Value entry = vector::ExtractOp::create(b, pairs[index / 2], index % 2);
  return entry.getType().isF32()
             ? entry
             : arith::ExtFOp::create(b, b.getF32Type(), entry);
}
