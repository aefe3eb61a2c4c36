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
// Where the last dimension of the output is pairs of neighbours, as those that
// rotary embedding turns, vectors run along the dimension before it: one of all
// first elements and one of all second ones, which are stored interleaved.
//
//===----------------------------------------------------------------------===//

#include "LinalgLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Vectors of partial results where a reduction runs along vectors: one
/// addition after the other would wait for each.
static constexpr int64_t kPartialResults = 4;

/// Vectors that advance side by side through polynomials: a step waits for the
/// one before it, and schedulers hold the steps of few.
static constexpr int64_t kSideBySide = 4;

/// Fewer are no vectors.
static constexpr int64_t kLeastLanes = 4;

/// Numbers of f32 in a line of the caches.
static constexpr int64_t kLineElements = 16;

LoopsKernel::LoopsKernel(linalg::LinalgOp op, OpBuilder &builder,
                         RegisterFile registers)
    : op(op), registers(registers),
      b(op.getLoc(), builder, builder.getF32Type(), 1),
      types(op.getIteratorTypesArray()), lanes(1), body(op, b, lanes) {}

/// The lanes with which a row of `extent` elements takes the fewest vectors and
/// single elements: halves of rotary embedding may be shorter than a register.
static int64_t fitLanes(int64_t extent, int64_t most) {
  auto steps = [&](int64_t lanes) { return extent / lanes + extent % lanes; };
  int64_t best = most;
  for (int64_t lanes = most / 2; lanes >= kLeastLanes; lanes /= 2)
    if (steps(lanes) < steps(best))
      best = lanes;
  return best;
}

/// As many as registers have of the widest elements, or as fit short rows;
/// numbers that a row has one of do not count.
int64_t LoopsKernel::countLanes() {
  int64_t widest = 32;
  for (OpOperand &operand : op->getOpOperands())
    if (!vectorLoop || !body.isInvariant(operand, *vectorLoop) ||
        op.isDpsInit(&operand))
      widest = std::max<int64_t>(
          widest, getElementTypeOrSelf(operand.get()).getIntOrFloatBitWidth());
  int64_t most = registers.vectorBits / widest;
  // A function of a vector and of a single number may differ in the last bit,
  // and products compute those of their last columns one by one.
  auto isFunction = [](Operation &inner) {
    return isa_and_nonnull<math::MathDialect>(inner.getDialect());
  };
  if (llvm::any_of(*op.getBlock(), isFunction))
    return most;
  int64_t extent =
      vectorLoop ? op.getStaticLoopRanges()[*vectorLoop] : ShapedType::kDynamic;
  return ShapedType::isDynamic(extent) ? most : fitLanes(extent, most);
}

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
  // Without an output the body only asserts.
  if (!op.hasPureBufferSemantics() || op.getNumLoops() == 0 ||
      op->getNumRegions() != 1 || op.getNumDpsInits() == 0)
    return false;
  for (OpOperand &operand : op->getOpOperands()) {
    Type type = getElementTypeOrSelf(operand.get());
    if (!type.isFloat() && !type.isInteger())
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
  return LinalgBody::canEmit(op);
}

/// Whether vectors have both elements of pairs of neighbours.
bool LoopsKernel::choosePairs() {
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  unsigned rank = map.getNumResults();
  if (rank < 2 || op.getNumParallelLoops() != types.size())
    return false;
  unsigned pairs = map.getDimPosition(rank - 1);
  unsigned loop = map.getDimPosition(rank - 2);
  body.setPairLoop(pairs);
  if (!llvm::is_contained(rows, loop) && !llvm::is_contained(rows, pairs) &&
      body.hasVectors(loop) &&
      llvm::all_of(op.getDpsInitsMutable(), [&](OpOperand &init) {
        return body.isPaired(init, loop);
      })) {
    vectorLoop = loop;
    pairLoop = pairs;
    return true;
  }
  body.setPairLoop(std::nullopt);
  return false;
}

