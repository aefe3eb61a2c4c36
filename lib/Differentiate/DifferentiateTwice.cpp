//===- DifferentiateTwice.cpp - Gradients of gradients of attention -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The second derivative multiplies two products of rows entry by entry, which
// no stream of keys does. So a gradient that is differentiated is written as
// products of tiles of queries with all keys, in a loop whose own gradient is
// known. A tile of scores is all that is stored.
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/IR/DenseTerms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace fovea::attn;

/// Queries of a tile.
static constexpr int64_t kTileQueries = 64;

namespace {
/// Writes structured operations on tensors whose dimensions are letters: batch
/// entry, key head, query head of it, query, key, and columns of keys or
/// values.
class Writer {
public:
  Writer(OpBuilder &b, Location loc) : b(b), loc(loc) {}

  /// A tensor and its letters.
  struct Factor {
    Value tensor;
    StringRef letters;
  };
  using BodyBuilder = function_ref<Value(OpBuilder &, ValueRange)>;

  /// Sums over the letters that `init` does not have.
  Value contract(Factor x, Factor y, Factor init);
  /// `init` is overwritten.
  Value map(ArrayRef<Factor> inputs, Factor init, BodyBuilder body);

  Value zeros(ArrayRef<OpFoldResult> sizes, Type type);
  Value empty(ArrayRef<OpFoldResult> sizes, Type type) {
    return tensor::EmptyOp::create(b, loc, sizes, type);
  }

private:
  Value write(ArrayRef<Factor> inputs, Factor init, BodyBuilder body);

  OpBuilder &b;
  Location loc;
};
} // namespace

Value Writer::zeros(ArrayRef<OpFoldResult> sizes, Type type) {
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
  return linalg::FillOp::create(b, loc, zero, empty(sizes, type)).getResult(0);
}

Value Writer::write(ArrayRef<Factor> inputs, Factor init, BodyBuilder body) {
  // Those of the result come first.
  std::string letters = init.letters.str();
  for (const Factor &input : inputs)
    for (char letter : input.letters)
      if (!StringRef(letters).contains(letter))
        letters += letter;
  auto mapOf = [&](StringRef own) {
    SmallVector<AffineExpr> results;
    for (char letter : own)
      results.push_back(b.getAffineDimExpr(letters.find(letter)));
    return AffineMap::get(letters.size(), 0, results, b.getContext());
  };
  SmallVector<AffineMap> maps;
  SmallVector<Value> operands;
  for (const Factor &input : inputs) {
    maps.push_back(mapOf(input.letters));
    operands.push_back(input.tensor);
  }
  maps.push_back(mapOf(init.letters));
  SmallVector<utils::IteratorType> types(letters.size(),
                                         utils::IteratorType::reduction);
  std::fill_n(types.begin(), init.letters.size(),
              utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, loc, init.tensor.getType(), operands, init.tensor, maps, types,
             [&](OpBuilder &b, Location loc, ValueRange arguments) {
               linalg::YieldOp::create(b, loc, body(b, arguments));
             })
      .getResult(0);
}

Value Writer::contract(Factor x, Factor y, Factor init) {
  return write({x, y}, init, [&](OpBuilder &b, ValueRange arguments) -> Value {
    Value product = arith::MulFOp::create(b, loc, arguments[0], arguments[1]);
    return arith::AddFOp::create(b, loc, arguments[2], product);
  });
}

Value Writer::map(ArrayRef<Factor> inputs, Factor init, BodyBuilder body) {
  return write(inputs, init, body);
}

namespace {
/// The gradient of dense attention as a loop over tiles of queries.
class TiledGradient {
public:
  TiledGradient(DenseBackwardOp op, OpBuilder &b)
      : op(op), b(b), loc(op.getLoc()),
        type(getStateType(getElementTypeOrSelf(op.getQuery()))) {}

  LogicalResult check();
  void emit();

private:
  /// In the type of sums, with query heads by key head, "bgrn.".
  Value splitHeads(Value tensor);
  Value mergeHeads(Value tensor, Value like);
  Value getTile(Value tensor);
  SmallVector<Value> emitTile(ValueRange sums);
  Value isAdmitted(OpBuilder &b);

  DenseBackwardOp op;
  OpBuilder &b;
  Location loc;
  FloatType type;
  int64_t heads = 0, keyHeads = 0;
  Value query, key, value, output, lse, dOutput, dLse;
  /// Of a tile: its first query, its number of queries, and the position of
  /// the first one among the keys.
  Value first, count, position;
};
} // namespace

