//===- RopeKernel.cpp - Loops of attn.rope and its gradient ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (batch, chunk of rows)
//     cosines, sines = of every row and pair of columns, for all heads
//     for each head, row
//       turn the pairs
//
// Angles are products of a position and a frequency, counted in turns. The
// frequency is the sum of a part with so few digits that its product with a
// position is exact, of which whole turns are dropped, and of the rest.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "fovea/Kernels/CosineSine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

/// Numbers in the tables of a task, and rows of one.
static constexpr int64_t kTableNumbers = 4096, kMaxRows = 64;

/// Added and subtracted, leaves the nearest integer; its low bits are that
/// integer modulo a power of two.
static constexpr double kRound = 0x1.8p52;

namespace {
class RopeKernel {
public:
  /// Turns pairs of `input` by their angles; back if `sign` is -1.
  RopeKernel(OpBuilder &builder, Location loc, Value input, Value positions,
             Value output, double base, double sign, int64_t vectorBits)
      : input(input), positions(positions), output(output), base(base),
        sign(sign),
        b(loc, builder,
          getStateType(cast<MemRefType>(input.getType()).getElementType()),
          /*lanes=*/0),
        lanes(vectorBits / b.getStateType().getWidth()),
        pairs(cast<MemRefType>(input.getType()).getDimSize(3) / 2) {}

  void emit();

private:
  void loadFrequencies();
  Value loadConstant(ArrayRef<double> numbers);
  void emitTables(Value batch, Value head, Value firstRow, Value count);
  void emitAngles(KernelBuilder &k, Value position, Value row, Value pair);
  void turnRow(Value batch, Value head, Value row, Value tableRow);
  /// Runs `body` for whole vectors of pairs, then for one of half as many lanes
  /// and so on: the same arithmetic for every pair.
  void forPairs(llvm::function_ref<void(KernelBuilder &, Value)> body);

  Value input, positions, output;
  double base, sign;
  RowBuilder b;
  int64_t lanes, pairs;
  Value exactParts, rests, cosines, sines;
};
} // namespace

/// Turns per position of pair `i`, in two parts: the first has 21 digits, so
/// that its product with a position of 31 digits is exact.
static std::pair<double, double> getFrequency(double base, int64_t i,
                                              int64_t pairs) {
  long double turns = std::pow(static_cast<long double>(base),
                               -static_cast<long double>(i) / pairs) /
                      (2 * std::acos(-1.0L));
  int exponent;
  std::frexp(turns, &exponent);
  long double unit = std::ldexp(1.0L, exponent - 21);
  long double exact = std::floor(turns / unit) * unit;
  return {double(exact), double(turns - exact)};
}

void RopeKernel::loadFrequencies() {
  SmallVector<double> exact, rest;
  for (int64_t i = 0; i < pairs; ++i) {
    auto [e, r] = getFrequency(base, i, pairs);
    exact.push_back(sign * e);
    rest.push_back(sign * r);
  }
  exactParts = loadConstant(exact);
  rests = loadConstant(rest);
}

/// The numbers as a constant of the module: code that stores many of them takes
/// LLVM long.
Value RopeKernel::loadConstant(ArrayRef<double> numbers) {
  SymbolTable symbols(
      b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>());
  Type number = b.getF64Type();
  auto type = MemRefType::get(pairs, number);
  auto data =
      DenseElementsAttr::get(RankedTensorType::get(pairs, number), numbers);
  Operation *constant;
  {
    OpBuilder::InsertionGuard guard(b);
    b.clearInsertionPoint();
    constant = memref::GlobalOp::create(
        b, b.getLoc(), "rope_frequencies", b.getStringAttr("private"), type,
        data, /*constant=*/true, /*alignment=*/b.getI64IntegerAttr(64));
  }
  StringAttr name = symbols.insert(constant);
  return memref::GetGlobalOp::create(b, type, name);
}

void RopeKernel::forPairs(
    llvm::function_ref<void(KernelBuilder &, Value)> body) {
  int64_t from = 0;
  for (int64_t step = lanes; from < pairs; step /= 2) {
    int64_t to = from + (pairs - from) / step * step;
    if (from < to)
      b.loop(b.index(from), b.index(to), step, [&](Value pair) {
        KernelBuilder k(b.getLoc(), b, b.getStateType(), step);
        body(k, pair);
      });
    from = to;
  }
}