void LoopsKernel::chooseVectorLoop() {
  if (choosePairs())
    return;
  auto fits = [&](unsigned loop, bool isReduced, bool gathers = false) {
    return !llvm::is_contained(rows, loop) && body.hasVectors(loop) &&
           llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
             if (op.isDpsInit(&operand))
               return isReduced ? body.isInvariant(operand, loop)
                                : body.isContiguous(operand, loop);
             return gathers || body.isContiguous(operand, loop) ||
                    body.isPaired(operand, loop) ||
                    body.isInvariant(operand, loop);
           });
  };
  auto chooseParallel = [&](bool gathers) {
    for (unsigned loop = 0; loop < types.size(); ++loop)
      if (!isReduction(loop) && fits(loop, /*isReduced=*/false, gathers))
        vectorLoop = loop;
  };
  chooseParallel(/*gathers=*/false);
  if (vectorLoop)
    return;
  // `yield combine(output, x)`, where x does not depend on the output.
  BlockArgument old = op.getBlock()->getArguments().back();
  Operation *last =
      op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (op.getNumDpsInits() == 1 && last && old.hasOneUse() &&
      *old.user_begin() == last && linalg::getCombinerOpKind(last) &&
      arith::getNeutralElement(last))
    for (unsigned loop = 0; loop < types.size(); ++loop)
      if (isReduction(loop) && fits(loop, /*isReduced=*/true)) {
        vectorLoop = loop;
        combiner = last;
      }
  // What inputs are worth gathering for: a body, not a copy.
  if (!vectorLoop && !op.getBlock()->without_terminator().empty())
    chooseParallel(/*gathers=*/true);
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

std::optional<unsigned> LoopsKernel::getVectorLoop() {
  chooseVectorLoop();
  return vectorLoop;
}

void LoopsKernel::findExtents() {
  lanes = countLanes();
  body.setLanes(lanes);
  if (vectorLoop)
    body.setVectorLoop(*vectorLoop);
  for (unsigned loop = 0; loop < types.size(); ++loop) {
    high.push_back(extentOf(loop));
    if (llvm::is_contained(rows, loop) || loop == pairLoop)
      continue;
    if (!isReduction(loop))
      parallel.push_back(loop);
    else if (loop != vectorLoop)
      reductions.push_back(loop);
  }
  low.assign(types.size(), b.index(0));
}

SmallVector<unsigned> LoopsKernel::putVectorLast(ArrayRef<unsigned> loops) {
  SmallVector<unsigned> order(loops);
  if (vectorLoop && !isReduction(*vectorLoop)) {
    llvm::erase(order, *vectorLoop);
    order.push_back(*vectorLoop);
  }
  return order;
}

LoopsKernel::Values LoopsKernel::beginRows(ArrayRef<unsigned> loops) {
  rows.assign(loops.begin(), loops.end());
  chooseVectorLoop();
  findExtents();
  return llvm::map_to_vector(rows, [&](unsigned loop) { return high[loop]; });
}

void LoopsKernel::emitRow(OpBuilder &builder, ValueRange at) {
  b.restoreInsertionPoint(builder.saveInsertionPoint());
  for (auto [loop, iv] : llvm::zip(rows, at))
    body.position[loop] = iv;
  emitParallel(putVectorLast(parallel));
  builder.restoreInsertionPoint(b.saveInsertionPoint());
}

OpOperand *LoopsKernel::findStream() {
  for (OpOperand *input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    if (vectorLoop && isa<MemRefType>(input->get().getType()) &&
        map.isPermutation() && body.isContiguous(*input, *vectorLoop))
      return input;
  }
  return nullptr;
}

void LoopsKernel::prefetchBeside(const LoopsKernel &other, OpOperand &stream,
                                 ValueRange at) {
  // Steps of functions are put in an order of their own.
  if (!vectorLoop || isReduction(*vectorLoop) || pairLoop || other.pairLoop ||
      body.hasFunctions() || other.rows.size() + 1 != other.types.size())
    return;
  SmallVector<unsigned> loops;
  for (AffineExpr expr :
       linalg::LinalgOp(other.op).getMatchingIndexingMap(&stream).getResults())
    loops.push_back(cast<AffineDimExpr>(expr).getPosition());
  prefetch = [this, memref = stream.get(), loops, others = other.rows,
              vector = *other.vectorLoop, at = Values(at)](Value place) {
    Values indices = llvm::map_to_vector(loops, [&](unsigned loop) {
      return loop == vector
                 ? place
                 : at[std::distance(others.begin(), llvm::find(others, loop))];
    });
    b.prefetch(memref, indices, /*locality=*/3);
  };
}

