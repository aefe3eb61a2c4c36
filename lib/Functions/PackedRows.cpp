//===- PackedRows.cpp - Packed sequences as a batch -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackedRows.h"
#include "Call.h"
#include "IndexBuilder.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include <limits>

using namespace mlir;
using namespace fovea;
using namespace fovea::functions;
using llvm::Error, llvm::Expected, llvm::StringRef, llvm::Twine;

/// `compute` for every point of `inits`, with the elements that `maps` name.
static linalg::GenericOp forPoints(
    IndexBuilder &b, ValueRange inputs, ValueRange inits,
    ArrayRef<AffineMap> maps, int64_t numReductions,
    function_ref<SmallVector<Value>(IndexBuilder &, ValueRange)> compute) {
  SmallVector<utils::IteratorType> loops(maps.front().getNumDims(),
                                         utils::IteratorType::parallel);
  for (int64_t i = 0; i < numReductions; ++i)
    loops[loops.size() - 1 - i] = utils::IteratorType::reduction;
  return linalg::GenericOp::create(
      b, inits.getTypes(), inputs, inits, maps, loops,
      [&](OpBuilder &nested, Location loc, ValueRange elements) {
        IndexBuilder inner(loc, nested);
        linalg::YieldOp::create(inner, compute(inner, elements));
      });
}

