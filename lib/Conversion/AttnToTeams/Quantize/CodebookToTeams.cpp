//===- CodebookToTeams.cpp - Loops of codebook summaries ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A token touches one row of means or sums, which its code names, so rows are
// updated in memory, token after token. Where there are many teams each has one
// code, or a few, and looks for their tokens. So no two teams touch the same
// number, and results do not depend on their order. A GPU sorts many tokens
// instead, in AttnToGPU/Quantize/CodebookToGPU.cpp.
//
//===----------------------------------------------------------------------===//

#include "QuantizeTeams.h"
#include "fovea/Conversion/AttnToTeams/Quantize/CodebookTeams.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Codes that a warp has at most, where there are more than keep a GPU busy:
/// each takes a block of threads, if only to find that no token has its code.
static constexpr int64_t kMaxCodesOfTeam = 32;
/// Warps that are as good as more, for each that must be there.
static constexpr int64_t kTeamsForOne = 4;

namespace {
/// Means or sums `[.., S, E]` and counts `[.., S]`, and which of them.
struct State {
  Value rows, count;
  Values position;

  Values code(Value code) const {
    Values at(position);
    at.push_back(code);
    return at;
  }
  Values column(Value code, Value column) const {
    Values at = this->code(code);
    at.push_back(column);
    return at;
  }
  Value load(KernelBuilder &k, Value code, Value column) const {
    return k.loadVector(rows, this->column(code, column));
  }
};

/// The mean of `count` rows.
struct Mean {
  Value count;
  TeamBuilder::ColumnValue at;
};

/// Consecutive tokens of a head.
struct Tokens {
  Value batch, head, begin, end;
};

class CodebookKernel {
public:
  CodebookKernel(TeamBuilder &builder, Value codes, Value values)
      : b(builder), codes(codes), values(values),
        width(cast<MemRefType>(values.getType()).getDimSize(3)) {}

  void accumulate(CodebookAccumulateOp op);
  // Entries of a scan have their means in `mean`, in the type of sums: they go
  // on from each other.
  void summarizeBlocks(CodebookScanOp op, Value mean, Value count);
  void scanSerially(CodebookScanOp op, Value mean);
  void scanByTree(CodebookScanOp op, Value mean);
  void scanByProduct(CodebookScanOp op, Value mean);
  void roundEntries(CodebookScanOp op, Value mean);

private:
  /// Runs `body` for the points of a grid, by a team for `numCodes` codes, or
  /// by one for each.
  void forTeams(ArrayRef<Value> grid, Value numCodes,
                llvm::function_ref<void(ValueRange)> body);
  void forEachCode(llvm::function_ref<void(Value)> body) {
    b.loop(firstCode, endCode, 1, body);
  }
  /// Runs `body` for tokens of the team's codes, in their order.
  void forTokens(const Tokens &tokens,
                 llvm::function_ref<void(Value token, Value code)> body);
  /// Stores what the lanes of a team have computed of the count before.
  void storeCount(Value count, const State &state, Value code) {
    b.barrier();
    b.single([&] { b.storeIndex(count, state.count, state.code(code)); });
  }

  void store(const State &state, Value code, TeamBuilder::ColumnValue row);
  /// Stores the mean and the count of the rows of two means. One of no rows is
  /// not read, unless both are.
  void storeJoint(const Mean &earlier, const Mean &later, const State &state,
                  Value code);
  /// Takes tokens into a state.
  void take(const Tokens &tokens, const State &state);
  void copy(const State &from, const State &to);
  void clearCounts(const State &state);
  /// Takes the tokens that `earlier` stands for into `later`.
  void merge(const State &earlier, const State &later);

  Tokens getBlock(CodebookScanOp op, ValueRange head, Value block);
  Value getNumLevels(Value numEntries);
  void mergePairs(CodebookScanOp op, Value mean, Value distance, Value first);
  void emitTotal(const State &entry, Value means, Value counts, Value code);

  TeamBuilder &b;
  Value codes, values;
  int64_t width;
  /// Of the team.
  Value firstCode, endCode, firstColumn, endColumn;
  /// Where there are many teams.
  int64_t codesOfTeam = 1;
};
} // namespace

//===----------------------------------------------------------------------===//
// Teams
//===----------------------------------------------------------------------===//

