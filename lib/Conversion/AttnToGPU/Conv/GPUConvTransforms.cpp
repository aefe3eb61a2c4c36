//===- GPUConvTransforms.cpp - Sums of convolutions by cuFFT --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvTransforms.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

GPUConvPieces::GPUConvPieces(GPUConvTables &tables, int64_t block)
    : t(tables), b(t.b), block(block), length(2 * block),
      pairs(llvm::divideCeil(b.width, 2)),
      numBlocks(b.ceilDiv(b.numTokens, block)),
      numSlots(b.add(numBlocks, b.numBases)) {
  Value slots[] = {b.batches, b.heads, numSlots};
  segments = b.tabulate(slots, b.getI32Type(),
                        [&](ValueRange at) { return findSegment(at); });
}

/// The segment that has tokens of the slot's block. Block and segment only grow
/// from one piece to the next, so that no two pieces have the same slot.
Value GPUConvPieces::findSegment(ValueRange at) {
  return b.loop(
      b.index(0), b.numBases, 1, {b.index(-1)},
      [&](Value segment, ValueRange found) -> Values {
        Value first = b.mul(b.sub(at[2], segment), block);
        Value begin = b.max(first, t.segments.first(b, at, segment));
        Value end = b.min(b.add(first, block), t.segments.end(b, at, segment));
        Value exists = b.both(b.less(b.index(-1), first), b.less(begin, end));
        return {b.select(exists, segment, found[0])};
      })[0];
}

Value GPUConvPieces::segmentOf(ValueRange head, Value slot) {
  return b.loadIndex(segments, {head[0], head[1], slot});
}

GPUConvPieces::Piece GPUConvPieces::load(ValueRange head, Value slot) {
  Piece piece;
  Value segment = segmentOf(head, slot), zero = b.index(0);
  Value exists = b.less(b.index(-1), segment);
  piece.segment = b.max(segment, 0);
  piece.block = b.sub(slot, piece.segment);
  Value first = b.mul(piece.block, block);
  Value next = t.segments.end(b, head, piece.segment);
  piece.begin = b.max(first, t.segments.first(b, head, piece.segment));
  piece.end = b.select(exists, b.min(b.add(first, block), next), zero);
  return piece;
}

Value GPUConvPieces::loadValue(ValueRange head, Value token, Value column) {
  return b.select(
      b.less(column, b.index(b.width)), b.getF32Type(),
      [&] { return b.loadValue(b, head, token, column); },
      [&] { return b.scalar(0.0); });
}

