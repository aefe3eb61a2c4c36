//===- AttentionOfOthers.cpp - Attention operations of others -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both are softmax(scale q k^T + mask) v. That of IREE says by maps which
// dimensions are keys, rows and so on; torch-mlir's has them in a fixed order.
//
//===----------------------------------------------------------------------===//

#include "AttentionOfOthers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>
#include <optional>

using namespace mlir;
using namespace fovea::attn::detail;

static constexpr StringLiteral kTorchMLIR = "tm_tensor.attention";
static constexpr StringLiteral kIREE = "iree_linalg_ext.attention";

bool fovea::attn::detail::isAttentionOfOthers(Operation *op) {
  StringRef name = op->getName().getStringRef();
  return name == kTorchMLIR || name == kIREE;
}

namespace {
/// A tensor, and which loop each of its dimensions is.
struct Operand {
  Value value;
  SmallVector<unsigned> loops;
};

using Loops = llvm::SmallSetVector<unsigned, 8>;

/// An attention operation, taken apart.
class Parts {
public:
  explicit Parts(Operation *op) : op(op), b(op->getLoc(), op) {}

  /// A reason if it cannot be taken apart.
  std::optional<std::string> read();
  Value write();

private:
  std::optional<std::string> readTorchMLIR();
  std::optional<std::string> readIREE();
  std::optional<std::string> check();

  OpFoldResult getExtent(unsigned loop);
  Value makeTensor(ArrayRef<unsigned> loops, Type type);
  AffineMap getMap(ArrayRef<unsigned> loops, ArrayRef<unsigned> order);
  Value writeProduct(const Operand &lhs, const Operand &rhs,
                     ArrayRef<unsigned> kept, unsigned reduced);
  Value writeMask(Value scores);
  Value convert(OpBuilder &b, Value number, Type type);

  Operation *op;
  ImplicitLocOpBuilder b;
  Operand query, key, value, result;
  std::optional<Operand> mask;
  /// What scores are multiplied by: a value, or a number where there is none.
  Value scale;
  double factor = 1;
  /// Of scores and sums.
  FloatType type;
  /// The loops of scores, that over keys last, and the one of columns.
  SmallVector<unsigned> scoreLoops;
  unsigned depth;
};
} // namespace

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

std::optional<std::string> Parts::readTorchMLIR() {
  unsigned count = op->getNumOperands();
  if (count != 4 && count != 5)
    return "needed queries, keys, values, a mask if any, and an output";
  auto type = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  if (!type || type.getRank() < 3)
    return "the queries are no tensor of at least three dimensions";
  // The batch, rows, depth, keys and columns.
  SmallVector<unsigned> batch =
      llvm::to_vector(llvm::seq<unsigned>(type.getRank() - 2));
  unsigned next = batch.size();
  auto get = [&](unsigned operand, unsigned first, unsigned second) {
    SmallVector<unsigned> loops = batch;
    loops.append({next + first, next + second});
    return Operand{op->getOperand(operand), loops};
  };
  query = get(0, 0, 1);
  key = get(1, 2, 1);
  value = get(2, 2, 3);
  if (count == 5)
    mask = get(3, 0, 2);
  result = get(count - 1, 0, 3);
  if (auto given = op->getAttrOfType<FloatAttr>("scale"))
    factor = given.getValueAsDouble();
  else if (!type.isDynamicDim(type.getRank() - 1))
    factor = 1 / std::sqrt(double(type.getShape().back()));
  else
    return "the width of heads, of which the scale is made, is not known";
  return std::nullopt;
}

std::optional<std::string> Parts::readIREE() {
  unsigned count = op->getNumOperands();
  auto maps = op->getAttrOfType<ArrayAttr>("indexing_maps");
  if ((count != 5 && count != 6) || !maps || maps.size() != count)
    return "needed queries, keys, values, a scale, a mask if any, and an "
           "output, each with a map";
  SmallVector<Operand> operands;
  for (auto [number, map] : llvm::enumerate(maps)) {
    auto given = dyn_cast<AffineMapAttr>(map);
    if (!given || !given.getValue().isProjectedPermutation())
      return "a map does more than permute loops";
    Operand operand{op->getOperand(number), {}};
    for (AffineExpr expr : given.getValue().getResults())
      operand.loops.push_back(cast<AffineDimExpr>(expr).getPosition());
    operands.push_back(operand);
  }
  // A function of scores that yields them.
  if (op->getNumRegions() == 1 && !op->getRegion(0).empty()) {
    Block &body = op->getRegion(0).front();
    if (!llvm::hasSingleElement(body) || body.getNumArguments() < 1 ||
        body.front().getNumOperands() != 1 ||
        body.front().getOperand(0) != body.getArgument(0))
      return "its region computes other scores";
  }
  query = operands[0];
  key = operands[1];
  value = operands[2];
  scale = operands[3].value;
  if (!isa<FloatType>(scale.getType()))
    return "the scale is no number of floating point";
  if (count == 6)
    mask = operands[4];
  result = operands.back();
  return std::nullopt;
}

