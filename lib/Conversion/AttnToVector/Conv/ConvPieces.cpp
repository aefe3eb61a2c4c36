//===- ConvPieces.cpp - Transforms of values and of weights ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Rows added to a spectrum, so that those of several do not compete for the
/// same lines of a cache.
static constexpr int64_t kSkewRows = 9;
/// Bytes of spectra of windows, the most there may be, beyond which they are
/// stored past the caches.
static constexpr int64_t kMostCached = 1 << 23;
/// Rows that are asked for ahead while spectra of windows are stored.
static constexpr int64_t kRowsAhead = 16;
/// Sums of squares of a window, so that none waits for the one before.
static constexpr int64_t kSquares = 4;
/// Numbers that describe a piece.
static constexpr int64_t kPieceEntries = 4;

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

void ConvKernel::allocatePieces() {
  numBlocks = b.ceilDiv(numTokens, plan.block);
  // Pieces of a segment begin at least a block apart: of those that begin in
  // one block, all but one are the first of their segment. So pieces, and
  // blocks that none begins in, are fewer than blocks and segments together.
  maxPieces = b.add(numBlocks, numBases);
  // Gradients are stored a tile of pieces at a time. Where pieces lie side by
  // side, those of a tile of results begin a vector, and there are no fewer
  // than results.
  Value maxSpectra = b.add(maxPieces, plan.outputs - 1);
  if (plan.abreast > 1)
    maxSpectra = b.mul(b.ceilDiv(b.add(maxSpectra, numBlocks), plan.abreast),
                       plan.abreast);
  // Pairs of windows are of one segment. An odd number of vectors lets
  // frequencies not compete for the same lines of a cache.
  Value pairs = b.mul(numBases, b.ceilDiv(numBlocks, 2));
  Value vectors = b.add(b.mul(b.div(b.ceilDiv(pairs, lanes), 2), 2), 1);
  maxWindows = b.mul(vectors, 2 * lanes);
  Type i64 = b.getI64Type(), f64 = b.getF64Type(), state = b.getStateType();
  pieces = allocate(i64, {b.mul(maxPieces, kPieceEntries)});
  ends = allocate(i64, {b.max(numBlocks, b.index(1))});
  windows = allocate(i64, {maxWindows});
  pieceSpectra = allocateSpectra(maxSpectra, slots);
  windowSpectra = allocate(state, {b.index(length), b.index(2), maxWindows});
  pieceNorms = allocate(f64, {maxPieces, b.index(numGroups)});
  windowNorms = allocate(f64, {maxWindows});
}

Value ConvKernel::allocateSpectra(Value count, int64_t groups) {
  return allocate(b.getStateType(),
                  {b.div(count, plan.abreast), b.index(groups),
                   b.index(length + kSkewRows),
                   b.index(plan.abreast * plan.getColumns())});
}

Value ConvKernel::loadInteger(Value memref, Value index) {
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    loadIndex(memref, index));
}

ConvKernel::Piece ConvKernel::loadPiece(Value index) {
  Value entry = b.mul(index, kPieceEntries);
  return {loadInteger(pieces, entry), loadInteger(pieces, b.add(entry, 1)),
          loadInteger(pieces, b.add(entry, 2)),
          loadInteger(pieces, b.add(entry, 3))};
}

