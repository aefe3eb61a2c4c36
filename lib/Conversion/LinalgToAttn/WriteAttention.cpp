//===- WriteAttention.cpp - An attention as attn.dense ----------------------
//===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccessWriter.h"
#include "Attention.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;

/// The type that can hold what all of the tensors have.
static Type getCommonType(ArrayRef<Type> types) {
  Type widest = types.front();
  for (Type type : types) {
    if (type.getIntOrFloatBitWidth() > widest.getIntOrFloatBitWidth())
      widest = type;
    else if (type != widest &&
             type.getIntOrFloatBitWidth() == widest.getIntOrFloatBitWidth())
      widest = Float32Type::get(type.getContext());
  }
  return widest;
}

/// What the term adds to a score.
static Value writeTerm(OpBuilder &b, Location loc, const ScoreTerm &term,
                       Value number, FloatType type) {
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
  };
  if (term.hidden) {
    Value zero = constant(0);
    // What replaces a score hides also NaN. Added to it, it stays what it is:
    // where nothing else is left, keys are weighed as in the program.
    Value hidden =
        constant(term.replaces ? -std::numeric_limits<double>::infinity()
                               : *term.hidden);
    if (!term.admits)
      std::swap(zero, hidden);
    return arith::SelectOp::create(b, loc, number, zero, hidden);
  }
  unsigned width = number.getType().getIntOrFloatBitWidth();
  if (width < type.getWidth())
    number = arith::ExtFOp::create(b, loc, type, number);
  else if (width > type.getWidth())
    number = arith::TruncFOp::create(b, loc, type, number);
  if (term.factor == 1)
    return number;
  return arith::MulFOp::create(b, loc, number, constant(term.factor));
}

/// The sum of all terms, of extents of 1 along which none of them varies.
static Value writeBias(OpBuilder &builder, Location loc, AccessWriter &writer,
                       const AccessTrace &trace, ArrayRef<ScoreTerm> terms,
                       ArrayRef<IndexList> dims, FloatType type,
                       Type dataType) {
  SmallVector<Value> inputs;
  SmallVector<int64_t> shape(dims.size(), 1);
  for (const ScoreTerm &term : terms) {
    Value input = writer.writeSmallest(term.number, dims);
    inputs.push_back(input);
    for (auto [extent, most] : llvm::zip_equal(trace.getShape(input), shape))
      most = std::max(most, extent);
  }
  Type element = getElementTypeOrSelf(inputs.front().getType());
  if (terms.size() == 1 && !terms.front().hidden && terms.front().factor == 1 &&
      (element == type || element == dataType))
    return inputs.front();
  SmallVector<AffineMap> maps;
  for (Value input : inputs) {
    SmallVector<AffineExpr> exprs;
    for (auto [loop, extent] : llvm::enumerate(trace.getShape(input)))
      exprs.push_back(extent == shape[loop] ? builder.getAffineDimExpr(loop)
                                            : builder.getAffineConstantExpr(0));
    maps.push_back(
        AffineMap::get(shape.size(), 0, exprs, builder.getContext()));
  }
  maps.push_back(
      AffineMap::getMultiDimIdentityMap(shape.size(), builder.getContext()));
  SmallVector<utils::IteratorType> loops(shape.size(),
                                         utils::IteratorType::parallel);
  Value empty = writer.createEmpty(shape, type);
  auto body = [&](OpBuilder &b, Location loc, ValueRange arguments) {
    Value sum;
    for (auto [term, number] : llvm::zip_first(terms, arguments)) {
      Value part = writeTerm(b, loc, term, number, type);
      sum = sum ? Value(arith::AddFOp::create(b, loc, sum, part)) : part;
    }
    linalg::YieldOp::create(b, loc, sum);
  };
  return linalg::GenericOp::create(builder, loc, TypeRange(empty.getType()),
                                   inputs, ValueRange(empty), maps, loops, body)
      ->getResult(0);
}

/// The score of a sink for each head, or one for all.
static Value writeSink(OpBuilder &builder, Location loc, AccessWriter &writer,
                       const Attention &attention, FloatType type) {
  const Softmax &softmax = attention.softmax;
  Value sink = writer.convert(
      writer.writeSmallest(*softmax.sink, {attention.batch, attention.heads()}),
      type);
  if (softmax.factor == 1)
    return sink;
  auto factor = DenseElementsAttr::get(
      cast<ShapedType>(sink.getType()),
      cast<Attribute>(builder.getFloatAttr(type, softmax.factor)));
  return arith::MulFOp::create(builder, loc, sink,
                               arith::ConstantOp::create(builder, loc, factor));
}

