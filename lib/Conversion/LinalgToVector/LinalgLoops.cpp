//===- LinalgLoops.cpp - Vectorised loops of linalg ops -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (chunks of every parallel loop)                           one task
//     for each point of the chunk's loops but the vector's
//       for each vector                  the body on vectors
//       for each element that is left    the body on numbers
//
// The vector's loop is parallel where the output is contiguous along it; other
// reductions then run inside, with the sums in registers. Where it is a
// reduction itself, like the sums of rows, a vector of partial results is
// reduced at its end. Operands that do not vary along it are broadcast. Where
// no loop qualifies, as in a transposition, all is done on numbers.
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Elements that a task visits, and what a dynamic extent is taken for.
static constexpr int64_t kTaskElements = 16384, kDynamicExtent = 256;

namespace {
class LoopsKernel {
public:
  using Values = KernelBuilder::Values;

  LoopsKernel(linalg::LinalgOp op, OpBuilder &builder, RegisterFile registers)
      : op(op), b(op.getLoc(), builder, builder.getF32Type(), 1),
        types(op.getIteratorTypesArray()) {
    int64_t widest = 32;
    for (Value operand : op->getOperands())
      widest = std::max<int64_t>(
          widest, getElementTypeOrSelf(operand).getIntOrFloatBitWidth());
    lanes = registers.vectorBits / widest;
  }

  static bool canEmit(linalg::LinalgOp op);
  void emit();

private:
  bool isReduction(unsigned loop) {
    return types[loop] == utils::IteratorType::reduction;
  }
  void chooseVectorLoop();
  bool isContiguous(OpOperand &operand, unsigned loop);
  bool isInvariant(OpOperand &operand, unsigned loop);
  SmallVector<int64_t> chooseChunks();
  Value extentOf(unsigned loop);

  void emitParallel(ArrayRef<unsigned> loops);
  Values emitReductions(ArrayRef<unsigned> loops, bool isVector,
                        ValueRange running);
  void emitPoint(bool isVector);
  void emitReducedPoint();
  Values emitBody(bool isVector, ValueRange old);
  Values indices(OpOperand &operand);
  Value load(OpOperand &operand, bool isVector);
  void store(Value value, OpOperand &operand, bool isVector);
  Type vectorOf(Type type) { return VectorType::get({lanes}, type); }

  linalg::LinalgOp op;
  KernelBuilder b;
  SmallVector<utils::IteratorType> types;
  int64_t lanes;
  /// The loop along which vectors run.
  std::optional<unsigned> vectorLoop;
  /// What combines partial results where that loop is a reduction.
  Operation *combiner = nullptr;
  SmallVector<unsigned> reductions; // all but the vector's
  SmallVector<Value> position, low, high;
};
} // namespace

/// Whether an output has one element for each point of the parallel loops: it
/// is read before all reductions and written after them.
static bool isOnePerPoint(linalg::LinalgOp op, AffineMap map) {
  return map.isProjectedPermutation() &&
         llvm::all_of(llvm::enumerate(op.getIteratorTypesArray()),
                      [&](auto loop) {
                        return map.isFunctionOfDim(loop.index()) ==
                               linalg::isParallelIterator(loop.value());
                      });
}

bool LoopsKernel::canEmit(linalg::LinalgOp op) {
  if (!op.hasPureBufferSemantics() || op.getNumLoops() == 0 ||
      op->getNumRegions() != 1)
    return false;
  for (OpOperand &operand : op->getOpOperands()) {
    Type type = getElementTypeOrSelf(operand.get());
    if (!type.isFloat() && !type.isInteger())
      return false;
    // Elements narrower than a byte do not lie one after the other.
    if (isa<MemRefType>(operand.get().getType()) &&
        type.getIntOrFloatBitWidth() < 8)
      return false;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (map.getNumSymbols() != 0 ||
        (op.isDpsInit(&operand) && !isOnePerPoint(op, map)))
      return false;
  }
  // Every loop's extent must be that of some operand.
  AffineMap shapes = op.getShapesToLoopsMap();
  if (!shapes)
    return false;
  return llvm::all_of(
      op.getBlock()->without_terminator(), [](Operation &inner) {
        // LLVM has no integer powers of vectors that differ
        // from lane to lane.
        return inner.getNumRegions() == 0 && !isa<math::FPowIOp>(inner) &&
               (isa<arith::ConstantOp>(inner) ||
                OpTrait::hasElementwiseMappableTraits(&inner));
      });
}

