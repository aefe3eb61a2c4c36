//===- ConvTransforms.cpp - Transforms of values and of weights -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvTransforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Rows added to a spectrum, so that those of several do not compete for the
/// same lines of a cache.
static constexpr int64_t kSkewRows = 9;
/// Frequencies of a task.
static constexpr int64_t kFrequencies = 8;

ConvTransform::ConvTransform(ConvBuilder &b)
    : length(b.plan.block + b.plan.piece), b(b),
      twiddles(emitTwiddles(b, b.op, b.plan.radices)) {}

Value ConvTransform::allocate(Value count, int64_t groups) {
  int64_t abreast = b.plan.abreast;
  return b.allocate(b.getStateType(), {b.div(count, abreast), b.index(groups),
                                       b.index(length + kSkewRows),
                                       b.index(abreast * b.plan.getColumns())});
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

ComplexRow ConvTransform::loadRow(Value memref, ArrayRef<Value> indices) {
  Values at(indices);
  at.push_back(b.index(0));
  Value re = b.loadVector(memref, at);
  at.back() = b.index(b.getLanes());
  return {re, b.loadVector(memref, at)};
}

void ConvTransform::prefetchRow(Value memref, ArrayRef<Value> indices,
                                Value first, unsigned locality) {
  Values at(indices);
  int64_t line = 64 / (b.getStateType().getWidth() / 8);
  for (int64_t column = 0; column < b.plan.getColumns(); column += line) {
    at.push_back(b.add(first, column));
    b.prefetch(memref, at, locality);
    at.pop_back();
  }
}

void ConvTransform::storeRow(ComplexRow row, Value memref,
                             ArrayRef<Value> indices) {
  Values at(indices);
  at.push_back(b.index(0));
  b.storeVector(row.re, memref, at);
  at.back() = b.index(b.getLanes());
  b.storeVector(row.im, memref, at);
}

Value ConvTransform::loadToken(Value memref, ArrayRef<Value> leading,
                               Value token, Value column, Value end) {
  Value mask = vector::BroadcastOp::create(
      b, VectorType::get({b.getLanes()}, b.getI1Type()), b.less(token, end));
  // CPUs take hundreds of cycles for a load whose mask is false and whose page
  // there is not, so the address is that of a token of the piece.
  Value inside = b.min(token, b.sub(end, b.index(1)));
  Values at(leading);
  at.append({inside, column});
  return b.loadMasked(memref, at, mask, 0.0);
}

ComplexRow ConvTransform::loadTokens(Value memref, ArrayRef<Value> leading,
                                     Value token, Value column, Value end) {
  return {loadToken(memref, leading, token, column, end),
          loadToken(memref, leading, token, b.add(column, b.getLanes()), end)};
}

//===----------------------------------------------------------------------===//
// Transforms
//===----------------------------------------------------------------------===//

/// Which row of the spectrum `at`.
static Values rowOf(ArrayRef<Value> at, Value row) {
  Values indices(at);
  indices.push_back(row);
  return indices;
}

void ConvTransform::emit(FFTKernel::Direction direction, Value memref,
                         ArrayRef<Value> at, FFTKernel::Steps steps,
                         FFTKernel::VisitSpectrum visit) {
  auto load = [&](Value row) { return loadRow(memref, rowOf(at, row)); };
  auto store = [&](Value row, ComplexRow numbers) {
    storeRow(numbers, memref, rowOf(at, row));
  };
  auto visitMemory = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows)) {
      if (direction.forward)
        store(b.add(position, k), row);
      else
        row = load(b.add(position, k));
    }
  };
  steps.load = load;
  steps.store = store;
  if (!visit)
    visit = visitMemory;
  make().emit(direction, steps, visit);
}

void ConvTransform::padAndTransform(Value memref, ArrayRef<Value> at,
                                    FFTKernel::LoadRow source) {
  FFTKernel::Steps steps;
  steps.source = source;
  steps.isHalfZero = b.plan.piece <= b.plan.block;
  emit(FFTKernel::kForward, memref, at, steps);
}

void ConvTransform::invertBlock(Value memref, ArrayRef<Value> at,
                                function_ref<void(Value, ComplexRow)> sink) {
  auto sinkHalf = [&](Value at, ComplexRow numbers) {
    Value row = b.sub(at, b.index(b.plan.piece));
    if (b.plan.piece <= b.plan.block)
      return sink(row, numbers);
    b.ifThen(b.less(b.index(-1), row), [&] { sink(row, numbers); });
  };
  FFTKernel::Steps steps;
  steps.sink = sinkHalf;
  steps.wantsSecondHalf = true;
  emit(FFTKernel::kInverse, memref, at, steps);
}

//===----------------------------------------------------------------------===//
// Frequencies
//===----------------------------------------------------------------------===//

void ConvTransform::forAllFrequencies(function_ref<void(Value)> body) {
  // Tasks begin with the last; so do their frequencies, in one direction.
  b.forAll({b.index(length / kFrequencies)}, [&](ValueRange task) {
    Value last = b.add(b.mul(task[0], kFrequencies), kFrequencies - 1);
    b.loop(b.index(0), b.index(kFrequencies), 1,
           [&](Value done) { body(b.sub(last, done)); });
  });
}