LogicalResult TiledGradient::check() {
  auto fail = [&](const Twine &what) {
    return op.emitOpError("has no gradient: a second derivative of attention "
                          "with ")
           << what << " is not known";
  };
  if (StringRef term = findDenseTerm(op); !term.empty())
    return fail(term);
  heads = cast<ShapedType>(op.getQuery().getType()).getDimSize(1);
  keyHeads = cast<ShapedType>(op.getKey().getType()).getDimSize(1);
  if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(keyHeads))
    return fail("numbers of heads that are not known");
  return success();
}

Value TiledGradient::splitHeads(Value tensor) {
  tensor = convertFloat(b, loc, tensor, type);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  sizes[1] = b.getIndexAttr(keyHeads);
  sizes.insert(sizes.begin() + 2, b.getIndexAttr(heads / keyHeads));
  SmallVector<ReassociationIndices> groups = {{0}, {1, 2}};
  for (int64_t dim = 3; dim < static_cast<int64_t>(sizes.size()); ++dim)
    groups.push_back({dim});
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamic;
  dispatchIndexOpFoldResults(sizes, dynamic, shape);
  return tensor::ExpandShapeOp::create(
      b, loc, RankedTensorType::get(shape, type), tensor, groups, sizes);
}

Value TiledGradient::mergeHeads(Value tensor, Value like) {
  SmallVector<ReassociationIndices> groups = {{0}, {1, 2}, {3}, {4}};
  Value merged = tensor::CollapseShapeOp::create(b, loc, tensor, groups);
  return convertFloat(b, loc, merged, getElementTypeOrSelf(like));
}

/// The queries of the tile of a tensor "bgrn" or "bgrn.".
Value TiledGradient::getTile(Value tensor) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)),
      strides(sizes.size(), b.getIndexAttr(1));
  offsets[3] = first;
  sizes[3] = count;
  return tensor::ExtractSliceOp::create(b, loc, tensor, offsets, sizes,
                                        strides);
}

/// Whether the mask admits an entry of a tile "bgrij".
Value TiledGradient::isAdmitted(OpBuilder &b) {
  MaskAttr mask = op.getMaskOrNone();
  Value truth = arith::ConstantOp::create(b, loc, b.getBoolAttr(true));
  if (!mask)
    return truth;
  Value i = linalg::IndexOp::create(b, loc, 3);
  Value j = linalg::IndexOp::create(b, loc, 4);
  Value at = arith::AddIOp::create(b, loc, i, position);
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, loc, value);
  };
  auto isLess = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y);
  };
  Value admitted = truth;
  if (mask.getCausal()) {
    Value end = arith::AddIOp::create(b, loc, at, constant(1));
    end = arith::MaxSIOp::create(b, loc, end, constant(mask.getPrefix()));
    admitted = isLess(j, end);
  }
  if (int64_t window = mask.getWindow()) {
    Value distance = arith::SubIOp::create(b, loc, at, j);
    for (Value inside : {isLess(distance, constant(window)),
                         isLess(constant(-window), distance)})
      admitted = arith::AndIOp::create(b, loc, admitted, inside);
  }
  return admitted;
}

/// The names are those of the operation's description.
SmallVector<Value> TiledGradient::emitTile(ValueRange sums) {
  Writer write(b, loc);
  Value q = getTile(query), dOut = getTile(dOutput), rows = getTile(lse);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, q);
  SmallVector<OpFoldResult> rowSizes(sizes.begin(), sizes.end() - 1);
  SmallVector<OpFoldResult> scoreSizes = rowSizes;
  scoreSizes.push_back(tensor::getMixedSize(b, loc, key, 2));
  auto scalar = [&](OpBuilder &b, double number) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, number));
  };
  double scale = op.getScaleOrDefault();

  Value scores = write.contract({q, "bgrid"}, {key, "bgjd"},
                                {write.zeros(scoreSizes, type), "bgrij"});
  // A row that reads nothing has no finite lse.
  Value p = write.map(
      {{scores, "bgrij"}, {rows, "bgri"}},
      {write.empty(scoreSizes, type), "bgrij"},
      [&](OpBuilder &b, ValueRange x) -> Value {
        Value admitted = isAdmitted(b);
        Value zero = scalar(b, 0.0);
        Value power = arith::SubFOp::create(
            b, loc, arith::MulFOp::create(b, loc, x[0], scalar(b, scale)),
            x[1]);
        power = arith::SelectOp::create(b, loc, admitted, power, zero);
        return arith::SelectOp::create(
            b, loc, admitted, math::ExpOp::create(b, loc, power), zero);
      });
  Value delta = write.contract({dOut, "bgrie"}, {getTile(output), "bgrie"},
                               {write.zeros(rowSizes, type), "bgri"});
  if (dLse)
    delta = write.map({{delta, "bgri"}, {getTile(dLse), "bgri"}},
                      {write.empty(rowSizes, type), "bgri"},
                      [&](OpBuilder &b, ValueRange x) -> Value {
                        return arith::SubFOp::create(b, loc, x[0], x[1]);
                      });
  Value dP = write.contract({dOut, "bgrie"}, {value, "bgje"},
                            {write.zeros(scoreSizes, type), "bgrij"});
  Value dS =
      write.map({{p, "bgrij"}, {dP, "bgrij"}, {delta, "bgri"}},
                {write.empty(scoreSizes, type), "bgrij"},
                [&](OpBuilder &b, ValueRange x) -> Value {
                  Value rest = arith::SubFOp::create(b, loc, x[1], x[2]);
                  Value share = arith::MulFOp::create(b, loc, x[0], rest);
                  return arith::MulFOp::create(b, loc, share, scalar(b, scale));
                });
  Value dQ = write.contract({dS, "bgrij"}, {key, "bgjd"},
                            {write.zeros(sizes, type), "bgrid"});
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)),
      strides(sizes.size(), b.getIndexAttr(1));
  offsets[3] = first;
  return {tensor::InsertSliceOp::create(b, loc, dQ, sums[0], offsets, sizes,
                                        strides),
          write.contract({dS, "bgrij"}, {q, "bgrid"}, {sums[1], "bgjd"}),
          write.contract({p, "bgrij"}, {dOut, "bgrie"}, {sums[2], "bgje"})};
}

