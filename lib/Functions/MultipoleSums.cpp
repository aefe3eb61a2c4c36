//===- MultipoleSums.cpp - Summaries of a cache ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MultipoleSums.h"
#include "Call.h"
#include "IndexBuilder.h"
#include "StridedView.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

StridedView MultipoleCache::Side::getSums(int64_t level, int64_t interval,
                                          int64_t count) const {
  ArrayRef<int64_t> shape = sums.getShape();
  int64_t rank = shape[4];
  Shape rows{shape[0], shape[1], shape[2] * shape[3] * rank, shape[5]};
  return StridedView({sums.getData(), sums.getElementType(), rows})
      .slice(2, (level * kMultipolePlaces + interval % kMultipolePlaces) * rank,
             count * rank);
}

/// What an error calls the weights of a level.
static std::string nameOfLevel(StringRef side, StringRef kind, size_t level) {
  return (side + "_" + kind + "[" + Twine(level) + "]").str();
}

//===----------------------------------------------------------------------===//
// By the host
//===----------------------------------------------------------------------===//

template <typename T>
static void addElements(const char *from, char *to, int64_t count) {
  const auto *source = reinterpret_cast<const T *>(from);
  auto *target = reinterpret_cast<T *>(to);
  for (int64_t i = 0; i < count; ++i)
    target[i] += source[i];
}

/// A kernel of the host has one pass over the tokens for all levels.
static const attn::Contract &getShareContract() {
  static const attn::Contract contract("fast_multipole_shares",
                                       "tokens: T[B, G, N, D!]\n"
                                       "weights*: T[W!, P!, N, D!]\n"
                                       "shares*: sum[B, G, P!, D!]");
  return contract;
}

/// The shares of a group of tokens in the summaries of an interval of each
/// level, whose weights for these tokens are `weights`.
static Expected<SmallVector<OwnedTensor>>
sumUp(const Argument &tokens, ArrayRef<Argument> weights, ElementType state) {
  Argument share;
  share.elementType = state;
  share.shape = {tokens.shape[0], tokens.shape[1], weights.front().shape[1],
                 tokens.shape[3]};
  Checker check;
  Call call(getShareContract(), Target::CPU, ResultMemory());
  call.operand(tokens);
  call.operand(weights);
  call.results(check, "share", SmallVector<Argument>(weights.size(), share));
  call.setBody([](mlir::OpBuilder &b, mlir::ValueRange arguments,
                  mlir::ValueRange inits) {
    SmallVector<mlir::Value> results;
    for (auto [own, init] : zip_equal(arguments.drop_front(), inits))
      results.push_back(attn::SummarizeOp::create(b, b.getUnknownLoc(),
                                                  init.getType(),
                                                  arguments.front(), own,
                                                  /*bias=*/mlir::Value(), init)
                            ->getResult(0));
    return results;
  });
  return call.runChecked(check);
}

/// The summaries of one head.
static char *getHead(const TensorRef &sums, int64_t head) {
  return static_cast<char *>(sums.data) +
         head * sums.strides[1] * getByteWidth(sums.elementType);
}

/// Starts an interval from its biases, or zeros.
static void startSums(const TensorRef &sums, const OwnedTensor &bias) {
  ArrayRef<int64_t> shape = sums.shape;
  ElementType state = sums.elementType;
  int64_t size = shape[2] * shape[3];
  for (int64_t head = 0; head < shape[0] * shape[1]; ++head) {
    char *to = getHead(sums, head);
    std::memset(to, 0, size * getByteWidth(state));
    if (!bias.getData())
      continue;
    int64_t shared = shape[1] / bias.getShape()[0],
            set = head % shape[1] / shared;
    SmallVector<int64_t, 4> strides = getStrides(bias.getRef());
    for (int64_t i = 0; i < size; ++i)
      setElement(to, state, i,
                 getElement(bias.getData(), bias.getElementType(),
                            set * strides[0] + i / shape[3] * strides[1] +
                                i % shape[3] * strides[2]));
  }
}

