//===- CodebookToGPU.cpp - GPU kernels of codebook summaries --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A warp has one code, and the means of its values in registers, a column for
// each lane. It looks at the codes of 32 tokens at once, one for each lane, and
// takes those that vote for its own code in the order of the tokens. So no two
// warps touch the same number, and results do not depend on their order.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Warps of a block.
static constexpr int64_t kNumWarps = 8;
/// Columns that a lane keeps in registers, at most.
static constexpr int64_t kMaxColumns = 8;

namespace {
/// A list of numbers of the tokens of one head.
struct TokenRange {
  Value batch, head, begin, end;
};

class CodebookGPUKernel {
public:
  CodebookGPUKernel(Operation *op, OpBuilder &builder, Value codes,
                    Value values)
      : b(op->getLoc(), builder, kNumWarps * kWarpSize), codes(codes),
        values(values), width(getWidth(values)),
        numColumns(std::min<int64_t>(llvm::divideCeil(width, kWarpSize),
                                     kMaxColumns)) {}

  void accumulate(CodebookAccumulateOp op);
  void scanSerially(CodebookScanOp op);
  void scanByBlocks(CodebookScanOp op);
  void update(CodebookUpdateOp op);

private:
  /// What tokens are taken into: a number for each of the lane's columns and
  /// how many tokens there were, of 32 bits.
  struct State {
    Values columns;
    Value count;
  };
  /// Takes one value in; the count has it already.
  using Combine =
      llvm::function_ref<Value(Value before, Value value, Value count)>;

  /// Runs `body` in a kernel with a warp for each point of `extents` and code.
  void forEachCode(ValueRange extents, Value numCodes,
                   llvm::function_ref<void(ValueRange, Value)> body);
  /// Runs `body` for each group of columns that fits the registers, from
  /// column `first` on; `body` maps the count so far to the next one.
  Value forEachGroup(Value count,
                     llvm::function_ref<Value(Value first, Value)> body);
  State take(const TokenRange &tokens, Value code, Value firstColumn,
             const State &state, Combine combine);
  State takeMeans(const TokenRange &tokens, Value code, Value firstColumn,
                  const State &state);

  Value column(Value first, int64_t i) {
    return b.add(b.add(first, lane), i * kWarpSize);
  }
  Values load(Value memref, ValueRange row, Value firstColumn);
  void store(ValueRange numbers, Value memref, ValueRange row,
             Value firstColumn);
  void storeCount(Value count, Value memref, ValueRange at) {
    b.ifThen(b.equal(lane, b.index(0)),
             [&] { memref::StoreOp::create(b, count, memref, at); });
  }
  Value toNumber(Value count) {
    return arith::SIToFPOp::create(b, b.getF32Type(), count);
  }
  /// First token of a block, or the number of tokens if there are fewer.
  Value blockStart(CodebookScanOp op, Value block) {
    Value start = b.mul(block, static_cast<int64_t>(op.getBlock()));
    return b.min(start, b.extent(codes, 2));
  }
  void mergeBlocks(CodebookScanOp op);

  GPUKernelBuilder b;
  Value codes, values, lane;
  int64_t width, numColumns;
};
} // namespace

//===----------------------------------------------------------------------===//
// One warp
//===----------------------------------------------------------------------===//

void CodebookGPUKernel::forEachCode(
    ValueRange extents, Value numCodes,
    llvm::function_ref<void(ValueRange, Value)> body) {
  OpBuilder::InsertionGuard guard(b);
  Values grid(extents);
  grid.push_back(b.ceilDiv(numCodes, kNumWarps));
  Values at = beginBlocks(b, grid);
  lane = b.toIndex(b.lane());
  Value code = b.add(b.mul(at.pop_back_val(), kNumWarps), b.toIndex(b.warp()));
  b.ifThen(b.less(code, numCodes), [&] { body(at, code); });
}

Value CodebookGPUKernel::forEachGroup(
    Value count, llvm::function_ref<Value(Value, Value)> body) {
  int64_t step = numColumns * kWarpSize;
  if (width <= step)
    return body(b.index(0), count);
  // Every group takes the same tokens.
  return b.loop(b.index(0), b.index(width), step, {count},
                [&](Value first, ValueRange) -> Values {
                  return {body(first, count)};
                })[0];
}

