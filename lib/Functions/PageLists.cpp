//===- PageLists.cpp - The pages of each sequence -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The host makes lists no longer than the longest sequence needs. Kernels do
// not know that: lists are as long as rows of the table.
//
//===----------------------------------------------------------------------===//

#include "PageLists.h"
#include "Call.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Functions/ResultScopes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace fovea;
using namespace fovea::functions;
using llvm::ArrayRef, llvm::Expected, llvm::Twine;

bool PageLists::areMadeByKernel(const Argument &table, Target target) {
  return !DescribeScope::isActive() &&
         (target == Target::GPUEmulator || isOnDevice(table.data, target));
}

PageLists::PageLists(Checker &check, const Argument &table,
                     const Argument &lengths, const Pages &pages,
                     Target target) {
  if (check.hasFailed())
    return;
  shape = {table.shape[0], 1, 1, table.shape[1]};
  if (DescribeScope::isActive())
    memory = DescribeScope::makeAbstract(ElementType::I32, shape);
  else if (areMadeByKernel(table, target))
    makeByKernel(check, table, lengths, pages, target);
  else
    makeOnHost(check, table, lengths, pages);
}

//===----------------------------------------------------------------------===//
// On the host
//===----------------------------------------------------------------------===//

/// Element `index` of integers of 32 or 64 bits.
static int64_t getInteger(const TensorRef &array, int64_t index) {
  return array.elementType == ElementType::I32
             ? static_cast<const int32_t *>(array.data)[index]
             : static_cast<const int64_t *>(array.data)[index];
}

void PageLists::makeOnHost(Checker &check, const Argument &table,
                           const Argument &lengths, const Pages &pages) {
  int64_t batch = table.shape[0], width = table.shape[1];
  OwnedTensor copy;
  Expected<TensorRef> given =
      prepare(table, /*takesStrides=*/false, copy, [&] { return table.name; });
  if (!given)
    return check.fail(given.takeError());
  ArrayRef counts(static_cast<const int32_t *>(lengths.data), batch);
  int64_t most =
      batch == 0 ? 0 : llvm::divideCeil(*llvm::max_element(counts), pages.page);
  shape.back() = most;
  Expected<OwnedTensor> made = allocate(ElementType::I32, shape);
  if (!made)
    return check.fail(made.takeError());
  memory = std::move(*made);
  auto *lists = memory.getDataAs<int32_t>();
  for (auto [entry, count] : llvm::enumerate(counts))
    for (int64_t place = 0; place < most; ++place) {
      int32_t &to = lists[static_cast<int64_t>(entry) * most + place];
      to = -1;
      if (place * pages.page >= count)
        continue;
      int64_t found =
          getInteger(*given, static_cast<int64_t>(entry) * width + place);
      check.check(found >= 0 && found < pages.count,
                  table.name + ": found " + Twine(found) + " at [" +
                      Twine(entry) + ", " + Twine(place) +
                      "], needed a page from 0 to " + Twine(pages.count - 1) +
                      " for the " + Twine(count) + " tokens of lengths[" +
                      Twine(entry) + "]");
      to = static_cast<int32_t>(found * pages.distance);
    }
}

//===----------------------------------------------------------------------===//
// On a device
//===----------------------------------------------------------------------===//

static const attn::Contract &getContract() {
  static const attn::Contract contract("page_lists", "block_table: [B, R]\n"
                                                     "lengths: [B]\n"
                                                     "lists: i32[B, 1, R]");
  return contract;
}

