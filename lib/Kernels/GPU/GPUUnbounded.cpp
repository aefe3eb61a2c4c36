//===- GPUUnbounded.cpp - NaN and infinity in shared memory ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "fovea/Kernels/GPU/GPURowCopies.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

void fovea::attn::keepRolled(GPUKernelBuilder &b) {
  auto loop = cast<scf::ForOp>(*std::prev(b.getInsertionPoint()));
  MLIRContext *context = loop.getContext();
  LLVM::LoopUnrollAttr unroll = LLVM::LoopUnrollAttr::get(
      context, BoolAttr::get(context, true), {}, {}, {}, {}, {}, {});
  loop->setAttr("loop_annotation", LLVM::LoopAnnotationAttr::get(
                                       context, {}, {}, {}, unroll, {}, {}, {},
                                       {}, {}, {}, {}, {}, {}, {}, {}));
}

/// Loads of 16 bytes that are under way together in a search by products.
static constexpr int64_t kLoadsTogether = 2;

/// The exponents of the numbers of type `type` in a register, one mask each.
static SmallVector<int64_t> getExponents(FloatType type) {
  int64_t mask = llvm::APFloat::getInf(type.getFloatSemantics())
                     .bitcastToAPInt()
                     .getZExtValue();
  SmallVector<int64_t> masks;
  for (int64_t bit = 0; bit < 32; bit += type.getWidth())
    masks.push_back(mask << bit);
  return masks;
}

/// Whether all bits of an exponent are set.
static Value hasAll(GPUKernelBuilder &b, Value word, int64_t exponent) {
  return b.equal(b.bitAnd(word, exponent), b.i32(exponent));
}

Value fovea::attn::isUnbounded(GPUKernelBuilder &b, Value number) {
  Value word = arith::BitcastOp::create(b, b.getI32Type(), number);
  return hasAll(b, word, getExponents(b.getF32Type()).front());
}

/// The registers of 16 bytes of a row, chunk `chunk` of it, which lie at `at`.
static Values loadChunk(GPUKernelBuilder &b, const SharedRows &shared,
                        Value row, Value chunk, Values &at) {
  const SharedMatrix &matrix = shared.matrix;
  int64_t elements = matrix.chunkElements;
  Type type = getMemRefType(matrix.memref).getElementType();
  Value column = b.mul(chunk, elements);
  at = b.toIndices(
      {b.add(shared.row, row), getSharedColumn(b, matrix, row, column)});
  auto load = vector::LoadOp::create(b, VectorType::get({elements}, type),
                                     matrix.memref, at);
  load.setAlignment(kChunkBytes);
  Value registers = vector::BitCastOp::create(
      b, VectorType::get({kChunkBytes / 4}, b.getI32Type()), load);
  Values words;
  for (int64_t i = 0; i < kChunkBytes / 4; ++i)
    words.push_back(vector::ExtractOp::create(b, registers, i));
  return words;
}

static int64_t countChunks(const SharedRows &shared) {
  return llvm::divideCeil(shared.columns, shared.matrix.chunkElements);
}

/// Runs `body` for the 16-byte chunks of rows that are this thread's: where a
/// chunk lies, and its registers. It maps what it is given to the next.
static Value
forChunks(GPUKernelBuilder &b, const SharedRows &shared, Value start,
          function_ref<Value(ValueRange at, Values words, Value)> body) {
  int64_t chunks = countChunks(shared);
  auto visit = [&](Value number, ValueRange carried) -> Values {
    Values at;
    Values words =
        loadChunk(b, shared, b.div(number, chunks), b.rem(number, chunks), at);
    return {body(at, words, carried[0])};
  };
  Values result = b.loop(b.thread(), b.i32(shared.rows * chunks),
                         b.getNumThreads(), {start}, visit);
  keepRolled(b);
  return result[0];
}

Value fovea::attn::findUnbounded(GPUKernelBuilder &b,
                                 const SharedRows &shared) {
  auto type =
      cast<FloatType>(getMemRefType(shared.matrix.memref).getElementType());
  return forChunks(b, shared, b.i1(false),
                   [&](ValueRange, Values words, Value found) {
                     for (Value word : words)
                       for (int64_t exponent : getExponents(type))
                         found = b.either(found, hasAll(b, word, exponent));
                     return found;
                   });
}

