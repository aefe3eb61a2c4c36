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
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

static FloatType getElementType(Value memref) {
  return cast<FloatType>(cast<MemRefType>(memref.getType()).getElementType());
}

TreeKernel::TreeKernel(OpBuilder &builder, Location loc, TreeAttr shape,
                       Value tree, const TreeTarget &target)
    : b(loc, builder, getStateType(getElementType(tree)),
        target.vectorBits / getStateType(getElementType(tree)).getWidth()),
      shape(shape), tree(tree), elementType(getElementType(tree)),
      target(target) {
  auto type = cast<MemRefType>(tree.getType());
  roots = type.getDimSize(1) / shape.getNodesPerRoot();
  width = type.getDimSize(2);
  lanes = b.getLanes();
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
  int64_t vectorBytes = lanes * elementBytes;
  auto [strides, offset] = type.getStridesAndOffset();
  int64_t batches = type.isDynamicDim(0) ? 1 : type.getDimSize(0);
  if (batches * type.getDimSize(1) * width * elementBytes < kLargeBytes ||
      width % lanes != 0)
    return Value();
  // Every row has to be as aligned as the first.
  for (int64_t stride : {strides[0], strides[1]})
    if (ShapedType::isDynamic(stride) || stride % lanes != 0)
      return Value();
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  if (ShapedType::isDynamic(offset) || offset % lanes != 0)
    return Value();
  return b.equal(b.rem(address, vectorBytes), b.index(0));
}

void TreeKernel::storeOutput(Value numbers, Value memref, ValueRange indices,
                             const Columns &columns) {
  if (!streams || columns.mask)
    return store(numbers, memref, indices, columns);
  Values position(indices);
  position.push_back(columns.first);
  b.storeVector(numbers, memref, position, /*streaming=*/true);
}

void TreeKernel::forEachTask(Value numTasks, function_ref<void(Value)> body) {
  SmallVector<OpFoldResult> bounds = {getAsOpFoldResult(b.extent(tree, 0)),
                                      getAsOpFoldResult(numTasks)};
  scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                        /*mapping=*/std::nullopt,
                        [&](OpBuilder &, Location, ValueRange ivs) {
                          batch = ivs[0];
                          body(ivs[1]);
                          b.freeScratch();
                          scf::InParallelOp::create(b);
                        });
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

void TreeKernel::forColumns(Value begin, Value end,
                            function_ref<void(const Columns &)> body) {
  Value whole = b.index(width / lanes * lanes);
  b.loop(begin, b.min(end, whole), lanes,
         [&](Value first) { body({first, /*mask=*/Value()}); });
  if (width % lanes != 0)
    b.ifThen(b.less(whole, end), [&] {
      Value mask = vector::CreateMaskOp::create(
          b, VectorType::get({lanes}, b.getI1Type()), b.index(width % lanes));
      body({whole, mask});
    });
}

Value TreeKernel::load(Value memref, ValueRange indices,
                       const Columns &columns) {
  Values position(indices);
  position.push_back(columns.first);
  if (!columns.mask)
    return b.loadVector(memref, position);
  auto type = VectorType::get({lanes}, getElementType(memref));
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(type));
  Value numbers = vector::MaskedLoadOp::create(b, type, memref, position,
                                               columns.mask, zeros);
  if (type == b.getVectorType())
    return numbers;
  return arith::ExtFOp::create(b, b.getVectorType(), numbers);
}

void TreeKernel::store(Value numbers, Value memref, ValueRange indices,
                       const Columns &columns) {
  Values position(indices);
  position.push_back(columns.first);
  if (!columns.mask)
    return b.storeVector(numbers, memref, position);
  auto type = VectorType::get({lanes}, getElementType(memref));
  if (type != b.getVectorType())
    numbers = arith::TruncFOp::create(b, type, numbers);
  vector::MaskedStoreOp::create(b, memref, position, columns.mask, numbers);
}

void TreeKernel::prefetch(Value memref, ValueRange indices,
                          const Columns &columns) {
  Values position(indices);
  position.push_back(columns.first);
  b.prefetch(memref, position, /*locality=*/2);
}

Value TreeKernel::round(Value numbers) {
  if (elementType == b.getStateType())
    return numbers;
  Value rounded = arith::TruncFOp::create(
      b, VectorType::get({lanes}, elementType), numbers);
  return arith::ExtFOp::create(b, numbers.getType(), rounded);
}

