//===- ConvWindows.cpp - Spectra of windows of weights --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvTransforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Bytes of spectra of windows, the most there may be, beyond which they are
/// stored past the caches.
static constexpr int64_t kMostCached = 1 << 23;
/// Rows that are asked for ahead while spectra of windows are stored.
static constexpr int64_t kRowsAhead = 16;
/// Sums of squares of a window, so that none waits for the one before.
static constexpr int64_t kSquares = 4;

namespace {
/// Squares of weights are summed times 2^`scale`, beginning with 2^`least`:
/// those that underflow are less than that.
struct SquareRange {
  int scale, least;
};
} // namespace

static SquareRange getSquareRange(ConvBuilder &b) {
  static_assert(ConvProfiles::kLogMostWeight <= 10,
                "sums of 2^20 squares would overflow");
  bool isDouble = b.getStateType().isF64();
  return isDouble ? SquareRange{800, -900} : SquareRange{80, -110};
}

WindowSpectra::WindowSpectra(ConvTables &tables, ConvTransform &transform,
                             ConvPieces &pieces)
    : t(tables), b(t.b), transform(transform), pieces(pieces) {
  spectra = b.allocate(b.getStateType(), {b.index(transform.length), b.index(2),
                                          pieces.maxWindows});
  norms = b.allocate(b.getF64Type(), {pieces.maxWindows});
}

void WindowSpectra::transformAll() {
  int64_t count = 2 * b.getLanes();
  b.forAll({b.div(pieces.numWindows, count)},
           [&](ValueRange task) { transformPairs(b.mul(task[0], count)); });
}

/// Transforms pairs of windows from `first` on, as many as a vector has lanes:
/// weights are real, and every other window is an imaginary part. They are
/// turned to lanes as the first stage needs them, while the caches hold them.
void WindowSpectra::transformPairs(Value first) {
  int64_t lanes = b.getLanes(), length = transform.length;
  Value work = b.scratch({length, 2 * lanes}, b.getStateType());
  Value squares = b.scratch({kSquares, lanes}, b.getStateType());
  double least = std::ldexp(1.0, getSquareRange(b).least);
  for (int64_t k = 0; k < kSquares; ++k)
    b.storeVector(b.splat(least), squares, {b.index(k), b.index(0)});
  Values starts;
  for (int64_t lane = 0; lane < lanes; ++lane)
    starts.push_back(pieces.window(b.add(first, 2 * lane)));
  FFTKernel::Steps steps;
  int64_t radix = b.plan.radices.front(), step = length / radix;
  auto prepare = [&](Value row) {
    packWindows(starts, work, squares, row, step, radix);
  };
  if (step % lanes == 0 && !transform.make().isLong()) {
    steps.prepare = prepare;
    steps.prepared = lanes;
  } else {
    b.loop(b.index(0), b.index(length), lanes, [&](Value row) {
      packWindows(starts, work, squares, row, /*step=*/0, /*count=*/1);
    });
  }
  transform.emit(FFTKernel::kForward, work, /*at=*/{}, steps);
  storeNorms(squares, first);
  storeSpectra(work, first);
}

