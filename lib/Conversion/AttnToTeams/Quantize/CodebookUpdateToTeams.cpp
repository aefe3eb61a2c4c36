//===- CodebookUpdateToTeams.cpp - Loops of codebook updates --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys are added up by their codes, which each target does in its own way.
// Then every codeword moves on its own.
//
//===----------------------------------------------------------------------===//

#include "QuantizeTeams.h"
#include "fovea/Conversion/AttnToTeams/Quantize/CodebookTeams.h"
#include "fovea/Kernels/Random.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Vectors of columns that one team sums.
static constexpr int64_t kVectorsPerSlice = 4;
/// Codewords that one team divides, if they are few.
static constexpr int64_t kCodesPerTeam = 64;

namespace {
class CodebookUpdate {
public:
  CodebookUpdate(TeamBuilder &builder, CodebookUpdateOp op)
      : b(builder), op(op), codes(op.getCodes()), keys(op.getKey()),
        width(cast<MemRefType>(keys.getType()).getDimSize(3)) {}

  void sumByCode(Value sums, Value counts);
  void divideSums(Value sums, Value counts);

private:
  /// Runs `body` for the keys of a set of codewords, [batch, head, token].
  void forKeys(Value set, llvm::function_ref<void(ValueRange key)> body);
  /// Runs `body` for the present key of a set with that number, in order.
  void forKeyOfNumber(Value set, Value number,
                      llvm::function_ref<void(ValueRange key)> body);
  void replaceIfDead(Value count, Value counts, ValueRange code);

  TeamBuilder &b;
  CodebookUpdateOp op;
  Value codes, keys;
  int64_t width;
};
} // namespace

std::pair<Value, Value>
fovea::attn::getHeadsOfSet(KernelBuilder &b, CodebookUpdateOp op, Value set) {
  // One set is that of all heads.
  if (cast<MemRefType>(op.getSums().getType()).getDimSize(0) == 1)
    return {b.index(0), b.extent(op.getKey(), 1)};
  return {set, b.add(set, 1)};
}

void CodebookUpdate::forKeys(Value set, function_ref<void(ValueRange)> body) {
  Value zero = b.index(0);
  std::pair<Value, Value> heads = getHeadsOfSet(b, op, set);
  b.loop(zero, b.extent(keys, 0), 1, [&](Value batch) {
    b.loop(heads.first, heads.second, 1, [&](Value head) {
      b.loop(zero, b.extent(keys, 2), 1,
             [&](Value token) { body({batch, head, token}); });
    });
  });
}

/// Sums and counts of the keys of each code, in memory: a team has all codes
/// and some columns. The last slice takes what is left.
void CodebookUpdate::sumByCode(Value sums, Value counts) {
  int64_t sliceWidth = kVectorsPerSlice * b.getLanes();
  int64_t numSlices = std::max<int64_t>(1, width / sliceWidth);
  Value zero = b.index(0), numCodes = b.extent(sums, 1);
  b.forTeams({b.extent(sums, 0), b.index(numSlices)}, [&](ValueRange at) {
    Value slice = numSlices == 1 ? zero : at[1], set = at[0];
    Value first = b.mul(slice, sliceWidth), last = b.index(width);
    if (numSlices > 1)
      last = b.select(b.equal(slice, b.index(numSlices - 1)), last,
                      b.add(first, sliceWidth));
    Value countsToo = b.equal(slice, zero);
    b.loop(zero, numCodes, 1, [&](Value code) {
      b.forColumns(first, last, [&](KernelBuilder &k, Value column) {
        k.storeVector(k.splat(0.0), sums, {set, code, column});
      });
      b.ifThen(countsToo, [&] { b.storeIndex(zero, counts, {set, code}); });
    });
    auto addKey = [&](ValueRange key, Value code) {
      b.forColumns(first, last, [&](KernelBuilder &k, Value column) {
        Value place[] = {set, code, column};
        Value element = k.loadVector(keys, {key[0], key[1], key[2], column});
        k.storeVector(k.fadd(k.loadVector(sums, place), element), sums, place);
      });
      b.ifThen(countsToo, [&] {
        Value count = b.loadIndex(counts, {set, code});
        b.storeIndex(b.add(count, 1), counts, {set, code});
      });
    };
    forKeys(set, [&](ValueRange key) {
      Value code = b.loadIndex(codes, key);
      b.ifThen(b.less(b.index(-1), code), [&] { addKey(key, code); });
    });
  });
}

