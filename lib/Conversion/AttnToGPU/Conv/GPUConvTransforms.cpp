//===- GPUConvTransforms.cpp - Sums of convolutions by cuFFT --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The sequence is cut in blocks of s tokens. A *piece* is the part of a block
// that a segment has; there are at most as many as blocks and segments, and
// piece (block p, segment r) has slot p + r. Two neighbouring columns are the
// real and the imaginary part of a complex one.
//
//   pieces   transforms of 2 s rows, s of them zero
//   windows  of the profile of each segment for each distance d of two blocks:
//            lags s (d - 1) .. s (d + 1) - 1, transforms of real numbers
//   results  of block o: sum over the pieces before of piece times window, one
//            inverse transform, the second half of which are the rows
//   noise    of block o: the same sum over the norms
//
//===----------------------------------------------------------------------===//

#include "GPUConvLoops.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows whose greatest value is found once.
static constexpr int64_t kTopRows = 256;

namespace {
/// A complex number.
struct Complex {
  Value re, im;
};

class ConvTransformLoops : public ConvApplyLoops {
public:
  ConvTransformLoops(OpBuilder &builder, ConvApplyOp op, F32Math math,
                     int64_t block)
      : ConvApplyLoops(builder, op, math), block(block), length(2 * block),
        pairs(llvm::divideCeil(width, 2)) {}

private:
  /// A piece: its segment, or -1 in a slot without one, and its tokens.
  struct Piece {
    Value segment, block, begin, end;
  };

  void prepareProduct() override;
  void emitProduct() override;
  Value isQuiet(ValueRange row, Value normaliser) override;

  void cutPieces();
  Piece loadPiece(ValueRange head, Value slot);
  void transformPieces();
  void transformWindows();
  void transform(Value lines, bool inverse);
  void multiply();
  void storeRows();

  void measurePieces();
  void measureWindows();
  Value topOfPairs(ValueRange head, Value slot);
  void boundNoise();
  void findGreatest();

  Complex load(Value lines, ArrayRef<Value> at);
  void store(Complex number, Value lines, ArrayRef<Value> at);
  Value loadValue(ValueRange head, Value token, Value column);
  /// The greatest value of rows, and `top`.
  Value topOfRows(ValueRange head, Value begin, Value end, Value top);

  int64_t block, length, pairs;
  Value numBlocks, numSlots;
  /// Segments of slots [B, H, slots]; lines of 2 s complex numbers.
  Value pieces, pieceLines, windowLines, resultLines;
  /// Norms of pieces and windows, noise of blocks, in f64; the greatest value
  /// of rows, and of 256 rows from the first that a head reads.
  Value pieceNorms, windowNorms, noise, rowTops, blockTops;
};
} // namespace

Complex ConvTransformLoops::load(Value lines, ArrayRef<Value> at) {
  Values place(at);
  place.push_back(b.index(0));
  Value re = b.loadScalar(lines, place);
  place.back() = b.index(1);
  return {re, b.loadScalar(lines, place)};
}

void ConvTransformLoops::store(Complex number, Value lines,
                               ArrayRef<Value> at) {
  Values place(at);
  place.push_back(b.index(0));
  b.storeScalar(number.re, lines, place);
  place.back() = b.index(1);
  b.storeScalar(number.im, lines, place);
}

/// A value, zero behind the last column.
Value ConvTransformLoops::loadValue(ValueRange head, Value token,
                                    Value column) {
  return b.select(
      b.less(column, b.index(width)), b.getF32Type(),
      [&] {
        Value at[] = {head[0], keyHead(b, head[1]), token, column};
        return b.loadScalar(op.getValue(), at);
      },
      [&] { return b.scalar(0.0); });
}

//===----------------------------------------------------------------------===//
// Pieces and windows
//===----------------------------------------------------------------------===//

/// Block and segment only grow from one piece to the next, so that no two
/// pieces have the same slot.
void ConvTransformLoops::cutPieces() {
  parallelLoop(b, {batches, heads, numSlots}, [&](ValueRange at) {
    Value found = b.loop(
        b.index(0), numBases, 1, {b.index(-1)},
        [&](Value segment, ValueRange found) -> Values {
          Value first = b.mul(b.sub(at[2], segment), block);
          Value begin = b.max(first, firstKey(b, at, segment));
          Value end =
              b.min(b.add(first, block), firstKey(b, at, b.add(segment, 1)));
          Value exists = b.both(b.less(b.index(-1), first), b.less(begin, end));
          return {b.select(exists, segment, found[0])};
        })[0];
    b.storeIndex(found, pieces, at);
  });
}

