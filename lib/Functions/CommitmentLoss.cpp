//===- CommitmentLoss.cpp - The distance of keys and codewords ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "TokenMask.h"
#include "fovea/Dialect/Attn/Transforms/Presence.h"
#include "fovea/Functions/VQ.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::functions;
using utils::IteratorType;

static const attn::Contract &getContract() {
  static const attn::Contract contract("commitment_loss",
                                       "k: T[B, G, N, D]\n"
                                       "k_hat: T[B, G, N, D]\n"
                                       "mask?: [B, N]\n"
                                       "loss: sum[]");
  return contract;
}

static const attn::Contract &getBackwardContract() {
  static const attn::Contract contract("commitment_loss_backward",
                                       "k: T[B, G, N, D]\n"
                                       "k_hat: T[B, G, N, D]\n"
                                       "d_loss: sum[]\n"
                                       "mask?: [B, N]\n"
                                       "d_k: T[B, G, N, D]");
  return contract;
}

/// k [B,G,N,D] and codewords like it, checked and added.
static Argument addKeys(Call &call, Checker &check, const TensorRef &k,
                        const TensorRef &kHat) {
  Argument keys = check.tensor("k", k, 4, "[B,G,N,D]");
  call.operands(
      {keys, check.like("k_hat", kHat, keys.elementType, keys.shape)});
  return keys;
}

static TokenMask addMask(Call &call, Checker &check, const Argument &keys,
                         const TokenOptions &tokens, Target target) {
  TokenMask mask(check, tokens, keys.shape[0], keys.shape[2], target);
  call.operandIf(mask.get());
  return mask;
}

/// left - right in the type of sums.
static Value getDifference(ImplicitLocOpBuilder &b, Value left, Value right,
                           Type state) {
  auto widen = [&](Value value) -> Value {
    if (value.getType() == state)
      return value;
    return arith::ExtFOp::create(b, state, value);
  };
  return arith::SubFOp::create(b, widen(left), widen(right));
}

static Value getNumber(ImplicitLocOpBuilder &b, Type type, double value) {
  return arith::ConstantOp::create(b, type, b.getFloatAttr(type, value));
}

/// Adds up what `term` makes of elements of `inputs`, along the dimensions from
/// `numParallel` on.
static Value
addUp(ImplicitLocOpBuilder &b, ValueRange inputs, Value init,
      unsigned numParallel,
      llvm::function_ref<Value(ImplicitLocOpBuilder &, ValueRange)> term) {
  auto type = cast<RankedTensorType>(init.getType());
  unsigned rank = cast<RankedTensorType>(inputs[0].getType()).getRank();
  AffineMap all = b.getMultiDimIdentityMap(rank);
  SmallVector<AffineMap> maps(inputs.size(), all);
  maps.push_back(AffineMap::get(rank, /*symbolCount=*/0,
                                all.getResults().take_front(numParallel),
                                b.getContext()));
  SmallVector<IteratorType> iterators(rank, IteratorType::reduction);
  std::fill_n(iterators.begin(), numParallel, IteratorType::parallel);
  Value zero =
      linalg::FillOp::create(b, getNumber(b, type.getElementType(), 0), init)
          .getResult(0);
  return linalg::GenericOp::create(
             b, type, inputs, zero, maps, iterators,
             [&](OpBuilder &nested, Location loc, ValueRange arguments) {
               ImplicitLocOpBuilder inner(loc, nested);
               Value sum = arith::AddFOp::create(
                   inner, arguments.back(), term(inner, arguments.drop_back()));
               linalg::YieldOp::create(inner, sum);
             })
      .getResult(0);
}

/// The product of the extents `dims` of `array`, at least 1.
static Value countElements(ImplicitLocOpBuilder &b, Value array,
                           llvm::ArrayRef<int64_t> dims, Type state) {
  Value count = arith::ConstantIndexOp::create(b, 1);
  for (int64_t dim : dims)
    count =
        arith::MulIOp::create(b, count, tensor::DimOp::create(b, array, dim));
  count =
      arith::MaxSIOp::create(b, count, arith::ConstantIndexOp::create(b, 1));
  return arith::SIToFPOp::create(
      b, state, arith::IndexCastOp::create(b, b.getI64Type(), count));
}

/// How many keys have a codeword, at least 1: of a `mask`, or all. A tensor of
/// one number, which a GPU makes and keeps.
static Value countKeys(ImplicitLocOpBuilder &b, Value keys, Value mask,
                       Type state) {
  auto type = RankedTensorType::get({}, state);
  auto fill = [&](Value number) -> Value {
    return tensor::FromElementsOp::create(b, type, number);
  };
  if (!mask)
    return fill(countElements(b, keys, {0, 1, 2}, state));
  Value one = getNumber(b, state, 1.0), none = getNumber(b, state, 0.0);
  // Of each batch entry first: numbers stay small enough to be exact.
  Value counts = addUp(
      b, mask,
      tensor::EmptyOp::create(b, tensor::getMixedSize(b, b.getLoc(), keys, 0),
                              state),
      /*numParallel=*/1, [&](ImplicitLocOpBuilder &inner, ValueRange present) {
        return arith::SelectOp::create(inner, present[0], one, none);
      });
  Value count = addUp(
      b, counts, tensor::EmptyOp::create(b, llvm::ArrayRef<int64_t>(), state),
      /*numParallel=*/0,
      [](ImplicitLocOpBuilder &, ValueRange count) { return count[0]; });
  Value total =
      arith::MulFOp::create(b, count, fill(countElements(b, keys, 1, state)));
  return arith::MaximumFOp::create(b, total, fill(one));
}