void LoopsKernel::emit() {
  chooseVectorLoop();
  findExtents();
  SmallVector<int64_t> chunks = chooseChunks();
  SmallVector<Value> extents = high;
  SmallVector<OpFoldResult> bounds;
  for (unsigned loop : parallel)
    bounds.push_back(getAsOpFoldResult(b.ceilDiv(extents[loop], chunks[loop])));
  auto emitTask = [&](ValueRange ivs) {
    for (auto [loop, iv] : llvm::zip(parallel, ivs)) {
      low[loop] = b.mul(iv, chunks[loop]);
      std::optional<int64_t> known = getConstantIntValue(extents[loop]);
      Value end = b.add(low[loop], chunks[loop]);
      high[loop] =
          known && *known % chunks[loop] == 0 ? end : b.min(end, extents[loop]);
    }
    emitParallel(putVectorLast(parallel));
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
      body.position[loop] = iv;
      emitParallel(loops.drop_front());
    });
  Value extent = b.sub(high[loop], low[loop]);
  Value whole = b.add(low[loop], b.roundDown(extent, lanes)), many = low[loop];
  // Other reductions run within.
  if (reductions.empty())
    body.enterRow(/*isEmpty=*/b.equal(extent, b.index(0)));
  if (reductions.empty() && (body.hasFunctions() || prefetch)) {
    many = b.add(many, b.roundDown(extent, kSideBySide * lanes));
    emitVectors(low[loop], many, kSideBySide);
  }
  emitVectors(many, whole, /*count=*/1);
  body.leaveRow();
  std::optional<int64_t> known = getConstantIntValue(extent);
  if (known && *known % lanes == 0)
    return;
  b.loop(whole, high[loop], 1, [&](Value iv) {
    body.position[loop] = iv;
    emitPoint(/*isVector=*/false);
  });
}

/// `count` vectors in each turn of a loop.
void LoopsKernel::emitVectors(Value from, Value to, int64_t count) {
  b.loop(from, to, count * lanes, [&](Value iv) {
    for (int64_t number = 0; number < count; ++number) {
      body.position[*vectorLoop] = b.add(iv, number * lanes);
      emitPoint(/*isVector=*/true);
      if (prefetch && number * lanes % kLineElements == 0)
        prefetch(body.position[*vectorLoop]);
    }
    if (count > 1 && body.hasFunctions())
      b.getInsertionBlock()->getParentOp()->setAttr(kInterleaved,
                                                    b.getUnitAttr());
  });
}

void fovea::attn::interleaveVectors(scf::ForOp loop) {
  loop->removeAttr(kInterleaved);
  Block *block = loop.getBody();
  auto canMove = [](Operation &op) {
    return isMemoryEffectFree(&op) || isa<vector::LoadOp, vector::StoreOp>(op);
  };
  if (!llvm::all_of(block->without_terminator(), canMove))
    return;
  // How many steps are left after an operation; of as many, the first one goes
  // first.
  llvm::DenseMap<Operation *, int64_t> left;
  SmallVector<std::pair<int64_t, Operation *>> order;
  for (Operation &op : llvm::reverse(block->without_terminator())) {
    int64_t &steps = left[&op];
    for (Operation *user : op.getUsers())
      if (auto *own = block->findAncestorOpInBlock(*user))
        steps = std::max(steps, left.lookup(own) + 1);
    order.push_back({-steps, &op});
  }
  llvm::sort(order, [](const auto &one, const auto &other) {
    if (one.first != other.first)
      return one.first < other.first;
    return one.second->isBeforeInBlock(other.second);
  });
  for (auto [steps, op] : order)
    op->moveBefore(block->getTerminator());
}

/// One vector, or one element, of every output.
void LoopsKernel::emitPoint(bool isVector) {
  if (pairLoop)
    return emitPairs(isVector);
  Values results = emitValues(isVector);
  for (auto [result, init] : llvm::zip(results, op.getDpsInitsMutable()))
    body.store(result, init, isVector);
}

