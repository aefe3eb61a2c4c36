//===- KernelBuilder.cpp - Emission of vector kernels ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"
#include <functional>

using namespace mlir;
using namespace fovea::attn;

KernelBuilder::KernelBuilder(Location loc, OpBuilder &builder,
                             FloatType stateType, int64_t lanes)
    : ImplicitLocOpBuilder(loc, builder), stateType(stateType) {
  setLanes(lanes);
}

Type KernelBuilder::getVectorType(Type elementType) const {
  return lanes ? Type(VectorType::get({lanes}, elementType)) : elementType;
}

void KernelBuilder::setLanes(int64_t count) {
  lanes = count;
  vectorType = getVectorType(stateType);
}

//===----------------------------------------------------------------------===//
// Index arithmetic
//===----------------------------------------------------------------------===//

Value KernelBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(*this, value);
}
Value KernelBuilder::like(Value a, int64_t value) {
  return arith::ConstantOp::create(*this, getIntegerAttr(a.getType(), value));
}
Value KernelBuilder::add(Value a, Value b) {
  return createOrFold<arith::AddIOp>(a, b);
}
Value KernelBuilder::sub(Value a, Value b) {
  return createOrFold<arith::SubIOp>(a, b);
}
Value KernelBuilder::mul(Value a, Value b) {
  return createOrFold<arith::MulIOp>(a, b);
}
Value KernelBuilder::min(Value a, Value b) {
  return createOrFold<arith::MinSIOp>(a, b);
}
Value KernelBuilder::max(Value a, Value b) {
  return createOrFold<arith::MaxSIOp>(a, b);
}
Value KernelBuilder::clamp(Value a, Value low, Value high) {
  return min(max(a, low), high);
}
Value KernelBuilder::floorDiv(Value a, Value b) {
  return createOrFold<arith::FloorDivSIOp>(a, b);
}
Value KernelBuilder::div(Value a, Value b) {
  return createOrFold<arith::DivUIOp>(a, b);
}
Value KernelBuilder::rem(Value a, Value b) {
  return createOrFold<arith::RemUIOp>(a, b);
}
Value KernelBuilder::roundDown(Value a, int64_t multiple) {
  if (multiple == 1)
    return a;
  return mul(div(a, multiple), multiple);
}
Value KernelBuilder::lengthOf(Value lengths, Value batch, Value all) {
  return lengths ? loadIndex(lengths, batch) : all;
}

Value KernelBuilder::extent(Value memref, int64_t dim) {
  return createOrFold<memref::DimOp>(memref, dim);
}

Value KernelBuilder::hide(Value index) {
  Value number = arith::IndexCastOp::create(*this, getI64Type(), index);
  auto same = LLVM::InlineAsmOp::create(
      *this, TypeRange(getI64Type()), number, /*asm_string=*/"",
      /*constraints=*/"=r,0", /*has_side_effects=*/false,
      /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr::get(getContext(), LLVM::AsmDialect::AD_ATT),
      /*operand_attrs=*/ArrayAttr());
  return arith::IndexCastOp::create(*this, getIndexType(), same.getResult(0));
}

Value KernelBuilder::rowView(Value memref, ValueRange leading) {
  auto type = cast<MemRefType>(memref.getType());
  int64_t rank = type.getRank(), kept = rank - leading.size();
  SmallVector<OpFoldResult> offsets(leading.begin(), leading.end()), sizes,
      strides(rank, getIndexAttr(1));
  offsets.resize(rank, getIndexAttr(0));
  sizes.resize(leading.size(), getIndexAttr(1));
  SmallVector<int64_t> shape;
  for (int64_t dim = leading.size(); dim < rank; ++dim) {
    shape.push_back(type.getDimSize(dim));
    sizes.push_back(memref::getMixedSize(*this, getLoc(), memref, dim));
  }
  auto view = memref::SubViewOp::inferRankReducedResultType(
      ArrayRef(shape).take_back(kept), type, offsets, sizes, strides);
  return memref::SubViewOp::create(*this, cast<MemRefType>(view), memref,
                                   offsets, sizes, strides);
}

