//===- QuantizeFewKeys.cpp - Codes of keys too few for a vector -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// While decoding, a head has one new key: a vector of keys would compute 15
// lanes for nothing. So scores are taken along the width, which is fast but
// rounds in another order, and only those that could be the best within the
// error of both orders are computed again, in the order of the other kernel.
// The code of a key thus does not depend on how many keys there are.
//
//===----------------------------------------------------------------------===//

#include "QuantizeKernel.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

namespace {
class FewKeysKernel {
public:
  FewKeysKernel(OpBuilder &builder, QuantizeOp op, const QuantizePlan &plan)
      : b(op.getLoc(), builder, getStateType(getElementType(op)), plan.lanes),
        op(op), lanes(plan.lanes) {
    width = cast<MemRefType>(op.getKey().getType()).getDimSize(3);
    numCodes = cast<MemRefType>(op.getCodebook().getType()).getDimSize(1);
  }
  void emit();

private:
  static Type getElementType(QuantizeOp op) {
    return cast<MemRefType>(op.getKey().getType()).getElementType();
  }

  /// Fills `scores`; returns the least score that may be that of the nearest.
  Value estimate(ValueRange key, Value set);
  /// The score of one codeword as the other kernel computes it.
  Value computeScore(ValueRange key, Value set, Value code);
  Value reduce(vector::CombiningKind kind, Value vector) {
    return vector::ReductionOp::create(b, kind, vector);
  }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) {
    return arith::CmpFOp::create(b, predicate, x, y);
  }

  KernelBuilder b;
  QuantizeOp op;
  int64_t lanes, width, numCodes;
  Value scores;
};
} // namespace

void FewKeysKernel::emit() {
  bool isShared =
      cast<MemRefType>(op.getCodebook().getType()).getDimSize(0) == 1;
  SmallVector<OpFoldResult> bounds = {
      getAsOpFoldResult(b.extent(op.getKey(), 0)),
      getAsOpFoldResult(b.extent(op.getKey(), 1))};
  scf::ForallOp::create(
      b, bounds, /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
      [&](OpBuilder &, Location, ValueRange ivs) {
        Value batch = ivs[0], head = ivs[1];
        Value set = isShared ? b.index(0) : head;
        scores =
            b.scratch({static_cast<int64_t>(llvm::alignTo(numCodes, lanes))},
                      b.getStateType());
        b.loop(b.index(0), b.extent(op.getKey(), 2), 1, [&](Value row) {
          Value key[] = {batch, head, row};
          Value least = estimate(key, set);
          Value lowest = b.scalar(-std::numeric_limits<double>::infinity());
          Values best =
              b.loop(b.index(0), b.index(numCodes), 1, {lowest, b.index(0)},
                     [&](Value code, ValueRange best) -> Values {
                       Value estimated = b.loadScalar(scores, code);
                       // Also where one of them is NaN.
                       Value mayWin =
                           compare(arith::CmpFPredicate::UGE, estimated, least);
                       Value score = b.select(
                           mayWin, b.getStateType(),
                           [&] { return computeScore(key, set, code); },
                           [&] { return lowest; });
                       Value wins =
                           compare(arith::CmpFPredicate::OGT, score, best[0]);
                       return {b.select(wins, score, best[0]),
                               b.select(wins, code, best[1])};
                     });
          // An infinite score is that of an infinite key.
          Value infinity = b.scalar(std::numeric_limits<double>::infinity());
          Value isFinite =
              compare(arith::CmpFPredicate::OLT, best[0], infinity);
          Value code = b.select(isFinite, best[1], b.index(0));
          emitCode(b, op, key, set, code);
        });
        b.freeScratch();
        scf::InParallelOp::create(b);
      });
}