/// Finds what the loops are, and whether all extents agree.
std::optional<std::string> Parts::check() {
  llvm::SmallDenseMap<unsigned, int64_t> extents;
  SmallVector<const Operand *> all = {&query, &key, &value, &result};
  if (mask)
    all.push_back(&*mask);
  for (const Operand *operand : all) {
    auto shaped = dyn_cast<RankedTensorType>(operand->value.getType());
    if (!shaped || shaped.getRank() != int64_t(operand->loops.size()))
      return "an operand is no tensor of the rank that is needed";
    bool isMask = mask && operand == &*mask;
    Type element = shaped.getElementType();
    if (!isa<FloatType>(element) && !(isMask && element.isInteger(1)))
      return "an operand has elements of another type than floating point";
    for (auto [loop, extent] :
         llvm::zip_equal(operand->loops, shaped.getShape())) {
      auto [entry, isNew] = extents.try_emplace(loop, extent);
      if (!isNew && entry->second != extent)
        return "extents of operands do not agree";
    }
  }
  if (op->getNumResults() != 1 ||
      op->getResult(0).getType() != result.value.getType())
    return "the result has another type than the output";
  auto has = [](const Operand &operand, unsigned loop) {
    return llvm::is_contained(operand.loops, loop);
  };
  SmallVector<unsigned> depths, keys, others;
  Loops inScores(query.loops.begin(), query.loops.end());
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
  for (const Operand *operand : {&value, &result})
    for (unsigned loop : operand->loops)
      if (!inScores.contains(loop) && !(has(value, loop) && has(result, loop)))
        return "a loop of values and output is in one of them only";
  depth = depths.front();
  scoreLoops = others;
  scoreLoops.push_back(keys.front());
  if (mask && !llvm::all_of(mask->loops, [&](unsigned loop) {
        return llvm::is_contained(scoreLoops, loop);
      }))
    return "the mask has another loop than scores";
  bool isWide = llvm::any_of(all, [](const Operand *operand) {
    return getElementTypeOrSelf(operand->value).isF64();
  });
  type = isWide ? FloatType(b.getF64Type()) : FloatType(b.getF32Type());
  return std::nullopt;
}

std::optional<std::string> Parts::read() {
  bool isIREE = op->getName().getStringRef() == kIREE;
  std::optional<std::string> reason = isIREE ? readIREE() : readTorchMLIR();
  return reason ? reason : check();
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

OpFoldResult Parts::getExtent(unsigned loop) {
  for (const Operand *operand : {&query, &key, &value})
    for (auto [dim, other] : llvm::enumerate(operand->loops))
      if (other == loop)
        return tensor::getMixedSize(b, op->getLoc(), operand->value, dim);
  llvm_unreachable("all loops are of the query, the key or the value");
}

Value Parts::makeTensor(ArrayRef<unsigned> loops, Type element) {
  SmallVector<OpFoldResult> extents = llvm::map_to_vector(
      loops, [&](unsigned loop) { return getExtent(loop); });
  return tensor::EmptyOp::create(b, extents, element);
}

/// Of a tensor with these loops, in an operation with those of `order`.
AffineMap Parts::getMap(ArrayRef<unsigned> loops, ArrayRef<unsigned> order) {
  SmallVector<AffineExpr> exprs;
  for (unsigned loop : loops)
    exprs.push_back(
        b.getAffineDimExpr(llvm::find(order, loop) - order.begin()));
  return AffineMap::get(order.size(), 0, exprs, b.getContext());
}

Value Parts::convert(OpBuilder &b, Value number, Type to) {
  Location loc = op->getLoc();
  unsigned from = number.getType().getIntOrFloatBitWidth();
  if (number.getType() == to)
    return number;
  if (from < to.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, loc, to, number);
  return arith::TruncFOp::create(b, loc, to, number);
}

Value Parts::writeProduct(const Operand &lhs, const Operand &rhs,
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

/// Scales scores, and hides or adds what the mask says.
Value Parts::writeMask(Value scores) {
  SmallVector<Value> inputs = {scores};
  SmallVector<AffineMap> maps = {getMap(scoreLoops, scoreLoops)};
  if (mask) {
    inputs.push_back(mask->value);
    maps.push_back(getMap(mask->loops, scoreLoops));
  }
  maps.push_back(maps.front());
  SmallVector<utils::IteratorType> iterators(scoreLoops.size(),
                                             utils::IteratorType::parallel);
  Value multiplier =
      scale ? convert(b, scale, type)
            : arith::ConstantOp::create(b, b.getFloatAttr(type, factor));
  auto body = [&](OpBuilder &b, Location loc, ValueRange numbers) {
    Value score = arith::MulFOp::create(b, loc, numbers[0], multiplier);
    if (mask && numbers[1].getType().isInteger(1)) {
      Value hidden = arith::ConstantOp::create(
          b, loc,
          b.getFloatAttr(type, -std::numeric_limits<double>::infinity()));
      score = arith::SelectOp::create(b, loc, numbers[1], score, hidden);
    } else if (mask) {
      score =
          arith::AddFOp::create(b, loc, score, convert(b, numbers[1], type));
    }
    linalg::YieldOp::create(b, loc, score);
  };
  Value empty = makeTensor(scoreLoops, type);
  return linalg::GenericOp::create(b, TypeRange(empty.getType()), inputs,
                                   ValueRange(empty), maps, iterators, body)
      .getResult(0);
}

Value Parts::write() {
  unsigned keys = scoreLoops.back();
  Value scores = writeMask(writeProduct(query, key, scoreLoops, depth));
  Operand weights{linalg::SoftmaxOp::create(
                      b, TypeRange(scores.getType()), scores,
                      makeTensor(scoreLoops, type), scoreLoops.size() - 1)
                      ->getResult(0),
                  scoreLoops};
  Value product = writeProduct(weights, value, result.loops, keys);
  Type element = getElementTypeOrSelf(result.value);
  if (element == type)
    return product;
  Type narrow = cast<RankedTensorType>(product.getType()).clone(element);
  return arith::TruncFOp::create(b, narrow, product);
}

std::optional<std::string> fovea::attn::detail::writeAsLinalg(Operation *op) {
  Parts parts(op);
  if (std::optional<std::string> reason = parts.read())
    return reason;
  op->getResult(0).replaceAllUsesWith(parts.write());
  op->erase();
  return std::nullopt;
}