/// Cosines and sines of one row's angles for the pairs from `pair` on.
void RopeKernel::emitAngles(KernelBuilder &k, Value position, Value row,
                            Value pair) {
  int64_t lanes = k.getLanes();
  KernelBuilder wide(k.getLoc(), k, k.getF64Type(), lanes);
  Value at = wide.broadcast(position);
  auto nearest = [&](Value x) {
    return wide.fsub(wide.fadd(x, wide.splat(kRound)), wide.splat(kRound));
  };
  Value turns = wide.fmul(at, wide.loadVector(exactParts, pair));
  turns = wide.fsub(turns, nearest(turns));
  turns = wide.fma(at, wide.loadVector(rests, pair), turns);
  // The nearest quarter, and what is left: at most an eighth of a turn.
  Value quarters = wide.fmul(turns, wide.splat(4.0));
  Value shifted = wide.fadd(quarters, wide.splat(kRound));
  Value left = wide.fsub(quarters, wide.fsub(shifted, wide.splat(kRound)));
  Value angle = wide.fmul(left, wide.splat(std::acos(-1.0) / 2));
  if (!k.getStateType().isF64())
    angle = arith::TruncFOp::create(k, k.getVectorType(), angle);

  auto intType = VectorType::get({lanes}, k.getI64Type());
  Value quarter = arith::BitcastOp::create(k, intType, shifted);
  auto [cosine, sine] = emitCosineSine(k, angle, quarter);
  k.storeVector(cosine, cosines, {row, pair});
  k.storeVector(sine, sines, {row, pair});
}

void RopeKernel::emitTables(Value batch, Value head, Value firstRow,
                            Value count) {
  b.loop(b.index(0), count, 1, [&](Value row) {
    Value at[] = {batch, head, b.add(firstRow, row)};
    for (int64_t dim = 0; dim < 3; ++dim)
      at[dim] = b.broadcastIndex(positions, dim, at[dim]);
    Value position = arith::SIToFPOp::create(
        b, b.getF64Type(),
        memref::LoadOp::create(b, positions, at).getResult());
    forPairs([&](KernelBuilder &k, Value pair) {
      emitAngles(k, position, row, pair);
    });
  });
}

void RopeKernel::turnRow(Value batch, Value head, Value row, Value tableRow) {
  forPairs([&](KernelBuilder &k, Value pair) {
    KernelBuilder both(k.getLoc(), k, k.getStateType(), 2 * k.getLanes());
    Value at[] = {batch, head, row, b.mul(pair, 2)};
    auto parts = vector::DeinterleaveOp::create(k, both.loadVector(input, at));
    Value x = parts.getRes1(), y = parts.getRes2();
    Value cosine = k.loadVector(cosines, {tableRow, pair});
    Value sine = k.loadVector(sines, {tableRow, pair});
    Value first = k.fsub(k.fmul(x, cosine), k.fmul(y, sine));
    Value second = k.fma(x, sine, k.fmul(y, cosine));
    both.storeVector(vector::InterleaveOp::create(k, first, second), output,
                     at);
  });
}

void RopeKernel::emit() {
  Value zero = b.index(0);
  Value batches = b.extent(input, 0), heads = b.extent(input, 1),
        rows = b.extent(input, 2);
  bool hasHeads = cast<MemRefType>(positions.getType()).getDimSize(1) != 1;
  int64_t chunk = std::clamp<int64_t>(kTableNumbers / pairs, 1, kMaxRows);
  b.forAll({batches, b.ceilDiv(rows, chunk)}, [&](ValueRange ivs) {
    Value batch = ivs[0], firstRow = b.mul(ivs[1], chunk);
    Value count = b.min(b.sub(rows, firstRow), chunk);
    loadFrequencies();
    cosines = b.scratch({chunk, pairs}, b.getStateType());
    sines = b.scratch({chunk, pairs}, b.getStateType());
    if (!hasHeads)
      emitTables(batch, zero, firstRow, count);
    b.loop(zero, heads, 1, [&](Value head) {
      if (hasHeads)
        emitTables(batch, head, firstRow, count);
      b.loop(zero, count, 1, [&](Value row) {
        turnRow(batch, head, b.add(firstRow, row), row);
      });
    });
    b.freeScratch();
  });
}

void fovea::attn::emitRope(OpBuilder &builder, RopeOp op, int64_t vectorBits) {
  RopeKernel(builder, op.getLoc(), op.getInput(), op.getPositions(),
             op.getOutput(), op.getBase().convertToDouble(), /*sign=*/1.0,
             vectorBits)
      .emit();
}

void fovea::attn::emitRope(OpBuilder &builder, RopeBackwardOp op,
                           int64_t vectorBits) {
  RopeKernel(builder, op.getLoc(), op.getDOutput(), op.getPositions(),
             op.getDInput(), op.getBase().convertToDouble(), /*sign=*/-1.0,
             vectorBits)
      .emit();
}