void TiledGradient::emit() {
  query = splitHeads(op.getQuery());
  output = splitHeads(op.getOutput());
  lse = splitHeads(op.getLse());
  dOutput = splitHeads(op.getDOutput());
  if (op.getDLse())
    dLse = splitHeads(op.getDLse());
  key = convertFloat(b, loc, op.getKey(), type);
  value = convertFloat(b, loc, op.getValue(), type);
  SmallVector<Value> sums;
  for (Value like : {query, key, value})
    sums.push_back(createZerosLike(b, loc, like, type));
  auto constant = [&](int64_t number) -> Value {
    return arith::ConstantIndexOp::create(b, loc, number);
  };
  Value numQueries = b.createOrFold<tensor::DimOp>(loc, query, 3);
  Value numKeys = b.createOrFold<tensor::DimOp>(loc, key, 2);
  Value lag = b.createOrFold<arith::SubIOp>(loc, numKeys, numQueries);
  Value tile = constant(kTileQueries);
  auto loop = scf::ForOp::create(b, loc, constant(0), numQueries, tile, sums);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    first = loop.getInductionVar();
    Value rest = arith::SubIOp::create(b, loc, numQueries, first);
    count = arith::MinSIOp::create(b, loc, rest, tile);
    position = arith::AddIOp::create(b, loc, first, lag);
    scf::YieldOp::create(b, loc, emitTile(loop.getRegionIterArgs()));
  }
  SmallVector<Value> results = {
      mergeHeads(loop.getResult(0), op.getDQuery()),
      convertFloat(b, loc, loop.getResult(1),
                   getElementTypeOrSelf(op.getDKey())),
      convertFloat(b, loc, loop.getResult(2),
                   getElementTypeOrSelf(op.getDValue()))};
  for (auto [result, replacement] : llvm::zip_equal(op.getResults(), results))
    if (result.getType() != replacement.getType())
      replacement =
          tensor::CastOp::create(b, loc, result.getType(), replacement);
  op->replaceAllUsesWith(results);
  op->erase();
}

LogicalResult fovea::attn::expandGradient(DenseBackwardOp op) {
  OpBuilder b(op);
  TiledGradient gradient(op, b);
  if (failed(gradient.check()))
    return failure();
  gradient.emit();
  return success();
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

namespace {
/// The gradient of turning back is turning.
struct TurnBackModel
    : DifferentiableOpInterface::ExternalModel<TurnBackModel, RopeBackwardOp> {
  LogicalResult emitVJP(Operation *op, OpBuilder &b, Adjoints &adjoints) const {
    auto turn = cast<RopeBackwardOp>(op);
    Location loc = op->getLoc();
    Value adjoint = adjoints.find(op->getResult(0));
    Value init =
        createEmptyLike(b, loc, adjoint, getElementTypeOrSelf(adjoint));
    OperationState state(loc, RopeOp::getOperationName(),
                         {adjoint, turn.getPositions(), init}, init.getType(),
                         op->getAttrs());
    adjoints.add(b, turn.getDOutput(), b.create(state)->getResult(0));
    return success();
  }
};
} // namespace

void fovea::attn::registerSecondRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    RopeBackwardOp::attachInterface<TurnBackModel>(*context);
  });
}