ConvTransformLoops::Piece ConvTransformLoops::loadPiece(ValueRange head,
                                                        Value slot) {
  Piece piece;
  Value segment = b.loadIndex(pieces, {head[0], head[1], slot});
  Value exists = b.less(b.index(-1), segment), zero = b.index(0);
  // What there is not has no tokens.
  piece.segment = b.max(segment, 0);
  piece.block = b.sub(slot, piece.segment);
  Value first = b.mul(piece.block, block);
  Value next = firstKey(b, head, b.add(piece.segment, 1));
  piece.begin = b.max(first, firstKey(b, head, piece.segment));
  piece.end = b.select(exists, b.min(b.add(first, block), next), zero);
  return piece;
}

void ConvTransformLoops::transform(Value lines, bool inverse) {
  GPURuntimeCalls(op->getParentOfType<ModuleOp>())
      .transformLines(b, b.getLoc(), lines, inverse);
}

void ConvTransformLoops::transformPieces() {
  pieceLines = allocate(
      {batches, heads, numSlots, b.index(pairs), b.index(length), b.index(2)},
      b.getF32Type());
  parallelLoop(b, {batches, heads, numSlots, b.index(pairs), b.index(length)},
               [&](ValueRange at) {
                 Piece piece = loadPiece(at, at[2]);
                 Value token = b.add(b.mul(piece.block, block), at[4]);
                 Value isIn =
                     b.both(b.less(token, piece.end),
                            b.less(b.sub(piece.begin, b.index(1)), token));
                 // Whoever is beyond the block is beyond the piece.
                 Value column = b.mul(at[3], 2), zero = b.scalar(0.0);
                 auto part = [&](int64_t i) {
                   return b.select(
                       isIn, b.getF32Type(),
                       [&] { return loadValue(at, token, b.add(column, i)); },
                       [&] { return zero; });
                 };
                 Complex number = {part(0), part(1)};
                 store(number, pieceLines, Values(at));
               });
  transform(pieceLines, /*inverse=*/false);
}

void ConvTransformLoops::transformWindows() {
  windowLines = allocate(
      {batches, heads, numBases, numBlocks, b.index(length), b.index(2)},
      b.getF32Type());
  parallelLoop(
      b, {batches, heads, numBases, numBlocks, b.index(length)},
      [&](ValueRange at) {
        // A sum of block o has row a and token n at a - n + s.
        Value lag = b.sub(b.add(b.mul(at[3], block), at[4]), b.index(block));
        Value exists = b.both(b.less(b.index(-1), lag), b.less(lag, numTokens));
        Value weight = b.select(
            exists, b.getF32Type(),
            [&] { return b.loadScalar(weights, {at[0], at[1], at[2], lag}); },
            [&] { return b.scalar(0.0); });
        store({weight, b.scalar(0.0)}, windowLines, Values(at));
      });
  measureWindows();
  transform(windowLines, /*inverse=*/false);
}

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

/// The 2-norm over the two columns that share a complex transform, of every
/// pair.
void ConvTransformLoops::measurePieces() {
  pieceNorms =
      allocate({batches, heads, numSlots, b.index(pairs)}, b.getF64Type());
  parallelLoop(
      b, {batches, heads, numSlots, b.index(pairs)}, [&](ValueRange at) {
        Piece piece = loadPiece(at, at[2]);
        Value column = b.mul(at[3], 2);
        Value sum = b.loop(piece.begin, piece.end, 1, {wide(b, 0.0)},
                           [&](Value token, ValueRange sum) -> Values {
                             Value next = sum[0];
                             for (int64_t i : {0, 1}) {
                               Value x = arith::ExtFOp::create(
                                   b, b.getF64Type(),
                                   loadValue(at, token, b.add(column, i)));
                               next = b.fadd(next, b.fmul(x, x));
                             }
                             return {next};
                           })[0];
        memref::StoreOp::create(b, sum, pieceNorms, at);
      });
}

