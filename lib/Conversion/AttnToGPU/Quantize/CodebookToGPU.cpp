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
// in a block, which a team sorts in shared memory and goes through, whatever
// their codes are; then a team goes through the blocks of a code.
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
/// Rows that a team loads at once, for registers, and columns of them that a
/// lane has at most.
static constexpr int64_t kRowsAtOnce = 16, kColumnsOfLane = 2;

/// Entries of a scan that a team loads at once, and codes of a block that a
/// lane does.
static constexpr int64_t kEntriesAtOnce = 8, kCodesAtOnce = 8;

/// Teams that go through the rows of a block, for the same columns. Each sorts
/// the tokens, which takes about as long as it then has rows.
static constexpr int64_t kTeamsOfBlock = 4;

static Values append(ValueRange row, Value last) {
  Values place(row);
  place.push_back(last);
  return place;
}

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
  /// Whether the team has the first columns of its point.
  Value hasFirst() const { return b.equal(tile, b.index(0)); }
  /// The values of the lane's columns.
  Values getEach(function_ref<Value(Value column)> value) const;
  Values load(Value memref, ValueRange row) const;
  void store(ValueRange results, Value memref, ValueRange row) const;

private:
  WarpTeamBuilder &b;
  int64_t width, columnsOfLane;
  Value tile;
  Values columns;
};
} // namespace

