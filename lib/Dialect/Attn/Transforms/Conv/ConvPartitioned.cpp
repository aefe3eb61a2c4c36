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

namespace {
class ConvPartitioned : public ConvApplyKernel {
public:
  using ConvApplyKernel::ConvApplyKernel;

private:
  void allocateBuffers() override;
  void prepareShared() override;
  void prepareProduct() override;
  void emitProduct() override;
  Value isQuiet(Value row, Value normaliser) override;

  Value normOfPiece(const Piece &piece, Value column);
  void findGreatest();
  void multiplyFrequency(Value frequency);
  void multiplyTile(Value frequency, Value firstGroup, int64_t groups,
                    Value firstBlock);
  void invertBlock(Value block, Value group);
  void storeResult(ComplexRow numbers, Value row, Value group);
  void convolveGroup(Value group);

  bool fuses() const { return plan.algorithm == ConvAlgorithm::Single; }

  /// Spectra of results [blocks, groups, rows, 2 lanes].
  Value resultSpectra;
  /// The greatest value of a row and, for one head, of it and the rows before.
  Value rowValues, greatest;
};
} // namespace

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

void ConvPartitioned::allocateBuffers() {
  allocatePieces();
  Value outputs = b.mul(b.ceilDiv(numBlocks, plan.outputs), plan.outputs);
  if (!fuses())
    resultSpectra = allocateSpectra(outputs);
  greatest = allocate(b.getF64Type(), {numTokens});
  rowValues = allocate(b.getStateType(),
                       {b.extent(value, 0), b.extent(value, 1), numTokens});
}

/// The greatest value of every row, for all heads that share it.
void ConvPartitioned::prepareShared() {
  forAllRows({b.extent(rowValues, 0), b.extent(rowValues, 1)},
             [&](ValueRange task, Value row) {
               Value top = b.splat(0.0);
               for (int64_t column = 0; column < paddedWidth; column += lanes) {
                 Value numbers = b.loadVector(
                     values, {task[0], task[1], row, b.index(column)});
                 top = b.fmax(top, math::AbsFOp::create(b, numbers));
               }
               Value most = vector::ReductionOp::create(
                   b, vector::CombiningKind::MAXIMUMF, top);
               b.storeScalar(most, rowValues, {task[0], task[1], row});
             });
}

/// The 2-norm over the two columns that share a complex transform, the greatest
/// of all pairs.
Value ConvPartitioned::normOfPiece(const Piece &piece, Value column) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(Type(wideType)));
  Value squares = b.loop(
      piece.begin, piece.end, 1, zeros, [&](Value token, ValueRange carried) {
        Value sum = carried[0];
        for (int64_t part : {int64_t(0), lanes}) {
          Value numbers = widen(
              b.loadVector(values, {batch, group, token, b.add(column, part)}));
          sum = b.fma(numbers, numbers, sum);
        }
        return Values{sum};
      })[0];
  Value most =
      vector::ReductionOp::create(b, vector::CombiningKind::MAXIMUMF, squares);
  return math::SqrtOp::create(b, most);
}

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

void ConvPartitioned::findGreatest() {
  b.loop(firstColumn(b.index(0)), numTokens, 1, wide(0.0),
         [&](Value row, ValueRange carried) {
           Value value = widen(b.loadScalar(rowValues, {batch, group, row}));
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

void ConvPartitioned::prepareProduct() {
  cutPieces();
  forAll({b.index(numGroups), numPieces}, [&](ValueRange task) {
    Value column = b.mul(task[0], plan.getColumns());
    Value norm = normOfPiece(loadPiece(task[1]), column);
    memref::StoreOp::create(b, norm, pieceNorms, ValueRange{task[1], task[0]});
    if (!fuses())
      transformPiece(task[1], task[0]);
  });
  forAll({b.div(numWindows, lanes)},
         [&](ValueRange task) { transformWindows(b.mul(task[0], lanes)); });
  forAll({numBlocks}, [&](ValueRange task) { boundNoise(task[0]); });
  findGreatest();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void ConvPartitioned::emitProduct() {
  if (fuses()) {
    forAll({b.index(numGroups)},
           [&](ValueRange task) { convolveGroup(task[0]); });
    return;
  }
  forAllFrequencies([&](Value frequency) { multiplyFrequency(frequency); });
  forAll({b.index(numGroups), numBlocks},
         [&](ValueRange task) { invertBlock(task[1], task[0]); });
}

void ConvPartitioned::multiplyFrequency(Value frequency) {
  int64_t groups = plan.productGroups;
  int64_t whole = numGroups / groups * groups;
  b.loop(b.index(0), numBlocks, plan.outputs, [&](Value firstBlock) {
    b.loop(b.index(0), b.index(whole), groups, [&](Value group) {
      multiplyTile(frequency, group, groups, firstBlock);
    });
    for (int64_t group = whole; group < numGroups; ++group)
      multiplyTile(frequency, b.index(group), 1, firstBlock);
  });
}

/// One frequency of a few blocks of results, over `groups` groups of columns.
void ConvPartitioned::multiplyTile(Value frequency, Value firstGroup,
                                   int64_t groups, Value firstBlock) {
  Value lastBlock =
      b.min(b.add(firstBlock, plan.outputs - 1), b.sub(numBlocks, b.index(1)));
  Values sums(plan.outputs * groups * 2, b.splat(0.0));
  sums = b.loop(
      b.index(0), loadInteger(ends, lastBlock), 1, sums,
      [&](Value index, ValueRange carried) {
        Values next(carried);
        Piece piece = loadPiece(index);
        Value window = b.add(piece.window, b.sub(firstBlock, piece.block));
        FFTKernel::Rows rows;
        for (int64_t g = 0; g < groups; ++g)
          rows.push_back(
              loadRow(pieceSpectra, {index, b.add(firstGroup, g), frequency}));
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
  for (int64_t u = 0; u < plan.outputs; ++u)
    for (int64_t g = 0; g < groups; ++g) {
      Value *sum = &sums[(u * groups + g) * 2];
      storeRow({sum[0], sum[1]}, resultSpectra,
               {b.add(firstBlock, u), b.add(firstGroup, g), frequency});
    }
}

/// Stores a row of an inverse transform, if there is one, normalised.
void ConvPartitioned::storeResult(ComplexRow numbers, Value row, Value group) {
  Value column = b.mul(group, plan.getColumns());
  b.ifThen(b.less(row, numTokens), [&] {
    Value factor = b.broadcast(b.loadScalar(reciprocals, row));
    factor = b.fmul(factor, b.splat(1.0 / length));
    storeOutput(b.fmul(numbers.re, factor), row, column);
    storeOutput(b.fmul(numbers.im, factor), row, b.add(column, lanes));
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
    return loadValues(row, column, begin, numTokens);
  };
  auto sink = [&](Value at, Value, ComplexRow numbers) {
    storeResult(numbers, b.sub(at, b.index(plan.block)), group);
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

void ConvPartitioned::invertBlock(Value block, Value group) {
  Value firstRow = b.mul(block, plan.block);
  invert(resultSpectra, block, group, [&](Value at, ComplexRow numbers) {
    storeResult(numbers, b.add(firstRow, at), group);
  });
}

void fovea::attn::emitConvPartitioned(OpBuilder &builder, ConvApplyOp op,
                                      const ConvPlan &plan) {
  ConvPartitioned(builder, op, plan).emit();
}
