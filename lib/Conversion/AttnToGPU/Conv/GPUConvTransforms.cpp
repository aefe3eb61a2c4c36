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

/// Blocks, and pairs of columns, of which a thread has a number: each number of
/// a piece is read for as many blocks at once, and of a window for as many
/// pairs.
static constexpr int64_t kBlocksAtOnce = 8, kPairsAtOnce = 4;

//===----------------------------------------------------------------------===//
// Lines
//===----------------------------------------------------------------------===//

GPUConvLines::GPUConvLines(GPUConvBuilder &b, ArrayRef<Value> extents,
                           int64_t length)
    : b(b), grid(extents) {
  grid.push_back(b.index(length));
  Values parts(grid);
  parts.push_back(b.index(2));
  memref = b.allocate(parts, b.getF32Type());
}

void GPUConvLines::fill(function_ref<ComplexNumber(ValueRange)> find) {
  parallelLoop(b, grid, [&](ValueRange at) { store(find(at), Values(at)); });
}

void GPUConvLines::store(const ComplexNumber &number, ArrayRef<Value> at) {
  Values place(at);
  place.push_back(b.index(0));
  b.storeScalar(number.re, memref, place);
  place.back() = b.index(1);
  b.storeScalar(number.im, memref, place);
}

void GPUConvLines::transform(bool inverse) {
  GPURuntimeCalls(b.op->getParentOfType<ModuleOp>())
      .transformLines(b, b.getLoc(), memref, inverse);
}

Value GPUConvLines::loadPart(ArrayRef<Value> at, Value part) {
  Values place(at);
  place.push_back(part);
  return b.loadScalar(memref, place);
}