Error MultipoleCache::addToSumsOnHost(ArrayRef<StridedView> rows,
                                      int64_t number) {
  SmallVector<SmallVector<OwnedTensor>, 2> shares;
  for (auto [name, side, tokens] : zip_equal(kSideNames, sides, rows)) {
    SmallVector<Argument> weights;
    for (auto [level, each] : enumerate(side.levels)) {
      int64_t first = (number & ((int64_t(1) << level) - 1)) * group;
      weights.emplace_back(
          nameOfLevel(name, "weights", level),
          StridedView(each.weights.getRef()).slice(2, first, group));
    }
    Expected<SmallVector<OwnedTensor>> own =
        sumUp(Argument(name, tokens), weights, side.sums.getElementType());
    if (!own)
      return own.takeError();
    shares.push_back(std::move(*own));
  }
  // Nothing fails from here on.
  for (auto [side, own] : zip_equal(sides, shares)) {
    auto add = side.sums.getElementType() == ElementType::F64
                   ? addElements<double>
                   : addElements<float>;
    for (auto [level, each, share] : enumerate(side.levels, own)) {
      int64_t interval = number >> level;
      StridedView view = side.getSums(level, interval);
      TensorRef sums = view;
      if (interval << level == number)
        startSums(sums, each.bias);
      int64_t numHeads = sums.shape[0] * sums.shape[1],
              size = sums.shape[2] * sums.shape[3];
      for (int64_t head = 0; head < numHeads; ++head)
        add(share.getDataAs<char>() +
                head * size * getByteWidth(share.getElementType()),
            getHead(sums, head), size);
    }
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// By kernels
//===----------------------------------------------------------------------===//

/// Kernels are for any number of groups. `first`, an array without elements,
/// tells the number of the first one.
static const attn::Contract &getContract() {
  static const attn::Contract contract("fast_multipole_groups",
                                       "tokens: T[B, G, N, D!]\n"
                                       "weights*: T[W!, P!, i!, D!]\n"
                                       "biases*: T[W!, P!, D!]\n"
                                       "first: [#F, 0]\n"
                                       "summaries: sum[B, G, R, D!]");
  return contract;
}

namespace {
/// What the kernels of all levels have in common.
struct GroupSums {
  mlir::Value tokens;
  /// The numbers of the first group and of that behind the last one.
  mlir::Value first, end;
  int64_t group, rank;
};
} // namespace

/// `sums` with groups of tokens in the kept intervals of a level. A thread has
/// one number of an interval, and adds up group by group, whatever the call
/// that brings them, so that bits do not depend on it.
static mlir::Value buildLevel(mlir::ImplicitLocOpBuilder &b,
                              const GroupSums &of, mlir::Value weights,
                              mlir::Value bias, mlir::Value sums,
                              int64_t level) {
  using namespace mlir;
  auto type = cast<RankedTensorType>(sums.getType());
  auto weightType = cast<RankedTensorType>(weights.getType());
  int64_t numHeads = type.getDimSize(1), width = type.getDimSize(3),
          numRows = kMultipolePlaces * of.rank,
          numOfSet = numHeads / weightType.getDimSize(0);
  OpFoldResult extents[] = {tensor::getMixedSize(b, b.getLoc(), sums, 0),
                            b.getIndexAttr(numHeads), b.getIndexAttr(numRows),
                            b.getIndexAttr(width)};
  auto loop = scf::ForallOp::create(
      b, ArrayRef<OpFoldResult>(extents), sums, /*mapping=*/std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange arguments) {
        IndexBuilder k(loc, builder);
        Value batch = arguments[0], head = arguments[1], row = arguments[2],
              column = arguments[3], shared = arguments[4];
        auto widen = [&](Value value) -> Value {
          if (value.getType() == type.getElementType())
            return value;
          return arith::ExtFOp::create(k, type.getElementType(), value);
        };
        Value place = k.div(row, of.rank), a = k.rem(row, of.rank);
        Value set = k.div(head, numOfSet);
        // The newest interval that belongs in that place.
        Value newest = k.div(k.sub(of.end, k.number(1)), int64_t(1) << level);
        Value older =
            k.rem(k.sub(k.add(newest, k.number(kMultipolePlaces)), place),
                  kMultipolePlaces);
        Value begin = k.mul(k.sub(newest, older), int64_t(1) << level);
        Value behind = k.add(begin, k.number(int64_t(1) << level));
        Value from = arith::MaxSIOp::create(k, begin, of.first);
        Value to = arith::MinSIOp::create(k, behind, of.end);

        Value at = k.add(row, k.number(level * numRows));
        Value before = tensor::ExtractOp::create(
            k, shared, ValueRange{batch, head, at, column});
        Value start =
            arith::ConstantOp::create(k, k.getZeroAttr(type.getElementType()));
        if (bias)
          start = widen(
              tensor::ExtractOp::create(k, bias, ValueRange{set, a, column}));
        Value begins = k.is(arith::CmpIPredicate::sge, begin, of.first);
        start = k.select(begins, start, before);
        Value zero =
            arith::ConstantOp::create(k, k.getZeroAttr(type.getElementType()));
        Value none = k.number(0), one = k.number(1);
        auto groups = scf::ForOp::create(
            k, from, to, one, start,
            [&](OpBuilder &, Location, Value number, ValueRange sum) {
              Value row = k.mul(k.sub(number, of.first), of.group);
              Value weight =
                  k.mul(k.rem(number, int64_t(1) << level), of.group);
              auto share = scf::ForOp::create(
                  k, none, k.number(of.group), one, zero,
                  [&](OpBuilder &, Location, Value i, ValueRange share) {
                    Value x = tensor::ExtractOp::create(
                        k, of.tokens,
                        ValueRange{batch, head, k.add(row, i), column});
                    Value w = tensor::ExtractOp::create(
                        k, weights,
                        ValueRange{set, a, k.add(weight, i), column});
                    Value next = math::FmaOp::create(k, widen(w), widen(x),
                                                     share.front());
                    scf::YieldOp::create(k, next);
                  });
              Value next =
                  arith::AddFOp::create(k, share.getResult(0), sum.front());
              scf::YieldOp::create(k, next);
            });
        SmallVector<OpFoldResult> offsets{batch, head, at, column},
            ones(4, k.getIndexAttr(1));
        auto point = RankedTensorType::get({}, type.getElementType());
        Value slice = tensor::ExtractSliceOp::create(k, point, shared, offsets,
                                                     ones, ones);
        Value filled =
            linalg::FillOp::create(k, groups.getResult(0), slice).getResult(0);
        auto ends = scf::InParallelOp::create(k);
        k.setInsertionPointToStart(ends.getBody());
        tensor::ParallelInsertSliceOp::create(k, filled, shared, offsets, ones,
                                              ones);
      });
  return loop.getResult(0);
}

Error MultipoleCache::addToSums(ArrayRef<StridedView> rows, int64_t first) {
  for (auto [name, side, tokens] : zip_equal(kSideNames, sides, rows)) {
    SmallVector<Argument> weights, biases;
    for (auto [level, each] : enumerate(side.levels)) {
      weights.emplace_back(nameOfLevel(name, "weights", level),
                           each.weights.getRef());
      if (each.bias.getData())
        biases.emplace_back(nameOfLevel(name, "biases", level),
                            each.bias.getRef());
    }
    Argument number;
    number.name = "first";
    number.elementType = ElementType::I64;
    number.shape = {first, 0};
    number.isReadOnly = true;
    Shape shape(side.sums.getShape());
    Shape summaries{shape[0], shape[1], shape[2] * shape[3] * shape[4],
                    shape[5]};
    Checker check;
    Call call(getContract(), place.target, ResultMemory());
    call.operand(Argument(name, tokens));
    call.operand(weights);
    call.operand(biases);
    call.operand(number);
    call.update(check,
                Argument("summaries", {side.sums.getData(),
                                       side.sums.getElementType(), summaries}));
    call.attribute("group", group);
    call.openLengths("BN#F");
    call.setBody([numLevels = weights.size(), group = group, rank = rank,
                  hasBiases = !biases.empty()](mlir::OpBuilder &builder,
                                               mlir::ValueRange arguments,
                                               mlir::ValueRange inits) {
      IndexBuilder b(builder.getUnknownLoc(), builder);
      GroupSums of{
          arguments.front(), b.extent(arguments.back(), 0), {}, group, rank};
      of.end = b.add(of.first, b.div(b.extent(of.tokens, 2), group));
      mlir::Value sums = inits[0];
      for (size_t level = 0; level < numLevels; ++level)
        sums = buildLevel(b, of, arguments[1 + level],
                          hasBiases ? arguments[1 + numLevels + level]
                                    : mlir::Value(),
                          sums, level);
      return SmallVector<mlir::Value>{sums};
    });
    if (Error error = call.runChecked(check).takeError())
      return error;
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

Error MultipoleCache::closeGroups(ArrayRef<StridedView> rows, int64_t first,
                                  int64_t count) {
  auto getGroup = [&](int64_t number) {
    return map_to_vector<2>(rows, [&](const StridedView &side) {
      return side.slice(2, number * group, group);
    });
  };
  if (place.target != Target::CPU) {
    if (Error error = addToSums(rows, first))
      return error;
  } else {
    for (int64_t number = 0; number < count; ++number)
      if (Error error = addToSumsOnHost(getGroup(number), first + number))
        return error;
  }
  SmallVector<ElementCopy, 2> copies;
  for (auto [side, last] : zip_equal(sides, getGroup(count - 1)))
    copies.push_back(
        {last, StridedView(side.tokens.getRef()).slice(2, 0, group)});
  return copyAll(copies, place.target);
}

Error MultipoleCache::listFarRows() {
  Expected<OwnedTensor> weights =
      allocate(logWeights.getElementType(), logWeights.getShape());
  if (!weights)
    return weights.takeError();
  SmallVector<ElementCopy, 0> copies;
  int64_t closed = getNumClosed(), count = 0;
  for (int64_t level = 0; level < numLevels; ++level) {
    int64_t own = closed >> level;
    if (own < 2)
      continue;
    // The second one belongs to the children of the parent's neighbour. It
    // lies before the other: its number is even.
    int64_t numIntervals = 1 + own % 2, first = own - 1 - numIntervals,
            numRows = numIntervals * rank;
    for (const Side &side : sides)
      copies.push_back(
          {side.getSums(level, first, numIntervals),
           StridedView(side.far.getRef()).slice(2, count, numRows)});
    double weight =
        multiplicity ? std::log(double(group << level) / double(rank)) : 0.0;
    for (int64_t row = 0; row < numRows; ++row)
      setElement(weights->getData(), weights->getElementType(), count++,
                 weight);
  }
  // One row that counts nothing, so that one kernel serves all lengths.
  if (count == 0)
    setElement(weights->getData(), weights->getElementType(), count++,
               -std::numeric_limits<double>::infinity());
  copies.push_back({StridedView(weights->getRef()).slice(2, 0, count),
                    StridedView(logWeights.getRef()).slice(2, 0, count)});
  if (Error error = copyAll(copies, place.target))
    return error;
  numFar = count;
  return Error::success();
}
