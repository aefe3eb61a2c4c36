//===- MultipoleSums.cpp - Summaries of a cache ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MultipoleSums.h"
#include "Call.h"
#include "StridedView.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
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

/// The tokens of a group that is whole, and the weights for them where it is
/// group `number`.
static std::pair<StridedView, StridedView>
getFactors(const OwnedTensor &tokens, const OwnedTensor &weights,
           int64_t number, int64_t level, int64_t group) {
  int64_t first = (number & ((int64_t(1) << level) - 1)) * group;
  return {StridedView(tokens.getRef()).slice(2, group, group),
          StridedView(weights.getRef()).slice(2, first, group)};
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

/// The shares of a group of tokens in the summaries of an interval.
static Expected<OwnedTensor> sumUp(StringRef name, const TensorRef &tokens,
                                   const TensorRef &weights,
                                   ElementType state) {
  Checker check;
  Call call("summarize", Target::CPU);
  call.operands(
      {Argument(name, tokens), Argument((name + "_weights").str(), weights)});
  call.operandIf(std::nullopt);
  call.result(
      check, "summaries", state,
      {tokens.shape[0], tokens.shape[1], weights.shape[1], tokens.shape[3]});
  return call.runFor<OwnedTensor, 1>(check);
}

/// The summaries of one head, which has `size` elements of them.
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

Error MultipoleCache::addToSumsOnHost(int64_t number) {
  SmallVector<OwnedTensor> shares;
  for (auto [name, side] : zip_equal(kSideNames, sides))
    for (auto [level, each] : enumerate(side.levels)) {
      auto [tokens, weights] =
          getFactors(side.tokens, each.weights, number, level, group);
      Expected<OwnedTensor> share =
          sumUp(name, tokens, weights, side.sums.getElementType());
      if (!share)
        return share.takeError();
      shares.push_back(std::move(*share));
    }
  // Nothing fails from here on.
  auto *share = shares.begin();
  for (Side &side : sides) {
    auto add = side.sums.getElementType() == ElementType::F64
                   ? addElements<double>
                   : addElements<float>;
    for (auto [level, each] : enumerate(side.levels)) {
      int64_t interval = number >> level;
      StridedView view = side.getSums(level, interval);
      TensorRef sums = view;
      if (interval << level == number)
        startSums(sums, each.bias);
      int64_t numHeads = sums.shape[0] * sums.shape[1],
              size = sums.shape[2] * sums.shape[3];
      for (int64_t head = 0; head < numHeads; ++head)
        add(share->getDataAs<char>() +
                head * size * getByteWidth(share->getElementType()),
            getHead(sums, head), size);
      ++share;
    }
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// By kernels
//===----------------------------------------------------------------------===//

static const attn::Contract &getContract() {
  static const attn::Contract contract("fast_multipole_group",
                                       "tokens: T[B, G, N, D!]\n"
                                       "weights: T[W!, P!, N, D!]\n"
                                       "summaries: sum[B, G, P!, D!]");
  return contract;
}

static SmallVector<mlir::Value> buildSum(mlir::OpBuilder &b,
                                         mlir::ValueRange arguments,
                                         mlir::ValueRange inits) {
  mlir::Location loc = b.getUnknownLoc();
  auto type = mlir::cast<mlir::RankedTensorType>(inits[0].getType());
  mlir::Value init = mlir::tensor::EmptyOp::create(b, loc, type.getShape(),
                                                   type.getElementType());
  auto share = attn::SummarizeOp::create(b, loc, init.getType(), arguments[0],
                                         arguments[1],
                                         /*bias=*/mlir::Value(), init);
  return {mlir::linalg::AddOp::create(
              b, loc, mlir::ValueRange{share.getResult(0), inits[0]}, inits[0])
              .getResult(0)};
}

Error MultipoleCache::addToSums(int64_t number) {
  for (auto [name, side] : zip_equal(kSideNames, sides))
    for (auto [level, each] : enumerate(side.levels)) {
      auto [tokens, weights] =
          getFactors(side.tokens, each.weights, number, level, group);
      StridedView sums = side.getSums(level, number >> level);
      bool begins = number >> level << level == number;
      Checker check;
      Call call = begins ? Call("summarize", place.target, TensorRef(sums))
                         : Call(getContract(), place.target, ResultMemory());
      call.operands({Argument(name, tokens),
                     Argument((name + "_weights").str(), weights)});
      if (begins) {
        std::optional<Argument> bias;
        if (each.bias.getData())
          bias = Argument((name + "_biases").str(), each.bias.getRef());
        call.operandIf(bias);
        call.result(check, "summaries", side.sums.getElementType(),
                    TensorRef(sums).shape);
      } else {
        call.update(check, Argument("summaries", sums));
        call.setBody(buildSum);
      }
      if (Error error = call.runChecked(check).takeError())
        return error;
    }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

Error MultipoleCache::closeGroup() {
  int64_t number = length / group - 1;
  if (Error error = place.target == Target::CPU ? addToSumsOnHost(number)
                                                : addToSums(number))
    return error;
  SmallVector<ElementCopy, 2> copies;
  for (const Side &side : sides) {
    StridedView tokens(side.tokens.getRef());
    copies.push_back(
        {tokens.slice(2, group, group), tokens.slice(2, 0, group)});
  }
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