/// A map of `rank` dimensions to those.
static AffineMap getMap(OpBuilder &b, unsigned rank, ArrayRef<unsigned> dims) {
  return AffineMap::getMultiDimMapWithTargets(rank, dims, b.getContext());
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// Kernels are for any number of rows and of sequences. `extents`, an array
/// without elements, tells them: no other argument may have them.
static const attn::Contract &getPlacesContract() {
  static const attn::Contract contract("packed_places", "extents: [B, #T, 0]\n"
                                                        "starts: [#S]\n"
                                                        "sequences?: i32[B]\n"
                                                        "firsts: i32[B]\n"
                                                        "lengths: i32[B]\n"
                                                        "places: i32[#T]");
  return contract;
}

/// First rows, lengths, which are checked, and places. No sequence has a length
/// where starts do not begin with 0 and end with the number of rows.
static SmallVector<Value> buildPlaces(IndexBuilder &b, StringRef name,
                                      Value starts, Value sequences,
                                      ValueRange inits, int64_t most) {
  auto type = cast<RankedTensorType>(inits[0].getType());
  Value last = b.lastOf(starts);
  Value lastSequence = b.createOrFold<arith::SubIOp>(last, b.number(1));
  Value numRows = b.extent(inits[2], 0), lastRow = b.lastOf(inits[2]);
  using Is = arith::CmpIPredicate;
  AffineMap one = b.getMultiDimIdentityMap(1);
  Value found = tensor::EmptyOp::create(
      b, tensor::getMixedSizes(b, b.getLoc(), inits[0]), b.getI32Type());
  auto lengths = forPoints(
      b, {}, {found, inits[0], inits[1]}, {one, one, one}, /*numReductions=*/0,
      [&](IndexBuilder &k, ValueRange) -> SmallVector<Value> {
        Value entry = k.index(0);
        if (sequences)
          entry = k.clamp(k.load(sequences, entry), 0, lastSequence);
        Value next = arith::AddIOp::create(k, entry, k.number(1));
        Value first = k.load(starts, entry);
        Value length = arith::SubIOp::create(k, k.load(starts, next), first);
        Value begins = k.is(Is::eq, k.load(starts, k.number(0)), k.number(0));
        Value ends = k.is(Is::eq, k.load(starts, last), numRows);
        Value isWhole = arith::AndIOp::create(k, begins, ends);
        length = k.select(isWhole, length, k.number(-1));
        return {k.narrow(k.clamp(length, -1, k.number(most + 1))),
                k.narrow(k.clamp(first, 0, lastRow)),
                k.narrow(k.clamp(length, 0, k.number(most)))};
      });
  Value list = tensor::ExpandShapeOp::create(
      b, RankedTensorType::get({1, 1, type.getDimSize(0)}, b.getI32Type()),
      lengths.getResult(0), ArrayRef<ReassociationIndices>{{0, 1, 2}});
  attn::CheckCodesOp::create(b, list, b.number(most + 1),
                             ("varlen: lengths of " + name).str());

  Value none = arith::ConstantOp::create(b, b.getI32IntegerAttr(-1));
  Value nowhere = linalg::FillOp::create(b, none, inits[2]).getResult(0);
  AffineMap ofEntry = getMap(b, 2, {1}), ofRow = getMap(b, 2, {0});
  auto places = forPoints(
      b, {lengths.getResult(1), lengths.getResult(2)}, nowhere,
      {ofEntry, ofEntry, ofRow}, /*numReductions=*/1,
      [&](IndexBuilder &k, ValueRange elements) {
        Value row = arith::SubIOp::create(k, k.index(0), k.widen(elements[0]));
        // Those before the first row are large numbers, too.
        Value isThere = k.is(Is::ult, row, k.widen(elements[1]));
        Value first = arith::MulIOp::create(k, k.index(1), k.number(most));
        Value place = k.narrow(arith::AddIOp::create(k, first, row));
        return SmallVector<Value>{k.select(isThere, place, elements[2])};
      });
  return {lengths.getResult(1), lengths.getResult(2), places.getResult(0)};
}

PackedRows::PackedRows(Checker &check, StringRef name, const Argument &starts,
                       int64_t numRows, int64_t most,
                       const std::optional<Argument> &sequences, Target target)
    : starts(starts), sequences(sequences), numRows(numRows), most(most),
      target(target) {
  check.check(most * getBatch() <= std::numeric_limits<int32_t>::max() &&
                  numRows <= std::numeric_limits<int32_t>::max(),
              name + ": found " + Twine(getBatch()) + " sequences of up to " +
                  Twine(most) + " rows, needed at most 2147483647 rows");
  if (check.hasFailed())
    return;
  Argument extents = starts;
  extents.name = "extents";
  extents.shape = {getBatch(), numRows, 0};
  extents.strides = {};
  Call call(getPlacesContract(), target, {});
  call.operands({extents, starts});
  call.operandIf(sequences);
  // What the body knows, the key of the kernel has.
  call.attribute("most", most);
  call.flag("is_of_queries", name == "cu_seqlens_q");
  call.result(check, "firsts", ElementType::I32, {getBatch()});
  call.result(check, "lengths", ElementType::I32, {getBatch()});
  call.result(check, "places", ElementType::I32, {numRows});
  call.setBody([&](OpBuilder &builder, ValueRange arguments, ValueRange inits) {
    IndexBuilder b(builder.getUnknownLoc(), builder);
    return buildPlaces(b, name, arguments[1],
                       sequences ? arguments[2] : Value(), inits, most);
  });
  Expected<SmallVector<OwnedTensor>> made =
      call.runChecked(check, getBatch() == 0 || numRows == 0);
  if (!made) {
    check.fail(made.takeError());
    return;
  }
  firsts = std::move((*made)[0]);
  lengths = std::move((*made)[1]);
  places = std::move((*made)[2]);
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Where loops over a batch [B,H,most,D] or [B,H,most] read rows [T,H,D] or
/// numbers [H,T].
static Value buildBatch(IndexBuilder &b, Value rows, Value firsts,
                        Value lengths, Value init) {
  auto type = cast<RankedTensorType>(rows.getType());
  bool hasColumns = type.getRank() == 3;
  Value lastRow = b.lastOf(rows, hasColumns ? 0 : 1);
  unsigned rank = type.getRank() + 1;
  AffineMap ofEntry = getMap(b, rank, {0});
  return forPoints(b, {firsts, lengths}, init,
                   {ofEntry, ofEntry, b.getMultiDimIdentityMap(rank)},
                   /*numReductions=*/0,
                   [&](IndexBuilder &k, ValueRange elements) {
                     Value place = k.index(2);
                     Value isThere = k.is(arith::CmpIPredicate::slt, place,
                                          k.widen(elements[1]));
                     Value row =
                         arith::AddIOp::create(k, k.widen(elements[0]), place);
                     row = k.clamp(row, 0, lastRow);
                     SmallVector<Value> at = {k.index(1), row};
                     if (hasColumns)
                       at = {row, k.index(1), k.index(3)};
                     Value number = tensor::ExtractOp::create(k, rows, at);
                     Value zero = arith::ConstantOp::create(
                         k, k.getZeroAttr(type.getElementType()));
                     return SmallVector<Value>{k.select(isThere, number, zero)};
                   })
      .getResult(0);
}

Expected<OwnedTensor> PackedRows::pad(const Argument &rows) const {
  static const attn::Contract ofRows("packed_batch", "rows: [#T, H, D]\n"
                                                     "firsts: [B]\n"
                                                     "lengths: [B]\n"
                                                     "batch: [B, H, L, D]"),
      ofNumbers("packed_batch", "numbers: [H, #T]\n"
                                "firsts: [B]\n"
                                "lengths: [B]\n"
                                "batch: [B, H, L]");
  bool hasColumns = rows.shape.size() == 3;
  Shape shape = {getBatch(), rows.shape[hasColumns ? 1 : 0], most};
  if (hasColumns)
    shape.push_back(rows.shape[2]);
  Checker check;
  Call call(hasColumns ? ofRows : ofNumbers, target, {});
  call.operands({rows, Argument("firsts", firsts.getRef()),
                 Argument("lengths", lengths.getRef())});
  call.result(check, "batch", rows.elementType, shape);
  call.setBody([&](OpBuilder &builder, ValueRange arguments, ValueRange inits) {
    IndexBuilder b(builder.getUnknownLoc(), builder);
    return SmallVector<Value>{
        buildBatch(b, arguments[0], arguments[1], arguments[2], inits[0])};
  });
  // Without rows all is zero.
  return call.runFor<OwnedTensor, 1>(check, numRows == 0 ||
                                                llvm::is_contained(shape, 0));
}

/// Rows [T,H,D] or numbers [H,T] of a batch, beside those of `old` that it does
/// not have, or zeros.
static Value buildRows(IndexBuilder &b, Value batch, Value places, Value init,
                       bool keepsOthers) {
  auto type = cast<RankedTensorType>(batch.getType());
  bool hasColumns = type.getRank() == 4;
  unsigned rank = type.getRank() - 1;
  auto rows = forPoints(
      b, places, init,
      {getMap(b, rank, {hasColumns ? 0U : 1U}), b.getMultiDimIdentityMap(rank)},
      /*numReductions=*/0, [&](IndexBuilder &k, ValueRange elements) {
        Value place = k.widen(elements[0]), zero = k.number(0);
        Value isThere = k.is(arith::CmpIPredicate::sge, place, zero);
        place = arith::MaxSIOp::create(k, place, zero);
        Value length = k.number(type.getDimSize(2));
        SmallVector<Value> at = {arith::DivUIOp::create(k, place, length),
                                 k.index(hasColumns ? 1 : 0),
                                 arith::RemUIOp::create(k, place, length)};
        if (hasColumns)
          at.push_back(k.index(2));
        Value other = elements[1];
        if (!keepsOthers)
          other = arith::ConstantOp::create(
              k, k.getZeroAttr(type.getElementType()));
        Value number = tensor::ExtractOp::create(k, batch, at);
        return SmallVector<Value>{k.select(isThere, number, other)};
      });
  return rows.getResult(0);
}

Error PackedRows::unpad(const OwnedTensor &batch, const ResultMemory &memory,
                        std::optional<OwnedTensor> &rows) const {
  static const attn::Contract ofRows("packed_rows", "batch: [B, H, L, D]\n"
                                                    "places: [#T]\n"
                                                    "rows: [#T, H, D]"),
      ofNumbers("packed_rows", "batch: [B, H, L]\n"
                               "places: [#T]\n"
                               "numbers: [H, #T]");
  llvm::ArrayRef<int64_t> given = batch.getShape();
  bool hasColumns = given.size() == 4, keepsOthers = rows.has_value();
  Shape shape = {given[1], numRows};
  if (hasColumns)
    shape = {numRows, given[1], given[3]};
  Checker check;
  Call call(hasColumns ? ofRows : ofNumbers, target, memory);
  call.operands(
      {Argument("batch", batch.getRef()), Argument("places", places.getRef())});
  if (keepsOthers)
    call.update(check, Argument("rows", rows->getRef()));
  else
    call.result(check, "rows", batch.getElementType(), shape);
  call.setBody([&](OpBuilder &builder, ValueRange arguments, ValueRange inits) {
    IndexBuilder b(builder.getUnknownLoc(), builder);
    return SmallVector<Value>{
        buildRows(b, arguments[0], arguments[1], inits[0], keepsOthers)};
  });
  bool isEmpty = llvm::is_contained(given, 0) || numRows == 0;
  if (keepsOthers && isEmpty)
    return Error::success();
  Expected<SmallVector<OwnedTensor>> made = call.runChecked(check, isEmpty);
  if (!made)
    return made.takeError();
  if (!keepsOthers)
    rows = std::move(made->front());
  return Error::success();
}
