//===- ConvPartitioned.cpp - Weights times values by transforms -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   pieces    each transformed once, padded with as many zeros as tokens
//   windows   twice as long as a block, transformed lanes at a time
//   products  for each frequency: the window's times the piece's, summed over
//             the pieces that a block of rows reads
//   blocks    one inverse transform each, of which the second half is the
//             result (overlap-save)
//
// Products take the place of pieces: those of a block that of the last piece
// that begins in it, which no block before it reads. So blocks are multiplied
// last to first.
//
// A group of columns that fills only the real part of a row has a second piece,
// or block, as its imaginary part. Their spectra are those of real numbers: the
// two are told apart by the negative frequencies, which need no products then.
//
// With one basis and one block, the three last steps are one: a transform that
// is multiplied in the middle.
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Groups of columns that go through all steps together: as many as share the
/// weights of a tile of products, since spectra of more would only be further
/// away when they are read. With few blocks, products wait for spectra anyway.
static constexpr int64_t kPassGroups = 2, kFewBlocks = 16;
/// Groups of columns whose squares are summed at a time.
static constexpr int64_t kMeasuredGroups = 4;

namespace {
class ConvPartitioned : public ConvApplyKernel {
public:
  using ConvApplyKernel::ConvApplyKernel;

private:
  void allocateBuffers() override;
  void emitProduct() override;
  void boundErrors() override;
  Value isQuiet(Value row, Value normaliser) override;

  void measurePiece(Value index);
  Value sumSquares(const Piece &piece, Value column);
  void storeNorm(Value index, Value columns, Value squares);
  void findGreatest();
  void findPlaces();
  void emitPass(Value firstGroup, int64_t groups, bool hasHalf);
  void transformHalves(Value first, Value columns, Value slot);
  void multiplyFrequency(Value frequency, int64_t groups, bool hasHalf);
  Values multiplyTile(Value frequency, Value firstSlot, int64_t groups,
                      Value result);
  void storeHalves(ArrayRef<Value> sums, Value frequency, Value mirror,
                   Value slot, Value result);
  void invertWhole(Value block, Value columns, Value slot);
  void invertHalves(Value result, Value columns, Value slot);
  void storeResult(ArrayRef<Value> numbers, Value row, Value column,
                   double factor);
  void convolveGroup(Value group);

  /// The result of the first block. Results before it come to nothing, and
  /// make the first tile whole, which has the fewest pieces.
  Value firstResult() { return b.sub(numResults, numBlocks); }
  Value firstColumnOf(Value columns) {
    return b.mul(columns, plan.getColumns());
  }
  Value placeOf(Value result) { return loadIndex(places, result); }
  bool hasHalf() const { return paddedWidth % plan.getColumns() != 0; }

  bool fuses() const { return plan.algorithm == ConvAlgorithm::Single; }

  /// Results, which are those of blocks, and the spectra that they replace.
  Value numResults, places;
  /// The greatest value of a row, and of it and the rows before.
  Value rowValues, greatest;
};
} // namespace

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

void ConvPartitioned::allocateBuffers() {
  ConvApplyKernel::allocateBuffers();
  int64_t tokens = cast<MemRefType>(basis.getType()).getDimSize(3);
  bool hasFewBlocks = !ShapedType::isDynamic(tokens) &&
                      llvm::divideCeil(tokens, plan.block) <= kFewBlocks;
  if (!fuses())
    slots = std::min<int64_t>(numGroups, hasFewBlocks ? 1 : kPassGroups);
  allocatePieces();
  numResults = b.mul(b.ceilDiv(numBlocks, plan.outputs), plan.outputs);
  places = allocate(b.getIndexType(), {numResults});
  rowValues = allocate(b.getStateType(), {numTokens});
  greatest = allocate(b.getF64Type(), {numTokens});
}