Values CodebookGPUKernel::load(Value memref, ValueRange row,
                               Value firstColumn) {
  Values numbers;
  for (int64_t i = 0; i < numColumns; ++i) {
    Values at(row);
    // Lanes beyond the last column repeat it.
    at.push_back(b.min(column(firstColumn, i), width - 1));
    numbers.push_back(b.loadScalar(memref, at));
  }
  return numbers;
}

void CodebookGPUKernel::store(ValueRange numbers, Value memref, ValueRange row,
                              Value firstColumn) {
  for (auto [i, number] : llvm::enumerate(numbers)) {
    Values at(row);
    at.push_back(column(firstColumn, i));
    b.ifThen(b.less(at.back(), b.index(width)),
             [&, &number = number] { b.storeScalar(number, memref, at); });
  }
}

CodebookGPUKernel::State CodebookGPUKernel::take(const TokenRange &tokens,
                                                 Value code, Value firstColumn,
                                                 const State &state,
                                                 Combine combine) {
  Value wanted = b.toI32(code), none = b.i32(0);
  Values carried = state.columns;
  carried.push_back(state.count);
  auto takeVoted = [&](Value first, ValueRange state) {
    Value token = b.add(first, lane);
    Value found = b.select(
        b.less(token, tokens.end), b.getI32Type(),
        [&]() -> Value {
          return memref::LoadOp::create(
              b, codes, ValueRange{tokens.batch, tokens.head, token});
        },
        [&] { return b.i32(-1); });
    Values running = {b.ballot(b.equal(found, wanted))};
    running.append(state.begin(), state.end());
    auto loop = scf::WhileOp::create(
        b, ValueRange(running).getTypes(), running,
        [&](OpBuilder &, Location, ValueRange values) {
          Value isLeft = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                               values.front(), none);
          scf::ConditionOp::create(b, isLeft, values);
        },
        [&](OpBuilder &, Location, ValueRange running) {
          Value votes = running.front();
          Value bit = LLVM::CountTrailingZerosOp::create(
              b, votes.getType(), votes, /*is_zero_poison=*/true);
          Value at[] = {tokens.batch, tokens.head,
                        b.add(first, b.toIndex(bit))};
          Value count = b.add(running.back(), 1);
          Values next = {
              arith::AndIOp::create(b, votes, b.sub(votes, b.i32(1)))};
          for (auto [before, value] :
               llvm::zip(running.drop_front().drop_back(),
                         load(values, at, firstColumn)))
            next.push_back(combine(before, value, count));
          next.push_back(count);
          scf::YieldOp::create(b, next);
        });
    return Values(loop.getResults().drop_front());
  };
  carried = b.loop(tokens.begin, tokens.end, kWarpSize, carried, takeVoted);
  Value count = carried.pop_back_val();
  return {carried, count};
}

CodebookGPUKernel::State CodebookGPUKernel::takeMeans(const TokenRange &tokens,
                                                      Value code,
                                                      Value firstColumn,
                                                      const State &state) {
  return take(tokens, code, firstColumn, state,
              [&](Value mean, Value value, Value count) -> Value {
                Value share =
                    arith::DivFOp::create(b, b.scalar(1.0), toNumber(count));
                Value moved = b.fma(b.fsub(value, mean), share, mean);
                // The first token is the mean, whatever was there before.
                return b.select(b.equal(count, b.i32(1)), value, moved);
              });
}

//===----------------------------------------------------------------------===//
// Running state
//===----------------------------------------------------------------------===//

void CodebookGPUKernel::accumulate(CodebookAccumulateOp op) {
  Value mean = op.getMean(), counts = op.getCount();
  Value extents[] = {b.extent(codes, 0), b.extent(codes, 1)};
  forEachCode(extents, b.extent(counts, 2), [&](ValueRange at, Value code) {
    Value row[] = {at[0], at[1], code};
    Value before = memref::LoadOp::create(b, counts, row);
    // All lanes have read what the first one overwrites.
    b.warpBarrier();
    TokenRange tokens = {at[0], at[1], b.index(0), b.extent(codes, 2)};
    Value after = forEachGroup(before, [&](Value first, Value count) {
      State state =
          takeMeans(tokens, code, first, {load(mean, row, first), count});
      store(state.columns, mean, row, first);
      return state.count;
    });
    storeCount(after, counts, row);
  });
}