void ConvTransformLoops::measureWindows() {
  windowNorms = allocate({batches, heads, numBases, numBlocks}, b.getF64Type());
  parallelLoop(b, {batches, heads, numBases, numBlocks}, [&](ValueRange at) {
    Value sum =
        b.loop(b.index(0), b.index(length), 1, {wide(b, 0.0)},
               [&](Value t, ValueRange sum) -> Values {
                 Value x = loadWide(
                     windowLines, {at[0], at[1], at[2], at[3], t, b.index(0)});
                 return {b.fadd(sum[0], b.fmul(x, x))};
               })[0];
    memref::StoreOp::create(b, sum, windowNorms, at);
  });
}

/// The greatest square of a norm of a piece; NaN where one is not finite.
Value ConvTransformLoops::topOfPairs(ValueRange head, Value slot) {
  Value zero = wide(b, 0.0);
  Values top = b.loop(
      b.index(0), b.index(pairs), 1, {zero, zero},
      [&](Value pair, ValueRange top) -> Values {
        Value each = loadWide(pieceNorms, {head[0], head[1], slot, pair});
        return {b.fmax(each, top[0]), b.fadd(top[1], b.fmul(each, zero))};
      });
  return b.fadd(top[0], top[1]);
}

/// Sums, over the pieces that a block of rows reads, the products of the norms
/// of both factors.
void ConvTransformLoops::boundNoise() {
  noise = allocate({batches, heads, numBlocks}, b.getF64Type());
  parallelLoop(b, {batches, heads, numBlocks}, [&](ValueRange at) {
    Value sum = b.loop(
        b.index(0), numSlots, 1, {wide(b, 0.0)},
        [&](Value slot, ValueRange sum) -> Values {
          Piece piece = loadPiece(at, slot);
          Value distance = b.sub(at[2], piece.block);
          Value isRead = b.both(b.less(piece.begin, piece.end),
                                b.less(b.index(-1), distance));
          return {b.select(
              isRead, b.getF64Type(),
              [&]() -> Value {
                Value norm = topOfPairs(at, slot);
                Value window = loadWide(
                    windowNorms, {at[0], at[1], piece.segment, distance});
                // The factors are squares.
                Value product = b.fmul(norm, window);
                return b.fadd(sum[0],
                              math::SqrtOp::create(b, product).getResult());
              },
              [&] { return sum[0]; })};
        })[0];
    // c u log2(L) for an error of 2^9 u, with c = 1/2.
    double factor = std::ldexp(llvm::Log2_64(length), -10);
    memref::StoreOp::create(b, b.fmul(sum, wide(b, factor)), noise, at);
  });
}

/// The greatest value of every row, and of 256 rows each.
void ConvTransformLoops::findGreatest() {
  rowTops = allocate({batches, b.extent(op.getValue(), 1), numTokens},
                     b.getF32Type());
  parallelLoop(
      b, {batches, b.extent(op.getValue(), 1), numTokens}, [&](ValueRange at) {
        Value top =
            b.loop(b.index(0), b.index(width), 1, {b.scalar(0.0)},
                   [&](Value column, ValueRange top) -> Values {
                     Value x = b.loadScalar(op.getValue(),
                                            {at[0], at[1], at[2], column});
                     return {b.fmax(math::AbsFOp::create(b, x), top[0])};
                   })[0];
        b.storeScalar(top, rowTops, at);
      });
  Value count = b.ceilDiv(numTokens, kTopRows);
  blockTops = allocate({batches, heads, count}, b.getF32Type());
  parallelLoop(b, {batches, heads, count}, [&](ValueRange at) {
    Value first = b.mul(at[2], kTopRows);
    Value begin = b.max(first, firstKey(b, at, b.index(0)));
    Value end = b.min(b.add(first, kTopRows), numTokens);
    b.storeScalar(topOfRows(at, begin, end, b.scalar(0.0)), blockTops, at);
  });
}

Value ConvTransformLoops::topOfRows(ValueRange head, Value begin, Value end,
                                    Value top) {
  return b.loop(begin, end, 1, {top}, [&](Value row, ValueRange top) -> Values {
    Value at[] = {head[0], keyHead(b, head[1]), row};
    return {b.fmax(b.loadScalar(rowTops, at), top[0])};
  })[0];
}