Value TreeKernel::loadLocal(Value buffer, Value row, const Columns &columns) {
  return load(buffer, row, {b.sub(columns.first, firstColumn), columns.mask});
}

void TreeKernel::storeLocal(Value numbers, Value buffer, Value row,
                            const Columns &columns) {
  store(numbers, buffer, row,
        {b.sub(columns.first, firstColumn), columns.mask});
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

Value TreeKernel::loadIndex(Value memref, ValueRange indices) {
  Value value = memref::LoadOp::create(b, memref, indices);
  if (value.getType().isIndex())
    return value;
  return arith::IndexCastOp::create(b, b.getIndexType(), value);
}

void TreeKernel::storeIndex(Value index, Value memref, ValueRange indices) {
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  if (!type.isIndex())
    index = arith::IndexCastOp::create(b, type, index);
  memref::StoreOp::create(b, index, memref, indices);
}

KernelBuilder::Values
TreeKernel::loopWhile(ValueRange inits,
                      function_ref<Value(ValueRange)> condition,
                      function_ref<Values(ValueRange)> body) {
  auto loop = scf::WhileOp::create(
      b, inits.getTypes(), inits,
      [&](OpBuilder &, Location, ValueRange state) {
        scf::ConditionOp::create(b, condition(state), state);
      },
      [&](OpBuilder &, Location, ValueRange state) {
        scf::YieldOp::create(b, body(state));
      });
  return Values(loop.getResults());
}

void TreeKernel::makeTables() {
  segments = b.scratch({getLevels() + 1}, b.getIndexType());
  firstRows = b.scratch({getLevels() + 1}, b.getIndexType());
  for (int64_t level = 0; level <= getLevels(); ++level) {
    storeIndex(b.index(shape.getSegment(level)), segments, b.index(level));
    storeIndex(b.index(shape.getFirstRow(level, roots)), firstRows,
               b.index(level));
  }
}

//===----------------------------------------------------------------------===//
// Path
//===----------------------------------------------------------------------===//

void TreeKernel::startPath(int64_t columns, Value begin, Value end) {
  firstColumn = begin;
  endColumn = end;
  path = b.scratch({getLevels() + 1, columns}, b.getStateType());
  known = b.scratch({getLevels() + 1}, b.getIndexType());
  for (int64_t level = 0; level <= getLevels(); ++level)
    storeIndex(b.index(-1), known, b.index(level));
}

void TreeKernel::walkTo(Value level, Value index) {
  Value token = b.mul(index, segmentOf(level));
  Value top = b.index(getLevels());
  auto ancestor = [&](Value l) { return b.div(token, segmentOf(l)); };
  // Up to the lowest ancestor whose row is there.
  Values met = loopWhile(
      b.add(level, 1),
      [&](ValueRange state) {
        Value inside =
            arith::CmpIOp::create(b, arith::CmpIPredicate::sle, state[0], top);
        // The load of a level above the roots' would be out of bounds.
        Value l = b.min(state[0], top);
        Value differs = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                              loadIndex(known, l), ancestor(l));
        return b.both(inside, differs);
      },
      [&](ValueRange state) { return Values{b.add(state[0], 1)}; });
  // Down again.
  b.loop(b.index(0), b.sub(b.sub(met[0], level), b.index(1)), 1,
         [&](Value step) {
           Value l = b.sub(b.sub(met[0], b.index(1)), step);
           Value node = ancestor(l);
           Value row = rowOf(l, node);
           b.ifThenElse(
               b.equal(l, top),
               [&] {
                 forColumns(firstColumn, endColumn, [&](const Columns &c) {
                   storeLocal(load(tree, {batch, row}, c), path, l, c);
                 });
               },
               [&] {
                 forColumns(firstColumn, endColumn, [&](const Columns &c) {
                   // Every level is a stream of its own, too slow for hardware
                   // to notice.
                   prefetch(tree, {batch, b.add(row, 1)}, c);
                   Value above = loadLocal(path, b.add(l, 1), c);
                   Value difference = load(tree, {batch, row}, c);
                   storeLocal(b.fsub(above, difference), path, l, c);
                 });
               });
           storeIndex(node, known, l);
         });
}
