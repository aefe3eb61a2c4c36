//===- GPUNeighbours.cpp - Kernels of neighbouring elements ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUNeighbours.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/GPU/SharedRows.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/bit.h"
#include <numeric>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// Loops that are one
//===----------------------------------------------------------------------===//

/// Whether all operands have the elements of loop `dim` and of the next one in
/// this order, without gaps, or none.
static bool canJoin(linalg::LinalgOp op, unsigned dim) {
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  if (kinds[dim] != kinds[dim + 1])
    return false;
  MLIRContext *context = op.getContext();
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (!map.isProjectedPermutation())
      return false;
    auto first = map.getResultPosition(getAffineDimExpr(dim, context)),
         next = map.getResultPosition(getAffineDimExpr(dim + 1, context));
    if (!first && !next)
      return true;
    if (!first || !next || *next != *first + 1)
      return false;
    SmallVector<ReassociationIndices> groups;
    for (int64_t place : llvm::seq<int64_t>(map.getNumResults()))
      if (place == *next)
        groups.back().push_back(place);
      else
        groups.push_back({place});
    return memref::CollapseShapeOp::isGuaranteedCollapsible(
        cast<MemRefType>(operand.get().getType()), groups);
  });
}

linalg::LinalgOp fovea::attn::joinLoops(RewriterBase &rewriter,
                                        linalg::LinalgOp op) {
  // What counts them would have to divide.
  if (op.hasIndexSemantics() || op.getNumLoops() < 2)
    return op;
  SmallVector<ReassociationIndices> groups = {{0}};
  for (unsigned dim : llvm::seq<unsigned>(1, op.getNumLoops()))
    if (canJoin(op, dim - 1))
      groups.back().push_back(dim);
    else
      groups.push_back({dim});
  if (groups.size() == op.getNumLoops())
    return op;
  rewriter.setInsertionPoint(op);
  if (FailureOr<linalg::GenericOp> general =
          linalg::generalizeNamedOp(rewriter, op);
      succeeded(general))
    op = *general;
  rewriter.setInsertionPoint(op);
  FailureOr<linalg::CollapseResult> joined =
      linalg::collapseOpIterationDims(op, groups, rewriter);
  if (failed(joined))
    return op;
  rewriter.eraseOp(op);
  return joined->collapsedOp;
}

//===----------------------------------------------------------------------===//
// Neighbours
//===----------------------------------------------------------------------===//

static int64_t getBytes(OpOperand &operand) {
  return cast<MemRefType>(operand.get().getType()).getElementTypeBitWidth() / 8;
}

/// A number that the last extent of `memref` is known to be a multiple of.
static int64_t getFactor(Value memref) {
  int64_t extent = cast<MemRefType>(memref.getType()).getShape().back();
  auto collapse = memref.getDefiningOp<memref::CollapseShapeOp>();
  if (!ShapedType::isDynamic(extent) || !collapse)
    return ShapedType::isDynamic(extent) ? 1 : extent;
  int64_t factor = 1;
  ReassociationIndices dims = collapse.getReassociationIndices().back();
  for (int64_t dim : dims)
    if (int64_t part = collapse.getSrcType().getDimSize(dim);
        !ShapedType::isDynamic(part))
      factor *= part;
  return factor;
}

Neighbours::Neighbours(linalg::LinalgOp op) : op(op) {
  int64_t extent = op.getNumLoops() > 0 ? op.getStaticLoopRanges().back() : 1;
  // A single loop has its last few elements one by one.
  bool hasRest = op.getNumLoops() == 1 && op.getNumParallelLoops() == 1;
  if (ShapedType::isDynamic(extent) && !hasRest)
    return;
  int64_t most = 0;
  for (OpOperand &operand : op->getOpOperands()) {
    if (getAccess(operand) == Access::Other)
      return;
    if (!isVector(operand))
      continue;
    int64_t bytes = getBytes(operand);
    int64_t aligned = op.getNumLoops() == 1
                          ? getStartBytes(operand.get(), bytes)
                          : getCopyBytes(operand.get(), bytes);
    most = most ? std::min(most, aligned / bytes) : aligned / bytes;
  }
  if (most < 2)
    return;
  if (!hasRest)
    count = std::gcd(most, extent);
  else if (ShapedType::isDynamic(extent))
    count = most;
  else if (extent > 0)
    count = std::min<int64_t>(most, llvm::bit_floor<uint64_t>(extent));
  leavesRest = llvm::none_of(op->getOpOperands(), [&](OpOperand &operand) {
    return isVector(operand) && getFactor(operand.get()) % count == 0;
  });
}