bool LoopsKernel::isContiguous(OpOperand &operand, unsigned loop) {
  auto type = dyn_cast<MemRefType>(operand.get().getType());
  AffineMap map = op.getMatchingIndexingMap(&operand);
  if (!type || map.getNumResults() == 0 || !type.isLastDimUnitStride())
    return false;
  AffineExpr rest = simplifyAffineExpr(
      map.getResults().back() - getAffineDimExpr(loop, op.getContext()),
      map.getNumDims(), /*numSymbols=*/0);
  return !rest.isFunctionOfDim(loop) &&
         llvm::none_of(map.getResults().drop_back(), [&](AffineExpr expr) {
           return expr.isFunctionOfDim(loop);
         });
}

bool LoopsKernel::isInvariant(OpOperand &operand, unsigned loop) {
  return !op.getMatchingIndexingMap(&operand).isFunctionOfDim(loop);
}

void LoopsKernel::chooseVectorLoop() {
  auto fits = [&](unsigned loop, bool isReduced) {
    return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
      if (op.isDpsInit(&operand))
        return isReduced ? isInvariant(operand, loop)
                         : isContiguous(operand, loop);
      return isContiguous(operand, loop) || isInvariant(operand, loop);
    });
  };
  for (unsigned loop = 0; loop < types.size(); ++loop)
    if (!isReduction(loop) && fits(loop, /*isReduced=*/false))
      vectorLoop = loop;
  if (vectorLoop || op.getNumDpsInits() != 1)
    return;
  // `yield combine(output, x)`, where x does not depend on the output.
  Block *body = op.getBlock();
  BlockArgument old = body->getArguments().back();
  Operation *last = body->getTerminator()->getOperand(0).getDefiningOp();
  if (!last || !old.hasOneUse() || *old.user_begin() != last ||
      !linalg::getCombinerOpKind(last) || !arith::getNeutralElement(last))
    return;
  for (unsigned loop = 0; loop < types.size(); ++loop)
    if (isReduction(loop) && fits(loop, /*isReduced=*/true)) {
      vectorLoop = loop;
      combiner = last;
    }
}

/// Sizes of a task along each loop: whole inner loops until it has enough to
/// do. Reductions are never divided.
SmallVector<int64_t> LoopsKernel::chooseChunks() {
  SmallVector<int64_t> extents = op.getStaticLoopRanges(), chunks(extents);
  int64_t left = kTaskElements;
  auto take = [&](unsigned loop) {
    bool isDynamic = ShapedType::isDynamic(extents[loop]);
    int64_t extent = isDynamic ? kDynamicExtent : extents[loop];
    if (isReduction(loop)) {
      chunks[loop] = ShapedType::kDynamic;
    } else if (extent <= left && !isDynamic) {
      chunks[loop] = std::max<int64_t>(extent, 1);
    } else {
      chunks[loop] = std::clamp<int64_t>(left, 1, 1 << 20);
      if (loop == vectorLoop)
        chunks[loop] = llvm::alignTo(chunks[loop], lanes);
    }
    left = std::max<int64_t>(1, left / std::max<int64_t>(1, extent));
  };
  for (unsigned loop = types.size(); loop-- > 0;)
    if (isReduction(loop) || loop == vectorLoop)
      take(loop);
  for (unsigned loop = types.size(); loop-- > 0;)
    if (!isReduction(loop) && loop != vectorLoop)
      take(loop);
  return chunks;
}

Value LoopsKernel::extentOf(unsigned loop) {
  unsigned number =
      cast<AffineDimExpr>(op.getShapesToLoopsMap().getResult(loop))
          .getPosition();
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned rank = op.getRank(&operand);
    if (number < rank)
      return b.extent(operand.get(), number);
    number -= rank;
  }
  llvm_unreachable("the map numbers dimensions of operands");
}