void CodebookGPUKernel::scanSerially(CodebookScanOp op) {
  Value mean = op.getMean(), counts = op.getCount();
  Value extents[] = {b.extent(codes, 0), b.extent(codes, 1)};
  forEachCode(extents, b.extent(counts, 3), [&](ValueRange at, Value code) {
    Value initialRow[] = {at[0], at[1], code};
    Value before = memref::LoadOp::create(b, op.getInitialCount(), initialRow);
    forEachGroup(before, [&](Value first, Value count) {
      Values carried = load(op.getInitialMean(), initialRow, first);
      carried.push_back(count);
      carried =
          b.loop(b.index(0), b.extent(mean, 2), 1, carried,
                 [&](Value number, ValueRange values) {
                   // Entry 0 is the initial state.
                   Value block = b.max(b.sub(number, b.index(1)), 0);
                   TokenRange tokens = {at[0], at[1], blockStart(op, block),
                                        blockStart(op, number)};
                   State state =
                       takeMeans(tokens, code, first,
                                 {Values(values.drop_back()), values.back()});
                   Value row[] = {at[0], at[1], number, code};
                   store(state.columns, mean, row, first);
                   storeCount(state.count, counts, row);
                   Values next = state.columns;
                   next.push_back(state.count);
                   return next;
                 });
      return carried.back();
    });
  });
}

//===----------------------------------------------------------------------===//
// Blocks on their own, then a scan
//===----------------------------------------------------------------------===//

void CodebookGPUKernel::scanByBlocks(CodebookScanOp op) {
  Value mean = op.getMean(), counts = op.getCount();
  Value extents[] = {b.extent(codes, 0), b.extent(codes, 1), b.extent(mean, 2)};
  forEachCode(extents, b.extent(counts, 3), [&](ValueRange at, Value code) {
    Value row[] = {at[0], at[1], at[2], code};
    Value initialRow[] = {at[0], at[1], code};
    Value isInitial = b.equal(at[2], b.index(0));
    Value before = b.select(
        isInitial, b.getI32Type(),
        [&]() -> Value {
          return memref::LoadOp::create(b, op.getInitialCount(), initialRow);
        },
        [&] { return b.i32(0); });
    Value block = b.max(b.sub(at[2], b.index(1)), 0);
    TokenRange tokens = {at[0], at[1], blockStart(op, block),
                         blockStart(op, at[2])};
    Value after = forEachGroup(before, [&](Value first, Value count) {
      Values start = load(op.getInitialMean(), initialRow, first);
      for (Value &number : start)
        number = b.select(isInitial, number, b.scalar(0.0));
      State state = takeMeans(tokens, code, first, {start, count});
      store(state.columns, mean, row, first);
      return state.count;
    });
    storeCount(after, counts, row);
  });
  mergeBlocks(op);
}

/// Every entry takes in those before it, one after the other: a thread for each
/// code and column, then one for each count, which all columns have read.
void CodebookGPUKernel::mergeBlocks(CodebookScanOp op) {
  Value mean = op.getMean(), counts = op.getCount();
  Value one = b.index(1), none = b.i32(0), numEntries = b.extent(mean, 2);
  Value batches = b.extent(mean, 0), heads = b.extent(mean, 1),
        numCodes = b.extent(mean, 3);
  auto countAt = [&](ValueRange at, Value number) -> Value {
    return memref::LoadOp::create(b, counts,
                                  ValueRange{at[0], at[1], number, at[2]});
  };
  parallelLoop(
      b, {batches, heads, numCodes, b.index(width)}, [&](ValueRange at) {
        auto place = [&](Value number) {
          return Values{at[0], at[1], number, at[2], at[3]};
        };
        Value start = b.loadScalar(mean, place(b.index(0)));
        b.loop(one, numEntries, 1, {start, countAt(at, b.index(0))},
               [&](Value number, ValueRange before) -> Values {
                 Value added = countAt(at, number);
                 Value total = b.add(before[1], added);
                 Value share = arith::DivFOp::create(b, toNumber(added),
                                                     toNumber(b.max(total, 1)));
                 Value own = b.loadScalar(mean, place(number));
                 Value merged = b.fma(b.fsub(own, before[0]), share, before[0]);
                 // A mean that stands for no token is not read, unless both do.
                 merged = b.select(b.equal(before[1], none), own, merged);
                 merged = b.select(b.equal(added, none), before[0], merged);
                 b.storeScalar(merged, mean, place(number));
                 return {merged, total};
               });
      });
  parallelLoop(b, {batches, heads, numCodes}, [&](ValueRange at) {
    b.loop(one, numEntries, 1, {countAt(at, b.index(0))},
           [&](Value number, ValueRange before) -> Values {
             Value total = b.add(before[0], countAt(at, number));
             memref::StoreOp::create(b, total, counts,
                                     ValueRange{at[0], at[1], number, at[2]});
             return {total};
           });
  });
}