Neighbours::Access Neighbours::getAccess(OpOperand &operand) {
  AffineMap map = op.getMatchingIndexingMap(&operand);
  if (op.getNumLoops() == 0 || !isa<MemRefType>(operand.get().getType()))
    return Access::Same;
  unsigned innermost = op.getNumLoops() - 1;
  if (!map.isFunctionOfDim(innermost))
    return Access::Same;
  bool isLast =
      map.getResults().back() == getAffineDimExpr(innermost, op.getContext()) &&
      llvm::none_of(map.getResults().drop_back(), [&](AffineExpr expr) {
        return expr.isFunctionOfDim(innermost);
      });
  return isLast &&
                 cast<MemRefType>(operand.get().getType()).isLastDimUnitStride()
             ? Access::Adjacent
             : Access::Other;
}

bool Neighbours::areAdjacent() {
  return llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *operand) {
    return getAccess(*operand) != Access::Other;
  });
}

/// Whether elements fill their bytes, so that vectors of them lie as they do.
bool Neighbours::isVector(OpOperand &operand) {
  auto type = dyn_cast<MemRefType>(operand.get().getType());
  return type && type.getElementType().isIntOrFloat() &&
         type.getElementTypeBitWidth() % 8 == 0 &&
         getAccess(operand) == Access::Adjacent;
}

Values Neighbours::getExtents(KernelBuilder &b) {
  Values extents;
  for (Range range : op.createLoopRanges(b, b.getLoc()))
    extents.push_back(
        getValueOrCreateConstantIndexOp(b, b.getLoc(), range.size));
  return extents;
}

Values Neighbours::getIndices(KernelBuilder &b, OpOperand &operand,
                              ValueRange point) {
  Values at;
  for (AffineExpr expr : op.getMatchingIndexingMap(&operand).getResults())
    at.push_back(affine::AffineApplyOp::create(
        b, AffineMap::get(point.size(), 0, expr), point));
  return at;
}

/// The point of neighbour `i`.
static Values getPoint(KernelBuilder &b, ValueRange point, int64_t i) {
  Values at(point);
  if (i > 0)
    at.back() = b.add(at.back(), i);
  return at;
}

/// The elements of `number` neighbours.
Values Neighbours::load(KernelBuilder &b, OpOperand &operand, ValueRange point,
                        int64_t number) {
  Value memref = operand.get();
  auto type = dyn_cast<MemRefType>(memref.getType());
  if (!type)
    return Values(number, memref);
  if (getAccess(operand) == Access::Same)
    return Values(number, memref::LoadOp::create(
                              b, memref, getIndices(b, operand, point)));
  Values elements;
  if (number == count && count > 1 && isVector(operand)) {
    auto vector = vector::LoadOp::create(
        b, VectorType::get({count}, type.getElementType()), memref,
        getIndices(b, operand, point));
    vector.setAlignment(count * getBytes(operand));
    for (int64_t i : llvm::seq(count))
      elements.push_back(vector::ExtractOp::create(b, vector, i));
    return elements;
  }
  for (int64_t i : llvm::seq(number))
    elements.push_back(memref::LoadOp::create(
        b, memref, getIndices(b, operand, getPoint(b, point, i))));
  return elements;
}

/// What the body yields for one point and these arguments.
Values Neighbours::emitBody(KernelBuilder &b, ValueRange point,
                            ValueRange arguments) {
  IRMapping mapping;
  Block *body = op.getBlock();
  mapping.map(body->getArguments(), arguments);
  for (Operation &inner : body->without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner))
      mapping.map(index.getResult(), point[index.getDim()]);
    else
      b.clone(inner, mapping);
  }
  return llvm::map_to_vector(
      body->getTerminator()->getOperands(),
      [&](Value value) { return mapping.lookupOrDefault(value); });
}

void Neighbours::store(KernelBuilder &b, ValueRange point, int64_t number) {
  // All is read before something is written: an operand may be overwritten.
  SmallVector<Values> operands;
  for (OpOperand &operand : op->getOpOperands())
    operands.push_back(op.payloadUsesValueFromOperand(&operand)
                           ? load(b, operand, point, number)
                           : Values(number));
  SmallVector<Values> results(op.getNumDpsInits());
  for (int64_t i : llvm::seq(number)) {
    Values arguments;
    for (const Values &elements : operands)
      arguments.push_back(elements[i]);
    for (auto [all, result] :
         llvm::zip(results, emitBody(b, getPoint(b, point, i), arguments)))
      all.push_back(result);
  }
  for (auto [i, elements] : llvm::enumerate(results)) {
    OpOperand &output = *op.getDpsInitOperand(i);
    if (number == count && count > 1 && isVector(output)) {
      Value all = vector::FromElementsOp::create(
          b, VectorType::get({count}, elements[0].getType()), elements);
      vector::StoreOp::create(b, all, output.get(),
                              getIndices(b, output, point))
          .setAlignment(count * getBytes(output));
      continue;
    }
    for (auto [place, element] : llvm::enumerate(elements))
      memref::StoreOp::create(b, element, output.get(),
                              getIndices(b, output, getPoint(b, point, place)));
  }
}

