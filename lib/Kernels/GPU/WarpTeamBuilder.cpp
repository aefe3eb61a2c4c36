//===- WarpTeamBuilder.cpp - Teams that are warps of a GPU ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/WarpTeamBuilder.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Votes on keys of rows that are loaded together.
static constexpr int64_t kVotesAtOnce = 8;

int64_t WarpTeamBuilder::getMinTeams() const { return 2048; }

void WarpTeamBuilder::forTeams(ArrayRef<Value> grid,
                               function_ref<void(ValueRange)> body) {
  OpBuilder::InsertionGuard guard(*this);
  Value total = index(1);
  for (Value extent : grid)
    total = mul(total, extent);
  launch = createLaunch(*this, getLoc(), total, kWarpSize, /*sharedBytes=*/0);
  sharedBytes = 0;
  setInsertionPointToStart(&launch.getBody().front());
  lane = launch.getThreadIds().x;
  body(splitNumber(*this, launch.getBlockIds().x, grid));
  if (sharedBytes == 0)
    return;
  setInsertionPoint(launch);
  Value bytes =
      arith::ConstantOp::create(*this, getI32IntegerAttr(sharedBytes));
  launch.getDynamicSharedMemorySizeMutable().assign(bytes);
}

Value WarpTeamBuilder::firstColumn(Value begin) {
  if (isConstantIntValue(begin, 0))
    return lane;
  // Lanes before that of `begin` start with the next 32 columns.
  Value column = add(roundDown(begin, kWarpSize), lane);
  return select(less(column, begin), add(column, kWarpSize), column);
}

void WarpTeamBuilder::forColumns(Value begin, Value end, ColumnBody body) {
  loop(firstColumn(begin), end, kWarpSize,
       [&](Value column) { body(*this, column); });
}

void WarpTeamBuilder::atColumn(Value column, function_ref<void()> body) {
  ifThen(equal(rem(column, kWarpSize), lane), body);
}

Value WarpTeamBuilder::foldColumns(vector::CombiningKind kind, double init,
                                   Value begin, Value end, ColumnStep step) {
  Value total = loop(firstColumn(begin), end, kWarpSize, {scalar(init)},
                     [&](Value column, ValueRange running) -> Values {
                       return {step(*this, column, running.front())};
                     })
                    .front();
  GPUKernelBuilder k(getLoc(), *this, kWarpSize);
  for (int64_t mask = kWarpSize / 2; mask; mask /= 2)
    total = vector::makeArithReduction(*this, getLoc(), kind, total,
                                       k.shuffleXor(total, mask));
  return total;
}

void WarpTeamBuilder::forColumnTiles(
    int64_t width, int64_t,
    function_ref<void(KernelBuilder &, ValueRange)> body) {
  forColumns(width, body);
}

void WarpTeamBuilder::forNumbers(Value begin, Value end,
                                 function_ref<void(Value)> body) {
  loop(add(begin, lane), end, kWarpSize, body);
}

/// The warp goes through the numbers, 32 at a time; a vote says which are
/// listed, and how many of them come before each lane's.
Value WarpTeamBuilder::listNumbers(
    Value extent, function_ref<Value(KernelBuilder &, Value)> condition,
    Value list, ValueRange at) {
  GPUKernelBuilder k(getLoc(), *this, kWarpSize);
  Value one = k.i32(1);
  auto countBits = [&](Value bits) -> Value {
    return LLVM::CtPopOp::create(k, k.getI32Type(), bits);
  };
  auto listVoted = [&](Value first, ValueRange counted) -> Values {
    Value number = k.add(first, lane);
    Value holds = k.select(
        k.less(number, extent), k.getI1Type(),
        [&] {
          KernelBuilder inner(getLoc(), k, getStateType(), getLanes());
          return condition(inner, number);
        },
        [&] { return k.i1(false); });
    Value votes = k.ballot(holds);
    Value before = arith::ShLIOp::create(k, one, k.toI32(lane));
    Value earlier = arith::AndIOp::create(k, votes, k.sub(before, one));
    k.ifThen(holds, [&] {
      Values place(at);
      place.push_back(k.toIndex(k.add(counted[0], countBits(earlier))));
      k.storeIndex(number, list, place);
    });
    return {k.add(counted[0], countBits(votes))};
  };
  return k.toIndex(
      k.loop(k.index(0), extent, kWarpSize, {k.i32(0)}, listVoted)[0]);
}

Value WarpTeamBuilder::addUp(Value extent, function_ref<Value(Value)> load,
                             function_ref<void(Value, Value, Value)> body) {
  Value none = arith::ConstantOp::create(*this, getI32IntegerAttr(0));
  auto addPiece = [&](Value first, ValueRange sum) -> Values {
    GPUKernelBuilder k(getLoc(), *this, kWarpSize);
    Value ownLane = k.toI32(lane), number = add(first, lane);
    Value exists = less(number, extent);
    Value own = select(
        exists, getI32Type(), [&] { return load(number); },
        [&] { return none; });
    Value upTo = own;
    for (int64_t distance = 1; distance < kWarpSize; distance *= 2) {
      Value isFirst = k.less(ownLane, k.i32(distance));
      Value other = k.shuffleFrom(upTo, k.sub(ownLane, k.i32(distance)));
      upTo = k.select(isFirst, upTo, k.add(upTo, other));
    }
    upTo = k.add(sum[0], upTo);
    Value before = k.sub(upTo, own);
    ifThen(exists, [&] { body(number, before, upTo); });
    return {k.shuffleFrom(upTo, k.i32(kWarpSize - 1))};
  };
  return loop(index(0), extent, kWarpSize, {none}, addPiece)[0];
}