void ConvTransform::forBoth(Value frequency, Value mirror,
                            function_ref<void(const Frequency &)> body) {
  // Some are their own negative.
  Value count = b.select(b.equal(frequency, mirror), b.index(1), b.index(2));
  b.loop(b.index(0), count, 1, [&](Value k) {
    Value isFirst = b.equal(k, b.index(0));
    Value at = b.select(isFirst, frequency, mirror);
    Value step = b.select(isFirst, b.index(-1), b.index(1));
    body(locate(at, b.add(at, step)));
  });
}

ConvTransform::Frequency ConvTransform::locate(Value at, Value next) {
  unsigned width = b.getStateType().getWidth();
  auto integer = [&](const APInt &bits) -> Value {
    return arith::ConstantOp::create(
        b, b.getIntegerAttr(b.getIntegerType(width), bits));
  };
  Value mirror = make().mirror(at);
  Value sign = b.select(b.less(mirror, at), integer(APInt::getSignMask(width)),
                        integer(APInt::getZero(width)));
  Value signs = vector::BroadcastOp::create(
      b, VectorType::get({b.getLanes()}, sign.getType()), sign);
  return {at, next, b.min(at, mirror), signs};
}

ComplexRow ConvTransform::conjugate(ComplexRow row,
                                    const Frequency &frequency) {
  if (!frequency.signs)
    return row;
  Value bits = arith::BitcastOp::create(b, frequency.signs.getType(), row.im);
  bits = arith::XOrIOp::create(b, bits, frequency.signs);
  return {row.re, arith::BitcastOp::create(b, row.im.getType(), bits)};
}

std::pair<ComplexRow, ComplexRow> ConvTransform::separate(ComplexRow z,
                                                          ComplexRow mirror) {
  return {{b.fadd(z.re, mirror.re), b.fsub(z.im, mirror.im)},
          {b.fadd(z.im, mirror.im), b.fsub(mirror.re, z.re)}};
}

void ConvTransform::addProduct(ComplexRow row, ComplexRow factor, Value *sums) {
  sums[0] = b.fma(row.re, factor.re, sums[0]);
  sums[1] = b.fma(row.im, factor.re, sums[1]);
  Value minusIm = arith::NegFOp::create(b, factor.im);
  sums[0] = b.fma(row.im, minusIm, sums[0]);
  sums[1] = b.fma(row.re, factor.im, sums[1]);
}

//===----------------------------------------------------------------------===//
// Spectra of pieces
//===----------------------------------------------------------------------===//

ConvSpectra::ConvSpectra(ConvTables &tables, ConvTransform &transform,
                         int64_t groups)
    : t(tables), b(t.b), transform(transform),
      pieces(b, t.segments, t.profiles), windows(t, transform, pieces) {
  // Gradients are stored a tile of pieces at a time. Where pieces lie side by
  // side, those of a tile of results begin a vector, and there are no fewer
  // than results.
  Value count = b.add(pieces.maxPieces, b.plan.outputs - 1);
  if (int64_t abreast = b.plan.abreast; abreast > 1)
    count = b.mul(b.ceilDiv(b.add(count, pieces.numBlocks), abreast), abreast);
  memref = transform.allocate(count, groups);
  norms =
      b.allocate(b.getF64Type(), {pieces.maxPieces, b.index(b.getNumGroups())});
}

void ConvSpectra::transformPiece(Value index, Value slot, Value column,
                                 function_ref<ComplexRow(ComplexRow)> visit) {
  ConvPieces::Piece piece = pieces.load(index);
  transform.padAndTransform(memref, {index, slot}, [&](Value row) {
    ComplexRow numbers = loadValues(b.add(piece.begin, row), column, piece.end);
    return visit ? visit(numbers) : numbers;
  });
}

/// Sums, over the pieces that a block of rows reads, the norms of the two
/// factors.
Value ConvSpectra::boundNoise(Value block, Value end, Value partner) {
  auto normOf = [&](const ConvPieces::Piece &piece, Value block) {
    // The partner may be the first block that the piece is multiplied for.
    Value distance = b.max(b.sub(block, piece.block), 0);
    return windows.loadNorm(b.add(piece.window, distance));
  };
  Value sum = b.loop(
      b.index(0), end, 1, b.wide(0.0), [&](Value index, ValueRange carried) {
        ConvPieces::Piece piece = pieces.load(index);
        Value norm = b.wide(0.0);
        for (int64_t group = 0; group < b.getNumGroups(); ++group) {
          Value own =
              memref::LoadOp::create(b, norms, Values{index, b.index(group)});
          norm = arith::MaximumFOp::create(b, norm, own);
        }
        Value weight = normOf(piece, block);
        if (partner) {
          Value other = normOf(piece, partner);
          Value squares = b.fadd(b.fmul(weight, weight), b.fmul(other, other));
          weight = math::SqrtOp::create(b, squares);
        }
        return Values{b.fadd(carried[0], b.fmul(norm, weight))};
      })[0];
  // c u log2(L) for an error of 2^9 u, with c = 1/2: whatever the type.
  Value factor = b.wide(std::ldexp(llvm::Log2_64(transform.length), -10));
  return b.fmul(sum, factor);
}