Value ConvTransformLoops::isQuiet(ValueRange row, Value normaliser) {
  Value most = memref::LoadOp::create(
      b, noise, ValueRange{row[0], row[1], b.div(row[2], block)});
  Value number = b.div(row[2], kTopRows);
  Value top = b.loop(b.index(0), number, 1, {b.scalar(0.0)},
                     [&](Value i, ValueRange top) -> Values {
                       Value at[] = {row[0], row[1], i};
                       return {b.fmax(b.loadScalar(blockTops, at), top[0])};
                     })[0];
  Value begin = b.max(b.mul(number, kTopRows), firstKey(b, row, b.index(0)));
  top = topOfRows(row, begin, b.add(row[2], 1), top);
  top = arith::ExtFOp::create(b, b.getF64Type(), top);
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, most,
                               b.fmul(top, normaliser));
}

void ConvTransformLoops::prepareProduct() {
  numBlocks = b.ceilDiv(numTokens, block);
  numSlots = b.add(numBlocks, numBases);
  pieces = allocate({batches, heads, numSlots}, b.getI32Type());
  cutPieces();
  measurePieces();
  transformPieces();
  transformWindows();
  boundNoise();
  findGreatest();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void ConvTransformLoops::multiply() {
  parallelLoop(
      b, {batches, heads, numBlocks, b.index(pairs), b.index(length)},
      [&](ValueRange at) {
        Value zero = b.scalar(0.0);
        // Pieces of later blocks have later slots than the last of this one.
        Value end = b.add(at[2], numBases);
        Values sum = b.loop(
            b.index(0), end, 1, {zero, zero},
            [&](Value slot, ValueRange sum) -> Values {
              Value segment = b.loadIndex(pieces, {at[0], at[1], slot});
              Value distance = b.add(b.sub(at[2], slot), segment);
              Value isRead = b.both(b.less(b.index(-1), segment),
                                    b.less(b.index(-1), distance));
              segment = b.select(isRead, segment, b.index(0));
              distance = b.select(isRead, distance, b.index(0));
              Complex x = load(pieceLines, {at[0], at[1], slot, at[3], at[4]});
              Complex w =
                  load(windowLines, {at[0], at[1], segment, distance, at[4]});
              Value re = b.fsub(b.fmul(x.re, w.re), b.fmul(x.im, w.im));
              Value im = b.fma(x.re, w.im, b.fmul(x.im, w.re));
              return {b.select(isRead, b.fadd(sum[0], re), sum[0]),
                      b.select(isRead, b.fadd(sum[1], im), sum[1])};
            });
        store({sum[0], sum[1]}, resultLines, Values(at));
      });
}

void ConvTransformLoops::storeRows() {
  parallelLoop(b, {batches, heads, numTokens, b.index(width)},
               [&](ValueRange at) {
                 Value row = b.add(b.rem(at[2], block), block);
                 Value place[] = {at[0],           at[1], b.div(at[2], block),
                                  b.div(at[3], 2), row,   b.rem(at[3], 2)};
                 Value factor = b.loadScalar(reciprocals, at.take_front(3));
                 // What others of the block read is in rows without an entry.
                 Value isNone = arith::CmpFOp::create(
                     b, arith::CmpFPredicate::OEQ, factor, b.scalar(0.0));
                 factor = b.fmul(factor, b.scalar(1.0 / length));
                 Value mean = b.fmul(b.loadScalar(resultLines, place), factor);
                 b.storeScalar(b.select(isNone, b.scalar(0.0), mean),
                               op.getOutput(), at);
               });
}

void ConvTransformLoops::emitProduct() {
  resultLines = allocate(
      {batches, heads, numBlocks, b.index(pairs), b.index(length), b.index(2)},
      b.getF32Type());
  multiply();
  transform(resultLines, /*inverse=*/true);
  storeRows();
}

void fovea::attn::emitConvTransformLoops(OpBuilder &builder, ConvApplyOp op,
                                         F32Math math, int64_t block) {
  ConvTransformLoops(builder, op, math, block).emit();
}

Value fovea::attn::emitHasTransforms(KernelBuilder &b, Operation *op) {
  GPURuntimeCalls calls(op->getParentOfType<ModuleOp>());
  Value known = calls.call(b, b.getLoc(), "fovea_rt_gpu_has_transforms", {},
                           b.getI32Type());
  return b.less(b.like(known, 0), known);
}