/// One vector of each element of pairs, or one pair.
void LoopsKernel::emitPairs(bool isVector) {
  Value &half = body.position[*pairLoop];
  half = b.index(0);
  Values first = emitValues(isVector);
  half = b.index(1);
  Values second = emitValues(isVector);
  for (auto [one, other, init] :
       llvm::zip(first, second, op.getDpsInitsMutable()))
    body.storePairs(one, other, init, isVector);
}

LoopsKernel::Values LoopsKernel::emitValues(bool isVector) {
  Values old;
  for (OpOperand &init : op.getDpsInitsMutable())
    old.push_back(op.payloadUsesValueFromOperand(&init)
                      ? body.load(init, isVector)
                      : Value());
  if (reductions.empty())
    return body.emit(isVector, old);
  for (auto [value, init] : llvm::zip(old, op.getDpsInitsMutable()))
    if (!value)
      value = body.load(init, isVector);
  return emitReductions(reductions, isVector, old);
}

LoopsKernel::Values LoopsKernel::emitReductions(ArrayRef<unsigned> loops,
                                                bool isVector,
                                                ValueRange running) {
  if (loops.empty())
    return body.emit(isVector, running);
  unsigned loop = loops.front();
  return b.loop(low[loop], high[loop], 1, running,
                [&](Value iv, ValueRange values) {
                  body.position[loop] = iv;
                  return emitReductions(loops.drop_front(), isVector, values);
                });
}

/// One element of an output whose reduction runs along vectors: partial results
/// in the lanes, and one for the elements that are left.
void LoopsKernel::emitReducedPoint() {
  OpOperand &init = *op.getDpsInitsMutable().begin();
  Value old = body.load(init, /*isVector=*/false);
  TypedAttr neutral = *arith::getNeutralElement(combiner);
  Value identity = arith::ConstantOp::create(b, neutral);
  Value lanesOfIdentity = vector::BroadcastOp::create(
      b, body.vectorOf(identity.getType()), identity);
  std::function<Values(ArrayRef<unsigned>, ValueRange)> reduce =
      [&](ArrayRef<unsigned> loops, ValueRange running) -> Values {
    if (!loops.empty())
      return b.loop(low[loops.front()], high[loops.front()], 1, running,
                    [&](Value iv, ValueRange values) {
                      body.position[loops.front()] = iv;
                      return reduce(loops.drop_front(), values);
                    });
    Value end = high[*vectorLoop];
    Values numbers =
        b.loop(b.roundDown(end, lanes), end, 1, running.drop_front(),
               [&](Value iv, ValueRange values) {
                 body.position[*vectorLoop] = iv;
                 return body.emit(/*isVector=*/false, values);
               });
    return {reduceVectors(running.front()), numbers.front()};
  };
  Values parts = reduce(reductions, {lanesOfIdentity, old});
  Value reduced = combine(reduceLanes(parts[0]), parts[1]);
  body.store(reduced, init, /*isVector=*/false);
}

/// Combines halves, so that few steps wait for each other.
Value LoopsKernel::reduceLanes(Value vector) {
  if (!llvm::isPowerOf2_64(lanes))
    return vector::ReductionOp::create(b, *linalg::getCombinerOpKind(combiner),
                                       vector);
  for (int64_t half = lanes / 2; half > 0; half /= 2) {
    auto slice = [&](int64_t from) -> Value {
      return vector::ExtractStridedSliceOp::create(b, vector, from, half,
                                                   /*strides=*/1);
    };
    vector = combine(slice(0), slice(half));
  }
  return vector::ExtractOp::create(b, vector, /*position=*/0);
}

/// Whether NaN in the results are kept apart, since comparisons pass over them:
/// bits beside the partial results, of which two vectors share one test.
bool LoopsKernel::isExtreme() {
  Type type = combiner->getResult(0).getType();
  return isa<arith::MaximumFOp, arith::MinimumFOp>(combiner) &&
         (type.isF32() || type.isF64());
}