void ColumnTeams::forTeams(ArrayRef<Value> grid,
                           function_ref<void(ValueRange)> body) {
  int64_t ofTeam = columnsOfLane * kWarpSize;
  Values teams(grid);
  teams.push_back(b.index(llvm::divideCeil(width, ofTeam)));
  b.forTeams(teams, [&](ValueRange at) {
    tile = at.back();
    Value first = b.add(b.mul(tile, ofTeam), b.getLane());
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

namespace {
/// The tokens of a block by their codes, in shared memory of a team.
class SortedBlock {
public:
  /// Whether there is enough of it for blocks of so many tokens.
  static bool fits(CodebookScanOp op) {
    constexpr int64_t mostNumbers = WarpTeamBuilder::kMostSharedBytes / 4;
    int64_t codes = getMemRefType(op.getCount()).getDimSize(3);
    int64_t block = op.getBlock();
    return !ShapedType::isDynamic(codes) && block <= mostNumbers &&
           codes + 2 * block <= mostNumbers;
  }
  SortedBlock(CodebookScanOp op, WarpTeamBuilder &builder, ValueRange entry);

  Value getNumTokens() const { return getEnd(b.sub(numCodes, one)); }
  Value loadToken(Value place) const { return b.loadIndex(tokens, place); }
  Value loadCode(Value token) const {
    return b.loadIndex(codes, b.sub(token, begin));
  }
  /// The first place of a code's tokens, and the one behind.
  Value getBegin(Value code) const {
    return b.select(b.equal(code, b.index(0)), b.index(0),
                    getEnd(b.max(b.sub(code, one), 0)));
  }
  Value getEnd(Value code) const { return b.loadIndex(ends, code); }
  /// The first place from `place` on where the tokens of a code begin, or the
  /// end; there is one token at least.
  Value getNextBegin(Value place) const {
    Value end = getNumTokens();
    Value code = loadCode(loadToken(b.min(place, b.sub(end, one))));
    Value isBegin = b.equal(place, getBegin(code));
    return b.select(b.both(b.less(place, end), isBegin), place, getEnd(code));
  }

private:
  void loadCodes(Value all, ValueRange entry);

  WarpTeamBuilder &b;
  Value one, numCodes, begin, end;
  /// Of each token, its code; of each code, where its tokens end; of each
  /// place, its token.
  Value codes, ends, tokens;
};
} // namespace

SortedBlock::SortedBlock(CodebookScanOp op, WarpTeamBuilder &builder,
                         ValueRange entry)
    : b(builder), one(b.index(1)), numCodes(b.extent(op.getCount(), 3)) {
  Value zero = b.index(0), numTokens = b.extent(op.getCodes(), 2);
  int64_t length = op.getBlock();
  begin = b.min(b.mul(b.sub(entry[2], one), length), numTokens);
  end = b.min(b.add(begin, length), numTokens);
  Type number = b.getI32Type();
  codes = b.teamBuffer(length, number);
  ends = b.teamBuffer(numCodes, number);
  tokens = b.teamBuffer(length, number);
  loadCodes(op.getCodes(), entry);
  b.forNumbers(zero, numCodes,
               [&](Value code) { b.storeIndex(zero, ends, code); });
  b.barrier();
  auto getCode = [&](Value token) { return loadCode(token); };
  forTokensOfCodes(b, begin, end, getCode, numCodes, ends, [](Value, Value) {});
  b.barrier();
  auto load = [&](Value code) -> Value {
    return memref::LoadOp::create(b, ends, code);
  };
  b.addUp(numCodes, load, [&](Value code, Value before, Value) {
    memref::StoreOp::create(b, before, ends, code);
  });
  auto store = [&](Value token, Value place) {
    b.storeIndex(token, tokens, place);
  };
  forTokensOfCodes(b, begin, end, getCode, numCodes, ends, store);
  b.barrier();
}

/// Of all codes, those of the block.
void SortedBlock::loadCodes(Value all, ValueRange entry) {
  Value last = b.sub(end, one);
  b.loop(begin, end, kCodesAtOnce * kWarpSize, [&](Value first) {
    SmallVector<std::pair<Value, Value>> loaded;
    for (int64_t i = 0; i < kCodesAtOnce; ++i) {
      Value token = b.add(b.add(first, i * kWarpSize), b.getLane());
      loaded.emplace_back(
          token, b.loadIndex(all, {entry[0], entry[1], b.min(token, last)}));
    }
    for (auto [token, code] : loaded)
      b.ifThen(b.less(token, end), [&, token = token, code = code] {
        b.storeIndex(code, codes, b.sub(token, begin));
      });
  });
}

/// The mean of each code's tokens in a block, with many rows on their way:
/// where the tokens of a code end, a team stores what it has. The teams of a
/// block share the codes.
static void summarizeBlock(CodebookScanOp op, Value means, WarpTeamBuilder &b,
                           const ColumnTeams &teams, ValueRange entry,
                           Value team) {
  SortedBlock block(op, b, entry);
  Value counts = op.getCount(), numCodes = b.extent(counts, 3);
  Value zero = b.index(0), one = b.index(1);
  b.ifThen(b.both(teams.hasFirst(), b.equal(team, zero)), [&] {
    b.forNumbers(zero, numCodes, [&](Value code) {
      Value count = b.sub(block.getEnd(code), block.getBegin(code));
      b.storeIndex(count, counts, append(entry, code));
    });
  });
  auto addRows = [&](Value first, Value end, ValueRange running) -> Values {
    GPUKernelBuilder k(b.getLoc(), b, kWarpSize);
    Value place = b.min(b.add(first, b.getLane()), b.sub(end, one));
    Value token = block.loadToken(place), code = block.loadCode(token);
    Value number = b.add(b.sub(place, block.getBegin(code)), 1);
    Value share = arith::DivFOp::create(b, b.scalar(1.0), b.toNumber(number));
    // Where a lane's row is the last one of its code, that code, or none.
    Value isLast = b.equal(b.add(place, 1), block.getEnd(code));
    Value stored = k.toI32(b.select(isLast, code, numCodes));
    SmallVector<Values> rows;
    for (int64_t i = 0; i < kRowsAtOnce; ++i) {
      Value row = k.toIndex(k.shuffleFrom(k.toI32(token), k.i32(i)));
      rows.push_back(teams.load(op.getValues(), {entry[0], entry[1], row}));
    }
    Values next(running);
    for (auto [i, row] : llvm::enumerate(rows)) {
      Value ofRow = k.shuffleFrom(share, k.i32(i));
      Value isFirst = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, ofRow,
                                            b.scalar(1.0));
      for (auto [mean, element] : llvm::zip_equal(next, row))
        mean = b.select(isFirst, element,
                        b.fma(b.fsub(element, mean), ofRow, mean));
      Value codeOfRow = k.toIndex(k.shuffleFrom(stored, k.i32(i)));
      Value exists = b.less(b.add(first, i), end);
      b.ifThen(b.both(exists, b.less(codeOfRow, numCodes)),
               [&] { teams.store(next, means, append(entry, codeOfRow)); });
    }
    return next;
  };
  Value numTokens = block.getNumTokens();
  b.ifThen(b.less(zero, numTokens), [&] {
    auto getBegin = [&](Value team) {
      return block.getNextBegin(b.div(b.mul(numTokens, team), kTeamsOfBlock));
    };
    Value end = getBegin(b.add(team, 1));
    Values none = teams.getEach([&](Value) { return b.splat(0.0); });
    b.loop(getBegin(team), end, kRowsAtOnce, none,
           [&](Value first, ValueRange running) {
             return addRows(first, end, running);
           });
  });
}

/// Entry 0 becomes the initial state, entry `t` the summary of block `t - 1`.
static void summarizeSortedBlocks(CodebookScanOp op, Value means,
                                  WarpTeamBuilder &b) {
  Value counts = op.getCount(), numCodes = b.extent(counts, 3);
  Value zero = b.index(0), one = b.index(1);
  ColumnTeams teams(b, getWidth(means));
  // Codes by their numbers, of which a team has every few.
  auto copyInitial = [&](ValueRange entry, Value team) {
    Values head = {entry[0], entry[1]};
    Value first = b.mul(team, kRowsAtOnce);
    b.loop(first, numCodes, kTeamsOfBlock * kRowsAtOnce, [&](Value first) {
      SmallVector<std::pair<Value, Values>> rows;
      for (int64_t i = 0; i < kRowsAtOnce; ++i) {
        Value code = b.min(b.add(first, i), b.sub(numCodes, one));
        rows.emplace_back(code,
                          teams.load(op.getInitialMean(), append(head, code)));
      }
      for (auto &[code, row] : rows)
        teams.store(row, means, append(entry, code));
    });
    b.ifThen(b.both(teams.hasFirst(), b.equal(team, zero)), [&] {
      b.forNumbers(zero, numCodes, [&](Value code) {
        Value count = b.loadIndex(op.getInitialCount(), append(head, code));
        b.storeIndex(count, counts, append(entry, code));
      });
    });
  };
  Value grid[] = {b.extent(counts, 0), b.extent(counts, 1), b.extent(counts, 2),
                  b.index(kTeamsOfBlock)};
  teams.forTeams(grid, [&](ValueRange at) {
    ValueRange entry = at.drop_back();
    b.ifThenElse(
        b.equal(entry[2], zero), [&] { copyInitial(entry, at[3]); },
        [&] { summarizeBlock(op, means, b, teams, entry, at[3]); });
  });
}

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
  if (SortedBlock::fits(op))
    summarizeSortedBlocks(op, summaries, b);
  else
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
