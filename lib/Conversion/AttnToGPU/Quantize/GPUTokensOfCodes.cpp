//===- GPUTokensOfCodes.cpp - Tokens in the order of codes ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A counting sort, by teams that are warps:
//
//   count   a team for a chunk of tokens: how many have each code
//   chunks  a team for a code: how many tokens of earlier chunks have it
//   codes   a team for a head: where the tokens of each code begin
//   sort    as `count`: puts the tokens there
//
// A warp takes 32 tokens at once. Those of one code find each other by
// `match.any`, and the last one counts them. So places follow from the order of
// tokens, without atomic operations.
//
//===----------------------------------------------------------------------===//

#include "GPUTokensOfCodes.h"
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// There are as many chunks, of no fewer tokens, as keep a GPU busy; each takes
/// memory for all codes.
static constexpr int64_t kMostChunks = 128, kFewestTokens = 1024;

void fovea::attn::forTokensOfCodes(WarpTeamBuilder &b, Value begin, Value end,
                                   function_ref<Value(Value)> getCode,
                                   Value numCodes, Value counters,
                                   CountedTokenBody body) {
  Value last = b.sub(end, b.index(1));
  b.loop(begin, end, kWarpSize, [&](Value first) {
    GPUKernelBuilder k(b.getLoc(), b, kWarpSize);
    Value token = b.add(first, b.getLane());
    Value code = getCode(b.min(token, last));
    // Neither -1 nor what a check has found to be wrong.
    Value isCode = b.both(b.less(b.index(-1), code), b.less(code, numCodes));
    Value isOne = b.both(b.less(token, end), isCode);
    Value same = k.matchAny(k.toI32(b.select(isOne, code, b.index(-1))));
    auto countBits = [&](Value bits) -> Value {
      return k.toIndex(LLVM::CtPopOp::create(k, k.getI32Type(), bits));
    };
    Value one = k.i32(1);
    Value own = arith::ShLIOp::create(k, one, k.toI32(b.getLane()));
    Value earlier = arith::AndIOp::create(k, same, k.sub(own, one));
    Value before = countBits(earlier), all = countBits(same);
    Value place = b.select(isOne, code, b.index(0));
    // What lanes have stored for the tokens before.
    b.barrier();
    Value count = b.loadIndex(counters, place);
    b.ifThen(isOne, [&] { body(token, b.add(count, before)); });
    // All lanes have read what the last one of a code stores.
    b.barrier();
    Value isLast = b.equal(b.add(before, 1), all);
    b.ifThen(b.both(isOne, isLast),
             [&] { b.storeIndex(b.add(count, all), counters, place); });
  });
}

TokensOfCodes::TokensOfCodes(WarpTeamBuilder &builder, Value codes,
                             Value numCodes)
    : b(builder), codes(codes), numCodes(numCodes), batches(b.extent(codes, 0)),
      heads(b.extent(codes, 1)), numTokens(b.extent(codes, 2)) {
  chunk = b.max(b.ceilDiv(numTokens, kMostChunks), kFewestTokens);
  numChunks = b.div(b.add(numTokens, b.sub(chunk, b.index(1))), chunk);
  Type type = b.getI32Type();
  counts = b.allocate({batches, heads, numCodes, numChunks}, {}, type);
  begins = b.allocate({batches, heads, b.add(numCodes, 1)}, {}, type);
  sorted = b.allocate({batches, heads, numTokens}, {}, type);
  countTokens();
  addUpChunks();
  addUpCodes();
  sortTokens();
}

void TokensOfCodes::free() {
  for (Value buffer : {counts, begins, sorted})
    memref::DeallocOp::create(b, buffer);
}

void TokensOfCodes::forTokens(ValueRange at, Value counters,
                              CountedTokenBody body) {
  Value begin = b.mul(at[2], chunk),
        end = b.min(b.add(begin, chunk), numTokens);
  auto getCode = [&](Value token) {
    return b.loadIndex(codes, {at[0], at[1], token});
  };
  forTokensOfCodes(b, begin, end, getCode, numCodes, counters, body);
}

void TokensOfCodes::countTokens() {
  b.forTeams({batches, heads, numChunks}, [&](ValueRange at) {
    Value counters = b.teamBuffer(numCodes, b.getI32Type());
    b.forNumbers(b.index(0), numCodes,
                 [&](Value code) { b.storeIndex(b.index(0), counters, code); });
    forTokens(at, counters, [](Value, Value) {});
    b.barrier();
    b.forNumbers(b.index(0), numCodes, [&](Value code) {
      b.storeIndex(b.loadIndex(counters, code), counts,
                   {at[0], at[1], code, at[2]});
    });
  });
}

void TokensOfCodes::addUpChunks() {
  b.forTeams({batches, heads, numCodes}, [&](ValueRange at) {
    auto placeOf = [&](Value chunk) {
      return Values{at[0], at[1], at[2], chunk};
    };
    auto load = [&](Value chunk) -> Value {
      return memref::LoadOp::create(b, counts, placeOf(chunk));
    };
    auto store = [&](Value chunk, Value before, Value) {
      memref::StoreOp::create(b, before, counts, placeOf(chunk));
    };
    Value all = b.addUp(numChunks, load, store);
    b.atColumn(b.index(0), [&] {
      memref::StoreOp::create(b, all, begins,
                              ValueRange{at[0], at[1], b.add(at[2], 1)});
    });
  });
}

void TokensOfCodes::addUpCodes() {
  b.forTeams({batches, heads}, [&](ValueRange at) {
    auto placeBehind = [&](Value code) {
      return Values{at[0], at[1], b.add(code, 1)};
    };
    auto load = [&](Value code) -> Value {
      return memref::LoadOp::create(b, begins, placeBehind(code));
    };
    auto store = [&](Value code, Value, Value upTo) {
      memref::StoreOp::create(b, upTo, begins, placeBehind(code));
    };
    b.addUp(numCodes, load, store);
    Value zero = b.index(0);
    b.atColumn(zero, [&] { b.storeIndex(zero, begins, {at[0], at[1], zero}); });
  });
}

void TokensOfCodes::sortTokens() {
  b.forTeams({batches, heads, numChunks}, [&](ValueRange at) {
    Value counters = b.teamBuffer(numCodes, b.getI32Type());
    b.forNumbers(b.index(0), numCodes, [&](Value code) {
      Value before = b.loadIndex(counts, {at[0], at[1], code, at[2]});
      Value begin = b.loadIndex(begins, {at[0], at[1], code});
      b.storeIndex(b.add(begin, before), counters, code);
    });
    forTokens(at, counters, [&](Value token, Value place) {
      b.storeIndex(token, sorted, {at[0], at[1], place});
    });
  });
}

std::pair<Value, Value> TokensOfCodes::getPlaces(KernelBuilder &k,
                                                 ValueRange code) const {
  return {k.loadIndex(begins, code),
          k.loadIndex(begins, {code[0], code[1], k.add(code[2], 1)})};
}

Value TokensOfCodes::loadToken(KernelBuilder &k, Value batch, Value head,
                               Value place) const {
  return k.loadIndex(sorted, {batch, head, place});
}
