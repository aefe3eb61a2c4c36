//===- TilingSoftmaxOps.cpp - Tiling of dense and streaming soft-max -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tiler.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::isWholeExtent;
using attn::detail::Tiler;

// The iteration domain of an attention op is (batch, query head, query row),
// all parallel. Keys are never cut: a tile reads what its rows admit.

//===----------------------------------------------------------------------===//
// DenseOp
//===----------------------------------------------------------------------===//

FailureOr<TilingResult>
DenseOp::getTiledImplementation(OpBuilder &builder,
                                ArrayRef<OpFoldResult> offsets,
                                ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, *this, offsets, sizes);
  if (failed(tiler))
    return failure();
  // A mask counts query rows from the end of the sequence, which a tile of rows
  // does not know. attn.stream does.
  if ((!getMaskOrNone().isTrivial() || getQueryLengths() ||
       !getScore().empty()) &&
      !isWholeExtent(sizes[2], getQuery(), 2))
    return emitOpError("with a mask, query_lengths or a score region cannot be "
                       "tiled along its query rows; expand it to attn.stream "
                       "first");
  if (failed(tiler->mapHeads(getQuery(), getKey())))
    return failure();
  SmallVector<Value> operands = {tiler->sliceQueryLike(getQuery()),
                                 tiler->sliceKeyLike(getKey()),
                                 tiler->sliceKeyLike(getValue())};
  if (getLogWeight())
    operands.push_back(
        tiler->sliceKeyLike(getLogWeight(), /*broadcasts=*/true));
  if (getBias())
    operands.push_back(tiler->sliceQueryLike(getBias(), /*broadcasts=*/true));
  if (getSink())
    operands.push_back(tiler->sliceQueryLike(getSink(), /*broadcasts=*/true));
  for (Value lengths : {getLengths(), getQueryLengths()})
    if (lengths)
      operands.push_back(tiler->sliceBatch(lengths));
  llvm::append_range(operands, getCaptures());
  for (Value init : getDpsInits())
    operands.push_back(tiler->sliceQueryLike(init));
  TilingResult result = tiler->tile(operands);
  auto tiled = cast<DenseOp>(result.tiledOps.front());
  Location loc = getLoc();
  offsetScoreRegions(tiled.getScore(), tiled.getCapturesMutable(),
                     getValueOrCreateConstantIndexOp(builder, loc, offsets[0]),
                     getValueOrCreateConstantIndexOp(builder, loc, offsets[1]));
  return result;
}

//===----------------------------------------------------------------------===//
// StreamOp
//===----------------------------------------------------------------------===//

FailureOr<TilingResult>
StreamOp::getTiledImplementation(OpBuilder &builder,
                                 ArrayRef<OpFoldResult> offsets,
                                 ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, *this, offsets, sizes);
  // Keys that are a table may be shared by all heads; values never are.
  if (failed(tiler) || failed(tiler->mapHeads(getQuery(), getValues().front())))
    return failure();
  // Sources that share a table go on doing so.
  DenseMap<Value, Value> tables;
  SmallVector<Value> keys, values, weights, biases, codes, lengths, rowLists,
      relativeKeys, relativeBiases, distanceBiases;
  for (const Source &source : getSourceList()) {
    Value &table = tables[source.keys];
    if (!table)
      table = tiler->sliceKeyLike(source.keys, true);
    keys.push_back(table);
    values.push_back(tiler->sliceKeyLike(source.values,
                                         source.attr.getHasListedPositions()));
    if (source.codes)
      codes.push_back(tiler->sliceKeyLike(source.codes));
    if (source.logWeight)
      weights.push_back(tiler->sliceKeyLike(source.logWeight, true));
    if (source.bias)
      biases.push_back(tiler->sliceQueryLike(source.bias, true));
    if (source.lengths)
      lengths.push_back(tiler->sliceBatch(source.lengths));
    if (source.rowList) {
      FailureOr<Value> list = tiler->sliceLists(source.rowList, getQuery());
      if (failed(list))
        return failure();
      rowLists.push_back(*list);
    }
    if (source.relativeKeys) {
      relativeKeys.push_back(tiler->sliceHeads(source.relativeKeys));
      relativeBiases.push_back(tiler->sliceHeads(source.relativeBias));
    }
    if (source.distanceBias)
      distanceBiases.push_back(tiler->sliceHeads(source.distanceBias));
  }
  Value query = tiler->sliceQueryLike(getQuery()), sink, queryLengths, lse;
  if (getSink())
    sink = tiler->sliceQueryLike(getSink(), /*broadcasts=*/true);
  if (getQueryLengths())
    queryLengths = tiler->sliceBatch(getQueryLengths());
  SmallVector<Value> inits = {tiler->sliceQueryLike(getOutput())};
  if (getLse())
    inits.push_back(lse = tiler->sliceQueryLike(getLse()));

  Location loc = getLoc();
  // Rows of a tile of a tile count from the start of the whole sequence.
  Value firstRow = getValueOrCreateConstantIndexOp(builder, loc, offsets[2]);
  Value numRows = getNumRows();
  if (getFirstRow())
    firstRow = arith::AddIOp::create(builder, loc, getFirstRow(), firstRow);
  else
    numRows = getValueOrCreateConstantIndexOp(
        builder, loc, tensor::getMixedSize(builder, loc, getQuery(), 2));
  auto tiled = StreamOp::create(
      builder, loc, TypeRange(ValueRange(inits).getTypes()), query, keys,
      values, weights, biases, codes, lengths, rowLists, relativeKeys,
      relativeBiases, distanceBiases, sink, queryLengths, getCaptures(),
      firstRow, numRows, inits[0], lse, getSourcesAttr(), getBlockAttr(),
      getScaleAttr(), getWeightingAttr(), getTilesAttr(), getScores().size());
  cloneScoreRegions(getScores(), tiled.getScores());
  offsetScoreRegions(tiled.getScores(), tiled.getCapturesMutable(),
                     getValueOrCreateConstantIndexOp(builder, loc, offsets[0]),
                     getValueOrCreateConstantIndexOp(builder, loc, offsets[1]));
  return tiler->getResult(tiled);
}
