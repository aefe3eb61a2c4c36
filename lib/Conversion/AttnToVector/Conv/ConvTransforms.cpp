//===- ConvTransforms.cpp - Transforms of values and of weights -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvTransforms.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Rows added to a spectrum, so that those of several do not compete for the
/// same lines of a cache.
static constexpr int64_t kSkewRows = 9;
/// Frequencies of a task.
static constexpr int64_t kFrequencies = 8;

ConvTransform::ConvTransform(ConvBuilder &b, bool isStreamed)
    : length(b.plan.block + b.plan.piece), b(b), isStreamed(isStreamed),
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
                             ArrayRef<Value> indices, bool streaming) {
  Values at(indices);
  at.push_back(b.index(0));
  b.storeVector(row.re, memref, at, streaming);
  at.back() = b.index(b.getLanes());
  b.storeVector(row.im, memref, at, streaming);
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
  if (!isStreamed || make().isLong())
    return emit(FFTKernel::kForward, memref, at, steps);
  // In place, the lines of a spectrum would be read before they are written.
  Value work = b.scratch({length, b.plan.getColumns()}, b.getStateType());
  emit(FFTKernel::kForward, work, /*at=*/{}, steps,
       [&](Value position, FFTKernel::Rows &rows) {
         for (auto [k, row] : llvm::enumerate(rows))
           storeRow(row, memref, rowOf(at, b.add(position, k)),
                    /*streaming=*/true);
       });
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
// Pieces
//===----------------------------------------------------------------------===//

ConvPieces::ConvPieces(ConvBuilder &b, ConvSegments &segments,
                       ConvProfiles &profiles)
    : b(b), segments(segments), profiles(profiles) {
  int64_t lanes = b.plan.lanes;
  numBlocks = b.ceilDiv(b.numTokens, b.plan.block);
  // Pieces of a segment begin at least a block apart: of those that begin in
  // one block, all but one are the first of their segment. So pieces, and
  // blocks that none begins in, are fewer than blocks and segments together.
  maxPieces = b.add(numBlocks, b.numBases);
  // An odd number of vectors lets frequencies not compete for the same lines of
  // a cache.
  Value pairs = b.mul(b.numBases, b.ceilDiv(numBlocks, 2));
  Value vectors = b.add(b.mul(b.div(b.ceilDiv(pairs, lanes), 2), 2), 1);
  maxWindows = b.mul(vectors, 2 * lanes);
  Type index = b.getIndexType();
  pieces = b.allocate(index, {maxPieces, b.index(4)});
  ends = b.allocate(index, {b.max(numBlocks, b.index(1))});
  windows = b.allocate(index, {maxWindows});
  firsts = b.allocate(index, {b.numBases, b.index(2)});
}

ConvPieces::Piece ConvPieces::load(Value index) {
  auto entry = [&](int64_t k) {
    return b.loadIndex(pieces, {index, b.index(k)});
  };
  Value block = entry(0), begin = entry(1), end = entry(2);
  return {block, begin, end, entry(3)};
}

Value ConvPieces::count(Value segment) {
  Value columns = segments.length(segment);
  Value rest = b.max(b.sub(columns, b.index(b.plan.piece)), 0);
  return b.select(b.equal(columns, b.index(0)), b.index(0),
                  b.add(b.ceilDiv(rest, b.plan.block), 1));
}

void ConvPieces::cut() {
  Value zero = b.index(0), zeros[] = {zero, zero};
  b.loop(zero, numBlocks, 1,
         [&](Value block) { b.storeIndex(zero, ends, block); });
  Values found =
      b.loop(zero, b.numBases, 1, zeros, [&](Value segment, ValueRange done) {
        Value count = this->count(segment);
        b.storeIndex(done[0], firsts, {segment, b.index(0)});
        b.storeIndex(done[1], firsts, {segment, b.index(1)});
        cutSegment(segment, done[0], count);
        Value numWindows = b.select(
            b.equal(count, zero), b.getIndexType(), [&] { return zero; },
            [&] { return listWindows(segment, done[1]); });
        return Values{b.add(done[0], count), b.add(done[1], numWindows)};
      });
  numPieces = found[0];
  int64_t multiple = 2 * b.plan.lanes;
  numWindows = b.mul(b.ceilDiv(found[1], multiple), multiple);
  Value ofZeros = b.mul(b.numBases, profiles.weightRow);
  b.loop(found[1], numWindows, 1,
         [&](Value window) { b.storeIndex(ofZeros, windows, window); });
  b.loop(zero, numBlocks, 1, zero, [&](Value block, ValueRange before) {
    Value end = b.add(b.loadIndex(ends, block), before[0]);
    b.storeIndex(end, ends, block);
    return Values{end};
  });
}

/// Lists the pieces of a segment, and counts them where they begin.
void ConvPieces::cutSegment(Value segment, Value firstPiece, Value count) {
  b.loop(b.index(0), count, 1, [&](Value k) {
    Value begin = b.add(segments.first(segment), b.mul(k, b.plan.block));
    Value block = b.div(begin, b.plan.block);
    Value isLast = b.equal(b.add(k, 1), count);
    Value end =
        b.select(isLast, segments.end(segment), b.add(begin, b.plan.block));
    Value entries[] = {block, begin, end, firstWindow(segment)};
    for (auto [at, entry] : llvm::enumerate(entries))
      b.storeIndex(entry, pieces, {b.add(firstPiece, k), b.index(at)});
    b.storeIndex(b.add(b.loadIndex(ends, block), 1), ends, block);
  });
}

/// Lists the windows between a segment's pieces and the blocks from its first
/// one on, and one more where that makes their number even, which it returns.
Value ConvPieces::listWindows(Value segment, Value firstWindow) {
  Value first = segments.first(segment), block = firstBlock(segment);
  Value pairs = b.ceilDiv(b.sub(numBlocks, block), 2), count = b.mul(pairs, 2);
  // Of a piece that begins where its block does, the last column and the first
  // row of the block are as many lags before lag 0 as the longest piece has.
  Value origin = profiles.weightAt(
      segment, b.sub(b.index(-b.plan.piece), b.rem(first, b.plan.block)));
  b.loop(b.index(0), count, 1, [&](Value distance) {
    b.storeIndex(b.add(origin, b.mul(distance, b.plan.block)), windows,
                 b.add(firstWindow, distance));
  });
  return count;
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
  return b.fmul(sum, b.wide(getNoiseFactor(transform.length)));
}
