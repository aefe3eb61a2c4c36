//===- ConvPartitioned.cpp - Weights times values by transforms -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values are cut in pieces: blocks of tokens, cut again where a segment ends.
// The weights between two blocks at a distance are a window of a profile.
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
#include "FFT/FFTKernel.h"
#include "RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Windows of zeros that the runtime puts before and after those of a segment:
/// a tile of products reads them for blocks that the piece does not reach.
static constexpr int64_t kPadding = 3;
/// Frequencies of a task.
static constexpr int64_t kFrequencies = 8;
/// Rows added to a spectrum, so that those of several do not compete for the
/// same lines of a cache.
static constexpr int64_t kSkewRows = 8;
/// Numbers that describe a piece.
static constexpr int64_t kPieceEntries = 4;

namespace {
class ConvPartitioned : public ConvKernel {
public:
  ConvPartitioned(OpBuilder &builder, ConvApplyOp op, const ConvPlan &plan)
      : ConvKernel(builder, op, plan), length(2 * plan.block),
        numGroups(paddedWidth / plan.getColumns()) {}

private:
  /// What describes a piece.
  struct Piece {
    Value block, begin, end, window;
  };

  void allocateBuffers() override;
  void prepareShared() override;
  void prepareProduct() override;
  void emitProduct() override;
  Value isQuiet(Value row, Value normaliser) override;

  void cutPieces();
  Piece loadPiece(Value index);
  Value loadInteger(Value memref, Value index);
  void transformPiece(Value index, Value group);
  ComplexRow loadValues(Value token, Value column, Value begin, Value end);
  Value normOfPiece(const Piece &piece, Value column);
  void transformWindows(Value first);
  void packWindows(Value first, Value work);
  void boundNoise(Value block);
  void findGreatest();
  void multiplyFrequency(Value frequency);
  void multiplyTile(Value frequency, Value firstGroup, int64_t groups,
                    Value firstBlock);
  void invertBlock(Value block, Value group);
  void storeResult(ComplexRow numbers, Value row, Value group);
  void convolveGroup(Value group);

  bool fuses() const { return plan.algorithm == ConvAlgorithm::Single; }
  FFTKernel makeTransform() { return FFTKernel(b, plan.radices, twiddles); }
  /// Access to rows of `[.., rows, 2 lanes]`.
  ComplexRow loadRow(Value memref, ArrayRef<Value> indices);
  void storeRow(ComplexRow row, Value memref, ArrayRef<Value> indices);

  int64_t length, numGroups;
  Value twiddles, numBlocks, maxWindows;
  /// Of runtime calls: what they write.
  Value pieces, ends, windows, numPieces, numWindows;
  /// Spectra of pieces [pieces, groups, rows, 2 lanes], of windows [rows, re or
  /// im, windows], and of results [blocks, groups, rows, 2 lanes].
  Value pieceSpectra, windowSpectra, resultSpectra;
  /// Norms in f64, what a block's noise may be, the greatest value of a row
  /// and, for one head, of it and the rows before.
  Value pieceNorms, windowNorms, noise, rowValues, greatest;
};
} // namespace

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

void ConvPartitioned::allocateBuffers() {
  twiddles = emitTwiddles(b, op, plan.radices);
  numBlocks = b.ceilDiv(numTokens, plan.block);
  Value maxPieces = b.add(numBlocks, numBases);
  Value padded =
      b.add(b.mul(numBases, b.add(numBlocks, kPadding)), kPadding + lanes);
  maxWindows = b.mul(b.ceilDiv(padded, lanes), lanes);
  Type i64 = b.getI64Type(), f64 = b.getF64Type(), state = b.getStateType();
  pieces = allocate(i64, {b.mul(maxPieces, kPieceEntries)});
  ends = allocate(i64, {b.max(numBlocks, b.index(1))});
  windows = allocate(i64, {maxWindows});
  Value groups = b.index(numGroups), rows = b.index(length + kSkewRows),
        row = b.index(plan.getColumns());
  pieceSpectra = allocate(state, {maxPieces, groups, rows, row});
  windowSpectra = allocate(state, {b.index(length), b.index(2), maxWindows});
  Value outputs = b.mul(b.ceilDiv(numBlocks, plan.outputs), plan.outputs);
  if (!fuses())
    resultSpectra = allocate(state, {outputs, groups, rows, row});
  pieceNorms = allocate(f64, {maxPieces, groups});
  windowNorms = allocate(f64, {maxWindows});
  noise = allocate(f64, {numBlocks});
  greatest = allocate(f64, {numTokens});
  rowValues = allocate(state, {b.extent(op.getValue(), 0),
                               b.extent(op.getValue(), 1), numTokens});
}

