//===- CodebookToGPU.cpp - Summaries and updates of codebooks on a GPU ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Teams are warps. Many tokens are sorted by their codes: a team has one code
// and some columns, and goes through the code's tokens in their order, with the
// sums in registers and many rows on their way at once. A scan has few tokens
// in a block, for which teams of the codes look; so it goes through the blocks
// of a code afterwards.
//
//===----------------------------------------------------------------------===//

#include "GPUTokensOfCodes.h"
#include "fovea/Conversion/AttnToTeams/Quantize/CodebookTeams.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Up to so many tokens, it takes less time that the team of each code looks at
/// all of them than that they are sorted.
static constexpr int64_t kFewTokens = 4096;
/// Rows that a team loads at once, and columns of them that a lane has at most.
static constexpr int64_t kRowsAtOnce = 16, kColumnsOfLane = 2;

/// Entries of a scan that a team loads at once.
static constexpr int64_t kEntriesAtOnce = 8;

namespace {
/// Teams that have some columns of rows each.
class ColumnTeams {
public:
  ColumnTeams(WarpTeamBuilder &builder, int64_t width)
      : b(builder), width(width),
        columnsOfLane(std::min<int64_t>(kColumnsOfLane,
                                        llvm::divideCeil(width, kWarpSize))) {}

  /// Runs `body` for each point of a grid and the columns of a team.
  void forTeams(ArrayRef<Value> grid, function_ref<void(ValueRange)> body);
  /// The values of the lane's columns.
  Values getEach(function_ref<Value(Value column)> value) const;
  Values load(Value memref, ValueRange row) const;
  void store(ValueRange results, Value memref, ValueRange row) const;

private:
  static Values append(ValueRange row, Value column) {
    Values place(row);
    place.push_back(column);
    return place;
  }

  WarpTeamBuilder &b;
  int64_t width, columnsOfLane;
  Values columns;
};
} // namespace

void ColumnTeams::forTeams(ArrayRef<Value> grid,
                           function_ref<void(ValueRange)> body) {
  int64_t ofTeam = columnsOfLane * kWarpSize;
  Values teams(grid);
  teams.push_back(b.index(llvm::divideCeil(width, ofTeam)));
  b.forTeams(teams, [&](ValueRange at) {
    Value first = b.add(b.mul(at.back(), ofTeam), b.getLane());
    columns.clear();
    for (int64_t i = 0; i < columnsOfLane; ++i)
      columns.push_back(b.add(first, i * kWarpSize));
    body(at.drop_back());
  });
}

Values ColumnTeams::getEach(function_ref<Value(Value)> value) const {
  return llvm::map_to_vector(
      columns, [&](Value column) { return value(b.min(column, width - 1)); });
}

Values ColumnTeams::load(Value memref, ValueRange row) const {
  return getEach(
      [&](Value column) { return b.loadVector(memref, append(row, column)); });
}

void ColumnTeams::store(ValueRange results, Value memref,
                        ValueRange row) const {
  for (auto [column, result] : llvm::zip_equal(columns, results))
    b.ifThen(b.less(column, b.index(width)),
             [&, column = column, result = result] {
               b.storeVector(result, memref, append(row, column));
             });
}

/// What a row does to a running value; `share` is what a lane has computed for
/// the number of the row.
using Step = function_ref<Value(Value running, Value element, Value share)>;

/// Goes through the rows of values [B, G, N, E] whose tokens have a code.
static Values foldTokens(WarpTeamBuilder &b, const TokensOfCodes &tokens,
                         Value values, const ColumnTeams &teams,
                         ValueRange code, ValueRange inits, Step step,
                         function_ref<Value(Value number)> getShare = {}) {
  Value batch = code[0], head = code[1];
  auto [begin, end] = tokens.getPlaces(b, code);
  auto addRows = [&, begin = begin, end = end](Value first,
                                               ValueRange running) -> Values {
    GPUKernelBuilder k(b.getLoc(), b, kWarpSize);
    Value place = b.min(b.add(first, b.getLane()), b.sub(end, b.index(1)));
    Value token = k.toI32(tokens.loadToken(b, batch, head, place)), share;
    if (getShare)
      share = getShare(b.sub(b.add(first, b.getLane()), begin));
    SmallVector<Values> rows;
    for (int64_t i = 0; i < kRowsAtOnce; ++i) {
      Value row = k.toIndex(k.shuffleFrom(token, k.i32(i)));
      rows.push_back(teams.load(values, {batch, head, row}));
    }
    Values next(running);
    for (auto [i, row] : llvm::enumerate(rows)) {
      Value exists = b.less(b.add(first, i), end);
      Value ofRow = share ? k.shuffleFrom(share, k.i32(i)) : Value();
      for (auto [value, element] : llvm::zip_equal(next, row))
        value = b.select(exists, step(value, element, ofRow), value);
    }
    return next;
  };
  return b.loop(begin, end, kRowsAtOnce, inits, addRows);
}