Value FewKeysKernel::estimate(ValueRange key, Value set) {
  auto at = [](ValueRange leading, Value column) {
    Values indices(leading);
    indices.push_back(column);
    return indices;
  };
  Value zero = b.splat(0.0);
  Value lowest = b.splat(-std::numeric_limits<double>::infinity());
  // Lane by lane: the best scores, and the largest parts of a squared norm.
  Values found =
      b.loop(b.index(0), b.index(numCodes), lanes, {lowest, zero},
             [&](Value first, ValueRange carried) -> Values {
               Values rows;
               Value largest = carried[1];
               for (int64_t i = 0; i < lanes; ++i) {
                 Value codeword[] = {set, b.min(b.add(first, i), numCodes - 1)};
                 Values sums = b.loop(
                     b.index(0), b.index(width), lanes, {zero, zero},
                     [&](Value column, ValueRange sums) -> Values {
                       Value x = b.loadVector(op.getKey(), at(key, column));
                       Value c =
                           b.loadVector(op.getCodebook(), at(codeword, column));
                       return {b.fma(c, x, sums[0]), b.fma(c, c, sums[1])};
                     });
                 largest = b.fmax(sums[1], largest);
                 rows.push_back(b.fma(sums[1], b.splat(-0.5), sums[0]));
               }
               // One score for each row.
               Values columns = b.transpose(rows);
               for (int64_t count = lanes / 2; count > 0; count /= 2)
                 for (int64_t i = 0; i < count; ++i)
                   columns[i] = b.fadd(columns[i], columns[i + count]);
               b.storeVector(columns[0], scores, first);
               return {b.fmax(columns[0], carried[0]), largest};
             });
  Value norm = b.loop(b.index(0), b.index(width), lanes, {zero},
                      [&](Value column, ValueRange sums) -> Values {
                        Value x = b.loadVector(op.getKey(), at(key, column));
                        return {b.fma(x, x, sums[0])};
                      })[0];

  // A sum of D products in any order is off by at most D u sum |k c| <=
  // D u (|k|^2 + |c|^2) / 2, half a squared norm by D u |c|^2 / 2, and two sums
  // are compared, each with its error in both orders. Twice that, for the
  // rounding of this bound, and what flushing small numbers to zero loses.
  bool isDouble = b.getStateType().isF64();
  double roundOff = std::ldexp(1.0, isDouble ? -53 : -24);
  double smallest = std::ldexp(1.0, isDouble ? -1022 : -126);
  double factor = 2 * 4 * (width + 8) * roundOff;
  Value sum = arith::AddFOp::create(
      b,
      arith::MulFOp::create(b, reduce(vector::CombiningKind::ADD, norm),
                            b.scalar(0.5)),
      reduce(vector::CombiningKind::ADD, found[1]));
  Value error =
      arith::AddFOp::create(b, arith::MulFOp::create(b, sum, b.scalar(factor)),
                            b.scalar(16 * (width + 8) * smallest));
  Value best = reduce(vector::CombiningKind::MAXNUMF, found[0]);
  return arith::SubFOp::create(b, best, error);
}

Value FewKeysKernel::computeScore(ValueRange key, Value set, Value code) {
  // Vectors of one lane: the same operations as in the other kernel.
  KernelBuilder k(b.getLoc(), b, b.getStateType(), /*lanes=*/1);
  auto chain = [&](Value start, llvm::function_ref<Value(Value, Value)> step) {
    return k.loop(k.index(0), k.index(width), 1, {start},
                  [&](Value column, ValueRange sum) -> Values {
                    return {step(column, sum[0])};
                  })[0];
  };
  auto codeword = [&](Value column) {
    return k.loadVector(op.getCodebook(), {set, code, column});
  };
  Value norm = chain(k.splat(0.0), [&](Value column, Value sum) {
    Value c = codeword(column);
    return k.fma(c, c, sum);
  });
  Value score =
      chain(k.fmul(norm, k.splat(-0.5)), [&](Value column, Value sum) {
        Values at(key);
        at.push_back(column);
        return k.fma(codeword(column), k.loadVector(op.getKey(), at), sum);
      });
  return vector::ExtractOp::create(k, score, ArrayRef<int64_t>{0});
}

void fovea::attn::emitQuantizeFewKeys(OpBuilder &builder, QuantizeOp op,
                                      const QuantizePlan &plan) {
  FewKeysKernel(builder, op, plan).emit();
}