/// The page of a place, or 0 behind those of a sequence, with what a list has
/// there. What is no page stays out of all bounds. A sequence of more than
/// `most` tokens has none here: who reads the lists checks lengths.
static std::pair<Value, Value> emitPlace(ImplicitLocOpBuilder &b,
                                         const Pages &pages, Value page,
                                         Value length, Value most) {
  auto number = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(b, value, /*width=*/64);
  };
  auto widen = [&](Value value) -> Value {
    return value.getType().isInteger(64)
               ? value
               : arith::ExtSIOp::create(b, b.getI64Type(), value);
  };
  auto is = [&](arith::CmpIPredicate how, Value left, Value right) -> Value {
    return arith::CmpIOp::create(b, how, left, right);
  };
  auto select = [&](Value condition, Value one, Value other) -> Value {
    return arith::SelectOp::create(b, condition, one, other);
  };
  auto narrow = [&](Value value) -> Value {
    return arith::TruncIOp::create(b, b.getI32Type(), value);
  };
  using Limits = std::numeric_limits<int32_t>;
  Value place = arith::IndexCastOp::create(
      b, b.getI64Type(), linalg::IndexOp::create(b, /*dim=*/2));
  Value first = arith::MulIOp::create(b, place, number(pages.page));
  length = widen(length);
  Value isRead =
      arith::AndIOp::create(b, is(arith::CmpIPredicate::slt, first, length),
                            is(arith::CmpIPredicate::sle, length, most));
  page = widen(page);
  Value isThere = arith::AndIOp::create(
      b, is(arith::CmpIPredicate::sge, page, number(0)),
      is(arith::CmpIPredicate::slt, page, number(pages.count)));
  Value bounded = arith::MaxSIOp::create(b, page, number(Limits::min()));
  bounded = arith::MinSIOp::create(b, bounded, number(Limits::max()));
  // Of no pages, there is none that a sequence could name.
  if (pages.count == 0)
    bounded = number(Limits::max());
  Value row = arith::MulIOp::create(b, page, number(pages.distance));
  isThere = arith::AndIOp::create(b, isThere, isRead);
  return {narrow(select(isRead, bounded, number(0))),
          narrow(select(isThere, row, number(-1)))};
}

/// Checks the pages that sequences have, and returns their lists.
static Value buildLists(OpBuilder &builder, const Pages &pages,
                        ValueRange arguments, Value init) {
  ImplicitLocOpBuilder b(builder.getUnknownLoc(), builder);
  auto type = cast<RankedTensorType>(init.getType());
  Value checked = tensor::EmptyOp::create(
      b, tensor::getMixedSizes(b, b.getLoc(), init), b.getI32Type());
  Value most =
      arith::MulIOp::create(b, b.createOrFold<tensor::DimOp>(init, 2),
                            arith::ConstantIndexOp::create(b, pages.page));
  most = arith::IndexCastOp::create(b, b.getI64Type(), most);
  AffineExpr entry = b.getAffineDimExpr(0), place = b.getAffineDimExpr(2);
  AffineMap all = b.getMultiDimIdentityMap(3);
  SmallVector<AffineMap> maps = {
      AffineMap::get(3, 0, {entry, place}, b.getContext()),
      AffineMap::get(3, 0, entry, b.getContext()), all, all};
  SmallVector<utils::IteratorType> loops(3, utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      b, TypeRange{type, type}, arguments.take_front(2),
      ValueRange{checked, init}, maps, loops,
      [&](OpBuilder &nested, Location loc, ValueRange elements) {
        ImplicitLocOpBuilder inner(loc, nested);
        auto [page, listed] =
            emitPlace(inner, pages, elements[0], elements[1], most);
        linalg::YieldOp::create(inner, ValueRange{page, listed});
      });
  Value bound =
      arith::ConstantIndexOp::create(b, std::max<int64_t>(pages.count, 1));
  attn::CheckCodesOp::create(b, generic.getResult(0), bound,
                             "paged: block_table");
  return generic.getResult(1);
}

void PageLists::makeByKernel(Checker &check, const Argument &table,
                             const Argument &lengths, const Pages &pages,
                             Target target) {
  Call call(getContract(), target, {});
  call.operands({table, lengths});
  // What the body knows, the key of the kernel has.
  call.attribute("pages", pages.count);
  call.attribute("page", pages.page);
  call.attribute("distance", pages.distance);
  call.result(check, "lists", ElementType::I32, {shape[0], 1, shape[3]});
  call.setBody([&](OpBuilder &b, ValueRange arguments, ValueRange inits) {
    return SmallVector<Value>{buildLists(b, pages, arguments, inits[0])};
  });
  Expected<OwnedTensor> made =
      call.runFor<OwnedTensor, 1>(check, llvm::is_contained(shape, 0));
  if (!made)
    return check.fail(made.takeError());
  memory = std::move(*made);
}