/// Adds the whole vectors of a row to `running`.
Value LoopsKernel::reduceVectors(Value running) {
  Value end = high[*vectorLoop], whole = b.roundDown(end, lanes);
  Value many = b.roundDown(whole, kPartialResults * lanes);
  Value identity = vector::BroadcastOp::create(
      b, running.getType(),
      arith::ConstantOp::create(b, *arith::getNeutralElement(combiner)));
  Values parts(kPartialResults, identity);
  parts.front() = running;
  if (isExtreme()) {
    auto type = cast<VectorType>(running.getType());
    type = type.clone(b.getIntegerType(type.getElementTypeBitWidth()));
    Value none = arith::ConstantOp::create(b, b.getZeroAttr(type));
    parts.append(kPartialResults / 2, none);
  }
  body.enterRow(/*isEmpty=*/b.equal(end, b.index(0)));
  parts = b.loop(b.index(0), many, kPartialResults * lanes, parts,
                 [&](Value iv, ValueRange values) {
                   return addVectors(iv, values, kPartialResults);
                 });
  // Halves, so that the order of additions is that of a tree.
  for (int64_t half = kPartialResults / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i)
      parts[i] = combine(parts[i], parts[i + half]);
  Values rest = {parts.front()};
  ArrayRef<Value> bits = ArrayRef(parts).drop_front(kPartialResults);
  if (!bits.empty()) {
    rest.push_back(bits.front());
    for (Value more : bits.drop_front())
      rest.back() = arith::OrIOp::create(b, rest.back(), more);
  }
  rest = b.loop(many, whole, lanes, rest, [&](Value iv, ValueRange values) {
    return addVectors(iv, values, /*count=*/1);
  });
  body.leaveRow();
  return rest.size() > 1 ? withNaNs(rest[0], rest[1]) : rest[0];
}

/// Adds `count` vectors from `at` on to as many partial results, which are
/// followed by bits of what is NaN.
LoopsKernel::Values LoopsKernel::addVectors(Value at, ValueRange running,
                                            int64_t count) {
  Values sums, terms;
  for (int64_t number = 0; number < count; ++number) {
    body.position[*vectorLoop] = b.add(at, number * lanes);
    Value old = running[number];
    Value sum = body.emit(/*isVector=*/true, old).front();
    if (isExtreme()) {
      // A comparison and a choice are one instruction.
      Operation *combined = sum.getDefiningOp();
      Value term = combined->getOperand(combined->getOperand(0) == old ? 1 : 0);
      auto isBetter = isa<arith::MaximumFOp>(combiner)
                          ? arith::CmpFPredicate::OGT
                          : arith::CmpFPredicate::OLT;
      Value chosen = arith::CmpFOp::create(b, isBetter, term, old);
      sum = arith::SelectOp::create(b, chosen, term, old);
      combined->erase();
      terms.push_back(term);
    }
    sums.push_back(sum);
  }
  for (auto [number, bits] : llvm::enumerate(running.drop_front(count))) {
    Value one = terms[std::min<size_t>(2 * number, terms.size() - 1)];
    Value other = terms[std::min<size_t>(2 * number + 1, terms.size() - 1)];
    Value isNaN =
        arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, one, other);
    isNaN = arith::ExtSIOp::create(b, bits.getType(), isNaN);
    sums.push_back(arith::OrIOp::create(b, bits, isNaN));
  }
  return sums;
}

/// All bits of an element make it NaN.
Value LoopsKernel::withNaNs(Value vector, Value isNaN) {
  Value bits = arith::BitcastOp::create(b, isNaN.getType(), vector);
  bits = arith::OrIOp::create(b, bits, isNaN);
  return arith::BitcastOp::create(b, vector.getType(), bits);
}

Value LoopsKernel::combine(Value one, Value other) {
  Operation *copy = b.clone(*combiner);
  copy->setOperands({one, other});
  copy->getResult(0).setType(one.getType());
  return copy->getResult(0);
}

bool fovea::attn::emitLinalgLoops(linalg::LinalgOp op, RegisterFile registers) {
  if (!LoopsKernel::canEmit(op))
    return false;
  OpBuilder builder(op);
  LoopsKernel(op, builder, registers).emit();
  return true;
}
