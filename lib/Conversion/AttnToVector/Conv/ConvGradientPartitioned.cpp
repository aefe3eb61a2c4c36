//===- ConvGradientPartitioned.cpp - Gradients by transforms --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both sums are correlations, products with a conjugate. With V the transform
// of a piece of values, G that of a block of g, W that of the window of weights
// between the two, for every frequency:
//
//   lags of a window   sum over the pieces of its segment, columns: conj(V) G
//   gradient of V      sum over the blocks from its own on: conj(W) G
//
// Columns are real and imaginary parts of one number. Of conj(V) G, summed over
// the columns, the inverse transform has what both parts add up to as its real
// part; what is left in the imaginary part is dropped. That real part is the
// inverse of the sum at a frequency and the conjugate one at its negative,
// which are added before their lanes are: twice the lags of a window, or, with
// those of another as imaginary part, of two.
//
//===----------------------------------------------------------------------===//

#include "ConvGradient.h"
#include "ConvTransforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;
using Frequency = ConvTransform::Frequency;
using Piece = ConvPieces::Piece;

/// Windows of a task, and what their number is chosen for: a task reads what is
/// before its own windows again.
static constexpr int64_t kLeastWindows = 256, kMostWindows = 4096,
                         kWindowTasks = 32;

namespace {
class ConvGradientPartitioned : public ConvProduct {
public:
  ConvGradientPartitioned(ConvGradientTables &tables, ConvTransform &transform);

private:
  void prepare() override;
  int64_t getPreparedRows() override;
  void takePreparedRows(Value task) override;
  void emit() override;
  Value judgeBlock(Value block, Value first, Value end) override;

  void transformValues(Value index, Value columns);
  Value findSpoilt();
  bool takesBlocks();
  void transformRows(Value block, Value columns);
  void clearBehindLast();
  void correlate(Value frequency, Value mirror);
  void correlateTile(Value frequency, Value mirror, Value segment, Value count,
                     Value distance, int64_t windows);
  void storeLags(Value parts, Value frequency, Value window, Value count);
  /// Windows whose frequencies are summed at a time: a vector of real and
  /// imaginary parts.
  int64_t tileWindows() const { return lanes / 2; }
  void invertWindows(Value first);
  void sumDeltas();
  void multiplyPieces(const Frequency &frequency, Value firstPiece);
  void multiplyTile(const Frequency &frequency, Value firstPiece,
                    Value firstGroup, int64_t groups);
  void invertPiece(Value index, Value columns);

  ConvGradientTables &g;
  ConvTables &t;
  ConvBuilder &b;
  const ConvPlan &plan;
  ConvTransform &transform;
  ConvSpectra s;
  int64_t lanes, numGroups;
  /// Spectra of g [blocks, groups, rows, 2 lanes], the last of which is zero,
  /// and of the gradients of windows, at one of a frequency and its negative
  /// [rows, re or im, windows]; these themselves, later and earlier half
  /// [2, windows x block].
  Value rowSpectra, lagSpectra, lagSums;
  /// Of each piece and group of columns, NaN unless all values are finite.
  Value rests;
};
} // namespace

ConvGradientPartitioned::ConvGradientPartitioned(ConvGradientTables &tables,
                                                 ConvTransform &transform)
    : g(tables), t(g.t), b(g.b), plan(b.plan), transform(transform),
      s(t, transform, b.getNumGroups()), lanes(plan.lanes),
      numGroups(b.getNumGroups()) {
  Type state = b.getStateType();
  rowSpectra = transform.allocate(b.add(s.pieces.numBlocks, 1), numGroups);
  lagSpectra = b.allocate(
      state, {b.index(transform.length), b.index(2), s.pieces.maxWindows});
  if (t.values.areFoundByProducts())
    rests = b.allocate(state, {s.pieces.maxPieces, b.index(numGroups)});
  // Vectors of lags begin anywhere in a window, also in the last one.
  lagSums =
      b.allocate(state, {b.index(2),
                         b.add(b.mul(s.pieces.maxWindows, plan.block), lanes)});
}

void ConvGradientPartitioned::prepare() {
  s.pieces.cut();
  t.values.emitUntilClean(
      [&] {
        b.forAll({b.index(numGroups), s.pieces.numPieces},
                 [&](ValueRange task) { transformValues(task[1], task[0]); });
      },
      [&] { return findSpoilt(); });
  s.windows.transformAll();
}

