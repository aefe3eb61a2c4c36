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

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

void fovea::attn::keepRolled(ValueRange results) {
  auto loop = results.front().getDefiningOp<scf::ForOp>();
  if (!loop)
    return;
  MLIRContext *context = loop.getContext();
  LLVM::LoopUnrollAttr unroll = LLVM::LoopUnrollAttr::get(
      context, BoolAttr::get(context, true), {}, {}, {}, {}, {}, {});
  loop->setAttr("llvm.loop_annotation",
                LLVM::LoopAnnotationAttr::get(context, {}, {}, {}, unroll, {},
                                              {}, {}, {}, {}, {}, {}, {}, {},
                                              {}, {}));
}

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

/// Runs `body` for the 16-byte chunks of rows that are this thread's: where a
/// chunk lies, and its registers. It maps what it is given to the next.
static Value
forChunks(GPUKernelBuilder &b, const SharedRows &shared, Value start,
          function_ref<Value(ValueRange at, Values words, Value)> body) {
  const SharedMatrix &matrix = shared.matrix;
  int64_t elements = matrix.chunkElements;
  int64_t chunks = llvm::divideCeil(shared.columns, elements);
  Type type = getMemRefType(matrix.memref).getElementType();
  auto visit = [&](Value number, ValueRange carried) -> Values {
    Value row = b.div(number, chunks);
    Value column = b.mul(b.rem(number, chunks), elements);
    Values at = b.toIndices(
        {b.add(shared.row, row), getSharedColumn(b, matrix, row, column)});
    auto load = vector::LoadOp::create(b, VectorType::get({elements}, type),
                                       matrix.memref, at);
    load.setAlignment(kChunkBytes);
    Value registers = vector::BitCastOp::create(
        b, VectorType::get({kChunkBytes / 4}, b.getI32Type()), load);
    Values words;
    for (int64_t i = 0; i < kChunkBytes / 4; ++i)
      words.push_back(vector::ExtractOp::create(b, registers, i));
    return {body(at, words, carried[0])};
  };
  Values result = b.loop(b.thread(), b.i32(shared.rows * chunks),
                         b.getNumThreads(), {start}, visit);
  keepRolled(result);
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
