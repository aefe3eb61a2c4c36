//===- VQBackwardTokens.cpp - Gradients through tokens read one by one ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQBackwardKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

void VQBackwardKernel::emitLocal() {
  auto emitSteps = [&](const TokenRows &target, Value begin, Value end,
                       bool isOwn) {
    b.loop(begin, end, kStep, [&](Value low) {
      emitTokens(target, low, b.min(b.add(low, kStep), end), isOwn);
    });
  };
  forTokens(getMemoryBegin(), first,
            [&](const TokenRows &target, Value begin, Value end) {
              emitSteps(target, begin, end, /*isOwn=*/false);
            });
  emitSteps(rows, first, b.add(first, count), /*isOwn=*/true);
  if (dBias && !sumsBias)
    clearBiasGradient();
}

/// Tokens `low .. high`; `isOwn` for those of the tile itself, which some of
/// its queries do not read.
void VQBackwardKernel::emitTokens(const TokenRows &target, Value low,
                                  Value high, bool isOwn) {
  Value number = b.sub(high, low);
  emitLocalScores(low, number, isOwn);
  if (sumsBias)
    addBiasGradient(low, number);
  else if (dBias)
    storeBiasGradient(low, number);
  if (op.hasDistances())
    addDistanceGradients(low, number);
  Value scale = b.scalar(getScale());
  Value shift = b.sub(low, target.first);
  // No query of the tile reads a token behind it.
  auto firstReader = [&](KernelBuilder &kb, Value row) {
    return kb.add(kb.sub(low, first), row);
  };
  llvm::function_ref<Value(KernelBuilder &, Value)> firstStep;
  if (isOwn)
    firstStep = firstReader;
  llvm::function_ref<Value(KernelBuilder &, Value)> hides;
  if (isOwn || op.hasLocalTerms() || op.getPadded())
    hides = softmax::isHidden;
  b.emitProduct({number, count, width,
                 [&](KernelBuilder &kb, Value row, Value k) {
                   return kb.loadScalar(dLocal, {row, k});
                 },
                 [&](KernelBuilder &kb, Value k, Value column) {
                   return kb.loadVector(
                       window.queries,
                       {batch, head, kb.add(firstRow, k), column});
                 },
                 [&](KernelBuilder &kb, Value row, Value column, Value sum) {
                   Value at[] = {kb.add(shift, row), column};
                   Value scaled = kb.fmul(sum, kb.broadcast(scale));
                   Value old = kb.loadVector(target.keys, at);
                   kb.storeVector(kb.fadd(old, scaled), target.keys, at);
                 },
                 /*startRow=*/{},
                 /*startTile=*/{}, firstStep, hides});
  // Without a bias the values of earlier tokens take their part from U.
  if (!isOwn && !op.hasLocalTerms())
    return;
  b.emitProduct({number, count, valueWidth,
                 [&](KernelBuilder &kb, Value row, Value k) {
                   return kb.loadScalar(weights, {row, k});
                 },
                 [&](KernelBuilder &kb, Value k, Value column) {
                   return kb.loadVector(
                       window.dOutputs,
                       {batch, head, kb.add(firstRow, k), column});
                 },
                 [&](KernelBuilder &kb, Value row, Value column, Value sum) {
                   Value at[] = {kb.add(shift, row), column};
                   Value old = kb.loadVector(target.values, at);
                   kb.storeVector(kb.fadd(old, sum), target.values, at);
                 },
                 /*startRow=*/{},
                 /*startTile=*/{}, firstStep, hides});
}