void ConvGradientPartitioned::transformValues(Value index, Value columns) {
  // Values of 1.
  Piece piece = s.pieces.load(index);
  Value count = arith::IndexCastOp::create(b, b.getI64Type(),
                                           b.sub(piece.end, piece.begin));
  Value squares = arith::SIToFPOp::create(b, b.getF64Type(), count);
  Value norm = math::SqrtOp::create(b, squares);
  memref::StoreOp::create(b, norm, s.norms, ValueRange{index, columns});
  Value column = b.mul(columns, plan.getColumns());
  if (!t.values.areFoundByProducts())
    return s.transformPiece(index, columns, column);
  // Zeros, or NaN.
  Value sums = b.scratch({lanes}, b.getStateType()), zero = b.index(0);
  b.storeVector(b.splat(0.0), sums, zero);
  s.transformPiece(index, columns, column, [&](ComplexRow row) {
    Value rests = b.fadd(b.fsub(row.re, row.re), b.fsub(row.im, row.im));
    b.storeVector(b.fadd(b.loadVector(sums, zero), rests), sums, zero);
    return row;
  });
  Value rest = b.reduce(vector::CombiningKind::ADD, b.loadVector(sums, zero));
  b.storeScalar(rest, rests, {index, columns});
}

/// The first column of the first piece that is not all finite numbers, or N.
Value ConvGradientPartitioned::findSpoilt() {
  return b.loop(
      b.index(0), s.pieces.numPieces, 1, b.numTokens,
      [&](Value index, ValueRange first) {
        Value sum = b.scalar(0.0);
        for (int64_t group = 0; group < numGroups; ++group)
          sum = b.fadd(sum, b.loadScalar(rests, {index, b.index(group)}));
        Value isFinite = b.compare(arith::CmpFPredicate::ORD, sum, sum);
        Value begin = b.min(first[0], s.pieces.load(index).begin);
        return Values{b.select(isFinite, first[0], begin)};
      })[0];
}

Value ConvGradientPartitioned::judgeBlock(Value block, Value first, Value end) {
  Value noise = s.boundNoise(block, s.pieces.end(block));
  return t.marks.mark(first, end, noise, /*value=*/b.wide(1.0));
}

void ConvGradientPartitioned::transformRows(Value block, Value columns) {
  Value firstRow = b.mul(block, plan.block);
  Value column = b.mul(columns, plan.getColumns());
  transform.padAndTransform(rowSpectra, {block, columns}, [&](Value row) {
    return g.rows.loadRow(transform, b.add(firstRow, row), column);
  });
}

/// Blocks behind the last are all this one.
void ConvGradientPartitioned::clearBehindLast() {
  b.forAll({b.index(numGroups)}, [&](ValueRange task) {
    Value zero = b.splat(0.0);
    b.loop(b.index(0), b.index(transform.length), 1, [&](Value frequency) {
      transform.storeRow({zero, zero}, rowSpectra,
                         {s.pieces.numBlocks, task[0], frequency});
    });
  });
}

/// Whether blocks are enough tasks, so that one can have all columns.
bool ConvGradientPartitioned::takesBlocks() {
  std::optional<int64_t> blocks = getConstantIntValue(s.pieces.numBlocks);
  return blocks && *blocks >= kManyTasks;
}

int64_t ConvGradientPartitioned::getPreparedRows() {
  return takesBlocks() ? plan.block : ConvProduct::getPreparedRows();
}

void ConvGradientPartitioned::takePreparedRows(Value task) {
  if (takesBlocks())
    b.loop(b.index(0), b.index(numGroups), 1, [&](Value columns) {
      transformRows(task, columns);
      b.freeScratch();
    });
}

