//===- QuantizeToTeams.cpp - Codebooks to teams ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizeTeams.h"
#include "fovea/Conversion/AttnToTeams/Quantize/CodebookTeams.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static int64_t getRank(Value memref) {
  return cast<MemRefType>(memref.getType()).getRank();
}

/// A view with a dimension of one, if there is no other.
static Value atLeastRow(TeamBuilder &b, Value memref) {
  if (getRank(memref) != 0)
    return memref;
  return memref::ExpandShapeOp::create(b, ArrayRef<int64_t>{1}, memref,
                                       ArrayRef<ReassociationIndices>{});
}

/// Loops over the dimensions from `row.size()` on.
static void emitLogCounts(TeamBuilder &b, Value counts, Value logWeights,
                          Values row) {
  int64_t dim = row.size();
  Value extent = b.extent(counts, dim);
  auto at = [&](Value i) {
    Values next(row);
    next.push_back(i);
    return next;
  };
  if (dim + 1 < getRank(counts))
    return b.loop(b.index(0), extent, 1, [&](Value i) {
      emitLogCounts(b, counts, logWeights, at(i));
    });
  b.forColumns(b.index(0), extent, [&](KernelBuilder &k, Value column) {
    Value count = k.loadVector(counts, at(column));
    k.storeVector(softmax::logCount(k, count), logWeights, at(column));
  });
}

LogicalResult fovea::attn::lowerToTeams(LogCountOp op, TeamBuilder &b) {
  Value counts = atLeastRow(b, op.getCount());
  Value logWeights = atLeastRow(b, op.getLogWeight());
  // They are too few for tasks of a CPU.
  if (!b.hasManyTeams()) {
    emitLogCounts(b, counts, logWeights, /*row=*/{});
    return success();
  }
  Values grid;
  for (int64_t dim = 0; dim + 1 < getRank(counts); ++dim)
    grid.push_back(b.extent(counts, dim));
  b.forTeams(grid, [&](ValueRange row) {
    emitLogCounts(b, counts, logWeights, Values(row));
  });
  return success();
}

void fovea::attn::attachQuantizeToTeams(MLIRContext &context) {
  attachTeamLowerings<LogCountOp>(context);
  attachLowerings<VectorModel, lowerByThreads<CodebookAccumulateOp>,
                  lowerByThreads<CodebookScanOp>,
                  lowerByThreads<CodebookUpdateOp>>(context);
}