/// Finds the greatest value of every row of a piece, and the norms of groups of
/// columns that fill both parts of a row.
void ConvPartitioned::measurePiece(Value index) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(Type(wideType)));
  Piece piece = loadPiece(index);
  int64_t whole = numGroups - hasHalf();
  // As many groups at a time as there are registers for.
  for (int64_t first = 0; first < numGroups; first += kMeasuredGroups) {
    int64_t count = std::min(kMeasuredGroups, numGroups - first);
    Values sums(count, zeros);
    sums = b.loop(
        piece.begin, piece.end, 1, sums, [&](Value token, ValueRange carried) {
          Values next(carried);
          Value top = b.splat(0.0);
          for (int64_t g = 0; g < count; ++g)
            for (int64_t part = 0; part < (first + g < whole ? 2 : 1); ++part) {
              int64_t column = (first + g) * plan.getColumns() + part * lanes;
              Value numbers =
                  b.loadVector(values, {batch, group, token, b.index(column)});
              top = b.fmax(top, math::AbsFOp::create(b, numbers));
              Value wide = widen(numbers);
              next[g] = b.fma(wide, wide, next[g]);
            }
          Value most = vector::ReductionOp::create(
              b, vector::CombiningKind::MAXIMUMF, top);
          if (first != 0)
            most = arith::MaximumFOp::create(b, most,
                                             b.loadScalar(rowValues, token));
          b.storeScalar(most, rowValues, token);
          return next;
        });
    for (int64_t g = 0; g < count; ++g)
      if (first + g < whole)
        storeNorm(index, b.index(first + g), sums[g]);
  }
}

/// Sums the squares of the tokens of a piece over a column of each lane.
Value ConvPartitioned::sumSquares(const Piece &piece, Value column) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(Type(wideType)));
  return b.loop(
      piece.begin, piece.end, 1, zeros, [&](Value token, ValueRange carried) {
        Value numbers =
            widen(b.loadVector(values, {batch, group, token, column}));
        return Values{b.fma(numbers, numbers, carried[0])};
      })[0];
}

/// The 2-norm over the two columns that share a complex transform, the greatest
/// of all pairs.
void ConvPartitioned::storeNorm(Value index, Value columns, Value squares) {
  Value most =
      vector::ReductionOp::create(b, vector::CombiningKind::MAXIMUMF, squares);
  Value norm = math::SqrtOp::create(b, most);
  memref::StoreOp::create(b, norm, pieceNorms, ValueRange{index, columns});
}

/// The piece and the next, if there is one, in one transform. With z = x + i y,
/// 2 X(f) = Z(f) + conj Z(-f) and 2 i Y(f) = Z(f) - conj Z(-f).
void ConvPartitioned::transformHalves(Value first, Value columns, Value slot) {
  Value column = firstColumnOf(columns), second = b.add(first, 1);
  Piece one = loadPiece(first);
  Piece other = loadPiece(b.min(second, b.sub(numPieces, b.index(1))));
  other.end = b.select(b.less(second, numPieces), other.end, other.begin);
  Value squares = b.fadd(sumSquares(one, column), sumSquares(other, column));
  storeNorm(first, columns, squares);
  b.ifThen(b.less(second, numPieces),
           [&] { storeNorm(second, columns, squares); });
  auto load = [&](const Piece &piece, Value row) {
    return loadToken(values, {batch, group}, b.add(piece.begin, row), column,
                     piece.begin, piece.end);
  };
  transformTo(pieceSpectra, first, slot, [&](Value row, Value) {
    return ComplexRow{load(one, row), load(other, row)};
  });
  makeTransform().forEachMirrored([&](Value at, Value mirror) {
    ComplexRow z = loadRow(pieceSpectra, {first, slot, at});
    ComplexRow turned = loadRow(pieceSpectra, {first, slot, mirror});
    storeRow({b.fadd(z.re, turned.re), b.fsub(z.im, turned.im)}, pieceSpectra,
             {first, slot, at});
    storeRow({b.fadd(z.im, turned.im), b.fsub(turned.re, z.re)}, pieceSpectra,
             {second, slot, at});
  });
}

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