void CodebookKernel::forTeams(ArrayRef<Value> grid, Value numCodes,
                              llvm::function_ref<void(ValueRange)> body) {
  Values teams(grid);
  if (b.hasManyTeams()) {
    Value all = numCodes;
    for (Value extent : grid)
      all = b.mul(all, extent);
    int64_t most = kTeamsForOne * b.getMinTeams();
    codesOfTeam = std::clamp<int64_t>(
        getConstantIntValue(all).value_or(0) / most, 1, kMaxCodesOfTeam);
    teams.push_back(b.ceilDiv(numCodes, codesOfTeam));
  }
  b.forTeams(teams, [&](ValueRange point) {
    firstCode =
        b.hasManyTeams() ? b.mul(point.back(), codesOfTeam) : b.index(0);
    endCode = b.hasManyTeams() ? b.min(b.add(firstCode, codesOfTeam), numCodes)
                               : numCodes;
    firstColumn = b.index(0);
    endColumn = b.index(width);
    body(point.take_front(grid.size()));
  });
}

void CodebookKernel::forTokens(const Tokens &tokens,
                               llvm::function_ref<void(Value, Value)> body) {
  auto getCode = [&](Value token) {
    return b.loadIndex(codes, {tokens.batch, tokens.head, token});
  };
  // A team of some codes finds no absent token, whose code is -1.
  if (b.hasManyTeams())
    return b.forRowsOfKey(tokens.begin, tokens.end, getCode, firstCode,
                          codesOfTeam, body);
  auto takePresent = [&](Value token, Value code) {
    b.ifThen(b.less(b.index(-1), code), [&] { body(token, code); });
  };
  b.forRowsOfKey(tokens.begin, tokens.end, getCode, firstCode, codesOfTeam,
                 takePresent);
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void CodebookKernel::store(const State &state, Value code,
                           TeamBuilder::ColumnValue row) {
  b.forColumns(firstColumn, endColumn, [&](KernelBuilder &k, Value column) {
    k.storeVector(row(k, column), state.rows, state.column(code, column));
  });
}

void CodebookKernel::storeJoint(const Mean &earlier, const Mean &later,
                                const State &state, Value code) {
  Value total = b.add(earlier.count, later.count), zero = b.index(0);
  storeCount(total, state, code);
  auto storeBoth = [&] {
    Value share =
        arith::DivFOp::create(b, b.toNumber(later.count), b.toNumber(total));
    store(state, code, [&](KernelBuilder &k, Value column) {
      Value base = earlier.at(k, column);
      Value step = k.fsub(later.at(k, column), base);
      return k.fma(step, k.broadcast(share), base);
    });
  };
  auto storeLater = [&] { store(state, code, later.at); };
  auto storeEarlier = [&] { store(state, code, earlier.at); };
  b.ifThenElse(b.equal(later.count, zero), storeEarlier, [&] {
    b.ifThenElse(b.equal(earlier.count, zero), storeLater, storeBoth);
  });
}

void CodebookKernel::take(const Tokens &tokens, const State &state) {
  forTokens(tokens, [&](Value token, Value code) {
    auto old = [&](KernelBuilder &k, Value column) {
      return state.load(k, code, column);
    };
    auto value = [&](KernelBuilder &k, Value column) {
      return k.loadVector(values, {tokens.batch, tokens.head, token, column});
    };
    Value count = b.loadIndex(state.count, state.code(code));
    storeJoint({count, old}, {b.index(1), value}, state, code);
  });
}

void CodebookKernel::copy(const State &from, const State &to) {
  forEachCode([&](Value code) {
    storeCount(b.loadIndex(from.count, from.code(code)), to, code);
    store(to, code, [&](KernelBuilder &k, Value column) {
      return from.load(k, code, column);
    });
  });
}

void CodebookKernel::clearCounts(const State &state) {
  forEachCode([&](Value code) { storeCount(b.index(0), state, code); });
}

void CodebookKernel::merge(const State &earlier, const State &later) {
  forEachCode([&](Value code) {
    auto first = [&](KernelBuilder &k, Value column) {
      return earlier.load(k, code, column);
    };
    auto second = [&](KernelBuilder &k, Value column) {
      return later.load(k, code, column);
    };
    storeJoint({b.loadIndex(earlier.count, earlier.code(code)), first},
               {b.loadIndex(later.count, later.code(code)), second}, later,
               code);
  });
}

void CodebookKernel::accumulate(CodebookAccumulateOp op) {
  forTeams({b.extent(codes, 0), b.extent(codes, 1)}, b.extent(op.getCount(), 2),
           [&](ValueRange at) {
             take({at[0], at[1], b.index(0), b.extent(codes, 2)},
                  {op.getMean(), op.getCount(), {at[0], at[1]}});
           });
}

//===----------------------------------------------------------------------===//
// A state for every block
//===----------------------------------------------------------------------===//

/// As of `number` blocks of a batch entry and head.
static State getEntry(CodebookScanOp op, Value mean, ValueRange head,
                      Value number) {
  return {mean, op.getCount(), {head[0], head[1], number}};
}

static State getInitial(CodebookScanOp op, ValueRange head) {
  return {op.getInitialMean(), op.getInitialCount(), {head[0], head[1]}};
}

/// The last block ends with the tokens.
Tokens CodebookKernel::getBlock(CodebookScanOp op, ValueRange head,
                                Value block) {
  int64_t length = op.getBlock();
  Value end = b.extent(codes, 2);
  return {head[0], head[1], b.min(b.mul(block, length), end),
          b.min(b.mul(b.add(block, 1), length), end)};
}

/// Every entry is a copy of the one before, with a block taken in.
void CodebookKernel::scanSerially(CodebookScanOp op, Value mean) {
  Value one = b.index(1);
  Value grid[] = {b.extent(codes, 0), b.extent(codes, 1)};
  forTeams(grid, b.extent(op.getCount(), 3), [&](ValueRange at) {
    copy(getInitial(op, at), getEntry(op, mean, at, b.index(0)));
    b.loop(one, b.extent(mean, 2), 1, [&](Value number) {
      Value block = b.sub(number, one);
      State entry = getEntry(op, mean, at, number);
      copy(getEntry(op, mean, at, block), entry);
      take(getBlock(op, at, block), entry);
    });
  });
}

/// Entry 0 of `mean` and `count` becomes the initial state, entry `t` the
/// summary of block `t - 1` alone, in which means of no token are undefined.
void CodebookKernel::summarizeBlocks(CodebookScanOp op, Value mean,
                                     Value count) {
  Value grid[] = {b.extent(codes, 0), b.extent(codes, 1), b.extent(mean, 2)};
  forTeams(grid, b.extent(count, 3), [&](ValueRange at) {
    State entry = {mean, count, Values(at)};
    b.ifThenElse(
        b.equal(at[2], b.index(0)), [&] { copy(getInitial(op, at), entry); },
        [&] {
          clearCounts(entry);
          take(getBlock(op, at, b.sub(at[2], b.index(1))), entry);
        });
  });
}

/// Entries `first`, `first + 2 distance`, ... each take in the entry that lies
/// `distance` before.
void CodebookKernel::mergePairs(CodebookScanOp op, Value mean, Value distance,
                                Value first) {
  Value numEntries = b.extent(mean, 2), stride = b.mul(distance, 2);
  Value left = b.max(b.sub(numEntries, first), 0);
  Value numPairs = b.div(b.sub(b.add(left, stride), b.index(1)), stride);
  Value grid[] = {b.extent(codes, 0), b.extent(codes, 1), numPairs};
  forTeams(grid, b.extent(op.getCount(), 3), [&](ValueRange at) {
    Value later = b.add(first, b.mul(at[2], stride));
    merge(getEntry(op, mean, at, b.sub(later, distance)),
          getEntry(op, mean, at, later));
  });
}

/// The levels of a tree over `numEntries`: the least power of two that is no
/// smaller.
Value CodebookKernel::getNumLevels(Value numEntries) {
  if (std::optional<int64_t> known = getConstantIntValue(numEntries))
    return b.index(llvm::Log2_64_Ceil(std::max<int64_t>(1, *known)));
  Value last = b.max(b.sub(numEntries, b.index(1)), 0);
  Value zeros = math::CountLeadingZerosOp::create(
      b, arith::IndexCastOp::create(b, b.getI64Type(), last));
  return b.sub(b.index(64),
               arith::IndexCastOp::create(b, b.getIndexType(), zeros));
}

/// Brent and Kung's scan: pairs at distances 1, 2, 4, ... up the tree, then
/// those in between on the way down. Two merges for each entry, and a depth of
/// twice the logarithm of their number.
void CodebookKernel::scanByTree(CodebookScanOp op, Value mean) {
  summarizeBlocks(op, mean, op.getCount());
  Value one = b.index(1), numLevels = getNumLevels(b.extent(mean, 2));
  auto power = [&](Value level) -> Value {
    return arith::ShLIOp::create(b, one, level);
  };
  b.loop(b.index(0), numLevels, 1, [&](Value level) {
    Value distance = power(level);
    mergePairs(op, mean, distance, b.sub(b.mul(distance, 2), one));
  });
  b.loop(b.index(0), numLevels, 1, [&](Value step) {
    Value distance = power(b.sub(b.sub(numLevels, one), step));
    mergePairs(op, mean, distance, b.sub(b.mul(distance, 3), one));
  });
}

/// One code of an entry: the mean of the summaries up to its own, weighted by
/// their counts.
void CodebookKernel::emitTotal(const State &entry, Value means, Value counts,
                               Value code) {
  auto summary = [&](Value block) -> State {
    return {means, counts, {entry.position[0], entry.position[1], block}};
  };
  Value zero = b.index(0), end = b.add(entry.position[2], 1);
  Value total =
      b.loop(zero, end, 1, {zero}, [&](Value block, ValueRange sum) -> Values {
        return {b.add(sum[0], b.loadIndex(counts, summary(block).code(code)))};
      })[0];
  storeCount(total, entry, code);
  // A code of no token keeps the initial mean.
  Value isEmpty = b.equal(total, zero);
  store(entry, code, [&](KernelBuilder &k, Value column) {
    Value initial = summary(zero).load(k, code, column);
    return k.select(isEmpty, initial, k.splat(0.0));
  });
  b.loop(zero, end, 1, [&](Value block) {
    Value count = b.loadIndex(counts, summary(block).code(code));
    b.ifThen(b.less(zero, count), [&] {
      Value share =
          arith::DivFOp::create(b, b.toNumber(count), b.toNumber(total));
      store(entry, code, [&](KernelBuilder &k, Value column) {
        return k.fma(summary(block).load(k, code, column), k.broadcast(share),
                     entry.load(k, code, column));
      });
    });
  });
}

/// All entries are one product with a lower triangle.
void CodebookKernel::scanByProduct(CodebookScanOp op, Value mean) {
  Value means = b.allocateLike(mean, b.getStateType());
  Value counts = b.allocateLike(op.getCount(), b.getI32Type());
  summarizeBlocks(op, means, counts);
  Value grid[] = {b.extent(codes, 0), b.extent(codes, 1), b.extent(means, 2)};
  forTeams(grid, b.extent(counts, 3), [&](ValueRange at) {
    State entry = {mean, op.getCount(), Values(at)};
    forEachCode([&](Value code) { emitTotal(entry, means, counts, code); });
  });
  memref::DeallocOp::create(b, means);
  memref::DeallocOp::create(b, counts);
}

void CodebookKernel::roundEntries(CodebookScanOp op, Value mean) {
  Value grid[] = {b.extent(mean, 0), b.extent(mean, 1), b.extent(mean, 2)};
  forTeams(grid, b.extent(mean, 3), [&](ValueRange at) {
    State wide = {mean, op.getCount(), Values(at)}, entry = wide;
    entry.rows = op.getMean();
    forEachCode([&](Value code) {
      store(entry, code, [&](KernelBuilder &k, Value column) {
        return wide.load(k, code, column);
      });
    });
  });
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

LogicalResult fovea::attn::lowerToTeams(CodebookAccumulateOp op,
                                        TeamBuilder &builder) {
  CodebookKernel(builder, op.getCodes(), op.getValues()).accumulate(op);
  return success();
}

bool fovea::attn::hasRoundedEntries(CodebookScanOp op) {
  return getElementTypeOrSelf(op.getMean()) !=
         getElementTypeOrSelf(op.getInitialMean());
}

void fovea::attn::emitBlockSummaries(CodebookScanOp op, Value mean,
                                     TeamBuilder &builder) {
  CodebookKernel(builder, op.getCodes(), op.getValues())
      .summarizeBlocks(op, mean, op.getCount());
}

/// On a CPU a running state does the least work, and a product the most; the
/// choice must not depend on the number of threads.
LogicalResult fovea::attn::lowerToTeams(CodebookScanOp op,
                                        TeamBuilder &builder) {
  CodebookKernel kernel(builder, op.getCodes(), op.getValues());
  Reduction reduction = op.getReduction();
  Value mean = op.getMean();
  bool isRounded = hasRoundedEntries(op);
  if (isRounded)
    mean = builder.allocateLike(mean, builder.getStateType());
  if (reduction == Reduction::Auto || reduction == Reduction::Serial)
    kernel.scanSerially(op, mean);
  else if (reduction == Reduction::Matmul)
    kernel.scanByProduct(op, mean);
  else
    kernel.scanByTree(op, mean);
  if (isRounded) {
    kernel.roundEntries(op, mean);
    memref::DeallocOp::create(builder, mean);
  }
  return success();
}
