//===- CodebookScan.cpp - Loops of codebook summaries ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CodebookKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

namespace {
/// Means `[.., S, E]` and counts `[.., S]`, and which of them.
struct State {
  Value mean, count;
  Values position;

  Values code(Value code) const {
    Values at(position);
    at.push_back(code);
    return at;
  }
  Values column(Value code, Value column) const {
    Values at = this->code(code);
    at.push_back(column);
    return at;
  }
};

class CodebookKernel {
public:
  CodebookKernel(OpBuilder &builder, Operation *op, Value codes, Value values,
                 int64_t vectorBits)
      : b(op->getLoc(), builder, getState(values),
          vectorBits / getState(values).getWidth()),
        codes(codes), values(values) {
    width = cast<MemRefType>(values.getType()).getDimSize(3);
  }

  void accumulate(CodebookAccumulateOp op);
  void scanSerially(CodebookScanOp op);
  void scanByTree(CodebookScanOp op);
  void scanByProduct(CodebookScanOp op);

private:
  static FloatType getState(Value values) {
    return getStateType(cast<MemRefType>(values.getType()).getElementType());
  }

  /// Takes tokens `[begin, end)` of a head into a state.
  void take(Value batch, Value head, Value begin, Value end,
            const State &state);
  void copy(const State &from, const State &to);
  void clearCounts(const State &state);
  /// Takes the tokens that `earlier` stands for into `later`.
  void merge(const State &earlier, const State &later);
  void forEachCode(const State &state, llvm::function_ref<void(Value)> body) {
    b.loop(b.index(0), b.extent(state.count, state.position.size()), 1, body);
  }
  void summarizeBlocks(CodebookScanOp op, Value mean, Value count);
  void mergePairs(CodebookScanOp op, Value distance, Value first);

  /// First token of a block, or the number of tokens if there are fewer.
  Value blockStart(CodebookScanOp op, Value block) {
    Value start = b.mul(block, static_cast<int64_t>(op.getBlock()));
    return b.min(start, b.extent(codes, 2));
  }

  RowBuilder b;
  Value codes, values;
  int64_t width;
};
} // namespace

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void CodebookKernel::take(Value batch, Value head, Value begin, Value end,
                          const State &state) {
  b.loop(begin, end, 1, [&](Value token) {
    Value code = b.loadIndex(codes, {batch, head, token});
    Value count = b.add(b.loadIndex(state.count, state.code(code)), 1);
    b.storeIndex(count, state.count, state.code(code));
    auto value = [&](KernelBuilder &k, Value column) {
      return k.loadVector(values, {batch, head, token, column});
    };
    // The first token is the mean, whatever was there before.
    b.ifThenElse(
        b.equal(count, b.index(1)),
        [&] {
          b.forColumns(width, [&](KernelBuilder &k, Value column) {
            k.storeVector(value(k, column), state.mean,
                          state.column(code, column));
          });
        },
        [&] {
          Value share =
              arith::DivFOp::create(b, b.scalar(1.0), b.toNumber(count));
          b.forColumns(width, [&](KernelBuilder &k, Value column) {
            Values at = state.column(code, column);
            Value old = k.loadVector(state.mean, at);
            Value step = k.fsub(value(k, column), old);
            k.storeVector(k.fma(step, k.broadcast(share), old), state.mean, at);
          });
        });
  });
}

void CodebookKernel::copy(const State &from, const State &to) {
  forEachCode(to, [&](Value code) {
    b.storeIndex(b.loadIndex(from.count, from.code(code)), to.count,
                 to.code(code));
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.loadVector(from.mean, from.column(code, column)), to.mean,
                    to.column(code, column));
    });
  });
}

void CodebookKernel::clearCounts(const State &state) {
  forEachCode(state, [&](Value code) {
    b.storeIndex(b.index(0), state.count, state.code(code));
  });
}

