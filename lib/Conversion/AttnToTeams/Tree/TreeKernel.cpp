//===- TreeKernel.cpp - Loops over trees of averages ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

TreeKernel::TreeKernel(TeamBuilder &builder, TreeAttr shape, Value tree)
    : b(builder), shape(shape), tree(tree) {
  roots = b.div(b.extent(tree, 1), shape.getNodesPerRoot());
  width = cast<MemRefType>(tree.getType()).getDimSize(2);
}

Value TreeKernel::getTaskSize(Value total, Value many) {
  many = b.max(many, 1);
  if (!b.hasManyTeams())
    return many;
  return b.max(b.min(b.div(total, b.getMinTeams()), many), 1);
}

void TreeKernel::forEachTask(Value numTasks, Value output,
                             function_ref<void(Value)> body) {
  Value isAligned = canStream(output);
  forEachTask(numTasks, [&](Value task) {
    auto emit = [&](bool past) {
      streams = past;
      body(task);
      b.freeScratch();
      streams = false;
    };
    if (isAligned)
      b.ifThenElse(isAligned, [&] { emit(true); }, [&] { emit(false); });
    else
      emit(false);
  });
}

/// Caches are no help to an output much larger than those of a core; one that
/// fits the last of them may be read from there next.
Value TreeKernel::canStream(Value memref) {
  constexpr int64_t kLargeBytes = 1 << 25;
  auto type = cast<MemRefType>(memref.getType());
  int64_t elementBytes = type.getElementTypeBitWidth() / 8;
  int64_t lanes = b.getLanes();
  if (lanes == 0 || width % lanes != 0)
    return Value();
  Value rows = b.mul(b.extent(memref, 0), b.extent(memref, 1));
  Value isLarge =
      b.less(b.index(kLargeBytes - 1), b.mul(rows, width * elementBytes));
  if (isConstantIntValue(isLarge, 0))
    return Value();
  // Every row has to be as aligned as the first. Rows without a layout are one
  // after the other.
  auto [strides, offset] = type.getStridesAndOffset();
  if (!type.getLayout().isIdentity())
    for (int64_t step : {strides[0], strides[1], offset})
      if (ShapedType::isDynamic(step) || step % lanes != 0)
        return Value();
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  return b.both(isLarge,
                b.equal(b.rem(address, lanes * elementBytes), b.index(0)));
}

void TreeKernel::forEachTask(Value numTasks, function_ref<void(Value)> body) {
  b.forTeams({b.extent(tree, 0), numTasks}, [&](ValueRange point) {
    batch = point[0];
    body(point[1]);
  });
}

void TreeKernel::prefetch(KernelBuilder &k, Value memref, ValueRange indices) {
  // Warps wait for each other's loads.
  if (!b.hasManyTeams())
    k.prefetch(memref, indices, /*locality=*/2);
}

Value TreeKernel::round(KernelBuilder &k, Value numbers) {
  Type type =
      k.getVectorType(cast<MemRefType>(tree.getType()).getElementType());
  if (type == numbers.getType())
    return numbers;
  Value rounded = arith::TruncFOp::create(k, type, numbers);
  return arith::ExtFOp::create(k, numbers.getType(), rounded);
}

void TreeKernel::makeTables() {
  segments = b.teamBuffer({getLevels() + 1}, b.getI32Type());
  firstRows = b.teamBuffer({getLevels() + 1}, b.getI32Type());
  b.single([&] {
    for (int64_t level = 0; level <= getLevels(); ++level) {
      b.storeIndex(b.index(shape.getSegment(level)), segments, b.index(level));
      b.storeIndex(firstRowOf(level), firstRows, b.index(level));
    }
  });
}

//===----------------------------------------------------------------------===//
// Path
//===----------------------------------------------------------------------===//

void TreeKernel::forEachPath(Value numTasks, int64_t columns,
                             function_ref<void(Value)> body) {
  int64_t slices = (width + columns - 1) / columns;
  forEachTask(b.mul(numTasks, slices), [&](Value task) {
    Value slice = b.rem(task, slices);
    makeTables();
    startPath(slices == 1 ? b.index(0) : b.mul(slice, columns), columns);
    body(b.div(task, slices));
  });
}

void TreeKernel::startPath(Value begin, int64_t columns) {
  firstColumn = begin;
  numColumns = b.index(columns);
  if (width % columns != 0)
    numColumns = b.min(b.sub(b.index(width), begin), numColumns);
  path = b.teamBuffer({getLevels() + 1, columns}, b.getStateType());
  known = b.teamBuffer({getLevels() + 1}, b.getI32Type());
  b.single([&] {
    for (int64_t level = 0; level <= getLevels(); ++level)
      b.storeIndex(b.index(-1), known, b.index(level));
  });
}

void TreeKernel::forPathColumns(PathBody body) {
  b.forColumns(b.index(0), numColumns, [&](KernelBuilder &k, Value column) {
    body(k, k.add(column, firstColumn), column);
  });
}

void TreeKernel::walkTo(Value level, Value index) {
  Value token = b.mul(index, segmentOf(level));
  Value top = b.index(getLevels());
  auto ancestor = [&](Value l) { return b.div(token, segmentOf(l)); };
  // Up to the lowest ancestor whose row is there.
  auto isUnknown = [&](ValueRange state) {
    // The load of a level above the roots' would be out of bounds.
    Value l = b.min(state[0], top);
    Value differs = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                          b.loadIndex(known, l), ancestor(l));
    return b.both(b.less(state[0], b.index(getLevels() + 1)), differs);
  };
  Value met =
      b.loopWhile(b.add(level, 1), isUnknown, [&](ValueRange state) -> Values {
         return {b.add(state[0], 1)};
       }).front();
  // Down again, after all lanes have read what is known.
  b.barrier();
  b.loop(b.index(0), b.sub(b.sub(met, level), b.index(1)), 1, [&](Value step) {
    Value l = b.sub(b.sub(met, b.index(1)), step);
    Value node = ancestor(l);
    Value row = rowOf(l, node);
    b.ifThenElse(
        b.equal(l, top),
        [&] {
          forPathColumns([&](KernelBuilder &k, Value column, Value pathColumn) {
            k.storeVector(k.loadVector(tree, {batch, row, column}), path,
                          {l, pathColumn});
          });
        },
        [&] {
          forPathColumns([&](KernelBuilder &k, Value column, Value pathColumn) {
            // Every level is a stream of its own, too slow for hardware to
            // notice.
            prefetch(k, tree, {batch, k.add(row, 1), column});
            Value above = getParentRow(k, l, pathColumn);
            Value difference = k.loadVector(tree, {batch, row, column});
            k.storeVector(k.fsub(above, difference), path, {l, pathColumn});
          });
        });
    b.single([&] { b.storeIndex(node, known, l); });
  });
}