Value KernelBuilder::broadcastIndex(Value memref, int64_t dim, Value index) {
  bool broadcasts = cast<MemRefType>(memref.getType()).getDimSize(dim) == 1;
  return broadcasts ? this->index(0) : index;
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

Value KernelBuilder::equal(Value a, Value b) {
  return createOrFold<arith::CmpIOp>(arith::CmpIPredicate::eq, a, b);
}
Value KernelBuilder::less(Value a, Value b) {
  return createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt, a, b);
}
Value KernelBuilder::either(Value a, Value b) {
  // Folding looks for a constant on the right.
  if (matchPattern(a, m_Constant()))
    std::swap(a, b);
  return createOrFold<arith::OrIOp>(a, b);
}
Value KernelBuilder::both(Value a, Value b) {
  return createOrFold<arith::AndIOp>(a, b);
}
Value KernelBuilder::select(Value condition, Value a, Value b) {
  return createOrFold<arith::SelectOp>(condition, a, b);
}

//===----------------------------------------------------------------------===//
// Scalars and vectors
//===----------------------------------------------------------------------===//

Value KernelBuilder::scalar(double value) {
  return arith::ConstantOp::create(*this, getFloatAttr(stateType, value));
}
Value KernelBuilder::splat(double value) {
  if (!lanes)
    return scalar(value);
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(cast<ShapedType>(vectorType),
                                    getFloatAttr(stateType, value)));
}
Value KernelBuilder::constant(ArrayRef<double> values) {
  SmallVector<Attribute> numbers;
  for (double value : values)
    numbers.push_back(getFloatAttr(stateType, value));
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(cast<ShapedType>(vectorType), numbers));
}
Value KernelBuilder::broadcast(Value scalar) {
  if (!lanes)
    return scalar;
  return vector::BroadcastOp::create(*this, vectorType, scalar);
}
Value KernelBuilder::fadd(Value a, Value b) {
  return arith::AddFOp::create(*this, a, b);
}
Value KernelBuilder::fsub(Value a, Value b) {
  return arith::SubFOp::create(*this, a, b);
}
Value KernelBuilder::fmul(Value a, Value b) {
  return arith::MulFOp::create(*this, a, b);
}
Value KernelBuilder::fma(Value a, Value b, Value c) {
  if (!lanes)
    return math::FmaOp::create(*this, a, b, c);
  // vector.fma becomes llvm.fmuladd: fused where the target has it, and never a
  // library call where it has not.
  return vector::FMAOp::create(*this, a, b, c);
}
Value KernelBuilder::fmax(Value a, Value b) {
  Value greater = arith::CmpFOp::create(*this, arith::CmpFPredicate::OGT, a, b);
  return arith::SelectOp::create(*this, greater, a, b);
}
Value KernelBuilder::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = splat(coefficients.back());
  for (double coefficient : llvm::reverse(coefficients.drop_back()))
    sum = fma(sum, x, splat(coefficient));
  return sum;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static FloatType getElementType(Value memref) {
  return cast<FloatType>(cast<MemRefType>(memref.getType()).getElementType());
}

Value KernelBuilder::loadVector(Value memref, ValueRange indices) {
  if (!lanes)
    return loadScalar(memref, indices);
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  Value vector =
      vector::LoadOp::create(*this, getVectorType(type), memref, indices);
  if (type == stateType || isa<IntegerType>(type))
    return vector;
  return arith::ExtFOp::create(*this, vectorType, vector);
}

/// Numbers, or one, as `type`. There is no instruction from f64 to 16 bits.
static Value narrow(KernelBuilder &b, Value numbers, FloatType type) {
  auto truncate = [&](FloatType type) {
    Type narrowed = type;
    if (auto vector = dyn_cast<VectorType>(numbers.getType()))
      narrowed = vector.clone(type);
    numbers = arith::TruncFOp::create(b, narrowed, numbers);
  };
  if (b.getStateType().isF64() && type.getWidth() < 32)
    truncate(b.getF32Type());
  truncate(type);
  return numbers;
}