Value GPUConvPieces::loadWindow(ValueRange head, Value segment, Value distance,
                                Value number) {
  // A sum of block o has row a and token n at a - n + s.
  Value lag = b.sub(b.add(b.mul(distance, block), number), b.index(block));
  Value exists = b.both(b.less(b.index(-1), lag), b.less(lag, b.numTokens));
  return b.select(
      exists, b.getF32Type(),
      [&] {
        Value at[] = {head[0], head[1], segment, lag};
        return b.loadScalar(t.profiles.weights, at);
      },
      [&] { return b.scalar(0.0); });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

namespace {
/// A complex number.
struct Complex {
  Value re, im;
};

class ConvTransforms : public GPUConvProduct {
public:
  ConvTransforms(GPUConvTables &tables, ConvApplyOp op, int64_t block);

private:
  Value isQuiet(ValueRange row, Value normaliser) override {
    return noise.isQuiet(row, normaliser);
  }
  void emit(Value reciprocals) override;

  void transformPieces();
  void transformWindows();
  void multiply();
  void storeRows(Value reciprocals);

  /// Lines of 2 s complex numbers.
  Value allocateLines(ArrayRef<Value> extents);
  void transform(Value lines, bool inverse);
  Complex load(Value lines, ArrayRef<Value> at);
  void store(Complex number, Value lines, ValueRange at);

  GPUConvBuilder &b;
  ConvApplyOp op;
  GPUConvPieces pieces;
  GPUConvNoise noise;
  Value pieceLines, windowLines, resultLines;
};
} // namespace

ConvTransforms::ConvTransforms(GPUConvTables &tables, ConvApplyOp op,
                               int64_t block)
    : b(tables.b), op(op), pieces(tables, block), noise(pieces) {
  transformPieces();
  transformWindows();
}

Value ConvTransforms::allocateLines(ArrayRef<Value> extents) {
  Values all(extents);
  all.append({b.index(pieces.length), b.index(2)});
  return b.allocate(all, b.getF32Type());
}

void ConvTransforms::transform(Value lines, bool inverse) {
  GPURuntimeCalls(op->getParentOfType<ModuleOp>())
      .transformLines(b, b.getLoc(), lines, inverse);
}

Complex ConvTransforms::load(Value lines, ArrayRef<Value> at) {
  Values place(at);
  place.push_back(b.index(0));
  Value re = b.loadScalar(lines, place);
  place.back() = b.index(1);
  return {re, b.loadScalar(lines, place)};
}

void ConvTransforms::store(Complex number, Value lines, ValueRange at) {
  Values place(at);
  place.push_back(b.index(0));
  b.storeScalar(number.re, lines, place);
  place.back() = b.index(1);
  b.storeScalar(number.im, lines, place);
}

void ConvTransforms::transformPieces() {
  Values extents = {b.batches, b.heads, pieces.numSlots, b.index(pieces.pairs)};
  pieceLines = allocateLines(extents);
  extents.push_back(b.index(pieces.length));
  parallelLoop(b, extents, [&](ValueRange at) {
    GPUConvPieces::Piece piece = pieces.load(at, at[2]);
    Value token = b.add(b.mul(piece.block, pieces.block), at[4]);
    // Whoever is beyond the block is beyond the piece.
    Value isIn = b.both(b.less(token, piece.end),
                        b.less(b.sub(piece.begin, b.index(1)), token));
    Value column = b.mul(at[3], 2), zero = b.scalar(0.0);
    auto part = [&](int64_t i) {
      return b.select(
          isIn, b.getF32Type(),
          [&] { return pieces.loadValue(at, token, b.add(column, i)); },
          [&] { return zero; });
    };
    Complex number = {part(0), part(1)};
    store(number, pieceLines, at);
  });
  transform(pieceLines, /*inverse=*/false);
}

void ConvTransforms::transformWindows() {
  Values extents = {b.batches, b.heads, b.numBases, pieces.numBlocks};
  windowLines = allocateLines(extents);
  extents.push_back(b.index(pieces.length));
  parallelLoop(b, extents, [&](ValueRange at) {
    Value weight = pieces.loadWindow(at, at[2], at[3], at[4]);
    store({weight, b.scalar(0.0)}, windowLines, at);
  });
  transform(windowLines, /*inverse=*/false);
}

void ConvTransforms::multiply() {
  Values extents = {b.batches, b.heads, pieces.numBlocks,
                    b.index(pieces.pairs)};
  resultLines = allocateLines(extents);
  extents.push_back(b.index(pieces.length));
  parallelLoop(b, extents, [&](ValueRange at) {
    Value zero = b.scalar(0.0);
    auto add = [&](Value slot, ValueRange sum) -> Values {
      Value segment = pieces.segmentOf(at, slot);
      Value distance = b.add(b.sub(at[2], slot), segment);
      Value isRead =
          b.both(b.less(b.index(-1), segment), b.less(b.index(-1), distance));
      segment = b.select(isRead, segment, b.index(0));
      distance = b.select(isRead, distance, b.index(0));
      Complex x = load(pieceLines, {at[0], at[1], slot, at[3], at[4]});
      Complex w = load(windowLines, {at[0], at[1], segment, distance, at[4]});
      Value re = b.fsub(b.fmul(x.re, w.re), b.fmul(x.im, w.im));
      Value im = b.fma(x.re, w.im, b.fmul(x.im, w.re));
      return {b.select(isRead, b.fadd(sum[0], re), sum[0]),
              b.select(isRead, b.fadd(sum[1], im), sum[1])};
    };
    // Pieces of later blocks have later slots than the last of this one.
    Value end = b.add(at[2], b.numBases);
    Values sum = b.loop(b.index(0), end, 1, {zero, zero}, add);
    store({sum[0], sum[1]}, resultLines, at);
  });
}

void ConvTransforms::storeRows(Value reciprocals) {
  Value grid[] = {b.batches, b.heads, b.numTokens, b.index(b.width)};
  parallelLoop(b, grid, [&](ValueRange at) {
    Value row = b.add(b.rem(at[2], pieces.block), b.index(pieces.block));
    Value place[] = {at[0],           at[1], b.div(at[2], pieces.block),
                     b.div(at[3], 2), row,   b.rem(at[3], 2)};
    Value factor = b.loadScalar(reciprocals, at.take_front(3));
    // What others of the block read is in rows without an entry.
    Value isNone = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor,
                                         b.scalar(0.0));
    factor = b.fmul(factor, b.scalar(1.0 / pieces.length));
    Value mean = b.fmul(b.loadScalar(resultLines, place), factor);
    b.storeScalar(b.select(isNone, b.scalar(0.0), mean), op.getOutput(), at);
  });
}

void ConvTransforms::emit(Value reciprocals) {
  multiply();
  transform(resultLines, /*inverse=*/true);
  storeRows(reciprocals);
}

std::unique_ptr<GPUConvProduct>
fovea::attn::makeConvTransforms(GPUConvTables &tables, ConvApplyOp op,
                                int64_t block) {
  return std::make_unique<ConvTransforms>(tables, op, block);
}

Value fovea::attn::emitHasTransforms(KernelBuilder &b, Operation *op) {
  GPURuntimeCalls calls(op->getParentOfType<ModuleOp>());
  Value known = calls.call(b, b.getLoc(), "fovea_rt_gpu_has_transforms", {},
                           b.getI32Type());
  return b.less(b.like(known, 0), known);
}
