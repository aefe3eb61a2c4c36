//===- RopeToTeams.cpp - Loops of attn.rope and its gradient --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   a team for each (batch, chunk of rows)
//     cosines, sines = of every row and pair of columns, for all heads
//     for each head, row
//       turn the pairs, copy the columns behind them
//
// Angles are products of a position and a frequency, counted in turns. The
// frequency is an integer in units of 2^-64 turns: products modulo 2^64 drop
// whole turns exactly, at any position.
//
//===----------------------------------------------------------------------===//

#include "LowRankTeams.h"
#include "fovea/Kernels/CosineSine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferUtils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Numbers in the tables of a team, and rows of one.
static constexpr int64_t kTableNumbers = 4096, kMaxRows = 64;

namespace {
class RopeKernel {
public:
  /// Turns pairs of `input` by the angles of `op`; back if `sign` is -1.
  template <typename OpTy>
  RopeKernel(TeamBuilder &builder, OpTy op, Value input, Value output,
             double sign)
      : b(builder), input(input), positions(op.getPositions()), output(output),
        magnitude(op.getMagnitude().convertToDouble()), sign(sign),
        isHalf(op.getStyle() == RopeStyle::Half),
        pairs(op.getTurnedWidth() / 2) {
    makeFrequencies([&](int64_t pair) { return op.getFrequency(pair); });
  }

  void emit();

private:
  void makeFrequencies(function_ref<long double(int64_t)> getFrequency);
  Value makeConstant(DenseElementsAttr numbers);
  void emitTables(Value batch, Value head, Value firstRow, Value count);
  void emitAngles(KernelBuilder &k, Value position, Value row, Value pair);
  void turnRow(Value batch, Value head, Value row, Value tableRow);
  void copyColumns(Value batch, Value head, Value row);

  TeamBuilder &b;
  Value input, positions, output;
  double magnitude, sign;
  bool isHalf;
  int64_t pairs;
  /// What pairs turn for a position, and in f64 what that is too small by.
  Value frequencies, rests;
  Value cosines, sines;
};
} // namespace

void RopeKernel::makeFrequencies(
    function_ref<long double(int64_t)> getFrequency) {
  SmallVector<int64_t> whole;
  SmallVector<double> rest;
  for (int64_t i = 0; i < pairs; ++i) {
    long double turns = getFrequency(i) / (2 * std::acos(-1.0L));
    turns = std::ldexp(turns - std::floor(turns), 64);
    // What is nearest 2^64 is below it.
    uint64_t units = static_cast<uint64_t>(std::round(turns));
    whole.push_back(static_cast<int64_t>(units));
    rest.push_back(std::ldexp(double(turns - units), -64));
  }
  frequencies = makeConstant(DenseElementsAttr::get(
      RankedTensorType::get(pairs, b.getI64Type()), ArrayRef(whole)));
  if (b.getStateType().isF64())
    rests = makeConstant(DenseElementsAttr::get(
        RankedTensorType::get(pairs, b.getF64Type()), ArrayRef(rest)));
}

/// The numbers as a constant of the module, which operations share.
Value RopeKernel::makeConstant(DenseElementsAttr numbers) {
  SymbolTableCollection symbols;
  auto constant = arith::ConstantOp::create(b, numbers);
  memref::GlobalOp global =
      *bufferization::getGlobalFor(constant, symbols, /*alignment=*/64);
  constant.erase();
  return memref::GetGlobalOp::create(b, global.getType(), global.getName());
}

/// Cosines and sines of one row's angles for the pairs from `pair` on.
void RopeKernel::emitAngles(KernelBuilder &k, Value position, Value row,
                            Value pair) {
  Type unitType = k.getVectorType(k.getI64Type());
  auto number = [&](int64_t value) -> Value {
    Value constant = arith::ConstantIntOp::create(k, value, /*width=*/64);
    return k.getLanes() ? vector::BroadcastOp::create(k, unitType, constant)
                        : constant;
  };
  Value at = k.getLanes() ? vector::BroadcastOp::create(k, unitType, position)
                          : position;
  Value turns = k.mul(at, k.loadVector(frequencies, pair));
  // The nearest quarter, and what is left: at most an eighth of a turn.
  Value quarters = arith::ShRUIOp::create(
      k, k.add(turns, number(int64_t(1) << 61)), number(62));
  Value left =
      k.sub(turns, arith::ShLIOp::create(k, quarters, number(62)).getResult());
  Value angle;
  if (rests) {
    Value rest = arith::SIToFPOp::create(k, k.getVectorType(), at);
    angle = arith::SIToFPOp::create(k, k.getVectorType(), left);
    angle = k.fma(rest, k.loadVector(rests, pair),
                  k.fmul(angle, k.splat(std::ldexp(1.0, -64))));
  } else {
    // The upper half is as much as f32 takes.
    left = arith::TruncIOp::create(
        k, k.getVectorType(k.getI32Type()),
        arith::ShRSIOp::create(k, left, number(32)).getResult());
    angle = arith::SIToFPOp::create(k, k.getVectorType(), left);
    angle = k.fmul(angle, k.splat(std::ldexp(1.0, -32)));
  }
  angle = k.fmul(angle, k.splat(2 * std::acos(-1.0)));
  auto [cosine, sine] = emitCosineSine(k, angle, quarters);
  if (sign < 0)
    sine = arith::NegFOp::create(k, sine);
  if (magnitude != 1.0) {
    cosine = k.fmul(cosine, k.splat(magnitude));
    sine = k.fmul(sine, k.splat(magnitude));
  }
  k.storeVector(cosine, cosines, {row, pair});
  k.storeVector(sine, sines, {row, pair});
}