/// From 0 to the number of columns, whatever the program's numbers are.
static Value writeLengths(OpBuilder &builder, Location loc,
                          AccessWriter &writer, const Attention &attention,
                          int64_t columns) {
  const KeyLengths &lengths = *attention.lengths;
  int64_t last = lengths.isLast ? 1 : 0;
  Type wide = builder.getI64Type();
  auto constant = [&](OpBuilder &b, int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
  };
  Value most = arith::IndexCastOp::create(builder, loc, wide,
                                          writer.createExtent(columns));
  most = arith::SubIOp::create(builder, loc, most, constant(builder, last));
  Value numbers = writer.write(lengths.number, {attention.batch});
  Value empty = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, numbers),
      builder.getI32Type());
  AffineMap map = builder.getMultiDimIdentityMap(1);
  auto body = [&](OpBuilder &b, Location loc, ValueRange arguments) {
    Value number = arguments.front();
    if (number.getType().isIndex())
      number = arith::IndexCastOp::create(b, loc, wide, number);
    else if (number.getType() != wide)
      number = arith::ExtSIOp::create(b, loc, wide, number);
    number = arith::MaxSIOp::create(b, loc, number, constant(b, -last));
    number = arith::MinSIOp::create(b, loc, number, most);
    number = arith::AddIOp::create(b, loc, number, constant(b, last));
    number = arith::TruncIOp::create(b, loc, b.getI32Type(), number);
    linalg::YieldOp::create(b, loc, number);
  };
  return linalg::GenericOp::create(builder, loc, TypeRange(empty.getType()),
                                   numbers, ValueRange(empty), {map, map},
                                   ArrayRef{utils::IteratorType::parallel},
                                   body)
      ->getResult(0);
}

Value fovea::attn::detail::writeAttention(OpBuilder &builder,
                                          AccessTrace &trace,
                                          const Attention &attention) {
  Operation *op = attention.op;
  Location loc = op->getLoc();
  AccessWriter writer(builder, loc, trace);
  auto resultType = cast<RankedTensorType>(op->getResult(0).getType());
  auto getType = [](const Access &access) {
    return getElementTypeOrSelf(access.value);
  };
  auto type = cast<FloatType>(
      getCommonType({getType(attention.query), getType(attention.key),
                     getType(attention.value), resultType.getElementType()}));
  IndexList heads = attention.heads();
  auto write = [&](const Access &access, const IndexLists &dims) {
    return writer.convert(writer.write(access, dims), type);
  };
  Value query = write(attention.query, {attention.batch, heads, attention.rows,
                                        attention.depth});
  Value key = write(attention.key, {attention.batch, attention.keyHeads,
                                    attention.columns, attention.depth});
  Value value = write(attention.value, {attention.batch, attention.keyHeads,
                                        attention.columns, attention.width});
  FloatType sums = getStateType(type);
  SmallVector<Value> captures = writeCaptures(builder, writer, attention, sums);
  Value bias;
  if (!attention.terms.empty()) {
    bias =
        writeBias(builder, loc, writer, trace, attention.terms,
                  {attention.batch, heads, attention.rows, attention.columns},
                  sums, type);
  }
  Value sink;
  if (attention.softmax.sink)
    sink = writeSink(builder, loc, writer, attention, sums);
  Value lengths;
  if (attention.lengths)
    lengths = writeLengths(builder, loc, writer, attention,
                           trace.getExtent(attention.columns));
  IndexLists dims = {attention.batch, heads, attention.rows, attention.width};
  SmallVector<int64_t> shape = llvm::map_to_vector(
      dims, [&](const IndexList &list) { return trace.getExtent(list); });
  Value empty = writer.createEmpty(shape, type);
  auto dense = DenseOp::create(
      builder, loc, TypeRange(empty.getType()), query, key, value,
      /*log_weight=*/Value(), bias, sink, lengths,
      /*query_lengths=*/Value(), captures, empty,
      /*lse=*/Value(), builder.getF64FloatAttr(attention.scale), attention.mask,
      /*scoreCount=*/attention.hasRegion() ? 1 : 0);
  if (attention.hasRegion())
    writeScoreRegion(attention, dense.getScore().front(), sums, captures,
                     trace.getExtent(attention.columns) -
                         trace.getExtent(attention.rows));
  Value result = writer.relayout(dense->getResult(0), dims, attention.result);
  result = writer.convert(result, resultType.getElementType());
  if (result.getType() == resultType)
    return result;
  return tensor::CastOp::create(builder, loc, resultType, result);
}