void CodebookKernel::merge(const State &earlier, const State &later) {
  forEachCode(later, [&](Value code) {
    Value before = b.loadIndex(earlier.count, earlier.code(code));
    Value after = b.loadIndex(later.count, later.code(code));
    Value total = b.add(before, after);
    b.storeIndex(total, later.count, later.code(code));
    auto old = [&](KernelBuilder &k, Value column) {
      return k.loadVector(earlier.mean, earlier.column(code, column));
    };
    // A mean that stands for no token is not read, unless both do.
    b.ifThenElse(
        b.equal(after, b.index(0)),
        [&] {
          b.forColumns(width, [&](KernelBuilder &k, Value column) {
            k.storeVector(old(k, column), later.mean,
                          later.column(code, column));
          });
        },
        [&] {
          b.ifThen(b.less(b.index(0), before), [&] {
            Value share =
                arith::DivFOp::create(b, b.toNumber(after), b.toNumber(total));
            b.forColumns(width, [&](KernelBuilder &k, Value column) {
              Values at = later.column(code, column);
              Value base = old(k, column);
              Value step = k.fsub(k.loadVector(later.mean, at), base);
              k.storeVector(k.fma(step, k.broadcast(share), base), later.mean,
                            at);
            });
          });
        });
  });
}

//===----------------------------------------------------------------------===//
// One state
//===----------------------------------------------------------------------===//

void CodebookKernel::accumulate(CodebookAccumulateOp op) {
  b.forAll({b.extent(codes, 0), b.extent(codes, 1)}, [&](ValueRange ivs) {
    take(ivs[0], ivs[1], b.index(0), b.extent(codes, 2),
         {op.getMean(), op.getCount(), {ivs[0], ivs[1]}});
  });
}

//===----------------------------------------------------------------------===//
// A state for every block
//===----------------------------------------------------------------------===//

/// Every entry is a copy of the one before, with a block taken in.
void CodebookKernel::scanSerially(CodebookScanOp op) {
  Value one = b.index(1);
  b.forAll({b.extent(codes, 0), b.extent(codes, 1)}, [&](ValueRange ivs) {
    Value batch = ivs[0], head = ivs[1];
    auto entry = [&](Value number) -> State {
      return {op.getMean(), op.getCount(), {batch, head, number}};
    };
    copy({op.getInitialMean(), op.getInitialCount(), {batch, head}},
         entry(b.index(0)));
    b.loop(one, b.extent(op.getMean(), 2), 1, [&](Value number) {
      Value block = b.sub(number, one);
      copy(entry(block), entry(number));
      take(batch, head, blockStart(op, block), blockStart(op, number),
           entry(number));
    });
  });
}

/// Entry 0 of `mean` and `count` becomes the initial state, entry `t` the
/// summary of block `t - 1` alone, in which means of no token are undefined.
void CodebookKernel::summarizeBlocks(CodebookScanOp op, Value mean,
                                     Value count) {
  b.forAll(
      {b.extent(codes, 0), b.extent(codes, 1), b.extent(mean, 2)},
      [&](ValueRange ivs) {
        Value batch = ivs[0], head = ivs[1], number = ivs[2];
        State entry = {mean, count, {batch, head, number}};
        b.ifThenElse(
            b.equal(number, b.index(0)),
            [&] {
              copy({op.getInitialMean(), op.getInitialCount(), {batch, head}},
                   entry);
            },
            [&] {
              clearCounts(entry);
              Value block = b.sub(number, b.index(1));
              take(batch, head, blockStart(op, block), blockStart(op, number),
                   entry);
            });
      });
}

/// Entries `first`, `first + 2 distance`, ... each take in the entry that lies
/// `distance` before.
void CodebookKernel::mergePairs(CodebookScanOp op, Value distance,
                                Value first) {
  Value numEntries = b.extent(op.getMean(), 2), stride = b.mul(distance, 2);
  Value left = b.max(b.sub(numEntries, first), 0);
  Value numPairs = b.div(b.sub(b.add(left, stride), b.index(1)), stride);
  b.forAll({b.extent(codes, 0), b.extent(codes, 1), numPairs},
           [&](ValueRange ivs) {
             Value later = b.add(first, b.mul(ivs[2], stride));
             auto entry = [&](Value number) -> State {
               return {op.getMean(), op.getCount(), {ivs[0], ivs[1], number}};
             };
             merge(entry(b.sub(later, distance)), entry(later));
           });
}

