//===- GPUConvGradientTransforms.cpp - Gradients by cuFFT -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows that are not listed, with g = d_output / normaliser and e = (d_output .
// output) / normaliser, both by row. Of a segment with weights w,
//
//   d_value[j]     = sum_i w[i - j] g[i]
//   d_profile[lag] = w[lag] sum_j (g[j + lag] . value[j] - e[j + lag])
//
//===----------------------------------------------------------------------===//

#include "GPUConvGradient.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Products of two spectra of numbers up to this one stay finite, summed over
/// all columns and tokens that there may be.
static constexpr double kGreatest = 0x1p32;
/// Rows whose first one with a great value is found once.
static constexpr int64_t kBoundRows = 256;

static Value isPlain(KernelBuilder &b, Value number) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLE,
                               math::AbsFOp::create(b, number),
                               b.scalar(kGreatest));
}

/// Neither NaN nor an infinity is in a transform: whoever reads one is listed.
static Value makePlain(KernelBuilder &b, Value number) {
  return b.select(isPlain(b, number), number, b.scalar(0.0));
}

static ComplexNumber makePlain(KernelBuilder &b, ComplexNumber number) {
  return {makePlain(b, number.re), makePlain(b, number.im)};
}

/// Adds `conj(x) y`.
static Values addConjugate(KernelBuilder &b, ComplexNumber x, ComplexNumber y,
                           ValueRange sum) {
  Value re = b.fma(x.re, y.re, b.fmul(x.im, y.im));
  Value im = b.fsub(b.fmul(x.re, y.im), b.fmul(x.im, y.re));
  return {b.fadd(sum[0], re), b.fadd(sum[1], im)};
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

GPUConvCorrelations::GPUConvCorrelations(GPUConvTables &tables,
                                         ConvApplyBackwardOp op, Value deltas,
                                         int64_t block)
    : t(tables), b(t.b), op(op), deltas(deltas), pieces(tables, block),
      noise(pieces, GPUConvNoise::Factor::Ones),
      pieceLines(b, pieces.ofPieces(), pieces.length),
      windowLines(b, pieces.ofWindows(), pieces.length),
      rowLines(b, pieces.ofBlocks(), pieces.length),
      lagLines(b, pieces.ofWindows(), pieces.length) {
  findBounds();
}

/// Finds the first token of each head with a value that is not plain.
void GPUConvCorrelations::findBounds() {
  Value groups = b.extent(b.value, 1);
  auto firstOf = [&](Value begin, Value end,
                     function_ref<Value(Value number)> find) {
    return b.loop(begin, end, 1, {b.numTokens},
                  [&](Value number, ValueRange first) -> Values {
                    return {b.min(first[0], find(number))};
                  })[0];
  };
  Value rows[] = {b.batches, groups, b.numTokens};
  Value ofRows = b.tabulate(rows, b.getI32Type(), [&](ValueRange at) {
    return firstOf(b.index(0), b.index(b.width), [&](Value column) {
      Value number = b.loadScalar(b.value, {at[0], at[1], at[2], column});
      return b.select(isPlain(b, number), b.numTokens, at[2]);
    });
  });
  Value numBlocks = b.ceilDiv(b.numTokens, kBoundRows);
  Value blocks[] = {b.batches, groups, numBlocks};
  Value ofBlocks = b.tabulate(blocks, b.getI32Type(), [&](ValueRange at) {
    Value begin = b.mul(at[2], kBoundRows);
    Value end = b.min(b.add(begin, kBoundRows), b.numTokens);
    return firstOf(begin, end, [&](Value row) {
      return b.loadIndex(ofRows, {at[0], at[1], row});
    });
  });
  firstGreat =
      b.tabulate({b.batches, groups}, b.getI32Type(), [&](ValueRange at) {
        return firstOf(b.index(0), numBlocks, [&](Value i) {
          return b.loadIndex(ofBlocks, {at[0], at[1], i});
        });
      });
}

Value GPUConvCorrelations::isQuiet(ValueRange row, Value normaliser) {
  Value first = b.loadIndex(firstGreat, {row[0], b.div(row[1], b.headsOfKey)});
  auto widenMagnitude = [&](Value number) {
    return b.widen(math::AbsFOp::create(b, number));
  };
  // What is divided by the normaliser: d_output . output, and d_output.
  Value sum = b.loop(b.index(0), b.index(b.width), 1,
                     {widenMagnitude(b.loadScalar(deltas, row))},
                     [&](Value column, ValueRange sum) -> Values {
                       Value number = b.loadScalar(
                           op.getDOutput(), {row[0], row[1], row[2], column});
                       return {b.fadd(sum[0], widenMagnitude(number))};
                     })[0];
  Value limit = b.fmul(normaliser, b.wide(kGreatest));
  Value arePlain =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, sum, limit);
  return b.both(b.both(b.less(row[2], first), arePlain),
                noise.isQuiet(row, normaliser));
}

/// Rows that are listed, and those without an entry, count as zeros.
Value GPUConvCorrelations::loadGradient(ValueRange row, Value column,
                                        Value reciprocals) {
  Value exists =
      b.both(b.less(row[2], b.numTokens), b.less(column, b.index(b.width)));
  return b.select(
      exists, b.getF32Type(),
      [&] {
        Value factor = b.loadScalar(reciprocals, row);
        Value number =
            b.loadScalar(op.getDOutput(), {row[0], row[1], row[2], column});
        Value isNone = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                             factor, b.scalar(0.0));
        return b.select(isNone, b.scalar(0.0), b.fmul(number, factor));
      },
      [&] { return b.scalar(0.0); });
}