void ConvGradientPartitioned::emit() {
  if (!takesBlocks())
    b.forAll({b.index(numGroups), s.pieces.numBlocks},
             [&](ValueRange task) { transformRows(task[1], task[0]); });
  clearBehindLast();
  s.windows.forAllPairs([&](Value frequency, Value mirror) {
    correlate(frequency, mirror);
    // These numbers of the spectra of values have done their duty.
    transform.forBoth(frequency, mirror, [&](const Frequency &each) {
      b.loop(b.index(0), s.pieces.numPieces, plan.outputs,
             [&](Value piece) { multiplyPieces(each, piece); });
    });
  });
  b.forAll({b.div(s.pieces.numWindows, 2 * lanes)},
           [&](ValueRange task) { invertWindows(b.mul(task[0], 2 * lanes)); });
  sumDeltas();
  g.profiles.storeWeighted([&](Value segment, Value lag) {
    // Halves of windows follow each other as their lags do; a segment has one
    // for each of its blocks.
    Value window = s.pieces.firstWindow(segment);
    Value end = b.sub(s.pieces.numBlocks, s.pieces.firstBlock(segment));
    Value place = b.add(lag, b.rem(t.segments.first(segment), plan.block));
    Value left = b.sub(b.mul(b.sub(end, b.index(1)), plan.block), place);
    place = b.add(b.mul(window, plan.block), place);
    Value later = b.loadVector(lagSums, {b.index(0), place});
    Value earlier =
        b.loadMasked(lagSums, {b.index(1), b.add(place, plan.block)},
                     b.firstLanes(left), 0.0);
    Value deltas = g.profiles.load(segment, lag);
    return b.fsub(b.fadd(later, earlier), deltas);
  });
  g.values.beginHead(t.segments.first());
  b.forAll({b.index(numGroups), s.pieces.numPieces},
           [&](ValueRange task) { invertPiece(task[1], task[0]); });
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

void ConvGradientPartitioned::correlate(Value frequency, Value mirror) {
  for (int64_t part : {0, 1})
    b.loop(b.index(0), s.pieces.numWindows, lanes, [&](Value window) {
      b.storeVector(b.splat(0.0), lagSpectra,
                    {frequency, b.index(part), window});
    });
  b.loop(b.index(0), b.numBases, 1, [&](Value segment) {
    Value count = s.pieces.count(segment);
    b.ifThen(b.less(b.index(0), count), [&] {
      Value block = s.pieces.firstBlock(segment);
      Value end = b.sub(s.pieces.numBlocks, block);
      b.loop(b.index(0), end, tileWindows(), [&](Value distance) {
        auto correlateSome = [&](int64_t windows) {
          correlateTile(frequency, mirror, segment, count, distance, windows);
        };
        int64_t half = tileWindows() / 2;
        if (half == 0)
          return correlateSome(tileWindows());
        b.ifThenElse(
            b.less(b.index(half), b.sub(end, distance)),
            [&] { correlateSome(tileWindows()); },
            [&] { correlateSome(half); });
      });
    });
  });
}

/// A few windows of a segment with `count` pieces, from `distance` on, at a
/// frequency and its negative. At distances that there are no blocks for, g is
/// zero.
void ConvGradientPartitioned::correlateTile(Value frequency, Value mirror,
                                            Value segment, Value count,
                                            Value distance, int64_t windows) {
  Value firstBlock = s.pieces.firstBlock(segment);
  Value block = b.add(firstBlock, distance);
  Value firstPiece = s.pieces.first(segment);
  auto visit = [&](Value t, Value columns, Value isMirror, ValueRange carried) {
    Values next(carried);
    Value at = b.select(isMirror, mirror, frequency);
    Value piece = b.add(firstPiece, t);
    ComplexRow value = transform.loadRow(s.memref, {piece, columns, at});
    // The frequency that follows, between products: CPUs drop what is asked for
    // at once. There are more spectra than the hardware keeps track of.
    Value following = b.add(at, b.select(isMirror, b.index(1), b.index(-1)));
    auto prefetch = [&](Value memref, Value index) {
      transform.prefetchRow(memref, {index, columns, following}, b.index(0),
                            /*locality=*/2);
    };
    prefetch(s.memref, piece);
    prefetch(rowSpectra, b.add(firstBlock, t));
    // conj(V) G. The imaginary part of V conj(G) has the other sign.
    Value sign = b.broadcast(b.select(isMirror, b.scalar(-1.0), b.scalar(1.0)));
    Value re = b.fmul(value.re, sign);
    Value minusIm = arith::NegFOp::create(b, b.fmul(value.im, sign));
    for (int64_t u = 0; u < windows; ++u) {
      Value rowBlock = b.min(b.add(b.add(block, t), u), s.pieces.numBlocks);
      ComplexRow row = transform.loadRow(rowSpectra, {rowBlock, columns, at});
      Value &sumRe = next[u], &sumIm = next[windows + u];
      sumRe = b.fma(row.re, value.re, sumRe);
      sumIm = b.fma(row.im, re, sumIm);
      sumRe = b.fma(row.im, value.im, sumRe);
      sumIm = b.fma(row.re, minusIm, sumIm);
    }
    return next;
  };
  // A frequency and its negative take turns: there are no registers for the
  // rows of both.
  auto visitSides = [&](Value t, ValueRange carried) {
    return b.loop(b.index(0), b.index(2 * numGroups), 1, carried,
                  [&](Value side, ValueRange carried) {
                    Value isMirror = b.equal(b.rem(side, 2), b.index(1));
                    return visit(t, b.div(side, 2), isMirror, carried);
                  });
  };
  Value rest = b.sub(s.pieces.numBlocks, block);
  // Real parts, then imaginary ones.
  Values sums(2 * windows, b.splat(0.0));
  sums = b.loop(b.index(0), b.min(count, rest), 1, sums, visitSides);
  sums.insert(sums.begin() + windows, tileWindows() - windows, Value());
  Value window = b.add(s.pieces.firstWindow(segment), distance);
  storeLags(b.sumEach(sums), frequency, window, /*count=*/rest);
}

/// Stores real and imaginary parts of a few windows, of which there are
/// `count`.
void ConvGradientPartitioned::storeLags(Value parts, Value frequency,
                                        Value window, Value count) {
  auto storeHalves = [&](function_ref<void(Value half, ValueRange at)> store) {
    for (int64_t part : {0, 1}) {
      Value half = vector::ExtractStridedSliceOp::create(
          b, parts, ArrayRef<int64_t>{part * tileWindows()},
          ArrayRef<int64_t>{tileWindows()}, ArrayRef<int64_t>{1});
      store(half, {frequency, b.index(part), window});
    }
  };
  auto storeSome = [&] {
    Value isThere = vector::CreateMaskOp::create(
        b, VectorType::get({tileWindows()}, b.getI1Type()), count);
    storeHalves([&](Value half, ValueRange at) {
      vector::MaskedStoreOp::create(b, lagSpectra, at, isThere, half);
    });
  };
  auto storeAll = [&] {
    storeHalves([&](Value half, ValueRange at) {
      vector::StoreOp::create(b, half, lagSpectra, at);
    });
  };
  // Without AVX-512, stores by a mask take many cycles.
  b.ifThenElse(b.less(count, b.index(tileWindows())), storeSome, storeAll);
}

/// Turns twice as many windows back as a vector has lanes, from `first` on.
/// They are real, so every other one is imaginary: a window shares rounding
/// errors with its neighbour, which is of the same segment.
void ConvGradientPartitioned::invertWindows(Value first) {
  Value work =
      b.scratch({transform.length, plan.getColumns()}, b.getStateType());
  // Real or imaginary parts of even and of odd windows.
  auto loadPairs = [&](Value frequency, int64_t part) {
    auto load = [&](int64_t offset) {
      return b.loadVector(lagSpectra,
                          {frequency, b.index(part), b.add(first, offset)});
    };
    Value low = load(0), high = load(lanes);
    SmallVector<int64_t> even, odd;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      even.push_back(2 * lane);
      odd.push_back(2 * lane + 1);
    }
    return std::pair<Value, Value>(
        vector::ShuffleOp::create(b, low, high, even),
        vector::ShuffleOp::create(b, low, high, odd));
  };
  auto visit = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows)) {
      Frequency at = transform.locate(b.add(position, k), /*next=*/Value());
      auto [re, otherRe] = loadPairs(at.ofWindows, /*part=*/0);
      auto [im, otherIm] = loadPairs(at.ofWindows, /*part=*/1);
      ComplexRow one = transform.conjugate({re, im}, at);
      ComplexRow other = transform.conjugate({otherRe, otherIm}, at);
      row = {b.fsub(one.re, other.im), b.fadd(one.im, other.re)};
    }
  };
  transform.emit(FFTKernel::kInverse, work, /*at=*/{}, FFTKernel::Steps(),
                 visit);
  Value factor = b.splat(0.5 / transform.length);
  for (int64_t half : {0, 1})
    b.loop(b.index(0), b.index(plan.block), lanes, [&](Value at) {
      Value from = b.add(at, half * plan.block);
      for (int64_t other : {0, 1}) {
        Value column = b.index(other * lanes);
        Values rows;
        for (int64_t t = 0; t < lanes; ++t)
          rows.push_back(
              b.fmul(b.loadVector(work, {b.add(from, t), column}), factor));
        for (auto [t, numbers] : llvm::enumerate(b.transpose(rows))) {
          Value window = b.mul(b.add(first, 2 * t + other), plan.block);
          b.storeVector(numbers, lagSums, {b.index(half), b.add(window, at)});
        }
      }
    });
}