//===----------------------------------------------------------------------===//
// Update
//===----------------------------------------------------------------------===//

void CodebookGPUKernel::update(CodebookUpdateOp op) {
  Value key = op.getKey(), codebook = op.getCodebook(), zero = b.index(0);
  auto type = cast<MemRefType>(codebook.getType());
  double rate = op.getRate().convertToDouble();
  forEachCode(
      b.extent(codebook, 0), b.extent(codebook, 1),
      [&](ValueRange at, Value code) {
        Value set = at[0], row[] = {set, code};
        Value oldCount = b.loadScalar(op.getCounts(), row);
        b.warpBarrier();
        bool isShared = type.getDimSize(0) == 1;
        Value firstHead = isShared ? zero : set;
        Value endHead = isShared ? b.extent(key, 1) : b.add(set, 1);
        forEachGroup(b.i32(0), [&](Value first, Value count) {
          Values carried(numColumns, b.scalar(0.0));
          carried.push_back(count);
          auto takeHead = [&](Value batch, Value head, ValueRange values) {
            State state =
                take({batch, head, zero, b.extent(key, 2)}, code, first,
                     {Values(values.drop_back()), values.back()},
                     [&](Value sum, Value value, Value) {
                       return b.fadd(sum, value);
                     });
            Values next = state.columns;
            next.push_back(state.count);
            return next;
          };
          carried =
              b.loop(zero, b.extent(key, 0), 1, carried,
                     [&](Value batch, ValueRange values) {
                       return b.loop(firstHead, endHead, 1, values,
                                     [&](Value head, ValueRange values) {
                                       return takeHead(batch, head, values);
                                     });
                     });
          Value found = carried.pop_back_val();
          auto smooth = [&](Value old, Value part) {
            return b.fadd(b.fmul(old, b.scalar(rate)),
                          b.fmul(part, b.scalar(1.0 - rate)));
          };
          Value newCount = smooth(oldCount, toNumber(found));
          Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                                newCount, b.scalar(0.0));
          Values sums = load(op.getSums(), row, first), means;
          for (auto [sum, part] : llvm::zip(sums, carried)) {
            sum = smooth(sum, part);
            Value mean = arith::DivFOp::create(b, sum, newCount);
            means.push_back(b.select(isEmpty, b.scalar(0.0), mean));
          }
          store(sums, op.getSums(), row, first);
          store(means, codebook, row, first);
          storeCount(newCount, op.getCounts(), row);
          return found;
        });
      });
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// A thread for each count.
static void emitKernels(OpBuilder &builder, LogCountOp op) {
  KernelBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Value counts = op.getCount();
  int64_t rank = cast<MemRefType>(counts.getType()).getRank();
  Values extents;
  for (int64_t dim = 0; dim < rank; ++dim)
    extents.push_back(b.extent(counts, dim));
  if (rank == 0)
    extents.push_back(b.index(1));
  parallelLoop(b, extents, [&](ValueRange at) {
    at = at.take_front(rank);
    Value count = memref::LoadOp::create(b, counts, at);
    b.storeScalar(softmax::logCount(b, count), op.getLogWeight(), at);
  });
}

static void emitKernels(OpBuilder &builder, CodebookUpdateOp op) {
  CodebookGPUKernel(op, builder, op.getCodes(), op.getKey()).update(op);
}
static void emitKernels(OpBuilder &builder, CodebookAccumulateOp op) {
  CodebookGPUKernel(op, builder, op.getCodes(), op.getValues()).accumulate(op);
}
static void emitKernels(OpBuilder &builder, CodebookScanOp op) {
  CodebookGPUKernel kernel(op, builder, op.getCodes(), op.getValues());
  if (op.getReduction() == Reduction::Serial)
    kernel.scanSerially(op);
  else
    kernel.scanByBlocks(op);
}

template <typename OpTy>
static LogicalResult lowerCodebook(OpTy op, OpBuilder &builder,
                                   GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  emitKernels(builder, op);
  return success();
}

void fovea::attn::attachCodebookToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerCodebook<CodebookAccumulateOp>,
                  lowerCodebook<CodebookScanOp>,
                  lowerCodebook<CodebookUpdateOp>, lowerCodebook<LogCountOp>>(
      context);
}