/// Turns rows of pairs of windows, which lie along the lags, to lanes: a vector
/// of rows from each of `count` on, `step` apart from `row` on. The second
/// window of a pair begins a block later than the first at `starts`, so where
/// the rows are those of both halves of a window, what the two have in common
/// is turned once.
void WindowSpectra::packWindows(ValueRange starts, Value work, Value squares,
                                Value row, int64_t step, int64_t count) {
  Values sums;
  for (int64_t k = 0; k < kSquares; ++k)
    sums.push_back(b.loadVector(squares, {b.index(k), b.index(0)}));
  Value scale = b.splat(std::ldexp(1.0, getSquareRange(b).scale));
  // Weights from `offset` on are rows of the parts of a window.
  auto turn = [&](Value offset, ArrayRef<int64_t> parts, Values sums) {
    Value from = b.add(row, offset);
    Values rows;
    for (Value start : starts) {
      Value at = b.add(start, from);
      rows.push_back(b.loadVector(t.profiles.weights, at));
      // These are more places than the hardware keeps track of.
      b.prefetch(t.profiles.weights, b.add(at, b.getLanes()), /*locality=*/2);
    }
    for (auto [t, numbers] : llvm::enumerate(b.transpose(rows))) {
      Value square = b.fmul(numbers, scale);
      for (int64_t part : parts) {
        Value at = b.add(b.sub(from, b.index(part * b.plan.block)), t);
        b.storeVector(numbers, work, {at, b.index(part * b.getLanes())});
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
  if (half * step == b.plan.block && 2 * b.plan.block == transform.length) {
    turnAll(0, half, {0});
    turnAll(half, count, {0, 1});
    turnAll(count, count + half, {1});
  } else {
    turnAll(0, count, {0});
    row = b.add(row, b.plan.block);
    turnAll(0, count, {1});
  }
  for (auto [k, sum] : llvm::enumerate(sums))
    b.storeVector(sum, squares, {b.index(k), b.index(0)});
}

/// The norm of a pair is that of both, since errors of one are errors of the
/// other.
void WindowSpectra::storeNorms(Value squares, Value first) {
  Value sum = b.splatWide(0.0);
  for (int64_t k = 0; k < kSquares; ++k)
    sum = b.fadd(sum, b.widen(b.loadVector(squares, {b.index(k), b.index(0)})));
  double factor = std::ldexp(1.0, -getSquareRange(b).scale / 2);
  Value norms = b.fmul(math::SqrtOp::create(b, sum), b.splatWide(factor));
  vector::StoreOp::create(b, vector::InterleaveOp::create(b, norms, norms),
                          this->norms, first);
}

/// Tells real and imaginary parts apart.
void WindowSpectra::storeSpectra(Value work, Value first) {
  int64_t lanes = b.getLanes();
  int64_t stateBytes = b.getStateType().getWidth() / 8;
  std::optional<int64_t> most = getConstantIntValue(pieces.maxWindows);
  bool isStreamed = most && *most * transform.length * stateBytes > kMostCached;
  auto store = [&](Value one, Value other, Value at, int64_t part) {
    Value half = b.splat(0.5);
    Value both =
        vector::InterleaveOp::create(b, b.fmul(one, half), b.fmul(other, half));
    vector::StoreOp::create(b, both, spectra,
                            ValueRange{at, b.index(part), first}, isStreamed,
                            llvm::MaybeAlign(lanes * stateBytes));
  };
  transform.make().forEachMirrored([&](Value at, Value mirror) {
    auto [one, other] = transform.separate(transform.loadRow(work, {at}),
                                           transform.loadRow(work, {mirror}));
    store(one.re, other.re, at, 0);
    store(one.im, other.im, at, 1);
    // Rows of spectra are too far apart for the hardware to see what comes
    // next.
    if (!isStreamed)
      for (int64_t part : {0, 1})
        for (int64_t k = 0; k < 2 * lanes; k += 64 / stateBytes)
          b.prefetch(spectra,
                     {b.add(at, kRowsAhead), b.index(part), b.add(first, k)},
                     /*locality=*/3, /*isWrite=*/true);
  });
}

ComplexRow WindowSpectra::load(Value frequency, Value window) {
  auto loadPart = [&](int64_t part) {
    return b.broadcast(
        b.loadScalar(spectra, {frequency, b.index(part), window}));
  };
  Value re = loadPart(0);
  return {re, loadPart(1)};
}

Value WindowSpectra::loadNorm(Value window) {
  return memref::LoadOp::create(b, norms, window);
}

/// Asks for all windows at a frequency, of which a product reads a few of every
/// segment.
void WindowSpectra::prefetch(Value frequency) {
  int64_t line = 64 / (b.getStateType().getWidth() / 8);
  b.loop(b.index(0), pieces.numWindows, line, [&](Value window) {
    for (int64_t part : {0, 1})
      b.prefetch(spectra, {frequency, b.index(part), window},
                 /*locality=*/2);
  });
}

void WindowSpectra::forAllPairs(function_ref<void(Value, Value)> body) {
  transform.forAllFrequencies([&](Value frequency) {
    Value mirror = transform.make().mirror(frequency);
    b.ifThen(b.less(frequency, b.add(mirror, 1)), [&] {
      prefetch(b.sub(frequency, b.index(1)));
      body(frequency, mirror);
    });
  });
}