/// Lets the runtime list the pieces and windows of this head.
void ConvKernel::cutPieces() {
  auto integer = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), index);
  };
  auto address = [&](Value memref) {
    return RuntimeCalls::describe(b, memref)[0];
  };
  SmallVector<Value> where =
      RuntimeCalls::describe(b, b.rowView(sizes, {batch, head}));
  Value zeros = b.mul(numBases, weightRow);
  SmallVector<Value> arguments = {where[0],
                                  where[2],
                                  integer(numBases),
                                  integer(numTokens),
                                  integer(b.index(plan.block)),
                                  integer(b.index(plan.piece)),
                                  integer(b.index(plan.front)),
                                  integer(weightRow),
                                  integer(zeros),
                                  integer(b.index(2 * lanes)),
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

ComplexRow ConvKernel::loadRow(Value memref, ArrayRef<Value> indices) {
  Values at(indices);
  at.push_back(b.index(0));
  Value re = b.loadVector(memref, at);
  at.back() = b.index(b.getLanes());
  return {re, b.loadVector(memref, at)};
}

void ConvKernel::prefetchRow(Value memref, ArrayRef<Value> indices, Value first,
                             unsigned locality) {
  Values at(indices);
  int64_t line = 64 / (b.getStateType().getWidth() / 8);
  for (int64_t column = 0; column < plan.getColumns(); column += line) {
    at.push_back(b.add(first, column));
    b.prefetch(memref, at, locality);
    at.pop_back();
  }
}

void ConvKernel::storeRow(ComplexRow row, Value memref,
                          ArrayRef<Value> indices) {
  Values at(indices);
  at.push_back(b.index(0));
  b.storeVector(row.re, memref, at);
  at.back() = b.index(b.getLanes());
  b.storeVector(row.im, memref, at);
}

Value ConvKernel::loadToken(Value memref, ArrayRef<Value> leading, Value token,
                            Value column, Value end) {
  Value mask = vector::BroadcastOp::create(
      b, VectorType::get({b.getLanes()}, b.getI1Type()), b.less(token, end));
  // CPUs take hundreds of cycles for a load whose mask is false and whose page
  // there is not, so the address is that of a token of the piece.
  Value inside = b.min(token, b.sub(end, b.index(1)));
  Values at(leading);
  at.append({inside, column});
  return loadMasked(memref, at, mask, 0.0);
}

ComplexRow ConvKernel::loadTokens(Value memref, ArrayRef<Value> leading,
                                  Value token, Value column, Value end) {
  return {loadToken(memref, leading, token, column, end),
          loadToken(memref, leading, token, b.add(column, b.getLanes()), end)};
}

void ConvKernel::transformTo(Value spectra, Value index, Value columns,
                             FFTKernel::LoadRow source) {
  auto load = [&](Value row) {
    return loadRow(spectra, {index, columns, row});
  };
  auto store = [&](Value row, ComplexRow numbers) {
    storeRow(numbers, spectra, {index, columns, row});
  };
  FFTKernel::Steps steps = {load, store};
  steps.source = source;
  steps.isHalfZero = plan.piece <= plan.block;
  auto visit = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows))
      store(b.add(position, k), row);
  };
  makeTransform().emit(FFTKernel::kForward, steps, visit);
}

void ConvKernel::transformPiece(Value index, Value slot, Value column,
                                function_ref<ComplexRow(ComplexRow)> visit) {
  Piece piece = loadPiece(index);
  transformTo(pieceSpectra, index, slot, [&](Value row) {
    ComplexRow numbers = loadValues(b.add(piece.begin, row), column, piece.end);
    return visit ? visit(numbers) : numbers;
  });
}

void ConvKernel::invert(Value spectra, Value index, Value columns,
                        function_ref<void(Value, ComplexRow)> sink) {
  auto load = [&](Value row) {
    return loadRow(spectra, {index, columns, row});
  };
  auto store = [&](Value row, ComplexRow numbers) {
    storeRow(numbers, spectra, {index, columns, row});
  };
  auto sinkHalf = [&](Value at, ComplexRow numbers) {
    Value row = b.sub(at, b.index(plan.piece));
    if (plan.piece <= plan.block)
      return sink(row, numbers);
    b.ifThen(b.less(b.index(-1), row), [&] { sink(row, numbers); });
  };
  FFTKernel::Steps steps = {load, store};
  steps.sink = sinkHalf;
  steps.wantsSecondHalf = true;
  auto visit = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows))
      row = load(b.add(position, k));
  };
  makeTransform().emit(FFTKernel::kInverse, steps, visit);
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

