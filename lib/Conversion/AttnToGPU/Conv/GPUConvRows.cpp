//===- GPUConvRows.cpp - Rows of convolutions that are done again ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvKernel.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

GPUConvRows::GPUConvRows(GPUConvTables &tables, Value counts, IsQuiet isQuiet)
    : t(tables), b(t.b), counts(counts) {
  reciprocals = b.allocate(b.rows(), b.getF32Type());
  marks = b.allocate(b.rows(), b.getI32Type());
  list = b.allocate(b.rows(), b.getI32Type());
  parallelLoop(b, b.rows(), [&](ValueRange row) {
    Value isGood = judge(row, isQuiet);
    // Rows before the first segment are zero.
    Value isEmpty = b.less(row[2], t.segments.first(b, row));
    Value isLeft = b.either(isGood, isEmpty);
    b.storeIndex(b.select(isLeft, b.index(0), b.index(1)), marks, row);
  });
  listMarked();
}

/// Stores the reciprocal of a row. Returns whether the row is good.
Value GPUConvRows::judge(ValueRange row, IsQuiet isQuiet) {
  Value normaliser = t.normalisers.load(row);
  Value least = b.wide(1.0 / conv::getMostReciprocal(b.getF32Type()));
  Value isGood = b.both(
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, normaliser, least),
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, normaliser,
                            b.wide(kInfinity)));
  if (Value quiet = isQuiet(row, normaliser))
    isGood = b.both(isGood, quiet);
  Value reciprocal = arith::DivFOp::create(b, b.wide(1.0), normaliser);
  reciprocal = b.select(isGood, reciprocal, b.wide(0.0));
  b.storeScalar(arith::TruncFOp::create(b, b.getF32Type(), reciprocal),
                reciprocals, row);
  return isGood;
}

void GPUConvRows::listMarked() {
  WarpTeamBuilder k(b.getLoc(), b);
  k.forTeams({b.batches, b.heads}, [&](ValueRange at) {
    auto isMarked = [&](KernelBuilder &k, Value row) {
      Value mark = k.loadIndex(marks, {at[0], at[1], row});
      return k.equal(mark, k.index(1));
    };
    Value count = k.listNumbers(b.numTokens, isMarked, list, at);
    k.single([&] { k.storeIndex(count, counts, at); });
  });
}

void GPUConvRows::forEach(ListedRow body) {
  WarpTeamBuilder k(b.getLoc(), b);
  k.forTeams({b.batches, b.heads, b.numTokens}, [&](ValueRange at) {
    k.ifThen(k.less(at[2], count(k, at)), [&] {
      Value row = load(k, at);
      auto greater = [&](KernelBuilder &k, Value key, Value top) {
        return k.fmax(t.profiles.loadScore(k, at, row, key), top);
      };
      Value top =
          k.foldColumns(vector::CombiningKind::MAXNUMF, -kInfinity,
                        t.segments.first(k, at), k.add(row, 1), greater);
      body(k, at, row, conv::zeroIfNone(k, top));
    });
  });
}