//===----------------------------------------------------------------------===//
// CodebookAccumulateOp
//===----------------------------------------------------------------------===//

/// A slice is a block of tokens, of which the device may know the number alone.
static bool mayHaveManyTokens(CodebookAccumulateOp op) {
  int64_t known = getMemRefType(op.getCodes()).getDimSize(2);
  if (ShapedType::isDynamic(known))
    return !op.getCodes().getDefiningOp<memref::SubViewOp>();
  return known > kFewTokens;
}

static void accumulateSorted(CodebookAccumulateOp op, WarpTeamBuilder &b) {
  Value means = op.getMean(), counts = op.getCount(), values = op.getValues();
  Value grid[] = {b.extent(counts, 0), b.extent(counts, 1),
                  b.extent(counts, 2)};
  TokensOfCodes tokens(b, op.getCodes(), grid[2]);
  ColumnTeams teams(b, getWidth(values));
  auto accumulateCode = [&](ValueRange code) {
    Value count = b.loadIndex(counts, code);
    // The mean of no token is not read.
    Value isNone = b.equal(count, b.index(0));
    Values start = teams.load(means, code);
    for (Value &mean : start)
      mean = b.select(isNone, b.splat(0.0), mean);
    auto getShare = [&](Value number) -> Value {
      Value total = b.toNumber(b.add(count, b.add(number, 1)));
      return arith::DivFOp::create(b, b.scalar(1.0), total);
    };
    auto step = [&](Value mean, Value element, Value share) {
      return b.fma(b.fsub(element, mean), share, mean);
    };
    Values mean =
        foldTokens(b, tokens, values, teams, code, start, step, getShare);
    teams.store(mean, means, code);
  };
  teams.forTeams(grid, [&](ValueRange code) {
    auto [begin, end] = tokens.getPlaces(b, code);
    b.ifThen(b.less(begin, end), [&] { accumulateCode(code); });
  });
  // Not before the teams of all columns have read the counts.
  parallelLoop(b, grid, [&](ValueRange code) {
    auto [begin, end] = tokens.getPlaces(b, code);
    Value count = b.loadIndex(counts, code);
    b.storeIndex(b.add(count, b.sub(end, begin)), counts, code);
  });
  tokens.free();
}

static LogicalResult lowerAccumulate(CodebookAccumulateOp op,
                                     OpBuilder &builder, GPULowering &) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  WarpTeamBuilder b(op.getLoc(), builder);
  if (!mayHaveManyTokens(op))
    return lowerToTeams(op, b);
  accumulateSorted(op, b);
  return success();
}

//===----------------------------------------------------------------------===//
// CodebookScanOp
//===----------------------------------------------------------------------===//

/// Takes the summary of each entry into the one before, with the count and the
/// mean of a code in registers: means that nobody goes on from may be narrow.
static void mergeMeans(CodebookScanOp op, Value summaries, WarpTeamBuilder &b) {
  Value means = op.getMean(), counts = op.getCount();
  Value entries = b.extent(means, 2), zero = b.index(0), one = b.index(1);
  auto entryOf = [](ValueRange code, Value entry) {
    return Values{code[0], code[1], entry, code[2]};
  };
  ColumnTeams teams(b, getWidth(means));
  auto merge = [&](ValueRange code, Value first, ValueRange running) -> Values {
    Value last = b.sub(entries, one);
    SmallVector<Values> rows;
    Values found;
    for (int64_t i = 0; i < kEntriesAtOnce; ++i) {
      Values place = entryOf(code, b.min(b.add(first, i), last));
      found.push_back(b.loadIndex(counts, place));
      rows.push_back(teams.load(summaries, place));
    }
    Value total = running[0];
    Values mean(running.drop_front());
    for (auto [i, count, row] : llvm::enumerate(found, rows)) {
      Value joint = b.add(total, count);
      Value share =
          arith::DivFOp::create(b, b.toNumber(count), b.toNumber(joint));
      // A mean of no token is not read, unless it is the initial one.
      Value isEmpty = b.equal(count, zero), isFirst = b.equal(total, zero);
      for (auto [value, later] : llvm::zip_equal(mean, row)) {
        Value both = b.fma(b.fsub(later, value), share, value);
        value = b.select(isEmpty, value, b.select(isFirst, later, both));
      }
      total = joint;
      Value entry = b.add(first, i);
      b.ifThen(b.less(entry, entries),
               [&] { teams.store(mean, means, entryOf(code, entry)); });
    }
    Values next = {total};
    llvm::append_range(next, mean);
    return next;
  };
  Value grid[] = {b.extent(means, 0), b.extent(means, 1), b.extent(means, 3)};
  teams.forTeams(grid, [&](ValueRange code) {
    Values initial = entryOf(code, zero),
           inits = {b.loadIndex(counts, initial)};
    llvm::append_range(inits, teams.load(summaries, initial));
    if (summaries != means)
      teams.store(ValueRange(inits).drop_front(), means, initial);
    b.loop(one, entries, kEntriesAtOnce, inits,
           [&](Value first, ValueRange running) {
             return merge(code, first, running);
           });
  });
}