void ConvKernel::transformWindows() {
  forAll({b.div(numWindows, 2 * lanes)},
         [&](ValueRange task) { transformWindows(b.mul(task[0], 2 * lanes)); });
}

/// Transforms pairs of windows from `first` on, as many as a vector has lanes:
/// weights are real, and every other window is an imaginary part. They are
/// turned to lanes as the first stage needs them, while the caches hold them.
void ConvKernel::transformWindows(Value first) {
  Value work = b.scratch({length, 2 * lanes}, b.getStateType());
  Value squares = b.scratch({kSquares, lanes}, b.getStateType());
  double least = std::ldexp(1.0, getSquareRange().least);
  for (int64_t k = 0; k < kSquares; ++k)
    b.storeVector(b.splat(least), squares, {b.index(k), b.index(0)});
  Values starts;
  for (int64_t lane = 0; lane < lanes; ++lane)
    starts.push_back(loadInteger(windows, b.add(first, 2 * lane)));
  FFTKernel transform = makeTransform();
  auto load = [&](Value row) { return loadRow(work, {row}); };
  auto store = [&](Value row, ComplexRow numbers) {
    storeRow(numbers, work, {row});
  };
  FFTKernel::Steps steps = {load, store};
  int64_t radix = plan.radices.front(), step = length / radix;
  auto prepare = [&](Value row) {
    packWindows(starts, work, squares, row, step, radix);
  };
  if (step % lanes == 0 && !transform.isLong()) {
    steps.prepare = prepare;
    steps.prepared = lanes;
  } else {
    b.loop(b.index(0), b.index(length), lanes, [&](Value row) {
      packWindows(starts, work, squares, row, /*step=*/0, /*count=*/1);
    });
  }
  auto visit = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows))
      store(b.add(position, k), row);
  };
  transform.emit(FFTKernel::kForward, steps, visit);
  storeWindowNorms(squares, first);
  int64_t stateBytes = b.getStateType().getWidth() / 8;
  std::optional<int64_t> most = getConstantIntValue(maxWindows);
  bool isStreamed = most && *most * length * stateBytes > kMostCached;
  transform.forEachMirrored([&](Value at, Value mirror) {
    auto [one, other] = separate(loadRow(work, {at}), loadRow(work, {mirror}));
    auto store = [&](Value one, Value other, int64_t part) {
      Value half = b.splat(0.5);
      Value both = vector::InterleaveOp::create(b, b.fmul(one, half),
                                                b.fmul(other, half));
      vector::StoreOp::create(b, both, windowSpectra,
                              ValueRange{at, b.index(part), first}, isStreamed,
                              llvm::MaybeAlign(lanes * stateBytes));
    };
    store(one.re, other.re, 0);
    store(one.im, other.im, 1);
    // Rows of spectra are too far apart for the hardware to see what comes
    // next.
    if (!isStreamed)
      for (int64_t part : {0, 1})
        for (int64_t k = 0; k < 2 * lanes; k += 64 / stateBytes)
          b.prefetch(windowSpectra,
                     {b.add(at, kRowsAhead), b.index(part), b.add(first, k)},
                     /*locality=*/3, /*isWrite=*/true);
  });
}

/// Squares of weights are summed times 2^`scale`, beginning with 2^`least`:
/// those that underflow are less than that.
ConvKernel::SquareRange ConvKernel::getSquareRange() {
  static_assert(kLogMostWeight <= 10, "sums of 2^20 squares would overflow");
  bool isDouble = b.getStateType().isF64();
  return isDouble ? SquareRange{800, -900} : SquareRange{80, -110};
}