Value Neighbours::reduce(KernelBuilder &b, ValueRange point, int64_t number,
                         Value sum) {
  SmallVector<Values> operands;
  for (OpOperand *operand : op.getDpsInputOperands())
    operands.push_back(load(b, *operand, point, number));
  for (int64_t i : llvm::seq(number)) {
    Values arguments;
    for (const Values &elements : operands)
      arguments.push_back(elements[i]);
    arguments.push_back(sum);
    sum = emitBody(b, getPoint(b, point, i), arguments)[0];
  }
  return sum;
}

void Neighbours::accumulate(KernelBuilder &b, ValueRange row,
                            const Accumulation &accumulation, Value sum) {
  OpOperand &output = *op.getDpsInitOperand(0);
  Values at(row);
  at.push_back(b.index(0));
  at = getIndices(b, output, at);
  Value start = memref::LoadOp::create(b, output.get(), at);
  memref::StoreOp::create(b, accumulation.combine(b, start, sum), output.get(),
                          at);
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

std::optional<Accumulation> Accumulation::match(linalg::LinalgOp op) {
  if (op.getNumDpsInits() != 1)
    return std::nullopt;
  SmallVector<Operation *> combiners;
  if (!matchReduction(op.getRegionOutputArgs(), 0, combiners) ||
      combiners.size() != 1)
    return std::nullopt;
  std::optional<TypedAttr> neutral = arith::getNeutralElement(combiners[0]);
  if (!neutral)
    return std::nullopt;
  return Accumulation{combiners[0], *neutral};
}

Value Accumulation::start(KernelBuilder &b) const {
  return arith::ConstantOp::create(b, neutral);
}

Value Accumulation::combine(KernelBuilder &b, Value left, Value right) const {
  Operation *combined = b.clone(*combiner);
  combined->setOperands({left, right});
  return combined->getResult(0);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

bool fovea::attn::loopOverNeighbours(linalg::LinalgOp op) {
  if (op.getNumParallelLoops() != op.getNumLoops())
    return false;
  Neighbours neighbours(op);
  int64_t count = neighbours.getCount();
  if (count == 1)
    return false;
  OpBuilder builder(op);
  KernelBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Values extents = neighbours.getExtents(b);
  Value innermost = extents.back();
  extents.back() = b.ceilDiv(innermost, count);
  parallelLoop(b, extents, [&](ValueRange at) {
    Values point(at);
    point.back() = b.mul(at.back(), count);
    if (!neighbours.hasRest()) {
      neighbours.store(b, point, count);
      return;
    }
    Value first = point.back();
    b.ifThenElse(
        b.less(b.add(first, count - 1), innermost),
        [&] { neighbours.store(b, point, count); },
        [&] {
          b.loop(first, innermost, 1, [&](Value each) {
            point.back() = each;
            neighbours.store(b, point, 1);
          });
        });
  });
  op.erase();
  return true;
}

bool fovea::attn::launchRows(linalg::LinalgOp op) {
  // One loop that reduces, inside of all others.
  if (op.getNumReductionLoops() != 1 || op.getNumParallelLoops() == 0 ||
      op.getNumParallelLoops() + 1 != op.getNumLoops() ||
      op.getIteratorTypesArray().back() != utils::IteratorType::reduction)
    return false;
  std::optional<Accumulation> reduction = Accumulation::match(op);
  Neighbours neighbours(op);
  if (!reduction || !neighbours.areAdjacent())
    return false;
  int64_t count = neighbours.getCount(), lanes = kWarpSize;
  if (int64_t extent = op.getStaticLoopRanges().back();
      !ShapedType::isDynamic(extent))
    lanes = std::min<int64_t>(lanes, llvm::bit_floor<uint64_t>(extent / count));
  if (lanes < 2)
    return false;

  OpBuilder builder(op);
  KernelBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Values extents = neighbours.getExtents(b);
  Value width = extents.pop_back_val();
  auto part = [&](GPUKernelBuilder &k, ValueRange row, Value lane) {
    return k.loop(k.mul(lane, count), width, lanes * count,
                  {reduction->start(k)},
                  [&](Value column, ValueRange sum) -> Values {
                    Values at(row);
                    at.push_back(column);
                    return {neighbours.reduce(k, at, count, sum[0])};
                  })[0];
  };
  auto combine = [&](GPUKernelBuilder &k, Value left, Value right) {
    return reduction->combine(k, left, right);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange row, Value total) {
    neighbours.accumulate(k, row, *reduction, total);
  };
  launchSharedRows(b, extents, lanes, {part, combine, store});
  op.erase();
  return true;
}