void KernelBuilder::storeVector(Value vector, Value memref, ValueRange indices,
                                bool streaming) {
  if (!lanes)
    return storeScalar(vector, memref, indices);
  FloatType type = getElementType(memref);
  if (type != stateType)
    vector = narrow(*this, vector, type);
  auto store = vector::StoreOp::create(*this, vector, memref, indices);
  if (streaming) {
    store.setNontemporal(true);
    store.setAlignment(lanes * type.getWidth() / 8);
  }
}

Value KernelBuilder::loadScalar(Value memref, ValueRange indices) {
  Value value = memref::LoadOp::create(*this, memref, indices);
  if (value.getType() == stateType || isa<IntegerType>(value.getType()))
    return value;
  return arith::ExtFOp::create(*this, stateType, value);
}

void KernelBuilder::storeScalar(Value value, Value memref, ValueRange indices) {
  FloatType type = getElementType(memref);
  if (type != stateType)
    value = narrow(*this, value, type);
  memref::StoreOp::create(*this, value, memref, indices);
}

std::pair<Value, Value> KernelBuilder::loadPairs(Value memref,
                                                 ValueRange indices) {
  if (!lanes) {
    SmallVector<Value> next(indices);
    next.back() = add(next.back(), 1);
    return {loadScalar(memref, indices), loadScalar(memref, next)};
  }
  KernelBuilder both(getLoc(), *this, stateType, 2 * lanes);
  if (stateType.isF32() && getElementType(memref).isBF16()) {
    // A bf16 is the upper half of an f32.
    auto words = VectorType::get({lanes}, getI32Type());
    Value raw = vector::LoadOp::create(*this, both.getVectorType(getBF16Type()),
                                       memref, indices);
    Value word = vector::BitCastOp::create(*this, words, raw);
    auto constant = [&](uint32_t value) -> Value {
      return arith::ConstantOp::create(
          *this, DenseElementsAttr::get(words, APInt(32, value)));
    };
    Value first = arith::ShLIOp::create(*this, word, constant(16));
    Value second = arith::AndIOp::create(*this, word, constant(0xffff0000));
    return {arith::BitcastOp::create(*this, vectorType, first),
            arith::BitcastOp::create(*this, vectorType, second)};
  }
  auto parts =
      vector::DeinterleaveOp::create(*this, both.loadVector(memref, indices));
  return {parts.getRes1(), parts.getRes2()};
}

void KernelBuilder::storePairs(Value first, Value second, Value memref,
                               ValueRange indices) {
  if (!lanes) {
    SmallVector<Value> next(indices);
    next.back() = add(next.back(), 1);
    storeScalar(first, memref, indices);
    return storeScalar(second, memref, next);
  }
  KernelBuilder both(getLoc(), *this, stateType, 2 * lanes);
  both.storeVector(vector::InterleaveOp::create(*this, first, second), memref,
                   indices);
}

Value KernelBuilder::loadIndex(Value memref, ValueRange indices) {
  Value element = memref::LoadOp::create(*this, memref, indices);
  if (element.getType().isIndex())
    return element;
  return arith::IndexCastOp::create(*this, getIndexType(), element);
}

void KernelBuilder::storeIndex(Value value, Value memref, ValueRange indices) {
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  if (!type.isIndex())
    value = arith::IndexCastOp::create(*this, type, value);
  memref::StoreOp::create(*this, value, memref, indices);
}

Value KernelBuilder::toNumber(Value index) {
  Value integer = arith::IndexCastOp::create(*this, getI32Type(), index);
  return arith::SIToFPOp::create(*this, getStateType(), integer);
}