/// The greatest value of every row, for all heads that share it.
void ConvPartitioned::prepareShared() {
  constexpr int64_t kTaskRows = 64;
  forAll({b.extent(rowValues, 0), b.extent(rowValues, 1),
          b.ceilDiv(numTokens, kTaskRows)},
         [&](ValueRange task) {
           Value first = b.mul(task[2], kTaskRows);
           Value end = b.min(b.add(first, kTaskRows), numTokens);
           b.loop(first, end, 1, [&](Value row) {
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
         });
}

Value ConvPartitioned::loadInteger(Value memref, Value index) {
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    loadIndex(memref, index));
}

ConvPartitioned::Piece ConvPartitioned::loadPiece(Value index) {
  Value entry = b.mul(index, kPieceEntries);
  return {loadInteger(pieces, entry), loadInteger(pieces, b.add(entry, 1)),
          loadInteger(pieces, b.add(entry, 2)),
          loadInteger(pieces, b.add(entry, 3))};
}

/// Lets the runtime list the pieces and windows of this head.
void ConvPartitioned::cutPieces() {
  auto integer = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), index);
  };
  auto address = [&](Value memref) {
    return RuntimeCalls::describe(b, memref)[0];
  };
  Value sizes = b.rowView(op.getSizes(), {batch, head});
  SmallVector<Value> where = RuntimeCalls::describe(b, sizes);
  Value zeros = b.mul(numBases, weightRow);
  SmallVector<Value> arguments = {where[0],
                                  where[2],
                                  integer(numBases),
                                  integer(numTokens),
                                  integer(b.index(plan.block)),
                                  integer(b.index(plan.front)),
                                  integer(weightRow),
                                  integer(zeros),
                                  integer(b.index(lanes)),
                                  address(pieces),
                                  address(ends),
                                  address(windows)};
  numWindows =
      RuntimeCalls::emitCall(b, op->getParentOfType<ModuleOp>(),
                             "fovea_rt_conv_pieces", b.getI64Type(), arguments);
  numWindows = arith::IndexCastOp::create(b, b.getIndexType(), numWindows);
  // Without tokens there is no block, and what is read here is not used.
  Value last = b.max(b.sub(numBlocks, b.index(1)), b.index(0));
  numPieces = b.select(b.less(b.index(0), numBlocks), loadInteger(ends, last),
                       b.index(0));
}

ComplexRow ConvPartitioned::loadRow(Value memref, ArrayRef<Value> indices) {
  Values at(indices);
  at.push_back(b.index(0));
  Value re = b.loadVector(memref, at);
  at.back() = b.index(lanes);
  return {re, b.loadVector(memref, at)};
}

void ConvPartitioned::storeRow(ComplexRow row, Value memref,
                               ArrayRef<Value> indices) {
  Values at(indices);
  at.push_back(b.index(0));
  b.storeVector(row.re, memref, at);
  at.back() = b.index(lanes);
  b.storeVector(row.im, memref, at);
}

/// A row of values; zeros unless it is one of `[begin, end)`.
ComplexRow ConvPartitioned::loadValues(Value token, Value column, Value begin,
                                       Value end) {
  Value isIn =
      b.both(b.less(b.sub(begin, b.index(1)), token), b.less(token, end));
  Value mask = vector::BroadcastOp::create(
      b, VectorType::get({lanes}, b.getI1Type()), isIn);
  Values at = {batch, group, token, column};
  Value re = loadMasked(values, at, mask, 0.0);
  at.back() = b.add(column, lanes);
  return {re, loadMasked(values, at, mask, 0.0)};
}

void ConvPartitioned::transformPiece(Value index, Value group) {
  Piece piece = loadPiece(index);
  Value firstRow = b.mul(piece.block, plan.block);
  Value column = b.mul(group, plan.getColumns());
  auto source = [&](Value row, Value) {
    return loadValues(b.add(firstRow, row), column, piece.begin, piece.end);
  };
  auto load = [&](Value row, Value) {
    return loadRow(pieceSpectra, {index, group, row});
  };
  auto store = [&](Value row, Value, ComplexRow numbers) {
    storeRow(numbers, pieceSpectra, {index, group, row});
  };
  FFTKernel::Steps steps = {load, store, /*isDense=*/true};
  steps.source = source;
  steps.isHalfZero = true;
  auto visit = [&](Value position, Value none, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows))
      store(b.add(position, k), none, row);
  };
  makeTransform().emit(FFTKernel::kForward, steps, visit);
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
// Windows
//===----------------------------------------------------------------------===//