void ConvPartitioned::findGreatest() {
  b.loop(firstColumn(b.index(0)), numTokens, 1, wide(0.0),
         [&](Value row, ValueRange carried) {
           Value value = widen(b.loadScalar(rowValues, row));
           Value top = arith::MaximumFOp::create(b, carried[0], value);
           memref::StoreOp::create(b, top, greatest, row);
           return Values{top};
         });
}

Value ConvPartitioned::isQuiet(Value row, Value normaliser) {
  Value most = memref::LoadOp::create(b, noise, b.div(row, plan.block));
  Value value = memref::LoadOp::create(b, greatest, row);
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, most,
                               b.fmul(value, normaliser));
}

void ConvPartitioned::boundErrors() {
  forAll({numBlocks}, [&](ValueRange task) {
    // A tile of products multiplies pieces that only its last blocks read by
    // zeros: no noise, unless one of them is not finite.
    Value result = b.add(task[0], firstResult());
    Value last = b.add(b.roundDown(result, plan.outputs), plan.outputs - 1);
    last = b.sub(last, firstResult());
    Value partner;
    if (hasHalf()) {
      Value next = b.sub(b.add(task[0], 1), b.mul(b.rem(result, 2), 2));
      partner = next;
    }
    boundNoise(task[0], loadInteger(ends, last), partner);
  });
  findGreatest();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void ConvPartitioned::emitProduct() {
  cutPieces();
  findPlaces();
  forAll({numPieces}, [&](ValueRange task) { measurePiece(task[0]); });
  forAll({b.div(numWindows, lanes)},
         [&](ValueRange task) { transformWindows(b.mul(task[0], lanes)); });
  if (fuses()) {
    forAll({b.index(numGroups)},
           [&](ValueRange task) { convolveGroup(task[0]); });
    return;
  }
  int64_t groups = numGroups - hasHalf(), rest = groups % slots;
  b.loop(b.index(0), b.index(groups - rest), slots,
         [&](Value group) { emitPass(group, slots, /*hasHalf=*/false); });
  if (rest != 0 || hasHalf())
    emitPass(b.index(groups - rest), rest, hasHalf());
}

/// The result of a block that no piece begins in is behind those of all others,
/// where no piece is.
void ConvPartitioned::findPlaces() {
  Value last = b.add(maxPieces, plan.outputs - 2);
  b.loop(b.index(0), numResults, 1, {last, b.index(0)},
         [&](Value result, ValueRange carried) {
           Value free = carried[0], pieces = carried[1];
           Value block = b.sub(result, firstResult());
           Value end = b.select(b.less(block, b.index(0)), b.index(0),
                                loadInteger(ends, b.max(block, 0)));
           Value hasNone = b.equal(end, pieces);
           storeIndex(b.select(hasNone, free, b.sub(end, b.index(1))), places,
                      result);
           return Values{b.select(hasNone, b.sub(free, b.index(1)), free), end};
         });
}

/// All steps for a few groups of columns, the last of which may be half a one.
void ConvPartitioned::emitPass(Value firstGroup, int64_t groups, bool hasHalf) {
  Value half = b.index(groups), lastGroup = b.add(firstGroup, groups);
  if (groups != 0)
    forAll({numPieces, b.index(groups)}, [&](ValueRange task) {
      Value columns = b.add(firstGroup, task[1]);
      transformPiece(task[0], task[1], firstColumnOf(columns));
    });
  if (hasHalf)
    forAll({b.ceilDiv(numPieces, 2)}, [&](ValueRange task) {
      transformHalves(b.mul(task[0], 2), lastGroup, half);
    });
  forAllFrequencies(
      [&](Value frequency) { multiplyFrequency(frequency, groups, hasHalf); });
  if (groups != 0)
    forAll({numBlocks, b.index(groups)}, [&](ValueRange task) {
      invertWhole(task[0], b.add(firstGroup, task[1]), task[1]);
    });
  if (hasHalf)
    forAll({b.div(numResults, 2)}, [&](ValueRange task) {
      invertHalves(b.mul(task[0], 2), lastGroup, half);
    });
}

void ConvPartitioned::multiplyFrequency(Value frequency, int64_t groups,
                                        bool hasHalf) {
  auto multiply = [&](Value result, Value slot, int64_t count) {
    Values sums = multiplyTile(frequency, slot, count, result);
    for (int64_t u = 0; u < plan.outputs; ++u)
      for (int64_t g = 0; g < count; ++g) {
        Value *sum = &sums[(u * count + g) * 2];
        storeRow({sum[0], sum[1]}, pieceSpectra,
                 {placeOf(b.add(result, u)), b.add(slot, g), frequency});
      }
  };
  auto forEachTile = [&](function_ref<void(Value result)> body) {
    b.loop(b.index(0), numResults, plan.outputs, [&](Value done) {
      body(b.sub(numResults, b.add(done, plan.outputs)));
    });
  };
  // Tiles read weights here and there, which hardware does not foresee.
  int64_t line = 64 / (b.getStateType().getWidth() / 8);
  for (int64_t part : {0, 1})
    b.loop(b.index(0), numWindows, line, [&](Value window) {
      b.prefetch(windowSpectra,
                 {b.sub(frequency, b.index(1)), b.index(part), window},
                 /*locality=*/3);
    });
  int64_t whole = groups / plan.productGroups * plan.productGroups;
  if (groups != 0)
    forEachTile([&](Value result) {
      b.loop(b.index(0), b.index(whole), plan.productGroups,
             [&](Value slot) { multiply(result, slot, plan.productGroups); });
      for (int64_t slot = whole; slot < groups; ++slot)
        multiply(result, b.index(slot), 1);
    });
  if (!hasHalf)
    return;
  Value mirror = makeTransform().mirror(frequency);
  b.ifThen(b.less(frequency, b.add(mirror, 1)), [&] {
    forEachTile([&](Value result) {
      Value slot = b.index(groups);
      Values sums = multiplyTile(frequency, slot, 1, result);
      storeHalves(sums, frequency, mirror, slot, result);
    });
  });
}

/// One frequency of a few results, over `groups` groups of columns.
ConvPartitioned::Values ConvPartitioned::multiplyTile(Value frequency,
                                                      Value firstSlot,
                                                      int64_t groups,
                                                      Value result) {
  Value firstBlock = b.sub(result, firstResult());
  Value lastBlock = b.add(firstBlock, plan.outputs - 1);
  Values sums(plan.outputs * groups * 2, b.splat(0.0));
  return b.loop(
      b.index(0), loadInteger(ends, lastBlock), 1, sums,
      [&](Value index, ValueRange carried) {
        Values next(carried);
        Piece piece = loadPiece(index);
        Value window = b.add(piece.window, b.sub(firstBlock, piece.block));
        FFTKernel::Rows rows;
        for (int64_t g = 0; g < groups; ++g) {
          Value slot = b.add(firstSlot, g);
          rows.push_back(loadRow(pieceSpectra, {index, slot, frequency}));
          prefetchRow(pieceSpectra,
                      {index, slot, b.sub(frequency, b.index(1))});
        }
        for (int64_t u = 0; u < plan.outputs; ++u) {
          auto coefficient = [&](int64_t part) {
            return b.broadcast(b.loadScalar(
                windowSpectra, {frequency, b.index(part), b.add(window, u)}));
          };
          Value re = coefficient(0), im = coefficient(1);
          Value minusIm = arith::NegFOp::create(b, im);
          for (int64_t g = 0; g < groups; ++g)
            addProduct(rows[g], re, im, minusIm, &next[(u * groups + g) * 2]);
        }
        return next;
      });
}

/// Two results in the order of transformHalves, at a frequency and its
/// negative, where each is conjugate.
void ConvPartitioned::storeHalves(ArrayRef<Value> sums, Value frequency,
                                  Value mirror, Value slot, Value result) {
  for (int64_t u = 0; u < plan.outputs; u += 2) {
    ComplexRow one = {sums[2 * u], sums[2 * u + 1]};
    ComplexRow other = {sums[2 * u + 2], sums[2 * u + 3]};
    // That of the second, which has pieces if the first has.
    Value place = placeOf(b.add(result, u + 1));
    storeRow({b.fadd(one.re, other.im), b.fsub(other.re, one.im)}, pieceSpectra,
             {place, slot, mirror});
    storeRow({b.fsub(one.re, other.im), b.fadd(one.im, other.re)}, pieceSpectra,
             {place, slot, frequency});
  }
}

/// Stores vectors of a row of the result, if there is one, normalised.
void ConvPartitioned::storeResult(ArrayRef<Value> numbers, Value row,
                                  Value column, double factor) {
  b.ifThen(b.less(row, numTokens), [&] {
    Value factors = b.broadcast(b.loadScalar(reciprocals, row));
    factors = b.fmul(factors, b.splat(factor));
    for (auto [k, part] : llvm::enumerate(numbers))
      storeOutput(b.fmul(part, factors), row, b.add(column, k * lanes));
  });
}

/// The whole sequence at once: its spectrum stays in registers.
void ConvPartitioned::convolveGroup(Value group) {
  Value piece = b.index(0), begin = firstColumn(piece);
  Value column = b.mul(group, plan.getColumns());
  auto load = [&](Value row, Value) {
    return loadRow(pieceSpectra, {piece, group, row});
  };
  auto store = [&](Value row, Value, ComplexRow numbers) {
    storeRow(numbers, pieceSpectra, {piece, group, row});
  };
  auto source = [&](Value row, Value) {
    return loadValues(b.add(begin, row), column, begin, numTokens);
  };
  auto sink = [&](Value at, Value, ComplexRow numbers) {
    storeResult({numbers.re, numbers.im}, b.sub(at, b.index(plan.block)),
                column, 1.0 / length);
  };
  FFTKernel::Steps steps = {load, store, /*isDense=*/true};
  steps.source = source;
  steps.isHalfZero = true;
  steps.sink = sink;
  steps.wanted = FFTKernel::Half::Second;
  FFTKernel transform = makeTransform();
  auto visit = [&](Value position, Value, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows)) {
      // The window at distance 0 comes after those of zeros.
      auto coefficient = [&, k = k](int64_t part) {
        return b.broadcast(
            b.loadScalar(windowSpectra, {b.add(position, k), b.index(part),
                                         b.index(kPadding)}));
      };
      Value re = coefficient(0);
      row = transform.multiply(row, {re, coefficient(1)});
    }
  };
  transform.emit(FFTKernel::kConvolve, steps, visit);
}

