//===- RecoverGradient.cpp - Loops of attn.conv_recover_backward ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   dH[r][i] = d_basis[r, i - c_r] - d_basis[r + 1, i - c_r]   bases by rows
//
//   a team for each (batch, head, chunk of rows)
//     d_query = scale dH^T key[c]             the keys where bases begin
//   a team for each (batch, head, some bases)
//     sums = scale dH query                   chunks of rows, in order
//   a team for each (batch, key head, chunk of keys)
//     d_key = the sums of the bases that begin at each, in order of heads
//
// A row before a basis has nothing to do with it: no product counts it as 0,
// which times a NaN would be one.
//
//===----------------------------------------------------------------------===//

#include "ConvToTeams.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows of a chunk, bases whose gradients of scores are made at a time, and
/// bases of a team that sums gradients of their keys: few heads have few bases.
static constexpr int64_t kRows = 64, kBases = 16, kTeamBases = 4;
/// Rows of a chunk where there are many teams.
static constexpr int64_t kFewRows = 32;
/// Sums of a tile, the vectors of each, and terms that are added in a turn.
static constexpr int64_t kMaxTile = 4, kTileVectors = 2, kUnroll = 4;

namespace {
class RecoverGradient {
public:
  RecoverGradient(TeamBuilder &builder, ConvRecoverBackwardOp op)
      : op(op), b(builder),
        width(cast<MemRefType>(op.getKey().getType()).getDimSize(3)),
        numTokens(b.extent(op.getQuery(), 2)),
        numBases(b.extent(op.getDBasis(), 2)),
        rowsOfTeam(b.hasManyTeams() ? kFewRows : kRows) {}

  void emit();

private:
  /// A score's gradient, and a row that is multiplied by it.
  using Score = function_ref<Value(KernelBuilder &, Value sum, Value term)>;
  using Row = function_ref<Value(KernelBuilder &, Value term, Value column)>;

  void beginTeam(ValueRange point, Value shared);
  void packScores(Value basis, Value place, Value firstRow, Value numRows);
  void addProducts(Value first, Value end, Value firstTerm, Value endTerm,
                   Score score, Row row);
  void addTile(Value first, int64_t count, Value firstTerm, Value endTerm,
               Score score, Row row);
  void clearSums(Value count);
  void storeSums(Value count, Value memref, function_ref<Values(Value)> at);
  Value countBegun(Value firstBasis, Value count, Value row);

  void emitQueries(Value firstRow, Value numRows);
  void emitBases(Value firstBasis, Value count, Value ofBases);
  void emitKeys(Value firstKey, Value numKeys, Value members, Value ofBases);
  Value sizeOf(KernelBuilder &k, Value basis) {
    return k.loadIndex(op.getSizes(), {batch, head, basis});
  }
  Value startOf(KernelBuilder &k, Value basis) {
    return k.sub(numTokens, sizeOf(k, basis));
  }

  ConvRecoverBackwardOp op;
  TeamBuilder &b;
  int64_t width;
  Value numTokens, numBases;
  int64_t rowsOfTeam;
  /// Of the team: its heads, dH for some bases and rows, and sums.
  Value batch, head, keyHead, scores, sums;
};
} // namespace

/// Gradients of the scores of a chunk of rows with the key where a basis
/// begins. Rows before it have none.
void RecoverGradient::packScores(Value basis, Value place, Value firstRow,
                                 Value numRows) {
  Value start = startOf(b, basis), next = b.add(basis, 1);
  Value begin = b.clamp(b.sub(start, firstRow), b.index(0), numRows);
  auto load = [&](KernelBuilder &k, Value basis, Value row) {
    Value lag = k.sub(k.add(firstRow, row), start);
    return k.loadVector(op.getDBasis(), {batch, head, basis, lag});
  };
  b.forColumns(begin, numRows, [&](KernelBuilder &k, Value row) {
    k.storeVector(load(k, basis, row), scores, {place, row});
  });
  b.ifThen(b.less(next, numBases), [&] {
    // Lags that the next basis has too.
    Value end =
        b.clamp(b.sub(b.add(start, sizeOf(b, next)), firstRow), begin, numRows);
    b.forColumns(begin, end, [&](KernelBuilder &k, Value row) {
      Value old = k.loadVector(scores, {place, row});
      k.storeVector(k.fsub(old, load(k, next, row)), scores, {place, row});
    });
  });
}

