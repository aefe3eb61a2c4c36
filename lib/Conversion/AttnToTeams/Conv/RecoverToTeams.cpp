//===- RecoverToTeams.cpp - Search of attn.conv_recover -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   a team for each (batch, head)
//     columns where bases begin, by binary search         `window` entries each
//   scores of all rows with the keys of all these columns
//   a team for each (batch, head, chunk of lags)
//     differences of each basis and the sum of those before it
//
// A search needs the first entries of the basis before only, so all searches
// come first, and queries are read once for all bases.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/AttnToTeams/Conv/Recover.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Lags of a team; where there are many teams, one for each lane.
static constexpr int64_t kLags = 2048, kFewLags = 32;

namespace {
class RecoverKernel {
public:
  RecoverKernel(TeamBuilder &builder, ConvRecoverOp op)
      : op(op), b(builder),
        width(cast<MemRefType>(op.getKey().getType()).getDimSize(3)),
        numBases(b.extent(op.getBasis(), 2)),
        numRows(b.extent(op.getQuery(), 2)) {}

  void emit(function_ref<void()> emitScores);

private:
  /// Tokens of the team's batch entry.
  Value getLength();
  void search();
  Value searchColumn(Value low, Value last);
  Value isNew(Value column);
  Value score(Value row, Value key);
  void accept(Value basis, Value column);
  void emitDifferences(Value firstLag, Value lastLag, Value sums);

  ConvRecoverOp op;
  TeamBuilder &b;
  int64_t width;
  Value numBases, numRows;
  /// Of the team: its head, its tokens, and the first entries of the last
  /// basis.
  Value batch, head, keyHead, length, profile;
};
} // namespace

//===----------------------------------------------------------------------===//
// Search
//===----------------------------------------------------------------------===//

Value RecoverKernel::getLength() {
  if (!op.getLengths())
    return numRows;
  return b.clamp(b.loadIndex(op.getLengths(), batch), b.index(0), numRows);
}

/// Finds where the bases of one head begin (algorithms 2 and 3).
void RecoverKernel::search() {
  Value zero = b.index(0), none = b.index(-1), window = b.index(op.getWindow());
  b.single([&] {
    b.loop(zero, numBases, 1, [&](Value basis) {
      b.storeIndex(zero, op.getSizes(), {batch, head, basis});
    });
    b.storeIndex(zero, op.getFound(), {batch, head});
  });
  Value exists = b.less(zero, length);
  b.ifThen(exists, [&] { accept(zero, zero); });
  Value last = b.sub(length, window);
  b.loop(b.index(1), numBases, 1, {zero, exists},
         [&](Value basis, ValueRange before) -> Values {
           Value low = b.add(before[0], 1);
           Value canSearch = b.both(before[1], b.less(before[0], last));
           Value column = b.select(
               canSearch, b.getIndexType(),
               [&] { return searchColumn(low, last); }, [&] { return none; });
           Value isFound = b.less(none, column);
           b.ifThen(isFound, [&] { accept(basis, column); });
           return {b.select(isFound, column, before[0]), isFound};
         });
}

/// The first new one of columns `low .. last`, or -1.
Value RecoverKernel::searchColumn(Value low, Value last) {
  // Halves of at most 2^31 columns.
  constexpr int64_t kMaxSteps = 32;
  std::optional<int64_t> known = getConstantIntValue(numRows);
  int64_t steps =
      known ? llvm::Log2_64_Ceil(std::max<int64_t>(*known, 1)) + 1 : kMaxSteps;
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  Values range =
      b.loop(b.index(0), b.index(steps), 1, {low, last},
             [&](Value, ValueRange range) -> Values {
               Value isOpen = b.less(range[0], range[1]);
               Value middle = b.div(b.add(range[0], range[1]), 2);
               Value isHit = b.select(
                   isOpen, no.getType(), [&] { return isNew(middle); },
                   [&] { return no; });
               Value next = b.select(isHit, range[0], b.add(middle, 1));
               return {b.select(isOpen, next, range[0]),
                       b.select(isHit, middle, range[1])};
             });
  return b.select(isNew(range[0]), range[0], b.index(-1));
}

Value RecoverKernel::score(Value row, Value key) {
  Value product =
      b.sumColumns(b.index(0), b.index(width), [&](KernelBuilder &k, Value d) {
        return k.fmul(k.loadVector(op.getQuery(), {batch, head, row, d}),
                      k.loadVector(op.getKey(), {batch, keyHead, key, d}));
      });
  return b.fmul(product, b.scalar(op.getScaleOrDefault()));
}

