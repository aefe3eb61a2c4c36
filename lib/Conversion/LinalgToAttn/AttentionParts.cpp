//===- AttentionParts.cpp - An attention operation as linalg --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionParts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"
#include <algorithm>

using namespace mlir;
using namespace fovea::attn::detail;

using LoopSet = llvm::SmallSetVector<unsigned, 8>;

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Finds what the loops are, and whether all extents agree.
Reason AttentionParts::check(SymbolicExtents &symbols) {
  llvm::SmallDenseMap<unsigned, int64_t> extents;
  SmallVector<const LoopOperand *> all = {&query, &key, &value, &result};
  if (mask)
    all.push_back(&*mask);
  for (const LoopOperand *operand : all) {
    auto shaped = dyn_cast<RankedTensorType>(operand->value.getType());
    if (!shaped || shaped.getRank() != int64_t(operand->loops.size()))
      return "an operand is no tensor of the rank that is needed";
    bool isMask = mask && operand == &*mask;
    Type element = shaped.getElementType();
    if (!isa<FloatType>(element) && !(isMask && element.isInteger(1)))
      return "an operand has elements of another type than floating point";
    SmallVector<int64_t> shape = isStrict
                                     ? symbols.getShape(operand->value)
                                     : SmallVector<int64_t>(shaped.getShape());
    for (auto [loop, extent] : llvm::zip_equal(operand->loops, shape)) {
      auto [entry, isNew] = extents.try_emplace(loop, extent);
      if (!isNew && entry->second != extent)
        return "extents of operands do not agree";
    }
  }
  if (lengths &&
      extents.lookup(lengths->loops.front()) != symbols.get(lengths->value, 0))
    return "extents of operands do not agree";
  auto has = [](const LoopOperand &operand, unsigned loop) {
    return llvm::is_contained(operand.loops, loop);
  };
  SmallVector<unsigned> depths, keys, others;
  LoopSet inScores(query.loops.begin(), query.loops.end());
  inScores.insert_range(key.loops);
  for (unsigned loop : inScores) {
    bool isReduced = !has(result, loop);
    if (isReduced && has(query, loop) && has(key, loop) && !has(value, loop))
      depths.push_back(loop);
    else if (isReduced && !has(query, loop) && has(value, loop))
      keys.push_back(loop);
    else if (!isReduced)
      others.push_back(loop);
    else
      return "a loop is neither one of keys nor of the depth";
  }
  if (depths.size() != 1 || keys.size() != 1)
    return "needed one loop over keys and one over the depth";
  for (const LoopOperand *operand : {&value, &result})
    for (unsigned loop : operand->loops)
      if (!inScores.contains(loop) && !(has(value, loop) && has(result, loop)))
        return "a loop of values and output is in one of them only";
  depth = depths.front();
  scoreLoops = others;
  // Of what only queries have, the last is taken for rows.
  if (rows)
    if (auto *loop = llvm::find(scoreLoops, *rows); loop != scoreLoops.end())
      std::rotate(loop, loop + 1, scoreLoops.end());
  scoreLoops.push_back(keys.front());
  if (mask && !llvm::all_of(mask->loops, [&](unsigned loop) {
        return loop == kRepeated || llvm::is_contained(scoreLoops, loop);
      }))
    return "the mask has another loop than scores";
  bool isWide = llvm::any_of(all, [](const LoopOperand *operand) {
    return getElementTypeOrSelf(operand->value).isF64();
  });
  type = isWide ? FloatType(b.getF64Type()) : FloatType(b.getF32Type());
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

OpFoldResult AttentionParts::getExtent(unsigned loop) {
  for (const LoopOperand *operand : {&query, &key, &value})
    for (auto [dim, other] : llvm::enumerate(operand->loops))
      if (other == loop)
        return tensor::getMixedSize(b, op->getLoc(), operand->value, dim);
  llvm_unreachable("all loops are of the query, the key or the value");
}

Value AttentionParts::makeTensor(ArrayRef<unsigned> loops, Type element) {
  SmallVector<OpFoldResult> extents = llvm::map_to_vector(
      loops, [&](unsigned loop) { return getExtent(loop); });
  return tensor::EmptyOp::create(b, extents, element);
}

/// Of a tensor with these loops, in an operation with those of `order`.
AffineMap AttentionParts::getMap(ArrayRef<unsigned> loops,
                                 ArrayRef<unsigned> order) {
  SmallVector<AffineExpr> exprs;
  for (unsigned loop : loops)
    exprs.push_back(
        loop == kRepeated
            ? b.getAffineConstantExpr(0)
            : b.getAffineDimExpr(llvm::find(order, loop) - order.begin()));
  return AffineMap::get(order.size(), 0, exprs, b.getContext());
}

Value AttentionParts::convert(OpBuilder &b, Value number, Type to) {
  Location loc = op->getLoc();
  unsigned from = number.getType().getIntOrFloatBitWidth();
  if (number.getType() == to)
    return number;
  if (from < to.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, loc, to, number);
  return arith::TruncFOp::create(b, loc, to, number);
}

Value AttentionParts::writeProduct(const LoopOperand &lhs,
                                   const LoopOperand &rhs,
                                   ArrayRef<unsigned> kept, unsigned reduced) {
  SmallVector<unsigned> order(kept);
  order.push_back(reduced);
  SmallVector<utils::IteratorType> iterators(kept.size(),
                                             utils::IteratorType::parallel);
  iterators.push_back(utils::IteratorType::reduction);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  Value init =
      linalg::FillOp::create(b, zero, makeTensor(kept, type)).getResult(0);
  auto body = [&](OpBuilder &b, Location loc, ValueRange numbers) {
    Value product = arith::MulFOp::create(b, loc, convert(b, numbers[0], type),
                                          convert(b, numbers[1], type));
    linalg::YieldOp::create(
        b, loc, arith::AddFOp::create(b, loc, numbers[2], product).getResult());
  };
  return linalg::GenericOp::create(
             b, TypeRange(init.getType()), ValueRange{lhs.value, rhs.value},
             ValueRange(init),
             {getMap(lhs.loops, order), getMap(rhs.loops, order),
              getMap(kept, order)},
             iterators, body)
      .getResult(0);
}

/// Whether the key of the loop is one that the query reads, by positions; null
/// if all are.
Value AttentionParts::writePositions(OpBuilder &b, Value length) {
  Location loc = op->getLoc();
  auto getIndex = [&](unsigned loop) -> Value {
    return linalg::IndexOp::create(
        b, loc, llvm::find(scoreLoops, loop) - scoreLoops.begin());
  };
  Value column = getIndex(scoreLoops.back());
  Value admitted;
  auto admit = [&](arith::CmpIPredicate predicate, Value lhs, Value rhs) {
    Value test = arith::CmpIOp::create(b, loc, predicate, lhs, rhs);
    admitted =
        admitted ? Value(arith::AndIOp::create(b, loc, admitted, test)) : test;
  };
  Value position;
  if (left || right) {
    position = getIndex(*rows);
    OpFoldResult first = firstPosition;
    if (length)
      first = arith::SubIOp::create(
                  b, loc, length,
                  getValueOrCreateConstantIndexOp(b, loc, getExtent(*rows)))
                  .getResult();
    if (!isConstantIntValue(first, 0))
      position = arith::AddIOp::create(
          b, loc, position, getValueOrCreateConstantIndexOp(b, loc, first));
  }
  if (length)
    admit(arith::CmpIPredicate::slt, column, length);
  if (right == 0) {
    admit(arith::CmpIPredicate::sle, column, position);
  } else if (right) {
    Value behind = arith::SubIOp::create(b, loc, column, position);
    admit(arith::CmpIPredicate::sle, behind,
          arith::ConstantIndexOp::create(b, loc, *right));
  }
  if (left) {
    Value before = arith::SubIOp::create(b, loc, position, column);
    admit(arith::CmpIPredicate::sle, before,
          arith::ConstantIndexOp::create(b, loc, *left));
  }
  return admitted;
}

/// A product of a query and a key, and what the mask and the lengths have for
/// it, as a score.
Value AttentionParts::writeScore(OpBuilder &b, ValueRange numbers,
                                 Value multiplier) {
  Location loc = op->getLoc();
  auto constant = [&](double number) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, number));
  };
  auto hide = [&](Value condition, Value score) -> Value {
    return arith::SelectOp::create(
        b, loc, condition, score,
        constant(-std::numeric_limits<double>::infinity()));
  };
  Value score = arith::MulFOp::create(b, loc, numbers[0], multiplier);
  if (softCap != 0) {
    score = arith::DivFOp::create(b, loc, score, constant(softCap));
    score = math::TanhOp::create(b, loc, score);
    score = arith::MulFOp::create(b, loc, score, constant(softCap));
  }
  if (mask && numbers[1].getType().isInteger(1))
    score = hide(numbers[1], score);
  else if (mask)
    score = arith::AddFOp::create(b, loc, score, convert(b, numbers[1], type));
  Value length;
  if (lengths)
    length = arith::IndexCastOp::create(b, loc, b.getIndexType(),
                                        numbers[mask ? 2 : 1]);
  if (!lengths && !left && !right)
    return score;
  return hide(writePositions(b, length), score);
}