/// How many of some bases begin at `row` or before.
Value RecoverGradient::countBegun(Value firstBasis, Value count, Value row) {
  return b.loop(b.index(0), count, 1, {b.index(0)},
                [&](Value place, ValueRange begun) -> Values {
                  Value start = startOf(b, b.add(firstBasis, place));
                  return {
                      b.select(b.less(row, start), begun[0], b.add(place, 1))};
                })[0];
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Adds terms `[firstTerm, endTerm)` to sums `[first, end)`, in tiles of a few
/// sums, which share the loads of rows.
void RecoverGradient::addProducts(Value first, Value end, Value firstTerm,
                                  Value endTerm, Score score, Row row) {
  Value whole = b.add(first, b.roundDown(b.sub(end, first), kMaxTile));
  b.loop(first, whole, kMaxTile, [&](Value tile) {
    addTile(tile, kMaxTile, firstTerm, endTerm, score, row);
  });
  for (int64_t count = kMaxTile / 2; count > 0; count /= 2) {
    Value fits = b.less(b.add(whole, count - 1), end);
    b.ifThen(fits,
             [&] { addTile(whole, count, firstTerm, endTerm, score, row); });
    whole = b.select(fits, b.add(whole, count), whole);
  }
}

void RecoverGradient::addTile(Value first, int64_t count, Value firstTerm,
                              Value endTerm, Score score, Row row) {
  auto addColumns = [&](KernelBuilder &k, ValueRange columns) {
    // From zero: many short sums lose less than a long one.
    Values tile(count * columns.size(), k.splat(0.0));
    auto addTerm = [&](Value term, ValueRange carried) {
      Values next, rows;
      for (Value column : columns)
        rows.push_back(row(k, term, column));
      for (int64_t t = 0; t < count; ++t) {
        Value factor = k.broadcast(score(k, k.add(first, t), term));
        for (Value numbers : rows)
          next.push_back(k.fma(factor, numbers, carried[next.size()]));
      }
      return next;
    };
    tile = k.unrolledLoop(firstTerm, endTerm, kUnroll, tile, addTerm);
    for (int64_t t = 0; t < count; ++t)
      for (auto [v, column] : llvm::enumerate(columns)) {
        Value at[] = {k.add(first, t), column};
        Value part = tile[t * columns.size() + v];
        k.storeVector(k.fadd(k.loadVector(sums, at), part), sums, at);
      }
  };
  b.forColumnTiles(width, kTileVectors, addColumns);
}

void RecoverGradient::clearSums(Value count) {
  b.loop(b.index(0), count, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), sums, {row, column});
    });
  });
}

/// Stores sums, scaled, to the row `at` each of a memref.
void RecoverGradient::storeSums(Value count, Value memref,
                                function_ref<Values(Value)> at) {
  b.loop(b.index(0), count, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value sum = k.loadVector(sums, {row, column});
      Values place = at(row);
      place.push_back(column);
      k.storeVector(k.fmul(sum, k.splat(op.getScaleOrDefault())), memref,
                    place);
    });
  });
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void RecoverGradient::beginTeam(ValueRange point, Value shared) {
  batch = point[0];
  head = point[1];
  keyHead = b.div(head, shared);
}

void RecoverGradient::emitQueries(Value firstRow, Value numRows) {
  scores = b.teamBuffer({kBases, rowsOfTeam}, b.getStateType());
  sums = b.teamBuffer({rowsOfTeam, width}, b.getStateType());
  clearSums(numRows);
  Value lastRow = b.sub(b.add(firstRow, numRows), b.index(1));
  Value begun = countBegun(b.index(0), numBases, lastRow);
  b.loop(b.index(0), begun, kBases, [&](Value firstBasis) {
    Value count = b.min(b.sub(begun, firstBasis), kBases);
    b.loop(b.index(0), count, 1, [&](Value place) {
      packScores(b.add(firstBasis, place), place, firstRow, numRows);
    });
    b.barrier();
    auto score = [&](KernelBuilder &k, Value row, Value place) {
      return k.loadScalar(scores, {place, row});
    };
    auto loadKey = [&](KernelBuilder &k, Value place, Value column) {
      Value key = startOf(k, k.add(firstBasis, place));
      return k.loadVector(op.getKey(), {batch, keyHead, key, column});
    };
    // All rows have the bases that begin before them.
    Value whole = countBegun(firstBasis, count, firstRow);
    addProducts(b.index(0), numRows, b.index(0), whole, score, loadKey);
    b.loop(whole, count, 1, [&](Value place) {
      Value begin = b.sub(startOf(b, b.add(firstBasis, place)), firstRow);
      addProducts(begin, numRows, place, b.add(place, 1), score, loadKey);
    });
    b.barrier();
  });
  storeSums(numRows, op.getDQuery(), [&](Value row) {
    return Values{batch, head, b.add(firstRow, row)};
  });
}

