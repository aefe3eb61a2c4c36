//===- GPUConvRecover.cpp - Finding convolutions on a GPU -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvKernel.h"
#include "fovea/Conversion/AttnToTeams/Conv/Recover.h"

using namespace mlir;
using namespace fovea::attn;

/// The scores of all queries with the keys where bases begin: one product of
/// matrices.
static void emitScores(KernelBuilder &b, ConvRecoverOp op, F32Math math) {
  Value batches = b.extent(op.getQuery(), 0),
        heads = b.extent(op.getQuery(), 1),
        numRows = b.extent(op.getQuery(), 2);
  Value headsOfKey = getHeadsOfKey(b, heads, b.extent(op.getKey(), 1));
  int64_t width = cast<MemRefType>(op.getKey().getType()).getDimSize(3);
  int64_t numBases = cast<MemRefType>(op.getBasis().getType()).getDimSize(2);
  auto startOf = [&](KernelBuilder &k, ValueRange at, Value basis) {
    return k.sub(numRows, k.loadIndex(op.getSizes(), {at[0], at[1], basis}));
  };
  auto depth = [&](KernelBuilder &k, ValueRange, Value, Value) {
    return std::pair(k.index(0), k.index(width));
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value row, Value d) {
    return k.loadScalar(op.getQuery(), {at[0], at[1], row, d});
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value d, Value basis) {
    // Bases that do not exist begin behind the last key.
    Value key = startOf(k, at, basis);
    return k.select(
        k.less(key, numRows), k.getF32Type(),
        [&] {
          Value group = k.div(at[1], headsOfKey);
          return k.loadScalar(op.getKey(), {at[0], group, key, d});
        },
        [&] { return k.scalar(0.0); });
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value row, Value basis,
                   Value sum) {
    Value lag = k.sub(row, startOf(k, at, basis));
    k.ifThen(k.less(k.index(-1), lag), [&] {
      k.storeScalar(k.fmul(sum, k.scalar(op.getScaleOrDefault())),
                    op.getBasis(), {at[0], at[1], basis, lag});
    });
  };
  TileProduct product = {
      {batches, heads}, numRows, numBases, depth, left, right, store};
  product.rightAlongDepth = true;
  emitTileProduct(b, math, product);
}

void fovea::attn::emitConvRecoverOnGPU(OpBuilder &builder, ConvRecoverOp op,
                                       F32Math math) {
  WarpTeamBuilder teams(op.getLoc(), builder);
  emitConvRecover(teams, op, [&] { emitScores(teams, op, math); });
}