/// Turns rows of pairs of windows, which lie along the lags, to lanes: a vector
/// of rows from each of `count` on, `step` apart from `row` on. The second
/// window of a pair begins a block later than the first at `starts`, so where
/// the rows are those of both halves of a window, what the two have in common
/// is turned once.
void ConvKernel::packWindows(ValueRange starts, Value work, Value squares,
                             Value row, int64_t step, int64_t count) {
  Values sums;
  for (int64_t k = 0; k < kSquares; ++k)
    sums.push_back(b.loadVector(squares, {b.index(k), b.index(0)}));
  Value scale = b.splat(std::ldexp(1.0, getSquareRange().scale));
  // Weights from `offset` on are rows of the parts of a window.
  auto turn = [&](Value offset, ArrayRef<int64_t> parts, Values sums) {
    Value from = b.add(row, offset);
    Values rows;
    for (Value start : starts) {
      Value at = b.add(start, from);
      rows.push_back(b.loadVector(weights, at));
      // These are more places than the hardware keeps track of.
      b.prefetch(weights, b.add(at, lanes), /*locality=*/2);
    }
    for (auto [t, numbers] : llvm::enumerate(b.transpose(rows))) {
      Value square = b.fmul(numbers, scale);
      for (int64_t part : parts) {
        Value at = b.add(b.sub(from, b.index(part * plan.block)), t);
        b.storeVector(numbers, work, {at, b.index(part * lanes)});
        Value &sum = sums[(2 * t + part) % kSquares];
        sum = b.fma(square, numbers, sum);
      }
    }
    return sums;
  };
  auto turnAll = [&](int64_t first, int64_t end, ArrayRef<int64_t> parts) {
    sums = b.loop(b.index(first), b.index(end), 1, sums,
                  [&](Value t, ValueRange carried) {
                    return turn(b.mul(t, step), parts, carried);
                  });
  };
  int64_t half = count / 2;
  if (half * step == plan.block && 2 * plan.block == length) {
    turnAll(0, half, {0});
    turnAll(half, count, {0, 1});
    turnAll(count, count + half, {1});
  } else {
    turnAll(0, count, {0});
    row = b.add(row, plan.block);
    turnAll(0, count, {1});
  }
  for (auto [k, sum] : llvm::enumerate(sums))
    b.storeVector(sum, squares, {b.index(k), b.index(0)});
}

/// The norm of a pair is that of both, since errors of one are errors of the
/// other.
void ConvKernel::storeWindowNorms(Value squares, Value first) {
  Value sum = splatWide(0.0);
  for (int64_t k = 0; k < kSquares; ++k)
    sum = b.fadd(sum, widen(b.loadVector(squares, {b.index(k), b.index(0)})));
  Value norms = b.fmul(math::SqrtOp::create(b, sum),
                       splatWide(std::ldexp(1.0, -getSquareRange().scale / 2)));
  vector::StoreOp::create(b, vector::InterleaveOp::create(b, norms, norms),
                          windowNorms, first);
}

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

