//===- GPUConvNoise.cpp - Rounding errors of convolutions by cuFFT --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvTransforms.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows whose greatest value is found once.
static constexpr int64_t kTopRows = 256;

GPUConvNoise::GPUConvNoise(GPUConvPieces &pieces, Factor factor)
    : pieces(pieces), b(pieces.b), factor(factor),
      pairs(factor == Factor::Values ? pieces.pairs : 1) {
  measurePieces();
  measureWindows();
  boundBlocks();
  if (factor == Factor::Values)
    findGreatest();
}

/// A lane's part of the sum of the squares of numbers `low .. high - 1`, in
/// f64; `load` may give some for each. Lanes have neighbours.
static Value sumSquares(GPUConvBuilder &b, Value lane, Value low, Value high,
                        function_ref<Values(Value at)> load) {
  return b.loop(b.add(low, lane), high, kWarpSize, {b.wide(0.0)},
                [&](Value at, ValueRange sum) -> Values {
                  Value next = sum[0];
                  for (Value number : load(at)) {
                    Value x = b.widen(number);
                    next = b.fadd(next, b.fmul(x, x));
                  }
                  return {next};
                })[0];
}

/// A norm is that of two columns that share a complex transform.
void GPUConvNoise::measurePieces() {
  Value grid[] = {b.batches, b.heads, pieces.numSlots, b.index(pairs)};
  if (factor == Factor::Ones) {
    pieceNorms = b.tabulate(grid, b.getF64Type(), [&](ValueRange at) -> Value {
      GPUConvPieces::Piece piece = pieces.load(at, at[2]);
      Value count = b.max(b.sub(piece.end, piece.begin), 0);
      count = arith::IndexCastOp::create(b, b.getI64Type(), count);
      return arith::SIToFPOp::create(b, b.getF64Type(), count);
    });
    return;
  }
  pieceNorms = b.tabulateSums(grid, [&](ValueRange at, Value lane) {
    GPUConvPieces::Piece piece = pieces.load(at, at[2]);
    Value column = b.mul(at[3], 2);
    auto load = [&](Value token) -> Values {
      return {pieces.loadValue(at, token, column),
              pieces.loadValue(at, token, b.add(column, 1))};
    };
    return sumSquares(b, lane, piece.begin, piece.end, load);
  });
}

void GPUConvNoise::measureWindows() {
  Value grid[] = {b.batches, b.heads, b.numBases, pieces.numBlocks};
  windowNorms = b.tabulateSums(grid, [&](ValueRange at, Value lane) {
    auto load = [&](Value number) -> Values {
      return {pieces.loadWindow(at, at[2], at[3], number)};
    };
    return sumSquares(b, lane, b.index(0), b.index(pieces.length), load);
  });
}

/// The greatest square of a norm of a piece; NaN where one is not finite.
Value GPUConvNoise::topOfPairs(ValueRange head, Value slot) {
  Value zero = b.wide(0.0);
  Values top = b.loop(
      b.index(0), b.index(pairs), 1, {zero, zero},
      [&](Value pair, ValueRange top) -> Values {
        Value each = b.loadWide(pieceNorms, {head[0], head[1], slot, pair});
        return {b.fmax(each, top[0]), b.fadd(top[1], b.fmul(each, zero))};
      });
  return b.fadd(top[0], top[1]);
}

/// Sums, over the pieces that a block of rows reads, the products of the norms
/// of both factors.
Value GPUConvNoise::boundBlock(ValueRange at) {
  auto add = [&](Value slot, ValueRange sum) -> Values {
    GPUConvPieces::Piece piece = pieces.load(at, slot);
    Value distance = b.sub(at[2], piece.block);
    Value isRead =
        b.both(b.less(piece.begin, piece.end), b.less(b.index(-1), distance));
    return {b.select(
        isRead, b.getF64Type(),
        [&]() -> Value {
          Value place[] = {at[0], at[1], piece.segment, distance};
          // The factors are squares.
          Value product =
              b.fmul(topOfPairs(at, slot), b.loadWide(windowNorms, place));
          return b.fadd(sum[0], math::SqrtOp::create(b, product).getResult());
        },
        [&] { return sum[0]; })};
  };
  return b.loop(b.index(0), pieces.numSlots, 1, {b.wide(0.0)}, add)[0];
}

void GPUConvNoise::boundBlocks() {
  Value grid[] = {b.batches, b.heads, pieces.numBlocks};
  noise = b.tabulate(grid, b.getF64Type(), [&](ValueRange at) {
    Value factor = b.wide(conv::getNoiseFactor(pieces.length));
    return b.fmul(boundBlock(at), factor);
  });
}

/// The greatest value of every row, and of 256 rows each.
void GPUConvNoise::findGreatest() {
  Value rows[] = {b.batches, b.extent(b.value, 1), b.numTokens};
  rowTops = b.tabulate(rows, b.getF32Type(), [&](ValueRange at) {
    auto greater = [&](Value column, ValueRange top) -> Values {
      Value x = b.loadScalar(b.value, {at[0], at[1], at[2], column});
      return {b.fmax(math::AbsFOp::create(b, x), top[0])};
    };
    return b.loop(b.index(0), b.index(b.width), 1, {b.scalar(0.0)}, greater)[0];
  });
  Value blocks[] = {b.batches, b.heads, b.ceilDiv(b.numTokens, kTopRows)};
  blockTops = b.tabulate(blocks, b.getF32Type(), [&](ValueRange at) {
    Value first = b.mul(at[2], kTopRows);
    Value begin = b.max(first, pieces.t.segments.first(b, at));
    Value end = b.min(b.add(first, kTopRows), b.numTokens);
    return topOfRows(at, begin, end, b.scalar(0.0));
  });
}

/// The greatest value of rows, and `top`.
Value GPUConvNoise::topOfRows(ValueRange head, Value begin, Value end,
                              Value top) {
  return b.loop(begin, end, 1, {top}, [&](Value row, ValueRange top) -> Values {
    Value at[] = {head[0], b.div(head[1], b.headsOfKey), row};
    return {b.fmax(b.loadScalar(rowTops, at), top[0])};
  })[0];
}

/// The greatest value that a row reads, in f64.
Value GPUConvNoise::topUpTo(ValueRange row) {
  Value number = b.div(row[2], kTopRows);
  Value top = b.loop(b.index(0), number, 1, {b.scalar(0.0)},
                     [&](Value i, ValueRange top) -> Values {
                       Value at[] = {row[0], row[1], i};
                       return {b.fmax(b.loadScalar(blockTops, at), top[0])};
                     })[0];
  Value begin = b.max(b.mul(number, kTopRows), pieces.t.segments.first(b, row));
  return b.widen(topOfRows(row, begin, b.add(row[2], 1), top));
}

Value GPUConvNoise::isQuiet(ValueRange row, Value normaliser) {
  Value most = b.loadWide(noise, {row[0], row[1], b.div(row[2], pieces.block)});
  if (factor == Factor::Values)
    normaliser = b.fmul(topUpTo(row), normaliser);
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, most, normaliser);
}