Value KernelBuilder::allocate(ArrayRef<Value> leading,
                              ArrayRef<int64_t> trailing, Type elementType) {
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamicExtents;
  for (Value extent : leading) {
    std::optional<int64_t> known = getConstantIntValue(extent);
    shape.push_back(known.value_or(ShapedType::kDynamic));
    if (!known)
      dynamicExtents.push_back(extent);
  }
  llvm::append_range(shape, trailing);
  return memref::AllocOp::create(*this, MemRefType::get(shape, elementType),
                                 dynamicExtents, getI64IntegerAttr(64));
}

Value KernelBuilder::allocateLike(Value like, Type elementType, unsigned drop) {
  auto type = cast<MemRefType>(like.getType());
  SmallVector<Value> dynamicExtents;
  for (int64_t dim = drop; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      dynamicExtents.push_back(extent(like, dim));
  return memref::AllocOp::create(
      *this, MemRefType::get(type.getShape().drop_front(drop), elementType),
      dynamicExtents, getI64IntegerAttr(64));
}

void KernelBuilder::prefetch(Value memref, ValueRange indices,
                             unsigned locality, bool isWrite) {
  memref::PrefetchOp::create(*this, memref, indices, isWrite, locality,
                             /*isDataCache=*/true);
}

Value KernelBuilder::scratch(ArrayRef<int64_t> shape, Type elementType) {
  return scratchBuffers.emplace_back(memref::AllocOp::create(
      *this, MemRefType::get(shape, elementType), getI64IntegerAttr(64)));
}

Value KernelBuilder::scratch(ArrayRef<Value> leading,
                             ArrayRef<int64_t> trailing, Type elementType) {
  return scratchBuffers.emplace_back(allocate(leading, trailing, elementType));
}

void KernelBuilder::freeScratch() {
  for (Value buffer : scratchBuffers)
    memref::DeallocOp::create(*this, buffer);
  scratchBuffers.clear();
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

KernelBuilder::Values
KernelBuilder::loop(Value low, Value high, int64_t step, ValueRange inits,
                    function_ref<Values(Value, ValueRange)> body) {
  auto loop = scf::ForOp::create(*this, low, high, like(low, step), inits);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  Values next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  // A loop without results gets its terminator from the builder.
  if (!inits.empty())
    scf::YieldOp::create(*this, next);
  return Values(loop.getResults());
}

KernelBuilder::Values
KernelBuilder::unrolledLoop(Value low, Value high, int64_t unroll,
                            ValueRange inits,
                            function_ref<Values(Value, ValueRange)> body,
                            function_ref<void(Value)> startTurn) {
  Value length = max(sub(high, low), index(0));
  Value whole = add(low, roundDown(length, unroll));
  Values values =
      loop(low, whole, unroll, inits, [&](Value first, ValueRange running) {
        if (startTurn)
          startTurn(first);
        Values next(running);
        for (int64_t u = 0; u < unroll; ++u)
          next = body(add(first, u), next);
        return next;
      });
  if (isEqualConstantIntOrValue(whole, high))
    return values;
  return loop(whole, high, 1, values, body);
}

void KernelBuilder::loop(Value low, Value high, int64_t step,
                         function_ref<void(Value)> body) {
  loop(low, high, step, ValueRange(), [&](Value iv, ValueRange) {
    body(iv);
    return Values();
  });
}

KernelBuilder::Values
KernelBuilder::loopWhile(ValueRange inits,
                         function_ref<Value(ValueRange)> condition,
                         function_ref<Values(ValueRange)> body) {
  auto loop = scf::WhileOp::create(
      *this, inits.getTypes(), inits,
      [&](OpBuilder &, Location, ValueRange state) {
        scf::ConditionOp::create(*this, condition(state), state);
      },
      [&](OpBuilder &, Location, ValueRange state) {
        scf::YieldOp::create(*this, body(state));
      });
  return Values(loop.getResults());
}

void KernelBuilder::forAll(ArrayRef<Value> bounds,
                           function_ref<void(ValueRange)> body) {
  SmallVector<OpFoldResult> mixed = getAsOpFoldResult(bounds);
  auto forall = scf::ForallOp::create(*this, mixed, /*outputs=*/ValueRange(),
                                      /*mapping=*/std::nullopt);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPoint(forall.getTerminator());
  body(forall.getInductionVars());
}

void KernelBuilder::overVectors(int64_t width, function_ref<void(Value)> body) {
  overVectors(width, ValueRange(), [&](Value column, ValueRange) {
    body(column);
    return Values();
  });
}

KernelBuilder::Values
KernelBuilder::overVectors(int64_t width, ValueRange inits,
                           function_ref<Values(Value, ValueRange)> body) {
  // The time that LLVM takes to order loads and stores is quadratic in their
  // number.
  constexpr int64_t kMaxWritten = 64;
  int64_t whole = llvm::alignDown(width, lanes);
  if (whole > kMaxWritten * lanes)
    return loop(index(0), index(whole), lanes, inits, body);
  Values carried(inits);
  for (int64_t column = 0; column < whole; column += lanes)
    carried = body(index(column), carried);
  return carried;
}

void KernelBuilder::copyRow(Value from, ValueRange at, Value to,
                            ValueRange target, int64_t width) {
  auto behind = [](ValueRange leading, Value column) {
    Values indices(leading);
    indices.push_back(column);
    return indices;
  };
  overVectors(width, [&](Value column) {
    storeVector(loadVector(from, behind(at, column)), to,
                behind(target, column));
  });
  loop(index(llvm::alignDown(width, lanes)), index(width), 1, [&](Value tail) {
    storeScalar(loadScalar(from, behind(at, tail)), to, behind(target, tail));
  });
}

Value KernelBuilder::select(Value condition, Type type,
                            function_ref<Value()> then,
                            function_ref<Value()> otherwise) {
  auto ifOp = scf::IfOp::create(*this, TypeRange(type), condition,
                                /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(ifOp.thenBlock());
  scf::YieldOp::create(*this, then());
  setInsertionPointToStart(ifOp.elseBlock());
  scf::YieldOp::create(*this, otherwise());
  return ifOp.getResult(0);
}

void KernelBuilder::ifThen(Value condition, function_ref<void()> then) {
  if (matchPattern(condition, m_Zero()))
    return;
  if (matchPattern(condition, m_One()))
    return then();
  auto ifOp = scf::IfOp::create(*this, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(ifOp.thenBlock());
  then();
}

void KernelBuilder::ifThenElse(Value condition, function_ref<void()> then,
                               function_ref<void()> otherwise) {
  if (matchPattern(condition, m_One()))
    return then();
  if (matchPattern(condition, m_Zero()))
    return otherwise();
  auto ifOp = scf::IfOp::create(*this, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(ifOp.thenBlock());
  then();
  setInsertionPointToStart(ifOp.elseBlock());
  otherwise();
}

/// Interleaves groups of `group` elements of the low or high half of every
/// 128-bit lane of two vectors: what unpack instructions do.
static SmallVector<int64_t> getUnpackMask(int64_t lanes, int64_t laneElements,
                                          int64_t group, bool high) {
  SmallVector<int64_t> mask;
  for (int64_t lane = 0; lane < lanes; lane += laneElements)
    for (int64_t first = 0; first < laneElements / 2; first += group)
      for (int64_t operand : {0, 1})
        for (int64_t i = 0; i < group; ++i)
          mask.push_back(operand * lanes + lane + first + i +
                         (high ? laneElements / 2 : 0));
  return mask;
}

/// The even or odd 128-bit lanes of two vectors, one after the other.
static SmallVector<int64_t> getLaneMask(int64_t lanes, int64_t laneElements,
                                        bool odd) {
  SmallVector<int64_t> mask;
  for (int64_t lane = odd ? laneElements : 0; lane < 2 * lanes;
       lane += 2 * laneElements)
    for (int64_t i = 0; i < laneElements; ++i)
      mask.push_back(lane + i);
  return mask;
}

KernelBuilder::Values KernelBuilder::transpose(ValueRange rows) {
  // Any shuffle network would do; this one is made of instructions that stay in
  // 128-bit lanes or move whole ones, which x86 has without index registers.
  int64_t laneElements = std::min<int64_t>(lanes, 128 / stateType.getWidth());
  auto shuffle = [&](Value a, Value b, ArrayRef<int64_t> mask) -> Value {
    return vector::ShuffleOp::create(*this, a, b, mask);
  };

  // Squares of laneElements rows, in every lane at once. Afterwards vector
  // q * laneElements + c has in lane l column l * laneElements + c of the rows
  // from q * laneElements on.
  Values current(rows);
  for (int64_t group = 1; group < laneElements; group *= 2) {
    SmallVector<int64_t> low =
        getUnpackMask(lanes, laneElements, group, /*high=*/false);
    SmallVector<int64_t> high =
        getUnpackMask(lanes, laneElements, group, /*high=*/true);
    Values next(lanes);
    for (int64_t row = 0; row < lanes; ++row) {
      if (row & group)
        continue;
      next[row] = shuffle(current[row], current[row + group], low);
      next[row + group] = shuffle(current[row], current[row + group], high);
    }
    current = std::move(next);
  }
  // The second stage of a 4 x 4 square leaves columns 1 and 2 swapped.
  if (laneElements == 4)
    for (int64_t row = 0; row < lanes; row += 4)
      std::swap(current[row + 1], current[row + 2]);

  // Lanes, as a square of lanes for every column c.
  SmallVector<int64_t> even = getLaneMask(lanes, laneElements, /*odd=*/false);
  SmallVector<int64_t> odd = getLaneMask(lanes, laneElements, /*odd=*/true);
  std::function<Values(Values)> transposeLanes = [&](Values square) {
    if (square.size() == 1)
      return square;
    Values evens, odds, result;
    for (size_t i = 0; i < square.size(); i += 2) {
      evens.push_back(shuffle(square[i], square[i + 1], even));
      odds.push_back(shuffle(square[i], square[i + 1], odd));
    }
    for (auto [a, b] : llvm::zip(transposeLanes(evens), transposeLanes(odds)))
      result.append({a, b});
    return result;
  };
  Values result(lanes);
  for (int64_t column = 0; column < laneElements; ++column) {
    Values square;
    for (int64_t row = column; row < lanes; row += laneElements)
      square.push_back(current[row]);
    for (auto [lane, vector] : llvm::enumerate(transposeLanes(square)))
      result[lane * laneElements + column] = vector;
  }
  return result;
}

Value KernelBuilder::sumEach(ValueRange vectors) {
  Values all(vectors);
  all.resize(lanes);
  return addStages(all);
}

Value KernelBuilder::sumInLanes(ValueRange vectors) {
  return addStages(vectors);
}

/// As in a transposition, but what has been brought beside each other is added
/// at once, so that every stage has half the vectors of the one before. Null
/// vectors are zero.
Value KernelBuilder::addStages(ValueRange vectors) {
  int64_t laneElements = std::min<int64_t>(lanes, 128 / stateType.getWidth());
  Values current(vectors);
  for (int64_t group = 1; current.size() > 1; group *= 2) {
    SmallVector<int64_t> masks[2];
    for (bool high : {false, true})
      masks[high] = group < laneElements
                        ? getUnpackMask(lanes, laneElements, group, high)
                        : getLaneMask(lanes, laneElements, /*odd=*/high);
    Values next;
    for (size_t i = 0; i < current.size(); i += 2) {
      Value a = current[i], b = current[i + 1];
      if (!a && !b) {
        next.push_back({});
        continue;
      }
      b = b ? b : splat(0.0);
      Value low = vector::ShuffleOp::create(*this, a, b, masks[0]);
      next.push_back(
          fadd(low, vector::ShuffleOp::create(*this, a, b, masks[1])));
    }
    current = std::move(next);
  }
  return current.front();
}