/// Sums, over the pieces that a block of rows reads, the norms of the two
/// factors.
Value ConvKernel::boundNoise(Value block, Value end, Value partner) {
  auto normOf = [&](const Piece &piece, Value block) -> Value {
    // The partner may be the first block that the piece is multiplied for.
    Value distance = b.max(b.sub(block, piece.block), 0);
    return memref::LoadOp::create(b, windowNorms,
                                  b.add(piece.window, distance));
  };
  Value sum = b.loop(
      b.index(0), end, 1, wide(0.0), [&](Value index, ValueRange carried) {
        Piece piece = loadPiece(index);
        Value norm = wide(0.0);
        for (int64_t group = 0; group < numGroups; ++group)
          norm = arith::MaximumFOp::create(
              b, norm,
              memref::LoadOp::create(b, pieceNorms,
                                     ValueRange{index, b.index(group)}));
        Value weight = normOf(piece, block);
        if (partner) {
          Value other = normOf(piece, partner);
          Value squares = b.fadd(b.fmul(weight, weight), b.fmul(other, other));
          weight = math::SqrtOp::create(b, squares);
        }
        return Values{b.fadd(carried[0], b.fmul(norm, weight))};
      })[0];
  // c u log2(L) for an error of 2^9 u, with c = 1/2: whatever the type.
  Value factor = wide(std::ldexp(llvm::Log2_64(length), -10));
  return b.fmul(sum, factor);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void ConvKernel::forAllFrequencies(function_ref<void(Value)> body) {
  // Tasks begin with the last; so do their frequencies, in one direction.
  forAll({b.index(length / kFrequencies)}, [&](ValueRange task) {
    Value last = b.add(b.mul(task[0], kFrequencies), kFrequencies - 1);
    b.loop(b.index(0), b.index(kFrequencies), 1,
           [&](Value done) { body(b.sub(last, done)); });
  });
}

/// Asks for all windows at a frequency, of which a product reads a few of every
/// segment.
void ConvKernel::prefetchWindows(Value frequency) {
  int64_t line = 64 / (b.getStateType().getWidth() / 8);
  b.loop(b.index(0), numWindows, line, [&](Value window) {
    for (int64_t part : {0, 1})
      b.prefetch(windowSpectra, {frequency, b.index(part), window},
                 /*locality=*/2);
  });
}

void ConvKernel::forAllPairs(function_ref<void(Value, Value)> body) {
  forAllFrequencies([&](Value frequency) {
    Value mirror = makeTransform().mirror(frequency);
    b.ifThen(b.less(frequency, b.add(mirror, 1)), [&] {
      prefetchWindows(b.sub(frequency, b.index(1)));
      body(frequency, mirror);
    });
  });
}

void ConvKernel::forBoth(Value frequency, Value mirror,
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

ConvKernel::Frequency ConvKernel::locate(Value at, Value next) {
  unsigned width = b.getStateType().getWidth();
  auto integer = [&](const APInt &bits) -> Value {
    return arith::ConstantOp::create(
        b, b.getIntegerAttr(b.getIntegerType(width), bits));
  };
  Value mirror = makeTransform().mirror(at);
  Value sign = b.select(b.less(mirror, at), integer(APInt::getSignMask(width)),
                        integer(APInt::getZero(width)));
  Value signs = vector::BroadcastOp::create(
      b, VectorType::get({lanes}, sign.getType()), sign);
  return {at, next, b.min(at, mirror), signs};
}

ComplexRow ConvKernel::conjugate(ComplexRow row, const Frequency &frequency) {
  if (!frequency.signs)
    return row;
  Value bits = arith::BitcastOp::create(b, frequency.signs.getType(), row.im);
  bits = arith::XOrIOp::create(b, bits, frequency.signs);
  return {row.re, arith::BitcastOp::create(b, row.im.getType(), bits)};
}

ComplexRow ConvKernel::loadWeight(Value frequency, Value window) {
  auto load = [&](int64_t part) {
    return b.broadcast(
        b.loadScalar(windowSpectra, {frequency, b.index(part), window}));
  };
  Value re = load(0);
  return {re, load(1)};
}

std::pair<ComplexRow, ComplexRow> ConvKernel::separate(ComplexRow z,
                                                       ComplexRow mirror) {
  return {{b.fadd(z.re, mirror.re), b.fsub(z.im, mirror.im)},
          {b.fadd(z.im, mirror.im), b.fsub(mirror.re, z.re)}};
}

void ConvKernel::addProduct(ComplexRow row, ComplexRow factor, Value *sums) {
  sums[0] = b.fma(row.re, factor.re, sums[0]);
  sums[1] = b.fma(row.im, factor.re, sums[1]);
  Value minusIm = arith::NegFOp::create(b, factor.im);
  sums[0] = b.fma(row.im, minusIm, sums[0]);
  sums[1] = b.fma(row.re, factor.im, sums[1]);
}