void GPUConvCorrelations::emit(Value reciprocals) {
  pieceLines.fill(
      [&](ValueRange at) { return makePlain(b, pieces.loadPair(at)); });
  windowLines.fill([&](ValueRange at) -> ComplexNumber {
    Value weight = pieces.loadWindow(at, at[2], at[3], at[4]);
    return {makePlain(b, weight), b.scalar(0.0)};
  });
  rowLines.fill([&](ValueRange at) {
    Value place = b.sub(at[4], b.index(pieces.block));
    Value token = b.add(b.mul(at[2], pieces.block), place);
    Value column = b.mul(at[3], 2), isPad = b.less(place, b.index(0));
    auto part = [&](int64_t i) {
      return b.select(
          isPad, b.getF32Type(), [&] { return b.scalar(0.0); },
          [&] {
            return loadGradient({at[0], at[1], token}, b.add(column, i),
                                reciprocals);
          });
    };
    Value re = part(0);
    return ComplexNumber{re, part(1)};
  });
  for (GPUConvLines *lines : {&pieceLines, &windowLines, &rowLines})
    lines->transform(/*inverse=*/false);
  Value grid[] = {b.batches, b.heads, b.index(1), b.numTokens};
  means = b.tabulate(grid, b.getF32Type(), [&](ValueRange at) {
    Value row[] = {at[0], at[1], at[3]};
    Value factor = b.loadScalar(reciprocals, row);
    Value isNone = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor,
                                         b.scalar(0.0));
    return b.select(isNone, b.scalar(0.0),
                    b.fmul(b.loadScalar(deltas, row), factor));
  });
  sumsOfMeans.emplace(b, means);
  sumLags();
  // The spectra of values have done their duty.
  sumValues();
}

//===----------------------------------------------------------------------===//
// Products of spectra
//===----------------------------------------------------------------------===//

/// All columns are added up, so that the sums are one real line.
void GPUConvCorrelations::sumLags() {
  lagLines.fill([&](ValueRange at) -> ComplexNumber {
    Value segment = at[2], distance = at[3];
    Value first = t.segments.first(b, at, segment);
    Value end = t.segments.end(b, at, segment);
    Value begin = b.div(first, pieces.block);
    Value behind =
        b.select(b.less(first, end), b.ceilDiv(end, pieces.block), begin);
    behind = b.min(behind, b.sub(pieces.numBlocks, distance));
    Value zero = b.scalar(0.0);
    auto addPiece = [&](Value block, ValueRange sum) {
      Value slot = b.add(block, segment), rows = b.add(block, distance);
      return b.loop(b.index(0), b.index(pieces.pairs), 1, sum,
                    [&](Value pair, ValueRange sum) {
                      ComplexNumber x =
                          pieceLines.load({at[0], at[1], slot, pair, at[4]});
                      ComplexNumber g =
                          rowLines.load({at[0], at[1], rows, pair, at[4]});
                      return addConjugate(b, x, g, sum);
                    });
    };
    Values sum = b.loop(begin, behind, 1, {zero, zero}, addPiece);
    return {sum[0], sum[1]};
  });
  lagLines.transform(/*inverse=*/true);
}

/// Puts the gradients of pieces in their place.
void GPUConvCorrelations::sumValues() {
  pieceLines.fill([&](ValueRange at) -> ComplexNumber {
    GPUConvPieces::Piece piece = pieces.load(at, at[2]);
    Value zero = b.scalar(0.0);
    auto add = [&](Value block, ValueRange sum) {
      Value distance = b.sub(block, piece.block);
      ComplexNumber w =
          windowLines.load({at[0], at[1], piece.segment, distance, at[4]});
      ComplexNumber g = rowLines.load({at[0], at[1], block, at[3], at[4]});
      return addConjugate(b, w, g, sum);
    };
    Values sum = b.loop(piece.block, pieces.numBlocks, 1, {zero, zero}, add);
    return {sum[0], sum[1]};
  });
  pieceLines.transform(/*inverse=*/true);
}

Value GPUConvCorrelations::loadValue(ValueRange head, Value token,
                                     Value column) {
  Value segment = t.segments.of(b, head, token), zero = b.scalar(0.0);
  return b.select(
      b.less(segment, b.index(0)), b.getF32Type(), [&] { return zero; },
      [&] {
        Value slot = b.add(b.div(token, pieces.block), segment);
        Value place[] = {head[0], head[1], slot, b.div(column, 2),
                         b.rem(token, pieces.block)};
        return b.fmul(pieceLines.loadPart(place, b.rem(column, 2)),
                      b.scalar(1.0 / pieces.length));
      });
}

Value GPUConvCorrelations::loadProfile(ValueRange head, Value segment,
                                       Value lag) {
  Value distance = b.div(lag, pieces.block), place = b.rem(lag, pieces.block);
  auto load = [&](Value distance, Value number) {
    return lagLines.loadPart({head[0], head[1], segment, distance, number},
                             b.index(0));
  };
  // Windows overlap: pairs of a row and a token a block apart, or a block more.
  Value sum = load(distance, b.add(place, pieces.block));
  Value next = b.add(distance, 1);
  sum = b.select(
      b.less(next, pieces.numBlocks), b.getF32Type(),
      [&] { return b.fadd(sum, load(next, place)); }, [&] { return sum; });
  sum = b.fmul(sum, b.scalar(1.0 / pieces.length));
  Value low = b.add(t.segments.first(b, head, segment), lag);
  Value high = b.add(t.segments.end(b, head, segment), lag);
  Value means = sumsOfMeans->sum({head[0], head[1], b.index(0)}, low,
                                 b.min(high, b.numTokens));
  means = arith::TruncFOp::create(b, b.getF32Type(), means);
  Value weight =
      b.loadScalar(t.profiles.weights, {head[0], head[1], segment, lag});
  return b.fmul(makePlain(b, weight), b.fsub(sum, means));
}