/// Scales scores, and hides or adds what the mask says.
Value AttentionParts::writeMask(Value scores) {
  SmallVector<Value> inputs = {scores};
  SmallVector<AffineMap> maps = {getMap(scoreLoops, scoreLoops)};
  for (const std::optional<LoopOperand> *operand : {&mask, &lengths})
    if (*operand) {
      inputs.push_back((*operand)->value);
      maps.push_back(getMap((*operand)->loops, scoreLoops));
    }
  maps.push_back(maps.front());
  SmallVector<utils::IteratorType> iterators(scoreLoops.size(),
                                             utils::IteratorType::parallel);
  Value multiplier =
      scale ? convert(b, scale, type)
            : arith::ConstantOp::create(b, b.getFloatAttr(type, factor));
  auto body = [&](OpBuilder &b, Location loc, ValueRange numbers) {
    linalg::YieldOp::create(b, loc, writeScore(b, numbers, multiplier));
  };
  Value empty = makeTensor(scoreLoops, type);
  return linalg::GenericOp::create(b, TypeRange(empty.getType()), inputs,
                                   ValueRange(empty), maps, iterators, body)
      .getResult(0);
}

/// The weights, or zeros where all scores of a row are hidden.
Value AttentionParts::writeGuard(Value scores, Value weights) {
  ArrayRef<unsigned> kept = ArrayRef(scoreLoops).drop_back();
  SmallVector<utils::IteratorType> iterators(scoreLoops.size(),
                                             utils::IteratorType::parallel);
  Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  Value all = linalg::FillOp::create(b, yes, makeTensor(kept, b.getI1Type()))
                  .getResult(0);
  AffineMap whole = getMap(scoreLoops, scoreLoops);
  AffineMap row = getMap(kept, scoreLoops);
  auto test = [&](OpBuilder &b, Location loc, ValueRange numbers) {
    Value hidden = arith::ConstantOp::create(
        b, loc, b.getFloatAttr(type, -std::numeric_limits<double>::infinity()));
    Value isHidden = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ,
                                           numbers[0], hidden);
    linalg::YieldOp::create(
        b, loc,
        arith::AndIOp::create(b, loc, numbers[1], isHidden).getResult());
  };
  iterators.back() = utils::IteratorType::reduction;
  all =
      linalg::GenericOp::create(b, TypeRange(all.getType()), scores,
                                ValueRange(all), {whole, row}, iterators, test)
          .getResult(0);
  auto select = [&](OpBuilder &b, Location loc, ValueRange numbers) {
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
    linalg::YieldOp::create(
        b, loc,
        arith::SelectOp::create(b, loc, numbers[0], zero, numbers[1])
            .getResult());
  };
  iterators.back() = utils::IteratorType::parallel;
  Value empty = makeTensor(scoreLoops, type);
  return linalg::GenericOp::create(b, TypeRange(empty.getType()),
                                   ValueRange{all, weights}, ValueRange(empty),
                                   {row, whole, whole}, iterators, select)
      .getResult(0);
}