llvm::Expected<OwnedTensor>
fovea::commitment_loss(const TensorRef &k, const TensorRef &kHat, Target target,
                       const TokenOptions &tokens, const ResultMemory &out) {
  Checker check;
  Call call(getContract(), target, out);
  Argument keys = addKeys(call, check, k, kHat);
  TokenMask mask = addMask(call, check, keys, tokens, target);
  call.result(check, "loss", getStateType(keys.elementType), {});
  call.setBody([&](OpBuilder &builder, ValueRange arguments, ValueRange inits) {
    ImplicitLocOpBuilder b(builder.getUnknownLoc(), builder);
    Type state = cast<RankedTensorType>(inits[0].getType()).getElementType();
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(b, b.getLoc(), arguments[0]);
    Value rows =
        tensor::EmptyOp::create(b, llvm::ArrayRef(sizes).drop_back(), state);
    // The sum of each row first: sums of sums are more accurate.
    rows = addUp(b, arguments.take_front(2), rows, /*numParallel=*/3,
                 [&](ImplicitLocOpBuilder &inner, ValueRange pair) -> Value {
                   Value x = getDifference(inner, pair[0], pair[1], state);
                   return arith::MulFOp::create(inner, x, x);
                 });
    Value present = mask.get() ? arguments[2] : Value();
    rows = attn::detail::keepInPlace(b, b.getLoc(), rows, present);
    Value sum = addUp(
        b, rows, inits[0], /*numParallel=*/0,
        [](ImplicitLocOpBuilder &, ValueRange row) -> Value { return row[0]; });
    Value loss = arith::DivFOp::create(
        b, sum, countKeys(b, arguments[0], present, state));
    return SmallVector<Value>{loss};
  });
  return call.runFor<OwnedTensor, 1>(check);
}

llvm::Expected<OwnedTensor> fovea::commitment_loss_backward(
    double dLoss, const TensorRef &k, const TensorRef &kHat, Target target,
    const TokenOptions &tokens, const ResultMemory &out) {
  Checker check;
  Call call(getBackwardContract(), target, out);
  Argument keys = addKeys(call, check, k, kHat);
  check.number("d_loss", dLoss);
  // An argument: another number is no other kernel.
  ElementType state = getStateType(keys.elementType);
  float narrow = float(dLoss);
  call.operand(Argument("d_loss", {state == ElementType::F64
                                       ? static_cast<void *>(&dLoss)
                                       : static_cast<void *>(&narrow),
                                   state,
                                   {}}));
  TokenMask mask = addMask(call, check, keys, tokens, target);
  call.result(check, "d_k", keys.elementType, keys.shape);
  call.setBody([&](OpBuilder &builder, ValueRange arguments, ValueRange inits) {
    ImplicitLocOpBuilder b(builder.getUnknownLoc(), builder);
    auto type = cast<RankedTensorType>(inits[0].getType());
    Type stateType = functions::convertType(b.getContext(), state);
    Value present = mask.get() ? arguments[3] : Value();
    Value count = countKeys(b, arguments[0], present, stateType);
    SmallVector<AffineMap> maps(5, b.getMultiDimIdentityMap(4));
    maps[2] = maps[3] = AffineMap::get(4, 0, b.getContext());
    SmallVector<IteratorType> iterators(4, IteratorType::parallel);
    auto gradient = linalg::GenericOp::create(
        b, type, ValueRange{arguments[0], arguments[1], count, arguments[2]},
        inits[0], maps, iterators,
        [&](OpBuilder &nested, Location loc, ValueRange numbers) {
          ImplicitLocOpBuilder inner(loc, nested);
          Value share = arith::DivFOp::create(
              inner, getNumber(inner, stateType, 2.0), numbers[2]);
          Value factor = arith::MulFOp::create(inner, share, numbers[3]);
          Value x = arith::MulFOp::create(
              inner, getDifference(inner, numbers[0], numbers[1], stateType),
              factor);
          if (type.getElementType() != stateType)
            x = arith::TruncFOp::create(inner, type.getElementType(), x);
          linalg::YieldOp::create(inner, x);
        });
    return SmallVector<Value>{attn::detail::keepInPlace(
        b, b.getLoc(), gradient.getResult(0), present)};
  });
  return call.runFor<OwnedTensor, 1>(check);
}
