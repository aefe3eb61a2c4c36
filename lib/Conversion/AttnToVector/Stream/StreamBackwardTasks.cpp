//===- StreamBackwardTasks.cpp - Tasks of stream_backward -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows that one task fills with zeros.
static constexpr int64_t kClearedRows = 1024;

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

StreamBackwardKernel::Schedule StreamBackwardKernel::makeSchedule() {
  Value batches = b.extent(backward.getQuery(), 0),
        heads = b.extent(backward.getQuery(), 1),
        keyHeads = b.extent(backward.getKeys().front(), 1);
  // Whoever adds to the same log weight or bias is in one chain, too; all do to
  // what a score region reads.
  bool sharesBatches = !backward.getDCaptures().empty(),
       sharesHeads = sharesBatches;
  for (const StreamSourceGradient &source : gradients)
    for (Value term : {source.logWeight, source.bias})
      if (term) {
        auto type = cast<MemRefType>(term.getType());
        sharesBatches |= type.getDimSize(0) == 1;
        sharesHeads |= type.getDimSize(1) == 1;
      }
  Value one = b.index(1);
  Schedule schedule;
  schedule.chainHeads = sharesHeads ? one : keyHeads;
  schedule.spanBatches = sharesBatches ? batches : one;
  // Without key heads there are no chains, but the division is done.
  schedule.spanHeads = sharesHeads ? heads : b.div(heads, b.max(keyHeads, 1));
  schedule.numChains =
      b.mul(sharesBatches ? one : batches, schedule.chainHeads);
  schedule.tasks = one;
  schedule.numItems = one;
  schedule.taskQueries =
      isOrdered ? tiles.getQuery() : chunkBlocks * op.getBlock();
  if (isOrdered || isChunked()) {
    schedule.tasks =
        b.ceilDiv(b.extent(backward.getQuery(), 2), schedule.taskQueries);
    schedule.numItems =
        b.mul(b.mul(schedule.spanBatches, schedule.spanHeads), schedule.tasks);
  }
  return schedule;
}

LogicalResult StreamBackwardKernel::emit() {
  clearDestinations();
  Schedule schedule = makeSchedule();
  // Under a causal mask the last item of a chain, which starts first, is the
  // longest.
  turns.forAll(
      schedule.numItems, schedule.numChains,
      /*isOrdered=*/isOrdered || isChunked(),
      [&](Value item, Value chain) { emitItem(schedule, item, chain); });
  remarkOnAdmission();
  return expandMath();
}

void StreamBackwardKernel::clearRow(Value destination, ValueRange leading) {
  Value columns = b.extent(destination, leading.size());
  Value whole = b.roundDown(columns, lanes);
  Values at(leading);
  at.push_back(Value());
  b.loop(b.index(0), whole, lanes, [&](Value column) {
    at.back() = column;
    b.storeVector(b.splat(0.0), destination, at);
  });
  b.loop(whole, columns, 1, [&](Value column) {
    at.back() = column;
    b.storeScalar(b.scalar(0.0), destination, at);
  });
}

void StreamBackwardKernel::clearRowsBefore(unsigned source, Value row) {
  Value place = b.index(source);
  Value cleared = memref::LoadOp::create(b, clearedRows, place);
  Value end = b.max(cleared, row);
  for (Value destination : {views[source].keys, views[source].values})
    b.loop(cleared, end, 1, [&](Value next) { clearRow(destination, next); });
  memref::StoreOp::create(b, end, clearedRows, place);
}

/// Zeros to a memref of any rank.
static void clearAll(KernelBuilder &b, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  Value zero =
      arith::ConstantOp::create(b, b.getZeroAttr(type.getElementType()));
  SmallVector<Value> low(type.getRank(), b.index(0)),
      steps(type.getRank(), b.index(1)), high;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    high.push_back(b.extent(memref, dim));
  scf::buildLoopNest(b, b.getLoc(), low, high, steps,
                     [&](OpBuilder &nested, Location loc, ValueRange at) {
                       memref::StoreOp::create(nested, loc, zero, memref, at);
                     });
}

/// Zeros to everything that is added to before its time comes.
void StreamBackwardKernel::clearDestinations() {
  SmallVector<Value> destinations;
  for (auto [index, source] : llvm::enumerate(gradients)) {
    // Rows that follow the queries are cleared on the way.
    if (isOrdered || (isChunked() && placedSource != index))
      destinations.append({source.keys, source.values});
    if (source.logWeight)
      destinations.push_back(source.logWeight);
    // A bias may get a value for every element anyway.
    if (source.bias &&
        !(isOrdered && isExclusiveBias(source) && !skipsTiles() &&
          source.forward.attr.getMask().isTrivial() &&
          !source.forward.lengths && !op.getQueryLengths() &&
          ranges.getKind(index, 0) != RangeKind::Table))
      destinations.push_back(source.bias);
  }
  for (Value destination : backward.getDCaptures())
    clearAll(b, destination);
  for (Value destination : destinations) {
    bool isFlat = cast<MemRefType>(destination.getType()).getRank() == 3;
    Value rows = isFlat ? b.index(1) : b.extent(destination, 2);
    SmallVector<OpFoldResult> bounds = {
        getAsOpFoldResult(b.extent(destination, 0)),
        getAsOpFoldResult(b.extent(destination, 1)),
        getAsOpFoldResult(b.ceilDiv(rows, kClearedRows))};
    scf::ForallOp::create(
        b, bounds, /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
        [&](OpBuilder &, Location, ValueRange ivs) {
          if (isFlat) {
            clearRow(destination, {ivs[0], ivs[1]});
          } else {
            Value first = b.mul(ivs[2], kClearedRows);
            b.loop(first, b.min(b.add(first, kClearedRows), rows), 1,
                   [&](Value row) {
                     clearRow(destination, {ivs[0], ivs[1], row});
                   });
          }
          scf::InParallelOp::create(b);
        });
  }
}

void StreamBackwardKernel::emitItem(const Schedule &schedule, Value item,
                                    Value chain) {
  allocateScratch();
  Value rows = b.extent(backward.getQuery(), 2);
  auto emitTask = [&](Value instance, Value task) {
    Value batch =
        b.add(b.mul(b.div(chain, schedule.chainHeads), schedule.spanBatches),
              b.div(instance, schedule.spanHeads));
    Value head =
        b.add(b.mul(b.rem(chain, schedule.chainHeads), schedule.spanHeads),
              b.rem(instance, schedule.spanHeads));
    if (!task)
      return emitHead(batch, head, b.index(0), rows);
    Value begin = b.mul(task, schedule.taskQueries);
    emitHead(batch, head, begin,
             b.min(b.add(begin, schedule.taskQueries), rows));
  };
  Value instances = b.mul(schedule.spanBatches, schedule.spanHeads);
  if (isOrdered)
    emitTask(b.div(item, schedule.tasks), b.rem(item, schedule.tasks));
  else if (isChunked())
    // Heads that share rows follow each other down the same chunk.
    emitTask(b.rem(item, instances), b.div(item, instances));
  else
    b.loop(b.index(0), instances, 1,
           [&](Value instance) { emitTask(instance, /*task=*/Value()); });
  turns.end(b.index(Turns::kLast));
  b.freeScratch();
}