void LoopsKernel::emit() {
  chooseVectorLoop();
  SmallVector<int64_t> chunks = chooseChunks();
  unsigned numLoops = types.size();
  SmallVector<Value> extents;
  SmallVector<unsigned> parallel;
  SmallVector<OpFoldResult> bounds;
  for (unsigned loop = 0; loop < numLoops; ++loop) {
    extents.push_back(extentOf(loop));
    if (!isReduction(loop)) {
      parallel.push_back(loop);
      bounds.push_back(
          getAsOpFoldResult(b.ceilDiv(extents[loop], chunks[loop])));
    } else if (loop != vectorLoop) {
      reductions.push_back(loop);
    }
  }
  position.assign(numLoops, Value());
  low.assign(numLoops, b.index(0));
  high = extents;
  auto emitTask = [&](ValueRange ivs) {
    for (auto [loop, iv] : llvm::zip(parallel, ivs)) {
      low[loop] = b.mul(iv, chunks[loop]);
      std::optional<int64_t> known = getConstantIntValue(extents[loop]);
      Value end = b.add(low[loop], chunks[loop]);
      high[loop] =
          known && *known % chunks[loop] == 0 ? end : b.min(end, extents[loop]);
    }
    // The vector's loop last.
    SmallVector<unsigned> order = parallel;
    if (vectorLoop && !isReduction(*vectorLoop)) {
      llvm::erase(order, *vectorLoop);
      order.push_back(*vectorLoop);
    }
    emitParallel(order);
  };
  if (parallel.empty())
    return emitTask({});
  scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                        /*mapping=*/std::nullopt,
                        [&](OpBuilder &, Location, ValueRange ivs) {
                          emitTask(ivs);
                          scf::InParallelOp::create(b);
                        });
}

void LoopsKernel::emitParallel(ArrayRef<unsigned> loops) {
  if (loops.empty())
    return combiner ? emitReducedPoint() : emitPoint(/*isVector=*/false);
  unsigned loop = loops.front();
  if (loop != vectorLoop)
    return b.loop(low[loop], high[loop], 1, [&](Value iv) {
      position[loop] = iv;
      emitParallel(loops.drop_front());
    });
  auto emitRange = [&](Value from, Value to, bool isVector) {
    b.loop(from, to, isVector ? lanes : 1, [&](Value iv) {
      position[loop] = iv;
      emitPoint(isVector);
    });
  };
  Value whole =
      b.add(low[loop], b.roundDown(b.sub(high[loop], low[loop]), lanes));
  emitRange(low[loop], whole, /*isVector=*/true);
  emitRange(whole, high[loop], /*isVector=*/false);
}

/// One vector, or one element, of every output.
void LoopsKernel::emitPoint(bool isVector) {
  Values old;
  for (OpOperand &init : op.getDpsInitsMutable())
    old.push_back(op.payloadUsesValueFromOperand(&init) ? load(init, isVector)
                                                        : Value());
  Values results;
  if (reductions.empty()) {
    results = emitBody(isVector, old);
  } else {
    for (auto [value, init] : llvm::zip(old, op.getDpsInitsMutable()))
      if (!value)
        value = load(init, isVector);
    results = emitReductions(reductions, isVector, old);
  }
  for (auto [result, init] : llvm::zip(results, op.getDpsInitsMutable()))
    store(result, init, isVector);
}

LoopsKernel::Values LoopsKernel::emitReductions(ArrayRef<unsigned> loops,
                                                bool isVector,
                                                ValueRange running) {
  if (loops.empty())
    return emitBody(isVector, running);
  unsigned loop = loops.front();
  return b.loop(low[loop], high[loop], 1, running,
                [&](Value iv, ValueRange values) {
                  position[loop] = iv;
                  return emitReductions(loops.drop_front(), isVector, values);
                });
}