/// Transforms as many windows as a vector has lanes, from `first` on.
void ConvPartitioned::transformWindows(Value first) {
  Value work = b.scratch({length, plan.getColumns()}, b.getStateType());
  packWindows(first, work);
  auto load = [&](Value row, Value) { return loadRow(work, {row}); };
  auto store = [&](Value row, Value, ComplexRow numbers) {
    storeRow(numbers, work, {row});
  };
  auto source = [&](Value row, Value) {
    return ComplexRow{b.loadVector(work, {row, b.index(0)}), b.splat(0.0)};
  };
  FFTKernel::Steps steps = {load, store, /*isDense=*/true};
  steps.source = source;
  auto visit = [&](Value position, Value, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows)) {
      Value frequency = b.add(position, k);
      b.storeVector(row.re, windowSpectra, {frequency, b.index(0), first});
      b.storeVector(row.im, windowSpectra, {frequency, b.index(1), first});
    }
  };
  makeTransform().emit(FFTKernel::kForward, steps, visit);
}

/// Turns windows, which lie along the lags, to lanes.
void ConvPartitioned::packWindows(Value first, Value work) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(Type(wideType)));
  Values starts;
  for (int64_t lane = 0; lane < lanes; ++lane)
    starts.push_back(loadInteger(windows, b.add(first, lane)));
  Value squares =
      b.loop(b.index(0), b.index(length), lanes, zeros,
             [&](Value at, ValueRange carried) {
               Values rows;
               for (Value start : starts)
                 rows.push_back(b.loadVector(weights, b.add(start, at)));
               Value sum = carried[0];
               for (auto [t, row] : llvm::enumerate(b.transpose(rows))) {
                 b.storeVector(row, work, {b.add(at, t), b.index(0)});
                 Value wideRow = widen(row);
                 sum = b.fma(wideRow, wideRow, sum);
               }
               return Values{sum};
             })[0];
  vector::StoreOp::create(b, math::SqrtOp::create(b, squares), windowNorms,
                          first);
}

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

/// Sums, over the pieces that a block of rows reads, the norms of the two
/// factors.
void ConvPartitioned::boundNoise(Value block) {
  // A tile of products multiplies pieces that only its last blocks read by
  // zeros: no noise, unless one of them is not finite.
  Value last = b.min(b.add(b.roundDown(block, plan.outputs), plan.outputs - 1),
                     b.sub(numBlocks, b.index(1)));
  Value sum =
      b.loop(b.index(0), loadInteger(ends, last), 1, wide(0.0),
             [&](Value index, ValueRange carried) {
               Piece piece = loadPiece(index);
               Value norm = wide(0.0);
               for (int64_t group = 0; group < numGroups; ++group)
                 norm = arith::MaximumFOp::create(
                     b, norm,
                     memref::LoadOp::create(b, pieceNorms,
                                            ValueRange{index, b.index(group)}));
               Value window = b.add(piece.window, b.sub(block, piece.block));
               Value weight = memref::LoadOp::create(b, windowNorms, window);
               return Values{b.fadd(carried[0], b.fmul(norm, weight))};
             })[0];
  // c u log2(L) for an error of 2^9 u, with c = 1/2: whatever the type.
  Value factor = wide(std::ldexp(llvm::Log2_64(length), -10));
  memref::StoreOp::create(b, b.fmul(sum, factor), noise, block);
}

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
  forAll({b.index(length / kFrequencies)}, [&](ValueRange task) {
    Value first = b.mul(task[0], kFrequencies);
    b.loop(first, b.add(first, kFrequencies), 1,
           [&](Value frequency) { multiplyFrequency(frequency); });
  });
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
          for (int64_t g = 0; g < groups; ++g) {
            Value *sum = &next[(u * groups + g) * 2];
            sum[0] = b.fma(rows[g].re, re, sum[0]);
            sum[1] = b.fma(rows[g].im, re, sum[1]);
            sum[0] = b.fma(rows[g].im, minusIm, sum[0]);
            sum[1] = b.fma(rows[g].re, im, sum[1]);
          }
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
  auto load = [&](Value row, Value) {
    return loadRow(resultSpectra, {block, group, row});
  };
  auto store = [&](Value row, Value, ComplexRow numbers) {
    storeRow(numbers, resultSpectra, {block, group, row});
  };
  Value firstRow = b.mul(b.sub(block, b.index(1)), plan.block);
  auto sink = [&](Value at, Value, ComplexRow numbers) {
    storeResult(numbers, b.add(firstRow, at), group);
  };
  FFTKernel::Steps steps = {load, store, /*isDense=*/true};
  steps.sink = sink;
  steps.wanted = FFTKernel::Half::Second;
  auto visit = [&](Value position, Value none, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows))
      row = load(b.add(position, k), none);
  };
  makeTransform().emit(FFTKernel::kInverse, steps, visit);
}

void fovea::attn::emitConvPartitioned(OpBuilder &builder, ConvApplyOp op,
                                      const ConvPlan &plan) {
  ConvPartitioned(builder, op, plan).emit();
}
