//===- GPUStreamHeads.cpp - Tiles whose rows are heads --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads for one query and the heads that share a key head, or a
// part of them: what their list names is copied once for all. What is a row of
// queries, results or biases elsewhere is that of a head here, and all rows
// stand at the same position.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/HeadRows.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// What `memref` [B, H, N, ...] has for the present query: a row for each head
/// that shares the key head, or one for all.
Value GPUStreamKernel::viewHeads(Value memref) {
  MemRefType type = getMemRefType(memref);
  int64_t rank = type.getRank();
  bool broadcasts = type.getDimSize(1) == 1;
  SmallVector<OpFoldResult> offsets = {
      b.broadcastIndex(memref, 0, batch), b.broadcastIndex(memref, 1, head),
      b.broadcastIndex(memref, 2, queryNumber)};
  offsets.resize(rank, b.getIndexAttr(0));
  SmallVector<int64_t> shape = {broadcasts ? 1 : getKeyGroup(op)};
  SmallVector<OpFoldResult> sizes = {
      b.getIndexAttr(1), b.getIndexAttr(shape.front()), b.getIndexAttr(1)};
  for (int64_t dim = 3; dim < rank; ++dim) {
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
  return b.add(head, b.toIndex(b.add(blockQuery, row)));
}

void GPUStreamKernel::emitHeads() {
  rowsAreHeads = true;
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
  Value query = op.getQuery(), size = b.index(group);
  Values extents = {b.extent(query, 0), b.extent(op.getValues().front(), 1),
                    b.extent(query, 2), b.ceilDiv(size, queryTile)};
  if (parts.count)
    extents.push_back(parts.count);
  Values at = beginBlocks(b, extents, layout.bytes);
  placeShared();
  batch = at[0];
  head = b.mul(at[1], group);
  queryNumber = at[2];
  placeQueries(queryNumber);
  queryRows = viewHeads(query);
  outputView = viewHeads(op.getOutput());
  if (op.getLse())
    lseView = viewHeads(op.getLse());
  int64_t block = op.getBlock();
  Value first = b.mul(at[3], queryTile);
  beginQueryBlock(first, b.min(b.sub(size, first), queryTile),
                  block ? b.div(firstRow, block) : b.index(0));
  if (!parts.count)
    return emitPasses();
  takePart(at[4], at[3], [&] { emitPasses(); });
}