/// Weights and dS of tokens, and their part of dScores.
void VQBackwardKernel::emitLocalScores(Value low, Value number, bool isOwn) {
  if (op.getBias())
    b.emitTransposition(
        {op.getBias(),
         biases,
         {biasIndex(op.getBias(), 0, batch), biasIndex(op.getBias(), 1, head)},
         firstRow,
         count,
         b.add(b.sub(low, blockBegin), getReach()),
         number,
         getScoreFactor(),
         /*isLong=*/true});
  if (op.hasDistances())
    addDistanceTerms(low, number);
  bool keepsWeights = isOwn || op.hasLocalTerms();
  auto lanes = VectorType::get({b.getLanes()}, b.getIndexType());
  Value token, code, isAbsent;
  b.emitProduct(
      {number, b.index(valueWidth), tile,
       [&](KernelBuilder &kb, Value row, Value k) {
         return kb.loadScalar(window.values,
                              {batch, keyHead, kb.add(low, row), k});
       },
       [&](KernelBuilder &kb, Value k, Value column) {
         return kb.loadVector(dOutputs, {k, column});
       },
       [&](KernelBuilder &kb, Value row, Value column, Value product) {
         Value factor = b.loadVector(factors, {code, column}), hidden;
         auto hide = [&](Value where) {
           hidden = hidden ? arith::OrIOp::create(b, hidden, where) : where;
         };
         if (op.hasLocalTerms()) {
           Value bias = b.loadVector(biases, {row, column});
           factor = getFactor(b.fadd(factor, bias));
           hide(softmax::isMasked(b, bias));
         }
         if (isOwn) {
           Value query = arith::AddIOp::create(
               b, vector::StepOp::create(b, lanes),
               vector::BroadcastOp::create(b, lanes, b.add(first, column)));
           Value isLater = arith::CmpIOp::create(
               b, arith::CmpIPredicate::slt, query,
               vector::BroadcastOp::create(b, lanes, token));
           hide(isLater);
         }
         if (op.getPadded()) {
           hide(isAbsent);
           hide(areQueriesEmpty(column));
         }
         if (keepsWeights) {
           Value weight = getWeight(b, factor, b.splat(0.25));
           b.storeVector(hidden ? softmax::hide(b, hidden, weight) : weight,
                         weights, {row, column});
         }
         if (isSoftmax)
           product = b.fsub(product, b.loadVector(deltas, {column}));
         Value gradient = b.fmul(factor, product);
         if (hidden)
           gradient = softmax::hide(b, hidden, gradient);
         b.storeVector(gradient, dLocal, {row, column});
         Value old = b.loadVector(dScores, {code, column});
         b.storeVector(b.fadd(old, gradient), dScores, {code, column});
       },
       [&](Value row) {
         token = b.add(low, row);
         code = b.loadIndex(window.codes, {batch, keyHead, token});
         if (!op.getPadded())
           return;
         isAbsent = vector::BroadcastOp::create(
             b, VectorType::get({b.getLanes()}, b.getI1Type()),
             b.less(code, zero));
         // Its scores are those of any codeword.
         code = b.max(code, 0);
       }});
}

/// Where several entries share a bias their gradients are added up.
void VQBackwardKernel::addBiasGradient(Value low, Value number) {
  Value column = b.add(b.sub(low, blockBegin), getReach());
  b.loop(zero, count, 1, [&](Value row) {
    b.loop(zero, number, 1, [&](Value i) {
      Value at[] = {biasIndex(dBias, 0, batch), biasIndex(dBias, 1, head),
                    biasIndex(dBias, 2, b.add(firstRow, row)),
                    b.add(column, i)};
      Value gradient = b.loadScalar(dLocal, {i, row});
      b.storeScalar(b.fadd(b.loadScalar(dBias, at), gradient), dBias, at);
    });
  });
}

void VQBackwardKernel::storeBiasGradient(Value low, Value number) {
  Value column = b.add(b.sub(low, blockBegin), getReach());
  int64_t lanes = b.getLanes();
  auto at = [&](Value row, Value i) -> Values {
    return {batch, head, b.add(firstRow, row), b.add(column, i)};
  };
  auto storeElements = [&](Value begin) {
    b.loop(zero, count, 1, [&](Value row) {
      b.loop(begin, number, 1, [&](Value i) {
        b.storeScalar(b.loadScalar(dLocal, {i, row}), dBias, at(row, i));
      });
    });
  };
  auto storeSquares = [&](bool streaming) {
    Value whole = b.roundDown(number, lanes);
    b.loop(zero, whole, lanes, [&](Value i) {
      b.loop(zero, b.index(tile), lanes, [&](Value row) {
        Values tokens;
        for (int64_t lane = 0; lane < lanes; ++lane)
          tokens.push_back(b.loadVector(dLocal, {b.add(i, lane), row}));
        for (auto [lane, gradient] : llvm::enumerate(b.transpose(tokens)))
          b.storeVector(gradient, dBias, at(b.add(row, lane), i), streaming);
      });
    });
    storeElements(whole);
  };
  auto storeTile = [&] {
    if (Value aligned = isBiasAligned())
      return b.ifThenElse(
          aligned, [&] { storeSquares(/*streaming=*/true); },
          [&] { storeSquares(/*streaming=*/false); });
    storeSquares(/*streaming=*/false);
  };
  b.ifThenElse(b.equal(count, b.index(tile)), storeTile,
               [&] { storeElements(zero); });
}

/// Whether squares of the gradient are whole cache lines, which go past the
/// caches; null when they never are.
Value VQBackwardKernel::isBiasAligned() {
  constexpr int64_t lineBytes = 64;
  auto type = cast<MemRefType>(dBias.getType());
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  // Tiles begin anywhere in a block that the state has begun.
  if (loops.hasState() || b.getLanes() * bytes != lineBytes ||
      block % b.getLanes() != 0 || !type.getLayout().isIdentity())
    return Value();
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, dBias);
  return b.equal(b.rem(base, lineBytes), zero);
}

/// The bias of tokens before the sequence and after the tile is not read.
void VQBackwardKernel::clearBiasGradient() {
  Value end = b.add(b.sub(b.add(first, count), blockBegin), getReach());
  Value begin = b.max(b.sub(b.index(getReach()), blockBegin), 0);
  b.loop(zero, count, 1, [&](Value row) {
    auto clear = [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), dBias,
                    {batch, head, k.add(firstRow, row), column});
    };
    b.forColumns(zero, begin, clear);
    b.forColumns(end, b.index(getReach() + block), clear);
  });
}