void ConvPartitioned::invertWhole(Value block, Value columns, Value slot) {
  Value firstRow = b.mul(block, plan.block), column = firstColumnOf(columns);
  Value place = placeOf(b.add(block, firstResult()));
  invert(pieceSpectra, place, slot, [&](Value at, ComplexRow numbers) {
    storeResult({numbers.re, numbers.im}, b.add(firstRow, at), column,
                1.0 / length);
  });
}

/// The result is real, the next one imaginary. Both are twice what they should
/// be, as their pieces are.
void ConvPartitioned::invertHalves(Value result, Value columns, Value slot) {
  Value column = firstColumnOf(columns);
  Value firstRow = b.mul(b.sub(result, firstResult()), plan.block);
  Value place = placeOf(b.add(result, 1));
  invert(pieceSpectra, place, slot, [&](Value at, ComplexRow numbers) {
    Value row = b.add(firstRow, at), next = b.add(row, plan.block);
    auto store = [&](Value part, Value row) {
      b.ifThen(b.less(b.index(-1), row),
               [&] { storeResult({part}, row, column, 0.5 / length); });
    };
    store(numbers.re, row);
    store(numbers.im, next);
  });
}

void fovea::attn::emitConvPartitioned(OpBuilder &builder, ConvApplyOp op,
                                      const ConvPlan &plan) {
  ConvPartitioned(builder, op, plan).emit();
}