/// Moves the running sums and counts towards those found, and divides.
void CodebookUpdate::divideSums(Value sums, Value counts) {
  double rate = op.getRate().convertToDouble();
  double minCount = op.getMinCount().convertToDouble();
  auto smooth = [&](KernelBuilder &k, Value old, Value found) {
    return k.fadd(k.fmul(old, k.splat(rate)),
                  k.fmul(found, k.splat(1.0 - rate)));
  };
  Value sets = b.extent(sums, 0), numCodes = b.extent(sums, 1);
  b.forRows({sets}, numCodes, kCodesPerTeam, [&](ValueRange code) {
    KernelBuilder scalars(b.getLoc(), b, b.getStateType(), /*lanes=*/0);
    Value count = smooth(scalars, b.loadScalar(op.getCounts(), code),
                         b.toNumber(b.loadIndex(counts, code)));
    b.barrier();
    b.single([&] { b.storeScalar(count, op.getCounts(), code); });
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value place[] = {code[0], code[1], column};
      Value sum = smooth(k, k.loadVector(op.getSums(), place),
                         k.loadVector(sums, place));
      k.storeVector(sum, op.getSums(), place);
      Value divisor = k.broadcast(count);
      if (minCount > 0)
        divisor = k.fmax(divisor, k.splat(minCount));
      Value isEmpty = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ,
                                            divisor, k.splat(0.0));
      Value mean = arith::DivFOp::create(k, sum, divisor);
      k.storeVector(k.select(isEmpty, k.splat(0.0), mean), op.getCodebook(),
                    place);
    });
    if (op.getSeed())
      replaceIfDead(count, counts, code);
  });
}

void CodebookUpdate::forKeyOfNumber(Value set, Value number,
                                    function_ref<void(ValueRange)> body) {
  Value zero = b.index(0);
  std::pair<Value, Value> heads = getHeadsOfSet(b, op, set);
  Values key(3);
  auto countKey = [&](Value token, ValueRange before) -> Values {
    key[2] = token;
    Value isPresent = b.less(b.index(-1), b.loadIndex(codes, key));
    b.ifThen(b.both(isPresent, b.equal(before[0], number)), [&] { body(key); });
    return {b.select(isPresent, b.add(before[0], b.index(1)), before[0])};
  };
  auto countHead = [&](Value head, ValueRange before) {
    key[1] = head;
    return b.loop(zero, b.extent(keys, 2), 1, before, countKey);
  };
  auto countBatch = [&](Value batch, ValueRange before) {
    key[0] = batch;
    return b.loop(heads.first, heads.second, 1, before, countHead);
  };
  b.loop(zero, b.extent(keys, 0), 1, {zero}, countBatch);
}

/// A codeword [set, code] whose `count` is below the least becomes a present
/// key, of as many as are in `counts`.
void CodebookUpdate::replaceIfDead(Value count, Value counts, ValueRange code) {
  double limit = op.getReplaceBelow().convertToDouble();
  Value zero = b.index(0), numCodes = b.extent(counts, 1);
  Value isRare = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, count,
                                       b.scalar(limit));
  auto become = [&](ValueRange key) {
    b.single([&] { b.storeScalar(b.scalar(limit), op.getCounts(), code); });
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value element = k.loadVector(keys, {key[0], key[1], key[2], column});
      Value place[] = {code[0], code[1], column};
      k.storeVector(element, op.getCodebook(), place);
      k.storeVector(k.fmul(element, k.splat(limit)), op.getSums(), place);
    });
  };
  auto replace = [&] {
    auto add = [&](Value other, ValueRange sum) -> Values {
      return {b.add(sum[0], b.loadIndex(counts, {code[0], other}))};
    };
    Value numKeys = b.loop(zero, numCodes, 1, {zero}, add)[0];
    b.ifThen(b.less(zero, numKeys), [&] {
      Value number = b.add(b.mul(code[0], numCodes), code[1]);
      Value chosen = emitRandomBelow(b, op.getSeed(), number, numKeys);
      forKeyOfNumber(code[0], chosen, become);
    });
  };
  b.ifThen(isRare, replace);
}

void fovea::attn::emitCodebookUpdate(
    CodebookUpdateOp op, TeamBuilder &b,
    function_ref<void(Value, Value)> emitSums) {
  Value sums = b.allocateLike(op.getCodebook(), b.getStateType());
  Value counts = b.allocateLike(op.getCounts(), b.getI32Type());
  emitSums(sums, counts);
  CodebookUpdate(b, op).divideSums(sums, counts);
  memref::DeallocOp::create(b, sums);
  memref::DeallocOp::create(b, counts);
}

LogicalResult fovea::attn::lowerToTeams(CodebookUpdateOp op,
                                        TeamBuilder &builder) {
  emitCodebookUpdate(op, builder, [&](Value sums, Value counts) {
    CodebookUpdate(builder, op).sumByCode(sums, counts);
  });
  return success();
}