static void addUpCounts(CodebookScanOp op, WarpTeamBuilder &b) {
  Value counts = op.getCount();
  Value grid[] = {b.extent(counts, 0), b.extent(counts, 1),
                  b.extent(counts, 3)};
  b.forTeams(grid, [&](ValueRange code) {
    auto placeOf = [&](Value entry) {
      return Values{code[0], code[1], entry, code[2]};
    };
    b.addUp(
        b.extent(counts, 2),
        [&](Value entry) -> Value {
          return memref::LoadOp::create(b, counts, placeOf(entry));
        },
        [&](Value entry, Value, Value upTo) {
          memref::StoreOp::create(b, upTo, counts, placeOf(entry));
        });
  });
}

static LogicalResult lowerScan(CodebookScanOp op, OpBuilder &builder,
                               GPULowering &) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  WarpTeamBuilder b(op.getLoc(), builder);
  Value summaries = op.getMean();
  bool isRounded = hasRoundedEntries(op);
  if (isRounded)
    summaries = b.allocateLike(summaries, b.getStateType());
  emitBlockSummaries(op, summaries, b);
  mergeMeans(op, summaries, b);
  addUpCounts(op, b);
  if (isRounded)
    memref::DeallocOp::create(b, summaries);
  return success();
}

//===----------------------------------------------------------------------===//
// CodebookUpdateOp
//===----------------------------------------------------------------------===//

/// Sums and counts of the keys of each code, in the order of batch entries,
/// heads and tokens.
static void sumSorted(CodebookUpdateOp op, WarpTeamBuilder &b, Value sums,
                      Value counts) {
  Value zero = b.index(0), batches = b.extent(op.getCodes(), 0);
  Value grid[] = {b.extent(sums, 0), b.extent(sums, 1)};
  TokensOfCodes tokens(b, op.getCodes(), grid[1]);
  using Body = function_ref<Values(Value batch, Value head, ValueRange)>;
  auto forHeads = [&](Value set, ValueRange inits, Body body) {
    std::pair<Value, Value> heads = getHeadsOfSet(b, op, set);
    return b.loop(zero, batches, 1, inits, [&](Value batch, ValueRange found) {
      return b.loop(heads.first, heads.second, 1, found,
                    [&](Value head, ValueRange found) {
                      return body(batch, head, found);
                    });
    });
  };
  ColumnTeams teams(b, getWidth(op.getKey()));
  teams.forTeams(grid, [&](ValueRange at) {
    Values none = teams.getEach([&](Value) { return b.splat(0.0); });
    auto add = [&](Value sum, Value element, Value) {
      return b.fadd(sum, element);
    };
    Values total =
        forHeads(at[0], none, [&](Value batch, Value head, ValueRange found) {
          return foldTokens(b, tokens, op.getKey(), teams, {batch, head, at[1]},
                            found, add);
        });
    teams.store(total, sums, at);
  });
  parallelLoop(b, grid, [&](ValueRange at) {
    Value count = forHeads(
        at[0], zero, [&](Value batch, Value head, ValueRange found) -> Values {
          auto [begin, end] = tokens.getPlaces(b, {batch, head, at[1]});
          return {b.add(found[0], b.sub(end, begin))};
        })[0];
    b.storeIndex(count, counts, at);
  });
  tokens.free();
}

static LogicalResult lowerUpdate(CodebookUpdateOp op, OpBuilder &builder,
                                 GPULowering &) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  WarpTeamBuilder b(op.getLoc(), builder);
  emitCodebookUpdate(
      op, b, [&](Value sums, Value counts) { sumSorted(op, b, sums, counts); });
  return success();
}

void fovea::attn::attachCodebookToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerAccumulate, lowerScan, lowerUpdate>(context);
}