Value AttentionParts::write() {
  unsigned keys = scoreLoops.back();
  Value scores = writeMask(writeProduct(query, key, scoreLoops, depth));
  Value softmax = linalg::SoftmaxOp::create(
                      b, TypeRange(scores.getType()), scores,
                      makeTensor(scoreLoops, type), scoreLoops.size() - 1)
                      ->getResult(0);
  LoopOperand weights{isGuarded ? writeGuard(scores, softmax) : softmax,
                      scoreLoops};
  Value product = writeProduct(weights, value, result.loops, keys);
  Type element = getElementTypeOrSelf(result.value);
  if (element == type)
    return product;
  Type narrow = cast<RankedTensorType>(product.getType()).clone(element);
  return arith::TruncFOp::create(b, narrow, product);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void AttentionParts::setResult(ArrayRef<unsigned> loops, unsigned first,
                               unsigned count) {
  Type element = getElementTypeOrSelf(query.value);
  result = {makeTensor(loops, element), SmallVector<unsigned>(loops)};
  if (count == 1)
    return;
  for (unsigned dim = 0; dim < loops.size();) {
    unsigned size = dim == first ? count : 1;
    joined.emplace_back(llvm::to_vector(llvm::seq<int64_t>(dim, dim + size)));
    dim += size;
  }
}

/// What makes a tensor of a value with a type of another dialect.
static bool isToTensor(Operation *user) {
  return user->getNumResults() == 1 && user->getNumOperands() == 1 &&
         isa<RankedTensorType>(user->getResult(0).getType()) &&
         (user->getName().getStringRef() == "torch_c.to_builtin_tensor" ||
          isa<UnrealizedConversionCastOp>(user));
}

/// Whether the result can be a tensor of this type.
static bool canBe(Value result, RankedTensorType type) {
  if (isa<RankedTensorType>(result.getType()))
    return tensor::CastOp::areCastCompatible(type, result.getType());
  return llvm::all_of(result.getUsers(), [&](Operation *user) {
    return isToTensor(user) && tensor::CastOp::areCastCompatible(
                                   type, user->getResult(0).getType());
  });
}

Reason AttentionParts::checkResults() const {
  auto type = cast<RankedTensorType>(result.value.getType());
  if (!joined.empty())
    type = tensor::CollapseShapeOp::inferCollapsedType(type, joined);
  if (!canBe(op->getResult(0), type))
    return "its result is used as something else than a tensor of its shape";
  for (auto [number, tensor] : others)
    if (!canBe(op->getResult(number), cast<RankedTensorType>(tensor.getType())))
      return "its keys or values are used as something else than tensors of "
             "their shapes";
  return std::nullopt;
}

void AttentionParts::replaceResult(unsigned number, Value tensor) {
  auto replace = [&](Value old) {
    Value found = tensor;
    if (found.getType() != old.getType())
      found = tensor::CastOp::create(b, old.getType(), found);
    old.replaceAllUsesWith(found);
  };
  Value old = op->getResult(number);
  if (isa<RankedTensorType>(old.getType()))
    return replace(old);
  for (Operation *user : llvm::make_early_inc_range(old.getUsers())) {
    replace(user->getResult(0));
    user->erase();
  }
}

/// What has no other purpose than to be an operand of such operations, and no
/// dialect here.
static bool isOperandOnly(Operation *op) {
  StringRef name = op->getName().getStringRef();
  return !op->isRegistered() &&
         (name == "onnx.NoValue" || name.starts_with("torch.constant.") ||
          name == "torch_c.from_builtin_tensor");
}

void AttentionParts::replace() {
  Value product = write();
  if (!joined.empty())
    product = tensor::CollapseShapeOp::create(b, product, joined);
  replaceResult(0, product);
  for (auto [number, tensor] : others)
    replaceResult(number, tensor);
  llvm::SmallSetVector<Operation *, 8> operands;
  for (Value operand : op->getOperands())
    if (Operation *source = operand.getDefiningOp())
      operands.insert(source);
  op->erase();
  for (Operation *source : operands)
    if (source->use_empty() && isOperandOnly(source))
      source->erase();
}
