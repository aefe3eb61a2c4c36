//===- GradientRanges.cpp - Who reads which rows of a source --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientRanges.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;
using Span = GradientRanges::Span;

GradientRanges::GradientRanges(KernelBuilder &builder, StreamBackwardOp op,
                               const StreamSource &source)
    : b(builder), op(op), source(source),
      isAscending(llvm::all_of(source.attr.getRanges(), ascends)),
      numQueries(b.extent(op.getQuery(), 2)),
      length(emitLength(b, source, /*batch=*/Value(), numQueries)) {}

void GradientRanges::setBatch(Value batch) {
  numQueries = b.lengthOf(op.getQueryLengths(), batch, numQueries);
  length = emitLength(b, source, batch, numQueries);
}

Value GradientRanges::getNumRanges() {
  return b.index(source.attr.getRanges().size());
}

Value GradientRanges::getBlock(Value query) {
  int64_t block = op.getBlock();
  return block ? b.div(query, block) : b.index(0);
}

/// Whether a bound fits in 32 bits for all blocks of so many queries: it has no
/// large number, and none that makes it grow much faster than queries do.
static bool isNear(AffineExpr bound, int64_t block) {
  constexpr int64_t kLarge = int64_t(1) << 27, kSteep = 16;
  bool isNear = true;
  bound.walk([&](AffineExpr part) {
    auto constant = dyn_cast<AffineConstantExpr>(part);
    isNear &= !constant || std::abs(constant.getValue()) < kLarge;
    auto product = dyn_cast<AffineBinaryOpExpr>(part);
    if (!product || part.getKind() != AffineExprKind::Mul)
      return;
    constant = dyn_cast<AffineConstantExpr>(product.getRHS());
    isNear &= constant && std::abs(constant.getValue()) <=
                              kSteep * std::max<int64_t>(block, 1);
  });
  return isNear;
}

Span GradientRanges::getRowsOfBlock(Value range, Value block) {
  ArrayRef<AffineMap> ranges = source.attr.getRanges();
  auto emit = [&](AffineMap map) -> Values {
    RangeBounds bounds =
        emitRangeBounds(b, map, block, length.rows, numQueries);
    if (llvm::all_of(map.getResults(), [&](AffineExpr bound) {
          return isNear(bound, op.getBlock());
        }))
      return {bounds.low, bounds.high};
    return {b.min(bounds.low, length.rows), b.max(bounds.high, 0)};
  };
  if (ranges.empty())
    return {b.index(0), b.index(0)};
  if (ranges.size() == 1) {
    Values bounds = emit(ranges.front());
    return {bounds[0], bounds[1]};
  }
  SmallVector<int64_t> cases;
  for (int64_t number = 1; number < int64_t(ranges.size()); ++number)
    cases.push_back(number);
  Type types[] = {b.getIndexType(), b.getIndexType()};
  auto choice =
      scf::IndexSwitchOp::create(b, types, range, cases, cases.size());
  OpBuilder::InsertionGuard guard(b);
  for (auto [number, map] : llvm::enumerate(ranges)) {
    Region &region = number ? choice.getCaseRegions()[number - 1]
                            : choice.getDefaultRegion();
    b.setInsertionPointToStart(&region.emplaceBlock());
    scf::YieldOp::create(b, emit(map));
  }
  return {choice.getResult(0), choice.getResult(1)};
}

Span GradientRanges::getAdmitted(Value query) {
  auto [begin, end] =
      emitAdmittedRows(b, source.attr.getMask(), query, numQueries, length);
  return {begin, end};
}

static Span meet(KernelBuilder &b, const Span &left, const Span &right) {
  return {b.max(left.begin, right.begin), b.min(left.end, right.end)};
}

Span GradientRanges::getRows(Value range, Value query) {
  return meet(b, getRowsOfBlock(range, getBlock(query)), getAdmitted(query));
}

Value GradientRanges::getLast(Value query, int64_t count) {
  Value last = b.sub(b.min(b.add(query, count), numQueries), b.index(1));
  return op.getQueryLengths() ? b.max(last, 0) : last;
}

Span GradientRanges::getRowsOfTile(Value range, Value query, int64_t count) {
  Value last = getLast(query, count);
  // Masks ascend.
  Span admitted = {getAdmitted(query).begin, getAdmitted(last).end};
  Value first = getBlock(query), end = getBlock(last);
  if (isAscending)
    return meet(
        b, {getRowsOfBlock(range, first).begin, getRowsOfBlock(range, end).end},
        admitted);
  Values rows =
      b.loop(first, b.add(end, 1), 1, {length.rows, b.index(0)},
             [&](Value block, ValueRange rows) -> Values {
               Span own = getRowsOfBlock(range, block);
               Value exists = b.less(own.begin, own.end);
               return {b.select(exists, b.min(rows[0], own.begin), rows[0]),
                       b.select(exists, b.max(rows[1], own.end), rows[1])};
             });
  return meet(b, {rows[0], rows[1]}, admitted);
}

Span GradientRanges::getCommonRows(Value range, Value query, int64_t count) {
  return {getRows(range, getLast(query, count)).begin,
          getRows(range, query).end};
}

Value GradientRanges::findFirst(Value end, function_ref<Value(Value)> holds) {
  // It is between begin and end.
  return b.loopWhile(
      {b.index(0), end},
      [&](ValueRange span) { return b.less(span[0], span[1]); },
      [&](ValueRange span) -> Values {
        Value middle = b.div(b.add(span[0], span[1]), 2);
        Value isEarlier = holds(middle);
        return {b.select(isEarlier, span[0], b.add(middle, 1)),
                b.select(isEarlier, middle, span[1])};
      })[0];
}

Span GradientRanges::getTilesOfRows(Value range, const Span &rows,
                                    int64_t count) {
  Value end = b.ceilDiv(numQueries, count);
  if (!isAscending)
    return {b.index(0), end};
  auto getRows = [&](Value tile) {
    return getRowsOfTile(range, b.mul(tile, count), count);
  };
  return {findFirst(end,
                    [&](Value tile) {
                      return b.less(rows.begin, getRows(tile).end);
                    }),
          findFirst(end, [&](Value tile) {
            return b.less(b.sub(rows.end, b.index(1)), getRows(tile).begin);
          })};
}

Span GradientRanges::getWholeTiles(Value range, const Span &rows,
                                   int64_t count) {
  Value end = b.div(numQueries, b.index(count));
  auto getRows = [&](Value tile) {
    return getCommonRows(range, b.mul(tile, count), count);
  };
  return {findFirst(end,
                    [&](Value tile) {
                      return b.less(b.sub(rows.end, b.index(1)),
                                    getRows(tile).end);
                    }),
          findFirst(end, [&](Value tile) {
            return b.less(rows.begin, getRows(tile).begin);
          })};
}