void RopeKernel::emitTables(Value batch, Value head, Value firstRow,
                            Value count) {
  b.loop(b.index(0), count, 1, [&](Value row) {
    Value at[] = {batch, head, b.add(firstRow, row)};
    for (int64_t dim = 0; dim < 3; ++dim)
      at[dim] = b.broadcastIndex(positions, dim, at[dim]);
    Value position = arith::ExtSIOp::create(
        b, b.getI64Type(),
        memref::LoadOp::create(b, positions, at).getResult());
    b.forColumns(pairs, [&](KernelBuilder &k, Value pair) {
      emitAngles(k, position, row, pair);
    });
  });
}

void RopeKernel::turnRow(Value batch, Value head, Value row, Value tableRow) {
  b.forColumns(pairs, [&](KernelBuilder &k, Value pair) {
    Value at[] = {batch, head, row, isHalf ? pair : k.mul(pair, 2)};
    Value next[] = {batch, head, row, k.add(pair, pairs)};
    auto [x, y] = isHalf ? std::make_pair(k.loadVector(input, at),
                                          k.loadVector(input, next))
                         : k.loadPairs(input, at);
    Value cosine = k.loadVector(cosines, {tableRow, pair});
    Value sine = k.loadVector(sines, {tableRow, pair});
    Value first = k.fsub(k.fmul(x, cosine), k.fmul(y, sine));
    Value second = k.fma(x, sine, k.fmul(y, cosine));
    if (!isHalf)
      return k.storePairs(first, second, output, at);
    k.storeVector(first, output, at);
    k.storeVector(second, output, next);
  });
}

/// Copies the columns that do not turn.
void RopeKernel::copyColumns(Value batch, Value head, Value row) {
  int64_t columns = cast<MemRefType>(input.getType()).getDimSize(3);
  if (input == output || columns == 2 * pairs)
    return;
  b.forColumns(b.index(2 * pairs), b.index(columns),
               [&](KernelBuilder &k, Value column) {
                 Value at[] = {batch, head, row, column};
                 k.storeVector(k.loadVector(input, at), output, at);
               });
}

void RopeKernel::emit() {
  Value zero = b.index(0);
  Value batches = b.extent(input, 0), heads = b.extent(input, 1),
        rows = b.extent(input, 2);
  bool hasHeads = cast<MemRefType>(positions.getType()).getDimSize(1) != 1;
  int64_t chunk =
      b.getRowsPerTeam(std::clamp<int64_t>(kTableNumbers / pairs, 1, kMaxRows));
  SmallVector<Value> grid = {batches, b.ceilDiv(rows, chunk)};
  if (b.hasManyTeams())
    grid.push_back(heads);
  b.forTeams(grid, [&](ValueRange point) {
    Value batch = point[0], firstRow = b.mul(point[1], chunk);
    Value count = b.min(b.sub(rows, firstRow), chunk);
    cosines = b.teamBuffer({chunk, pairs}, b.getStateType());
    sines = b.teamBuffer({chunk, pairs}, b.getStateType());
    auto turnHead = [&](Value head) {
      b.loop(zero, count, 1, [&](Value row) {
        Value at = b.add(firstRow, row);
        turnRow(batch, head, at, row);
        copyColumns(batch, head, at);
      });
    };
    if (b.hasManyTeams()) {
      emitTables(batch, point[2], firstRow, count);
      return turnHead(point[2]);
    }
    if (!hasHeads)
      emitTables(batch, zero, firstRow, count);
    b.loop(zero, heads, 1, [&](Value head) {
      if (hasHeads)
        emitTables(batch, head, firstRow, count);
      turnHead(head);
    });
  });
}

LogicalResult fovea::attn::lowerToTeams(RopeOp op, TeamBuilder &builder) {
  RopeKernel(builder, op, op.getInput(), op.getOutput(), /*sign=*/1.0).emit();
  return success();
}

LogicalResult fovea::attn::lowerToTeams(RopeBackwardOp op,
                                        TeamBuilder &builder) {
  RopeKernel(builder, op, op.getDOutput(), op.getDInput(), /*sign=*/-1.0)
      .emit();
  return success();
}
