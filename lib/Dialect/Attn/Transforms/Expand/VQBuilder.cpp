//===- VQBuilder.cpp - Parts of attention over quantized keys -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQBuilder.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

VQBuilder::VQBuilder(OpBuilder &builder, Location loc, Value codebook)
    : builder(builder), loc(loc) {
  bindSymbols(builder.getContext(), s[0], s[1], s[2]);
  auto type = cast<RankedTensorType>(codebook.getType());
  SmallVector<int64_t> shape = {1};
  llvm::append_range(shape, type.getShape());
  table = tensor::ExpandShapeOp::create(
      builder, loc, RankedTensorType::get(shape, type.getElementType()),
      codebook, ArrayRef<ReassociationIndices>{{0, 1}, {2}, {3}});
}

OpFoldResult VQBuilder::apply(AffineExpr expr, ArrayRef<OpFoldResult> symbols) {
  return affine::makeComposedFoldedAffineApply(builder, loc, expr, symbols);
}

OpFoldResult VQBuilder::min(ArrayRef<AffineExpr> exprs,
                            ArrayRef<OpFoldResult> symbols) {
  return affine::makeComposedFoldedAffineMin(
      builder, loc, getMap(exprs, symbols.size()), symbols);
}

OpFoldResult VQBuilder::max(ArrayRef<AffineExpr> exprs,
                            ArrayRef<OpFoldResult> symbols) {
  return affine::makeComposedFoldedAffineMax(
      builder, loc, getMap(exprs, symbols.size()), symbols);
}

OpFoldResult VQBuilder::extent(Value tensor, int64_t dim) {
  return tensor::getMixedSize(builder, loc, tensor, dim);
}

Value VQBuilder::equal(OpFoldResult a, OpFoldResult b) {
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, value(a),
                               value(b));
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

VQBuilder::Slice VQBuilder::getSlice(Value tensor, int64_t dim,
                                     OpFoldResult offset, OpFoldResult size) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, tensor);
  SmallVector<OpFoldResult> offsets(sizes.size(), constant(0)),
      strides(sizes.size(), constant(1));
  offsets[dim] = offset;
  sizes[dim] = size;
  return {offsets, sizes, strides};
}

Value VQBuilder::slice(Value tensor, int64_t dim, OpFoldResult offset,
                       OpFoldResult size) {
  auto [offsets, sizes, strides] = getSlice(tensor, dim, offset, size);
  return tensor::ExtractSliceOp::create(builder, loc, tensor, offsets, sizes,
                                        strides);
}

Value VQBuilder::insert(Value part, Value tensor, int64_t dim,
                        OpFoldResult offset) {
  auto [offsets, sizes, strides] =
      getSlice(tensor, dim, offset, extent(part, dim));
  return tensor::InsertSliceOp::create(builder, loc, part, tensor, offsets,
                                       sizes, strides);
}

Value VQBuilder::empty(ArrayRef<OpFoldResult> sizes, Type elementType) {
  return tensor::EmptyOp::create(builder, loc, sizes, elementType);
}

Value VQBuilder::fillZero(Value init) {
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(getElementTypeOrSelf(init)));
  return linalg::FillOp::create(builder, loc, zero, init).getResult(0);
}

//===----------------------------------------------------------------------===//
// Absent tokens
//===----------------------------------------------------------------------===//

static Value isAbsent(OpBuilder &b, Location loc, Value code) {
  Value zero = arith::ConstantIntOp::create(b, loc, 0, 32);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, code, zero);
}

static Value getNumber(OpBuilder &b, Location loc, Type type, double value) {
  return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
}

Value VQBuilder::mapCodes(Value codes, Type elementType,
                          function_ref<Value(OpBuilder &, Value)> map) {
  Value init = empty(tensor::getMixedSizes(builder, loc, codes), elementType);
  SmallVector<AffineMap> maps(2, builder.getMultiDimIdentityMap(3));
  SmallVector<utils::IteratorType> loops(3, utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             builder, loc, init.getType(), codes, init, maps, loops,
             [&](OpBuilder &b, Location, ValueRange elements) {
               linalg::YieldOp::create(b, loc, map(b, elements[0]));
             })
      .getResult(0);
}

ReadTokens VQBuilder::read(const Tokens &tokens, bool mayBeAbsent) {
  if (!mayBeAbsent)
    return {tokens.codes, tokens.values};
  Value codes = mapCodes(
      tokens.codes, builder.getI32Type(), [&](OpBuilder &b, Value code) {
        Value zero = arith::ConstantIntOp::create(b, loc, 0, 32);
        return arith::MaxSIOp::create(b, loc, code, zero).getResult();
      });
  Type state = getStateType(getElementTypeOrSelf(tokens.values));
  Value logWeights =
      mapCodes(tokens.codes, state, [&](OpBuilder &b, Value code) {
        double none = -std::numeric_limits<double>::infinity();
        return arith::SelectOp::create(b, loc, isAbsent(b, loc, code),
                                       getNumber(b, loc, state, none),
                                       getNumber(b, loc, state, 0.0))
            .getResult();
      });
  return {codes, tokens.values, logWeights};
}