void RecoverGradient::emitBases(Value firstBasis, Value count, Value ofBases) {
  int64_t bases = b.getRowsPerTeam(kTeamBases);
  scores = b.teamBuffer({bases, rowsOfTeam}, b.getStateType());
  sums = b.teamBuffer({bases, width}, b.getStateType());
  clearSums(count);
  auto score = [&](KernelBuilder &k, Value place, Value row) {
    return k.loadScalar(scores, {place, row});
  };
  // Rows before the first of these bases have nothing.
  Value begin = b.roundDown(startOf(b, firstBasis), rowsOfTeam);
  b.loop(begin, numTokens, rowsOfTeam, [&](Value firstRow) {
    Value numRows = b.min(b.sub(numTokens, firstRow), rowsOfTeam);
    b.loop(b.index(0), count, 1, [&](Value place) {
      packScores(b.add(firstBasis, place), place, firstRow, numRows);
    });
    b.barrier();
    auto loadQuery = [&](KernelBuilder &k, Value row, Value column) {
      Value token = k.add(firstRow, row);
      return k.loadVector(op.getQuery(), {batch, head, token, column});
    };
    Value whole = countBegun(firstBasis, count, firstRow);
    addProducts(b.index(0), whole, b.index(0), numRows, score, loadQuery);
    b.loop(whole, count, 1, [&](Value place) {
      Value start = b.sub(startOf(b, b.add(firstBasis, place)), firstRow);
      addTile(place, 1, start, numRows, score, loadQuery);
    });
    b.barrier();
  });
  storeSums(count, ofBases, [&](Value place) {
    return Values{batch, head, b.add(firstBasis, place)};
  });
}

/// Adds what bases have that begin at some keys; those that do not exist begin
/// behind the last one.
void RecoverGradient::emitKeys(Value firstKey, Value numKeys, Value members,
                               Value ofBases) {
  sums = b.teamBuffer({b.getRowsPerTeam(kRows), width}, b.getStateType());
  clearSums(numKeys);
  b.loop(b.index(0), members, 1, [&](Value member) {
    head = b.add(b.mul(keyHead, members), member);
    b.loop(b.index(0), numBases, 1, [&](Value basis) {
      Value place = b.sub(startOf(b, basis), firstKey);
      Value isHere = b.both(b.less(b.index(-1), place), b.less(place, numKeys));
      b.ifThen(isHere, [&] {
        b.forColumns(width, [&](KernelBuilder &k, Value column) {
          Value old = k.loadVector(sums, {place, column});
          Value own = k.loadVector(ofBases, {batch, head, basis, column});
          k.storeVector(k.fadd(old, own), sums, {place, column});
        });
      });
    });
  });
  b.loop(b.index(0), numKeys, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.loadVector(sums, {row, column}), op.getDKey(),
                    {batch, keyHead, k.add(firstKey, row), column});
    });
  });
}

void RecoverGradient::emit() {
  Value batches = b.extent(op.getQuery(), 0),
        heads = b.extent(op.getQuery(), 1), keyHeads = b.extent(op.getKey(), 1);
  // There may be no heads of either kind, and no division by none.
  Value members = b.div(heads, b.max(keyHeads, 1)), shared = b.max(members, 1);
  /// Runs `body` for chunks of `size` of `[0, extent)`.
  auto forAllChunks = [&](Value heads, Value extent, int64_t size,
                          function_ref<void(Value, Value)> body) {
    b.forTeams({batches, heads, b.ceilDiv(extent, size)}, [&](ValueRange at) {
      beginTeam(at, shared);
      Value first = b.mul(at[2], size);
      body(first, b.min(b.sub(extent, first), size));
    });
  };
  Value ofBases =
      b.allocate({batches, heads, numBases}, {width}, b.getStateType());
  forAllChunks(heads, numTokens, rowsOfTeam,
               [&](Value first, Value count) { emitQueries(first, count); });
  forAllChunks(
      heads, numBases, b.getRowsPerTeam(kTeamBases),
      [&](Value first, Value count) { emitBases(first, count, ofBases); });
  forAllChunks(keyHeads, numTokens, b.getRowsPerTeam(kRows),
               [&](Value first, Value count) {
                 keyHead = head;
                 emitKeys(first, count, members, ofBases);
               });
  memref::DeallocOp::create(b, ofBases);
}

LogicalResult fovea::attn::lowerToTeams(ConvRecoverBackwardOp op,
                                        TeamBuilder &builder) {
  RecoverGradient(builder, op).emit();
  return success();
}