Value fovea::attn::findByProducts(GPUKernelBuilder &b,
                                  const SharedRows &shared) {
  // As many numbers as a register holds.
  auto type =
      cast<FloatType>(getMemRefType(shared.matrix.memref).getElementType());
  auto numbers = VectorType::get({32 / type.getWidth()}, type);
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(numbers));
  int64_t chunks = countChunks(shared), end = shared.rows * chunks;
  int64_t numThreads = b.getNumThreads(), step = kLoadsTogether * numThreads;
  auto visit = [&](Value number, ValueRange carried) {
    SmallVector<Values> loaded;
    for (int64_t i = 0; i < kLoadsTogether; ++i) {
      // The last ones perhaps again.
      Value own = b.add(number, i * numThreads);
      if (end % step != 0 && i > 0)
        own = b.min(own, end - 1);
      Values at;
      loaded.push_back(
          loadChunk(b, shared, b.div(own, chunks), b.rem(own, chunks), at));
    }
    Values sums = carried;
    for (const Values &words : loaded)
      for (auto [word, sum] : llvm::zip_equal(words, sums))
        sum = LLVM::FMAOp::create(b, LLVM::BitcastOp::create(b, numbers, word),
                                  zeros, sum);
    return sums;
  };
  Values sums = b.loop(b.thread(), b.i32(end), step,
                       Values(kChunkBytes / 4, zeros), visit);
  keepRolled(b);
  // Other sums are zeros, whose signs may be set.
  int64_t magnitudes = 0;
  for (int64_t bit = 0; bit < 32; bit += type.getWidth())
    magnitudes |= ((int64_t(1) << (type.getWidth() - 1)) - 1) << bit;
  Value all = b.i32(0);
  for (Value sum : sums)
    all = b.createOrFold<arith::OrIOp>(
        all, LLVM::BitcastOp::create(b, b.getI32Type(), sum));
  return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ne,
                                       b.bitAnd(all, magnitudes), b.i32(0));
}

void fovea::attn::clearUnbounded(GPUKernelBuilder &b,
                                 const SharedRows &shared) {
  auto type =
      cast<FloatType>(getMemRefType(shared.matrix.memref).getElementType());
  int64_t elements = shared.matrix.chunkElements;
  // The bits of one number.
  int64_t all = type.getWidth() == 32 ? -1 : 0xffff;
  forChunks(b, shared, b.i32(0), [&](ValueRange at, Values words, Value none) {
    for (Value &word : words)
      for (auto [i, exponent] : llvm::enumerate(getExponents(type))) {
        int64_t others = ~(all << i * type.getWidth());
        word =
            b.select(hasAll(b, word, exponent), b.bitAnd(word, others), word);
      }
    Value chunk = vector::FromElementsOp::create(
        b, VectorType::get({kChunkBytes / 4}, b.getI32Type()), words);
    chunk =
        vector::BitCastOp::create(b, VectorType::get({elements}, type), chunk);
    vector::StoreOp::create(b, chunk, shared.matrix.memref, at)
        .setAlignment(kChunkBytes);
    return none;
  });
}

Values fovea::attn::changeIf(GPUKernelBuilder &b, Value condition,
                             ValueRange numbers, function_ref<Values()> body) {
  auto ifOp = scf::IfOp::create(b, TypeRange(numbers), condition,
                                /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(ifOp.thenBlock());
  scf::YieldOp::create(b, body());
  b.setInsertionPointToStart(ifOp.elseBlock());
  scf::YieldOp::create(b, numbers);
  return Values(ifOp.getResults());
}

/// Scores and sums leave few registers: a bit for each of the thread's sums
/// says so first, in a loop that is none of the sums'.
void fovea::attn::takeUnbounded(
    GPUKernelBuilder &b, ArrayRef<SharedRows> values, Value pairColumn,
    Values &sums, function_ref<Value(int64_t half, Value row)> readsRow) {
  int64_t perRow = values.front().getWidth(), numRows = values.front().rows;
  Value nan = b.scalar(std::numeric_limits<double>::quiet_NaN());
  // 16 tiles of 8 columns have 32 of the thread's.
  int64_t numTiles = sums.size() / 4;
  for (int64_t begin = 0; begin < numTiles; begin += 16) {
    int64_t numColumns = 2 * std::min<int64_t>(numTiles - begin, 16);
    auto visit = [&](Value number, ValueRange bits) {
      Value row = b.div(number, numColumns);
      Value index = b.rem(number, numColumns);
      Value column = b.add(b.mul(b.div(index, 2), 8), b.rem(index, 2));
      column = b.add(b.add(column, pairColumn), begin * 8);
      // The rows of boxes lie one box after the other.
      Value shared = b.add(values.front().row, row);
      if (values.size() > 1)
        shared = b.add(shared, b.mul(b.div(column, perRow), numRows));
      const SharedMatrix &matrix = values.front().matrix;
      Value at[] = {shared,
                    getSharedColumn(b, matrix, row, b.rem(column, perRow))};
      Value value = b.loadScalar(matrix.memref, b.toIndices(at));
      return changeIf(b, isUnbounded(b, value), bits, [&] {
        Value bit = b.createOrFold<arith::ShLIOp>(b.i32(1), index);
        Values next;
        for (auto [half, set] : llvm::enumerate(bits))
          next.push_back(b.select(readsRow(half, row),
                                  b.createOrFold<arith::OrIOp>(set, bit), set));
        return next;
      });
    };
    Values bits = b.loop(b.i32(0), b.i32(numRows * numColumns), 1,
                         {b.i32(0), b.i32(0)}, visit);
    keepRolled(b);
    for (int64_t index = 0; index < numColumns; ++index)
      for (int64_t half : {0, 1}) {
        Value &sum = sums[4 * (begin + index / 2) + 2 * half + index % 2];
        Value isNone =
            b.equal(b.bitAnd(bits[half], int64_t(1) << index), b.i32(0));
        sum = b.select(isNone, sum, nan);
      }
  }
}