/// Brent and Kung's scan: pairs at distances 1, 2, 4, ... up the tree, then
/// those in between on the way down. Two merges for each entry, and a depth of
/// twice the logarithm of their number.
void CodebookKernel::scanByTree(CodebookScanOp op) {
  summarizeBlocks(op, op.getMean(), op.getCount());
  int64_t numEntries = cast<MemRefType>(op.getMean().getType()).getDimSize(2);
  int64_t numLevels =
      ShapedType::isDynamic(numEntries)
          ? 32
          : llvm::Log2_64_Ceil(std::max<int64_t>(1, numEntries));
  Value one = b.index(1);
  auto power = [&](Value level) -> Value {
    return arith::ShLIOp::create(b, one, level);
  };
  b.loop(b.index(0), b.index(numLevels), 1, [&](Value level) {
    Value distance = power(level);
    mergePairs(op, distance, b.sub(b.mul(distance, 2), one));
  });
  b.loop(b.index(0), b.index(numLevels), 1, [&](Value step) {
    Value distance = power(b.sub(b.index(numLevels - 1), step));
    mergePairs(op, distance, b.sub(b.mul(distance, 3), one));
  });
}

/// Entry `t` is the mean of the summaries `0 .. t`, weighted by their counts: a
/// product with a lower triangle.
void CodebookKernel::scanByProduct(CodebookScanOp op) {
  Value means = b.allocateLike(op.getMean(), b.getStateType());
  Value counts = b.allocateLike(op.getCount(), b.getI32Type());
  summarizeBlocks(op, means, counts);
  Value zero = b.index(0);
  b.forAll(
      {b.extent(codes, 0), b.extent(codes, 1), b.extent(means, 2)},
      [&](ValueRange ivs) {
        Value batch = ivs[0], head = ivs[1], number = ivs[2];
        State entry = {op.getMean(), op.getCount(), {batch, head, number}};
        auto summary = [&](Value block) -> State {
          return {means, counts, {batch, head, block}};
        };
        Value end = b.add(number, 1);
        forEachCode(entry, [&](Value code) {
          Value total = b.loop(
              zero, end, 1, {zero}, [&](Value block, ValueRange sum) -> Values {
                return {b.add(sum[0],
                              b.loadIndex(counts, summary(block).code(code)))};
              })[0];
          b.storeIndex(total, op.getCount(), entry.code(code));
          // A code of no token keeps the initial mean.
          Value isEmpty = b.equal(total, zero);
          b.forColumns(width, [&](KernelBuilder &k, Value column) {
            Value initial =
                k.loadVector(means, summary(zero).column(code, column));
            Value start =
                arith::SelectOp::create(b, isEmpty, initial, k.splat(0.0));
            k.storeVector(start, op.getMean(), entry.column(code, column));
          });
          b.loop(zero, end, 1, [&](Value block) {
            Value count = b.loadIndex(counts, summary(block).code(code));
            b.ifThen(b.less(zero, count), [&] {
              Value share = arith::DivFOp::create(b, b.toNumber(count),
                                                  b.toNumber(total));
              b.forColumns(width, [&](KernelBuilder &k, Value column) {
                Values at = entry.column(code, column);
                Value part =
                    k.loadVector(means, summary(block).column(code, column));
                Value sum = k.fma(part, k.broadcast(share),
                                  k.loadVector(op.getMean(), at));
                k.storeVector(sum, op.getMean(), at);
              });
            });
          });
        });
      });
  memref::DeallocOp::create(b, means);
  memref::DeallocOp::create(b, counts);
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

void fovea::attn::emitAccumulate(OpBuilder &builder, CodebookAccumulateOp op,
                                 int64_t vectorBits) {
  CodebookKernel(builder, op, op.getCodes(), op.getValues(), vectorBits)
      .accumulate(op);
}

void fovea::attn::emitScan(OpBuilder &builder, CodebookScanOp op,
                           int64_t vectorBits) {
  CodebookKernel kernel(builder, op, op.getCodes(), op.getValues(), vectorBits);
  switch (op.getReduction()) {
  // Without threads to fill, the running state does the least work; the choice
  // must not depend on how many there are.
  case Reduction::Auto:
  case Reduction::Serial:
    return kernel.scanSerially(op);
  case Reduction::Associative:
    return kernel.scanByTree(op);
  case Reduction::Matmul:
    return kernel.scanByProduct(op);
  case Reduction::InputScan:
    break;
  }
  llvm_unreachable("refused by the verifier");
}
