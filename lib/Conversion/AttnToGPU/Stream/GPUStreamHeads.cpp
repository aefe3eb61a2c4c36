//===- GPUStreamHeads.cpp - Tiles whose rows are heads --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads for the heads that share a key head, of one query or of
// several: keys are copied once for all of them. Rows are packed query by
// query, those of a query head by head, and cut to tiles. What is a row of
// queries, results or biases elsewhere is one of a head and a query here, and
// rows stand where their query does.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/HeadRows.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// What `memref` [B, H, N, ...] has for the heads that share the key head:
/// [H / G, N, ...], of which one element may stand for all.
Value GPUStreamKernel::viewHeads(Value memref) {
  MemRefType type = getMemRefType(memref);
  int64_t rank = type.getRank();
  bool broadcasts = type.getDimSize(1) == 1;
  SmallVector<OpFoldResult> offsets = {b.broadcastIndex(memref, 0, batch),
                                       b.broadcastIndex(memref, 1, head)};
  offsets.resize(rank, b.getIndexAttr(0));
  SmallVector<int64_t> shape = {broadcasts ? 1 : getKeyGroup(op)};
  SmallVector<OpFoldResult> sizes = {b.getIndexAttr(1),
                                     b.getIndexAttr(shape.front())};
  for (int64_t dim = 2; dim < rank; ++dim) {
    shape.push_back(type.getDimSize(dim));
    sizes.push_back(memref::getMixedSize(b, b.getLoc(), memref, dim));
  }
  SmallVector<OpFoldResult> strides(rank, b.getIndexAttr(1));
  auto view = memref::SubViewOp::inferRankReducedResultType(
      shape, type, offsets, sizes, strides);
  return memref::SubViewOp::create(b, cast<MemRefType>(view), memref, offsets,
                                   sizes, strides);
}

/// The head of row `row` of the block, or of its last one.
Value GPUStreamKernel::getRowHead(Value row) {
  if (!rowsAreHeads)
    return head;
  row = b.min(row, b.sub(blockQueries, b.i32(1)));
  Value number = b.add(blockQuery, row);
  if (packedQueries > 1)
    number = b.rem(number, getKeyGroup(op));
  return b.add(head, b.toIndex(number));
}

/// The indices of row `row` of the block in queries and results.
Values GPUStreamKernel::locateRow(Value row) {
  Value number = b.add(blockQuery, row);
  if (!rowsAreHeads)
    return {number};
  Value query = b.toI32(firstQuery);
  if (packedQueries == 1)
    return {number, query};
  int64_t group = getKeyGroup(op);
  return {b.rem(number, group), b.add(query, b.div(number, group))};
}

/// Where the first row of the block stands.
Value GPUStreamKernel::getFirstPosition() {
  if (!rowsAreHeads)
    return b.add(firstRow, queryStart);
  if (packedQueries == 1)
    return firstRow;
  return b.add(firstRow, b.toIndex(b.div(blockQuery, getKeyGroup(op))));
}

/// How far from there row `row` stands.
Value GPUStreamKernel::getStep(Value row) {
  if (!rowsAreHeads)
    return row;
  int64_t group = getKeyGroup(op);
  if (packedQueries == 1 || group % queryTile == 0)
    return b.i32(0);
  // A tile may begin between the heads of a query.
  if (queryTile % group != 0)
    row = b.add(row, b.rem(blockQuery, group));
  return b.div(row, group);
}

/// How far from there the last row stands.
Value GPUStreamKernel::countSteps() {
  if (!rowsAreHeads)
    return b.sub(queryCount, b.index(1));
  return b.toIndex(getStep(b.sub(blockQueries, b.i32(1))));
}

/// The same for any tile of rows, at most.
int64_t GPUStreamKernel::countMostSteps() {
  if (!rowsAreHeads)
    return queryTile - 1;
  int64_t group = getKeyGroup(op);
  if (group % queryTile == 0)
    return 0;
  int64_t before = queryTile % group == 0 ? 0 : group - 1;
  return std::min((before + queryTile - 1) / group, packedQueries - 1);
}

void GPUStreamKernel::emitHeads() {
  rowsAreHeads = true;
  packedQueries = getPackedQueries(op);
  allocateParts();
  {
    OpBuilder::InsertionGuard guard(b);
    emitHeadBlock();
  }
  mergeParts();
  remarkOnAdmission();
}

void GPUStreamKernel::emitHeadBlock() {
  int64_t group = getKeyGroup(op);
  Value query = op.getQuery(), queries = b.extent(query, 2);
  Values extents = {b.extent(query, 0), b.extent(op.getValues().front(), 1),
                    b.ceilDiv(queries, packedQueries)};
  if (parts.count)
    extents.push_back(parts.count);
  // Tiles of the same keys are beside each other.
  extents.push_back(
      b.index(llvm::divideCeil(packedQueries * group, queryTile)));
  Values at = beginBlocks(b, extents, layout.bytes);
  placeShared();
  batch = at[0];
  head = b.mul(at[1], group);
  firstQuery = b.mul(at[2], packedQueries);
  placeQueries(firstQuery);
  queryRows = viewHeads(query);
  outputView = viewHeads(op.getOutput());
  if (op.getLse())
    lseView = viewHeads(op.getLse());
  // The last queries may be fewer.
  bool areEqual = getConstantIntValue(queries).value_or(1) % packedQueries == 0;
  Value size = b.index(packedQueries * group);
  if (!areEqual)
    size = b.mul(b.min(b.sub(queries, firstQuery), packedQueries), group);
  Value tile = at.back(), first = b.mul(tile, queryTile);
  b.ifThen(areEqual ? b.i1(true) : b.less(first, size), [&] {
    int64_t block = op.getBlock();
    beginQueryBlock(first, b.min(b.sub(size, first), queryTile),
                    block ? b.div(firstRow, block) : b.index(0));
    if (!parts.count)
      return emitPasses();
    takePart(at[3], at[2], tile, [&] { emitPasses(); });
  });
}