/// Whether the first entries of a column differ from the profile.
Value RecoverKernel::isNew(Value column) {
  auto add = [&](Value t, ValueRange sum) -> Values {
    Value entry = score(b.add(column, t), column);
    Value difference = b.fsub(entry, b.loadScalar(profile, t));
    return {b.fadd(sum[0], math::AbsFOp::create(b, difference))};
  };
  Value distance =
      b.loop(b.index(0), b.index(op.getWindow()), 1, {b.scalar(0.0)}, add)[0];
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, distance,
                               b.scalar(op.getThreshold()));
}

/// Records that a basis begins at `column`, whose first entries become the
/// profile.
void RecoverKernel::accept(Value basis, Value column) {
  Value size = b.sub(numRows, column);
  b.single([&] {
    b.storeIndex(size, op.getSizes(), {batch, head, basis});
    b.storeIndex(b.add(basis, 1), op.getFound(), {batch, head});
  });
  Value numEntries = b.min(b.sub(length, column), op.getWindow());
  b.loop(b.index(0), numEntries, 1, [&](Value t) {
    Value entry = score(b.add(column, t), column);
    b.single([&] { b.storeScalar(entry, profile, t); });
  });
}

//===----------------------------------------------------------------------===//
// Differences
//===----------------------------------------------------------------------===//

/// Makes scores of a chunk of lags differences: every basis adds to the sum of
/// those before it, which is kept in f64 as attn.conv_apply will have it, so
/// that rounding errors do not add up.
void RecoverKernel::emitDifferences(Value firstLag, Value lastLag, Value sums) {
  auto widen = [](KernelBuilder &k) {
    return KernelBuilder(k.getLoc(), k, k.getF64Type(), k.getLanes());
  };
  b.forColumns(firstLag, lastLag, [&](KernelBuilder &k, Value lag) {
    KernelBuilder wide = widen(k);
    wide.storeVector(wide.splat(0.0), sums, k.sub(lag, firstLag));
  });
  Value absent = b.sub(numRows, getLength());
  b.loop(b.index(0), numBases, 1, [&](Value basis) {
    Value size = b.loadIndex(op.getSizes(), {batch, head, basis});
    Value end = b.clamp(b.sub(size, absent), firstLag, lastLag);
    auto at = [&](Value lag) { return Values{batch, head, basis, lag}; };
    b.forColumns(firstLag, end, [&](KernelBuilder &k, Value lag) {
      KernelBuilder wide = widen(k);
      Value place = k.sub(lag, firstLag), sum = wide.loadVector(sums, place);
      Value difference =
          wide.fsub(wide.loadVector(op.getBasis(), at(lag)), sum);
      wide.storeVector(difference, op.getBasis(), at(lag));
      if (!k.getStateType().isF64()) {
        difference = arith::TruncFOp::create(k, k.getVectorType(), difference);
        difference =
            arith::ExtFOp::create(wide, wide.getVectorType(), difference);
      }
      wide.storeVector(wide.fadd(sum, difference), sums, place);
    });
    b.forColumns(end, lastLag, [&](KernelBuilder &k, Value lag) {
      k.storeVector(k.splat(0.0), op.getBasis(), at(lag));
    });
  });
}

void RecoverKernel::emit(function_ref<void()> emitScores) {
  Value batches = b.extent(op.getQuery(), 0),
        heads = b.extent(op.getQuery(), 1);
  // Without heads there are no key heads to divide by.
  Value keyHeads = b.max(b.extent(op.getKey(), 1), 1);
  Value shared = b.max(b.div(heads, keyHeads), 1);
  b.forTeams({batches, heads}, [&](ValueRange at) {
    batch = at[0];
    head = at[1];
    keyHead = b.div(head, shared);
    length = getLength();
    profile = b.teamBuffer({int64_t(op.getWindow())}, b.getStateType());
    search();
  });
  emitScores();
  int64_t lags = b.hasManyTeams() ? kFewLags : kLags;
  b.forTeams({batches, heads, b.ceilDiv(numRows, lags)}, [&](ValueRange at) {
    batch = at[0];
    head = at[1];
    Value first = b.mul(at[2], lags), end = b.min(b.add(first, lags), numRows);
    emitDifferences(first, end, b.teamBuffer({lags}, b.getF64Type()));
  });
}

void fovea::attn::emitConvRecover(TeamBuilder &builder, ConvRecoverOp op,
                                  function_ref<void()> emitScores) {
  RecoverKernel(builder, op).emit(emitScores);
}