/// One element of an output whose reduction runs along vectors: partial results
/// in the lanes, and one for the elements that are left.
void LoopsKernel::emitReducedPoint() {
  OpOperand &init = *op.getDpsInitsMutable().begin();
  Value old = load(init, /*isVector=*/false);
  TypedAttr neutral = *arith::getNeutralElement(combiner);
  Value identity = arith::ConstantOp::create(b, neutral);
  Value lanesOfIdentity =
      vector::BroadcastOp::create(b, vectorOf(identity.getType()), identity);
  unsigned loop = *vectorLoop;
  std::function<Values(ArrayRef<unsigned>, ValueRange)> reduce =
      [&](ArrayRef<unsigned> loops, ValueRange running) -> Values {
    if (!loops.empty())
      return b.loop(low[loops.front()], high[loops.front()], 1, running,
                    [&](Value iv, ValueRange values) {
                      position[loops.front()] = iv;
                      return reduce(loops.drop_front(), values);
                    });
    Value whole = b.roundDown(high[loop], lanes);
    Values vectors = b.loop(b.index(0), whole, lanes, running.take_front(),
                            [&](Value iv, ValueRange values) {
                              position[loop] = iv;
                              return emitBody(/*isVector=*/true, values);
                            });
    Values numbers = b.loop(whole, high[loop], 1, running.drop_front(),
                            [&](Value iv, ValueRange values) {
                              position[loop] = iv;
                              return emitBody(/*isVector=*/false, values);
                            });
    return {vectors.front(), numbers.front()};
  };
  Values parts = reduce(reductions, {lanesOfIdentity, old});
  Value reduced = vector::ReductionOp::create(
      b, *linalg::getCombinerOpKind(combiner), parts[0], parts[1]);
  store(reduced, init, /*isVector=*/false);
}

/// The body at the present position; `old` are the outputs' values.
LoopsKernel::Values LoopsKernel::emitBody(bool isVector, ValueRange old) {
  Block *body = op.getBlock();
  IRMapping mapping;
  auto spread = [&](Value value) -> Value {
    if (!isVector || isa<VectorType>(value.getType()))
      return value;
    return vector::BroadcastOp::create(b, vectorOf(value.getType()), value);
  };
  for (OpOperand *input : op.getDpsInputOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(input);
    if (!argument.use_empty())
      mapping.map(argument, spread(load(*input, isVector)));
  }
  for (auto [argument, value] : llvm::zip(op.getRegionOutputArgs(), old))
    if (value)
      mapping.map(argument, value);
  for (Operation &inner : body->without_terminator()) {
    if (isa<arith::ConstantOp>(inner)) {
      Operation *constant = b.clone(inner);
      mapping.map(inner.getResult(0), spread(constant->getResult(0)));
      continue;
    }
    for (Value operand : inner.getOperands())
      if (!mapping.contains(operand))
        mapping.map(operand, spread(operand));
    Operation *copy = b.clone(inner, mapping);
    if (isVector)
      for (Value result : copy->getResults())
        result.setType(vectorOf(result.getType()));
  }
  Values results;
  for (Value value : body->getTerminator()->getOperands())
    results.push_back(spread(mapping.lookupOrDefault(value)));
  return results;
}

LoopsKernel::Values LoopsKernel::indices(OpOperand &operand) {
  Values result;
  for (AffineExpr expr : op.getMatchingIndexingMap(&operand).getResults())
    result.push_back(
        affine::expandAffineExpr(b, b.getLoc(), expr, position, {}));
  return result;
}

/// A vector where the operand varies along the vectors, otherwise a number.
Value LoopsKernel::load(OpOperand &operand, bool isVector) {
  Value memref = operand.get();
  auto type = dyn_cast<MemRefType>(memref.getType());
  if (!type)
    return memref;
  if (isVector && !isInvariant(operand, *vectorLoop))
    return vector::LoadOp::create(
        b, VectorType::get({lanes}, type.getElementType()), memref,
        indices(operand));
  return memref::LoadOp::create(b, memref, indices(operand));
}

void LoopsKernel::store(Value value, OpOperand &operand, bool isVector) {
  if (isVector)
    vector::StoreOp::create(b, value, operand.get(), indices(operand));
  else
    memref::StoreOp::create(b, value, operand.get(), indices(operand));
}

bool fovea::attn::emitLinalgLoops(linalg::LinalgOp op, RegisterFile registers) {
  if (!LoopsKernel::canEmit(op))
    return false;
  OpBuilder builder(op);
  LoopsKernel(op, builder, registers).emit();
  return true;
}