/// Stores the sums of e in place of the gradients of profiles. Lag l of a
/// segment has the rows from its first column + l on, as many as it has
/// columns: a window that moves with l.
void ConvGradientPartitioned::sumDeltas() {
  auto addSegment = [&](WindowSums &sums, Value segment, Value firstLag,
                        Value endLag) {
    Value size = t.segments.numLags(segment);
    Value count = b.max(b.sub(b.min(endLag, size), firstLag), 0);
    sums.clear(count);
    // Behind the last row is a vector of zeros.
    sums.add(b.index(0), count, b.add(t.segments.first(segment), firstLag),
             t.segments.length(segment), /*size=*/b.numTokens, [&](Value row) {
               return g.rows.loadDeltas(b.min(row, b.numTokens));
             });
    sums.finish(count, [&](Value at, Value sums) {
      g.profiles.store(b.narrow(sums), segment, b.add(firstLag, at));
    });
  };
  Value size = b.clamp(b.ceilDiv(b.numTokens, kWindowTasks),
                       b.index(kLeastWindows), b.index(kMostWindows));
  size = b.mul(b.ceilDiv(size, lanes), lanes);
  int64_t room = getConstantIntValue(size).value_or(kMostWindows);
  WindowSums::forAllTasks(b, size, [&](Value firstLag, Value endLag) {
    WindowSums sums(b, room);
    b.loop(b.index(0), b.numBases, 1,
           [&](Value segment) { addSegment(sums, segment, firstLag, endLag); });
  });
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// One frequency of the gradients of a few pieces.
void ConvGradientPartitioned::multiplyPieces(const Frequency &frequency,
                                             Value firstPiece) {
  int64_t groups = plan.productGroups;
  int64_t whole = numGroups / groups * groups;
  b.loop(b.index(0), b.index(whole), groups, [&](Value group) {
    multiplyTile(frequency, firstPiece, group, groups);
  });
  for (int64_t group = whole; group < numGroups; ++group)
    multiplyTile(frequency, firstPiece, b.index(group), 1);
}

void ConvGradientPartitioned::multiplyTile(const Frequency &frequency,
                                           Value firstPiece, Value firstGroup,
                                           int64_t groups) {
  // The last piece again where there are no more.
  SmallVector<Piece> tile;
  for (int64_t u = 0; u < plan.outputs; ++u)
    tile.push_back(s.pieces.load(
        b.min(b.add(firstPiece, u), b.sub(s.pieces.numPieces, b.index(1)))));
  Values sums(plan.outputs * groups * 2, b.splat(0.0));
  // Blocks of pieces do not decrease: those up to the next piece's are read by
  // the pieces up to this one.
  for (int64_t last = 0; last < plan.outputs; ++last) {
    Value end =
        last + 1 < plan.outputs ? tile[last + 1].block : s.pieces.numBlocks;
    sums = b.loop(
        tile[last].block, end, 1, sums, [&](Value block, ValueRange carried) {
          Values next(carried);
          FFTKernel::Rows rows;
          for (int64_t g = 0; g < groups; ++g) {
            ComplexRow row = transform.loadRow(
                rowSpectra, {block, b.add(firstGroup, g), frequency.at});
            rows.push_back(transform.conjugate(row, frequency));
          }
          for (int64_t u = 0; u <= last; ++u) {
            Value distance = b.sub(block, tile[u].block);
            ComplexRow weight = s.windows.load(frequency.ofWindows,
                                               b.add(tile[u].window, distance));
            weight = transform.conjugate(weight);
            for (int64_t g = 0; g < groups; ++g)
              transform.addProduct(rows[g], weight,
                                   &next[(u * groups + g) * 2]);
          }
          return next;
        });
  }
  for (int64_t u = 0; u < plan.outputs; ++u)
    for (int64_t g = 0; g < groups; ++g) {
      Value *sum = &sums[(u * groups + g) * 2];
      transform.storeRow(
          transform.conjugate({sum[0], sum[1]}, frequency), s.memref,
          {b.add(firstPiece, u), b.add(firstGroup, g), frequency.at});
    }
}

void ConvGradientPartitioned::invertPiece(Value index, Value columns) {
  Piece piece = s.pieces.load(index);
  Value column = b.mul(columns, plan.getColumns());
  Value factor = b.splat(1.0 / transform.length);
  transform.invertBlock(s.memref, {index, columns},
                        [&](Value at, ComplexRow numbers) {
                          Value token = b.add(piece.begin, at);
                          b.ifThen(b.less(token, piece.end), [&] {
                            g.values.begin({b.fmul(numbers.re, factor),
                                            b.fmul(numbers.im, factor)},
                                           token, column);
                          });
                        });
}

void fovea::attn::conv::emitConvGradientPartitioned(OpBuilder &builder,
                                                    ConvApplyBackwardOp op,
                                                    const ConvPlan &plan) {
  ConvBuilder b(builder, op, op.getBasis(), op.getSizes(), op.getValue(), plan);
  ConvTransform transform(b, /*isStreamed=*/areSpectraFar(b));
  emitConvGradient(b, op, [&](ConvGradientTables &tables) {
    return std::make_unique<ConvGradientPartitioned>(tables, transform);
  });
}
