//===- TokensToTeams.cpp - Lists of tokens, for both targets --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace fovea::attn {

/// Rows that a team copies.
static constexpr int64_t kRows = 64;

static LogicalResult lowerToTeams(ListTokensOp op, TeamBuilder &b) {
  Value numTokens = b.extent(op.getMask(), 1), none = b.index(-1);
  b.forTeams({b.extent(op.getMask(), 0)}, [&](ValueRange at) {
    Value batch = at.front();
    Value count = b.listNumbers(
        numTokens,
        [&](KernelBuilder &k, Value token) -> Value {
          return memref::LoadOp::create(k, op.getMask(),
                                        ValueRange{batch, token});
        },
        op.getTokens(), batch);
    b.single([&] { b.storeIndex(count, op.getCounts(), batch); });
    b.forNumbers(b.index(0), numTokens, [&](Value token) {
      b.storeIndex(none, op.getPlaces(), {batch, token});
    });
    b.barrier();
    b.forNumbers(b.index(0), count, [&](Value place) {
      Value token = b.loadIndex(op.getTokens(), {batch, place});
      b.storeIndex(place, op.getPlaces(), {batch, token});
    });
    b.forNumbers(count, numTokens, [&](Value place) {
      b.storeIndex(none, op.getTokens(), {batch, place});
    });
  });
  return success();
}

static LogicalResult lowerToTeams(TakeRowsOp op, TeamBuilder &b) {
  Value input = op.getInput(), output = op.getOutput();
  int64_t width = cast<MemRefType>(input.getType()).getDimSize(3);
  Value grid[] = {b.extent(input, 0), b.extent(input, 1)};
  b.forRows(grid, b.extent(op.getRows(), 1), kRows, [&](ValueRange at) {
    Value batch = at[0], head = at[1], row = at[2];
    Value token = b.loadIndex(op.getRows(), {batch, row});
    Value isThere =
        b.both(b.less(b.index(-1), token), b.less(token, b.extent(input, 2)));
    auto store = [&](TeamBuilder::ColumnValue load) {
      b.forColumns(width, [&](KernelBuilder &k, Value column) {
        k.storeVector(load(k, column), output, {batch, head, row, column});
      });
    };
    b.ifThenElse(
        isThere,
        [&] {
          store([&](KernelBuilder &k, Value column) {
            return k.loadVector(input, {batch, head, token, column});
          });
        },
        [&] { store([&](KernelBuilder &k, Value) { return k.splat(0.0); }); });
  });
  return success();
}

void attachTokensToTeams(MLIRContext &context) {
  attachTeamLowerings<ListTokensOp, TakeRowsOp>(context);
}

} // namespace fovea::attn