/// Heads of queries are a dimension [H] of rows and two, [G, H / G], here: so
/// codes of heads of keys are read along a dimension.
Value VQBuilder::fillAbsent(Value rows, Value codes, double value) {
  auto type = cast<RankedTensorType>(rows.getType());
  int64_t numGroups = cast<RankedTensorType>(codes.getType()).getDimSize(1);
  SmallVector<int64_t> shape(type.getShape());
  shape[1] = numGroups;
  shape.insert(shape.begin() + 2, type.getDimSize(1) / numGroups);
  SmallVector<ReassociationIndices> dims = {{0}, {1, 2}};
  for (int64_t dim = 3; dim <= type.getRank(); ++dim)
    dims.push_back({dim});
  auto split = RankedTensorType::get(shape, type.getElementType());
  Value all = tensor::ExpandShapeOp::create(builder, loc, split, rows, dims);
  MLIRContext *context = builder.getContext();
  int64_t rank = split.getRank();
  AffineMap ofCodes = AffineMap::get(rank, 0,
                                     {getAffineDimExpr(0, context),
                                      getAffineDimExpr(1, context),
                                      getAffineDimExpr(3, context)},
                                     context);
  SmallVector<AffineMap> maps = {ofCodes, builder.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  Value filled =
      linalg::GenericOp::create(
          builder, loc, split, codes, all, maps, loops,
          [&](OpBuilder &b, Location, ValueRange elements) {
            Value number = getNumber(b, loc, type.getElementType(), value);
            Value kept = arith::SelectOp::create(
                b, loc, isAbsent(b, loc, elements[0]), number, elements[1]);
            linalg::YieldOp::create(b, loc, kept);
          })
          .getResult(0);
  return tensor::CollapseShapeOp::create(builder, loc, type, filled, dims);
}

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

Summary VQBuilder::emptySummary(Value values) {
  SmallVector<OpFoldResult> sizes = {extent(values, 0), extent(values, 1),
                                     extent(table, 2), extent(values, 3)};
  Type state = getStateType(getElementTypeOrSelf(values));
  Value mean = empty(sizes, state);
  sizes.pop_back();
  return {fillZero(mean), fillZero(empty(sizes, builder.getI32Type()))};
}

/// How `[B, G, 1, ..]` becomes `[B, G, ..]`, of `rank` dimensions.
static SmallVector<ReassociationIndices> getEntryDims(int64_t rank) {
  SmallVector<ReassociationIndices> dims = {{0}, {1}, {2, 3}};
  for (int64_t dim = 4; dim <= rank; ++dim)
    dims.push_back({dim});
  return dims;
}

Summary VQBuilder::insertEntry(const Summary &entry, const Summary &entries,
                               OpFoldResult number) {
  auto insertPart = [&](Value part, Value all) -> Value {
    auto type = cast<RankedTensorType>(part.getType());
    if (Type narrow = getElementTypeOrSelf(all);
        type.getElementType() != narrow) {
      type = type.clone(narrow);
      part = arith::TruncFOp::create(builder, loc, type, part);
    }
    SmallVector<int64_t> shape(type.getShape());
    shape.insert(shape.begin() + 2, 1);
    Value one = tensor::ExpandShapeOp::create(
        builder, loc, RankedTensorType::get(shape, type.getElementType()), part,
        getEntryDims(type.getRank()));
    return insert(one, all, 2, number);
  };
  return {insertPart(entry.mean, entries.mean),
          insertPart(entry.count, entries.count)};
}

Summary VQBuilder::extractEntry(const Summary &entries, OpFoldResult number) {
  auto extractPart = [&](Value all) -> Value {
    Value one = slice(all, 2, number, constant(1));
    return tensor::CollapseShapeOp::create(
        builder, loc, one,
        getEntryDims(cast<RankedTensorType>(all.getType()).getRank() - 1));
  };
  return {extractPart(entries.mean), extractPart(entries.count)};
}

Summary VQBuilder::accumulate(const Tokens &tokens, const Summary &summary) {
  auto op = CodebookAccumulateOp::create(
      builder, loc, TypeRange{summary.mean.getType(), summary.count.getType()},
      tokens.codes, tokens.values, summary.mean, summary.count);
  return {op->getResult(0), op->getResult(1)};
}

Summary VQBuilder::when(Value condition, const Summary &summary,
                        function_ref<Summary(const Summary &)> then,
                        function_ref<Summary(const Summary &)> otherwise) {
  auto ifOp = scf::IfOp::create(
      builder, loc, TypeRange{summary.mean.getType(), summary.count.getType()},
      condition,
      /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(builder);
  for (auto [block, choice] : {std::pair{ifOp.thenBlock(), then},
                               std::pair{ifOp.elseBlock(), otherwise}}) {
    builder.setInsertionPointToStart(block);
    Summary chosen = choice(summary);
    scf::YieldOp::create(builder, loc, ValueRange{chosen.mean, chosen.count});
  }
  return {ifOp.getResult(0), ifOp.getResult(1)};
}

void VQBuilder::addCache(StreamSources &sources, const Summary &summary,
                         AffineMap range) {
  Value init = empty(tensor::getMixedSizes(builder, loc, summary.count),
                     getStateType(getElementTypeOrSelf(summary.mean)));
  Value logs =
      LogCountOp::create(builder, loc, init.getType(), summary.count, init)
          ->getResult(0);
  sources.add({table, summary.mean, logs, Value(), Value(), SourceAttr()},
              range);
}

//===----------------------------------------------------------------------===//
// Kept tokens
//===----------------------------------------------------------------------===//

Tokens VQBuilder::keep(const Tokens &tokens, Tokens kept, OpFoldResult position,
                       int64_t numRows) {
  OpFoldResult rows = extent(tokens.codes, 2);
  OpFoldResult first = max({s[0] - numRows, constantExpr(0)}, {rows});
  auto copyRow = [&](OpFoldResult row, Tokens kept) -> Tokens {
    OpFoldResult target = apply((s[0] + s[1]) % numRows, {position, row});
    Tokens token = slice(tokens, row, constant(1));
    return {insert(token.codes, kept.codes, 2, target),
            insert(token.values, kept.values, 2, target)};
  };
  if (getConstantIntValue(rows) == 1)
    return copyRow(constant(0), kept);
  // One row that every step of a loop replaced would be no state of it.
  if (numRows == 1) {
    auto ifOp = scf::IfOp::create(
        builder, loc, ValueRange{kept.codes, kept.values}.getTypes(),
        equal(rows, constant(0)), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(ifOp.thenBlock());
    scf::YieldOp::create(builder, loc, ValueRange{kept.codes, kept.values});
    builder.setInsertionPointToStart(ifOp.elseBlock());
    Tokens last = copyRow(apply(s[0] - 1, {rows}), kept);
    scf::YieldOp::create(builder, loc, ValueRange{last.codes, last.values});
    return {ifOp.getResult(0), ifOp.getResult(1)};
  }
  auto loop = scf::ForOp::create(builder, loc, value(first), value(rows),
                                 value(constant(1)),
                                 ValueRange{kept.codes, kept.values});
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Tokens next = copyRow(loop.getInductionVar(),
                        {loop.getRegionIterArg(0), loop.getRegionIterArg(1)});
  scf::YieldOp::create(builder, loc, ValueRange{next.codes, next.values});
  return {loop.getResult(0), loop.getResult(1)};
}

OpFoldResult VQBuilder::getRow(OpFoldResult position, int64_t block,
                               int64_t memory) {
  return apply(s[0] % ((memory + 1) * block) - s[0] % block, {position});
}

Ring VQBuilder::readRing(const Tokens &kept, OpFoldResult position,
                         int64_t block, int64_t memory) {
  OpFoldResult start = getRow(position, block, memory);
  // A slice of nothing has to begin inside.
  OpFoldResult next = apply((s[0] + block) % ((memory + 1) * block), {start});
  // A single block is whole, on either side. The first blocks have fewer before
  // them, none of which lies behind.
  if (memory <= 1)
    return {start,
            slice(kept, next,
                  min({s[0] - s[0] % block, constantExpr(block)}, {position})),
            std::nullopt};
  OpFoldResult numOlder = min(
      {memory * block - s[0], s[1] - s[1] % block - s[0]}, {start, position});
  return {start, slice(kept, next, numOlder), slice(kept, constant(0), start)};
}

Tokens VQBuilder::getOldest(const Tokens &kept, OpFoldResult position,
                            int64_t block, int64_t memory) {
  // The block after the present one takes its place.
  OpFoldResult row = getRow(apply(s[0] + block, {position}), block, memory);
  OpFoldResult end =
      max({s[0] - s[0] % block + (1 - memory) * block, constantExpr(0)},
          {position});
  OpFoldResult size = min({s[0], constantExpr(block)}, {end});
  return slice(kept, row, size);
}

OpFoldResult VQBuilder::loadPosition(Value position) {
  Value element = tensor::ExtractOp::create(builder, loc, position,
                                            /*indices=*/ValueRange());
  return OpFoldResult(arith::IndexCastOp::create(
      builder, loc, builder.getIndexType(), element));
}

Value VQBuilder::storePosition(OpFoldResult position) {
  Value element = arith::IndexCastOp::create(builder, loc, builder.getI64Type(),
                                             value(position));
  return tensor::FromElementsOp::create(
      builder, loc, RankedTensorType::get({}, builder.getI64Type()), element);
}