ComplexNumber GPUConvLines::load(ArrayRef<Value> at) {
  return {loadPart(at, b.index(0)), loadPart(at, b.index(1))};
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

GPUConvPieces::GPUConvPieces(GPUConvTables &tables, int64_t block)
    : t(tables), b(t.b), block(block), length(2 * block),
      pairs(llvm::divideCeil(b.width, 2)),
      numBlocks(b.ceilDiv(b.numTokens, block)),
      numSlots(b.add(numBlocks, b.max(b.sub(b.numBases, b.index(1)), 0))) {
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

Values GPUConvPieces::ofPieces() {
  return {b.batches, b.heads, numSlots, b.index(pairs)};
}

Values GPUConvPieces::ofBlocks() {
  return {b.batches, b.heads, numBlocks, b.index(pairs)};
}

Values GPUConvPieces::ofWindows() {
  return {b.batches, b.heads, b.numBases, numBlocks};
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

ComplexNumber GPUConvPieces::loadPair(ValueRange at) {
  Piece piece = load(at, at[2]);
  Value token = b.add(b.mul(piece.block, block), at[4]);
  // Whoever is beyond the block is beyond the piece.
  Value isIn = b.both(b.less(token, piece.end),
                      b.less(b.sub(piece.begin, b.index(1)), token));
  Value column = b.mul(at[3], 2), zero = b.scalar(0.0);
  auto part = [&](int64_t i) {
    return b.select(
        isIn, b.getF32Type(),
        [&] { return loadValue(at, token, b.add(column, i)); },
        [&] { return zero; });
  };
  Value re = part(0);
  return {re, part(1)};
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
class ConvTransforms : public GPUConvProduct {
public:
  ConvTransforms(GPUConvTables &tables, ConvApplyOp op, int64_t block);

private:
  Value isQuiet(ValueRange row, Value normaliser) override {
    return noise.isQuiet(row, normaliser);
  }
  void emit(Value reciprocals) override;

  void multiply(GPUConvLines &results);
  void storeRows(GPUConvLines &results, Value reciprocals);

  GPUConvBuilder &b;
  ConvApplyOp op;
  GPUConvPieces pieces;
  GPUConvNoise noise;
  GPUConvLines pieceLines, windowLines;
};
} // namespace

ConvTransforms::ConvTransforms(GPUConvTables &tables, ConvApplyOp op,
                               int64_t block)
    : b(tables.b), op(op), pieces(tables, block),
      noise(pieces, GPUConvNoise::Factor::Values),
      pieceLines(b, pieces.ofPieces(), pieces.length),
      windowLines(b, pieces.ofWindows(), pieces.length) {
  pieceLines.fill([&](ValueRange at) { return pieces.loadPair(at); });
  pieceLines.transform(/*inverse=*/false);
  windowLines.fill([&](ValueRange at) -> ComplexNumber {
    return {pieces.loadWindow(at, at[2], at[3], at[4]), b.scalar(0.0)};
  });
  windowLines.transform(/*inverse=*/false);
}

/// A thread has a number of the lines of several blocks and pairs of columns.
void ConvTransforms::multiply(GPUConvLines &results) {
  int64_t numPairs = std::min(kPairsAtOnce, pieces.pairs);
  Value zero = b.index(0), length = b.index(pieces.length);
  // Threads that share windows follow each other in pieces of lines.
  Value grid[] = {b.batches,
                  b.heads,
                  b.ceilDiv(pieces.numBlocks, kBlocksAtOnce),
                  b.ceilDiv(length, kWarpSize),
                  b.index(llvm::divideCeil(pieces.pairs, numPairs)),
                  b.index(kWarpSize)};
  parallelLoop(b, grid, [&](ValueRange at) {
    Value number = b.add(b.mul(at[3], kWarpSize), at[5]);
    Value firstBlock = b.mul(at[2], kBlocksAtOnce);
    Value firstPair = b.mul(at[4], numPairs);
    auto addPiece = [&](Value slot, ValueRange carried) -> Values {
      Value segment = pieces.segmentOf(at, slot);
      Value exists = b.less(b.index(-1), segment);
      segment = b.max(segment, 0);
      Value block = b.sub(slot, segment);
      SmallVector<ComplexNumber> columns;
      for (int64_t i = 0; i < numPairs; ++i) {
        Value pair = b.min(b.add(firstPair, i), pieces.pairs - 1);
        columns.push_back(pieceLines.load({at[0], at[1], slot, pair, number}));
      }
      Values sums(carried);
      MutableArrayRef<Value> left = sums;
      for (int64_t i = 0; i < kBlocksAtOnce; ++i) {
        Value row = b.add(firstBlock, i), distance = b.sub(row, block);
        Value isRead = b.both(b.both(exists, b.less(b.index(-1), distance)),
                              b.less(row, pieces.numBlocks));
        distance = b.select(isRead, distance, zero);
        ComplexNumber w =
            windowLines.load({at[0], at[1], segment, distance, number});
        Value minusIm = b.fsub(b.scalar(0.0), w.im);
        for (const ComplexNumber &x : columns) {
          Value re = b.fma(x.im, minusIm, b.fma(x.re, w.re, left[0]));
          Value im = b.fma(x.im, w.re, b.fma(x.re, w.im, left[1]));
          left[0] = b.select(isRead, re, left[0]);
          left[1] = b.select(isRead, im, left[1]);
          left = left.drop_front(2);
        }
      }
      return sums;
    };
    b.ifThen(b.less(number, length), [&] {
      Values none(2 * kBlocksAtOnce * numPairs, b.scalar(0.0));
      // Pieces of later blocks have later slots than the last of these.
      Value last = b.min(b.add(firstBlock, kBlocksAtOnce), pieces.numBlocks);
      Value end = b.min(b.add(last, b.numBases), pieces.numSlots);
      Values sums = b.loop(zero, end, 1, none, addPiece);
      for (auto [i, re] : llvm::enumerate(sums)) {
        if (i % 2)
          continue;
        Value row = b.add(firstBlock, i / 2 / numPairs);
        Value pair = b.add(firstPair, i / 2 % numPairs);
        Value exists = b.both(b.less(row, pieces.numBlocks),
                              b.less(pair, b.index(pieces.pairs)));
        b.ifThen(exists, [&, i = i, re = re] {
          results.store({re, sums[i + 1]}, {at[0], at[1], row, pair, number});
        });
      }
    });
  });
}

void ConvTransforms::storeRows(GPUConvLines &results, Value reciprocals) {
  Value grid[] = {b.batches, b.heads, b.numTokens, b.index(b.width)};
  parallelLoop(b, grid, [&](ValueRange at) {
    Value row = b.add(b.rem(at[2], pieces.block), b.index(pieces.block));
    Value place[] = {at[0], at[1], b.div(at[2], pieces.block), b.div(at[3], 2),
                     row};
    Value factor = b.loadScalar(reciprocals, at.take_front(3));
    // What others of the block read is in rows without an entry.
    Value isNone = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor,
                                         b.scalar(0.0));
    factor = b.fmul(factor, b.scalar(1.0 / pieces.length));
    Value mean = b.fmul(results.loadPart(place, b.rem(at[3], 2)), factor);
    b.storeScalar(b.select(isNone, b.scalar(0.0), mean), op.getOutput(), at);
  });
}

void ConvTransforms::emit(Value reciprocals) {
  GPUConvLines results(b, pieces.ofBlocks(), pieces.length);
  multiply(results);
  results.transform(/*inverse=*/true);
  storeRows(results, reciprocals);
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