/// Runs `body` for the numbers of the bits that are set, in order.
static void forBits(KernelBuilder &b, Value bits,
                    function_ref<void(Value)> body) {
  Type type = bits.getType();
  Value none = arith::ConstantIntOp::create(b, b.getLoc(), type, 0),
        one = arith::ConstantIntOp::create(b, b.getLoc(), type, 1);
  scf::WhileOp::create(
      b, type, bits,
      [&](OpBuilder &, Location, ValueRange running) {
        Value isLeft = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                             running.front(), none);
        scf::ConditionOp::create(b, isLeft, running);
      },
      [&](OpBuilder &, Location, ValueRange running) {
        Value left = running.front();
        body(LLVM::CountTrailingZerosOp::create(b, type, left,
                                                /*is_zero_poison=*/true));
        Value rest = arith::AndIOp::create(b, left, b.sub(left, one));
        scf::YieldOp::create(b, rest);
      });
}

/// The warp goes through the rows, 32 for each vote. It has the keys of several
/// votes on their way: most of them find nothing, and a load for each would be
/// waited for. A lane keeps the bits of a vote.
void WarpTeamBuilder::forRowsOfKey(Value begin, Value end, KeyOfRow getKey,
                                   Value own, int64_t numOwn,
                                   KeyedRowBody body) {
  auto isOwnKey = [&](Value key) {
    return numOwn == 1 ? equal(key, own)
                       : both(less(key, add(own, numOwn)),
                              less(sub(own, index(1)), key));
  };
  Value last = sub(end, index(1));
  loop(begin, end, kVotesAtOnce * kWarpSize, [&](Value first) {
    GPUKernelBuilder k(getLoc(), *this, kWarpSize);
    Values areOwn;
    for (int64_t i = 0; i < kVotesAtOnce; ++i) {
      Value row = add(add(first, i * kWarpSize), lane);
      areOwn.push_back(both(less(row, end), isOwnKey(getKey(min(row, last)))));
    }
    Value none = k.i32(0), votes = none, ownLane = k.toI32(lane);
    for (auto [i, isOwn] : llvm::enumerate(areOwn))
      votes = select(equal(ownLane, k.i32(i)), k.ballot(isOwn), votes);
    Value isAny =
        arith::CmpIOp::create(*this, arith::CmpIPredicate::ne, votes, none);
    auto toIndex = [&](Value number) -> Value {
      return arith::IndexCastOp::create(*this, getIndexType(), number);
    };
    forBits(*this, k.ballot(isAny), [&](Value number) {
      Value start = add(first, mul(toIndex(number), kWarpSize));
      GPUKernelBuilder inner(getLoc(), *this, kWarpSize);
      forBits(*this, inner.shuffleFrom(votes, number), [&](Value bit) {
        Value row = add(start, toIndex(bit));
        body(row, numOwn == 1 ? own : getKey(row));
      });
    });
  });
}

void WarpTeamBuilder::single(function_ref<void()> body) {
  ifThen(equal(lane, index(0)), body);
  barrier();
}

void WarpTeamBuilder::barrier() {
  GPUKernelBuilder(getLoc(), *this, kWarpSize).warpBarrier();
}

Value WarpTeamBuilder::teamBuffer(ArrayRef<int64_t> shape, Type elementType) {
  int64_t bytes = llvm::divideCeil(elementType.getIntOrFloatBitWidth(), 8);
  for (int64_t extent : shape)
    bytes *= extent;
  if (sharedBytes + bytes <= kMostSharedBytes) {
    GPUKernelBuilder k(getLoc(), *this, kWarpSize);
    Value buffer = k.sharedBuffer(sharedBytes, shape, elementType);
    sharedBytes = llvm::alignTo(sharedBytes + bytes, 16);
    return buffer;
  }
  return globalBuffer(launch.getGridSizeX(), shape, elementType);
}

Value WarpTeamBuilder::teamBuffer(Value extent, Type elementType) {
  if (std::optional<int64_t> known = getConstantIntValue(extent))
    return teamBuffer(ArrayRef(*known), elementType);
  return globalBuffer({launch.getGridSizeX(), extent}, {}, elementType);
}

Value WarpTeamBuilder::globalBuffer(ArrayRef<Value> leading,
                                    ArrayRef<int64_t> trailing,
                                    Type elementType) {
  Value buffers;
  {
    OpBuilder::InsertionGuard guard(*this);
    setInsertionPoint(launch);
    buffers = allocate(leading, trailing, elementType);
    setInsertionPointAfter(launch);
    memref::DeallocOp::create(*this, buffers);
  }
  return rowView(buffers, launch.getBlockIds().x);
}
