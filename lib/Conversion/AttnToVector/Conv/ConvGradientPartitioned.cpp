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
// part; what is left in the imaginary part is dropped.
//
//===----------------------------------------------------------------------===//

#include "ConvGradient.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Windows of a task, and what their number is chosen for: a task reads what is
/// before its own windows again.
static constexpr int64_t kLeastWindows = 256, kMostWindows = 4096,
                         kWindowTasks = 32;

namespace {
class ConvGradientPartitioned : public ConvGradientKernel {
public:
  using ConvGradientKernel::ConvGradientKernel;

private:
  void allocateBuffers() override;
  void prepareProducts() override;
  void emitProducts() override;
  Value judgeBlock(Value block, Value first, Value end) override;

  void listSegments();
  Value numPiecesOf(Value segment);
  void transformRows(Value block, Value columns);
  void correlate(Value frequency);
  void correlateTile(Value frequency, Value segment, Value count,
                     Value distance);
  Value sumLanes(Values vectors);
  /// Windows whose frequencies are summed at a time: a vector of real and
  /// imaginary parts. As many blocks of zeros, less one, are behind the last.
  int64_t tileWindows() const { return lanes / 2; }
  void invertWindows(Value first);
  void sumDeltas();
  void multiplyPieces(const Frequency &frequency, Value firstPiece);
  void multiplyTile(const Frequency &frequency, Value firstPiece,
                    Value firstGroup, int64_t groups);
  void invertPiece(Value index, Value columns);

  /// Of every segment: its first piece, block and window.
  Value segmentPieces, segmentBlocks, segmentWindows;
  /// Spectra of g [blocks, groups, rows, 2 lanes], and of the gradients of
  /// windows [rows, re or im, windows]; these themselves, later and earlier
  /// half [2, windows x block].
  Value rowSpectra, lagSpectra, lagSums;
};
} // namespace

void ConvGradientPartitioned::allocateBuffers() {
  ConvGradientKernel::allocateBuffers();
  allocatePieces();
  Type index = b.getIndexType(), state = b.getStateType();
  for (Value *list : {&segmentPieces, &segmentBlocks, &segmentWindows})
    *list = allocate(index, {numBases});
  rowSpectra = allocateSpectra(b.add(numBlocks, tileWindows() - 1), numGroups);
  lagSpectra = allocate(state, {b.index(length), b.index(2), maxWindows});
  // Vectors of lags begin anywhere in a window, also in the last one.
  lagSums = allocate(state,
                     {b.index(2), b.add(b.mul(maxWindows, plan.block), lanes)});
}

void ConvGradientPartitioned::prepareProducts() {
  cutPieces();
  listSegments();
  forAll({b.index(numGroups), numPieces}, [&](ValueRange task) {
    // Values of 1.
    Piece piece = loadPiece(task[1]);
    Value count = arith::IndexCastOp::create(b, b.getI64Type(),
                                             b.sub(piece.end, piece.begin));
    Value squares = arith::SIToFPOp::create(b, b.getF64Type(), count);
    Value norm = math::SqrtOp::create(b, squares);
    memref::StoreOp::create(b, norm, pieceNorms, ValueRange{task[1], task[0]});
    transformPiece(task[1], task[0], b.mul(task[0], plan.getColumns()));
  });
  transformWindows();
}

Value ConvGradientPartitioned::judgeBlock(Value block, Value first, Value end) {
  Value noise = boundNoise(block, loadInteger(ends, block));
  return markRows(first, end, noise, /*value=*/wide(1.0));
}

/// Pieces of a segment are consecutive, and so are their blocks.
void ConvGradientPartitioned::listSegments() {
  b.loop(b.index(0), numBases, 1, b.index(0),
         [&](Value segment, ValueRange carried) {
           Value count = numPiecesOf(segment);
           storeIndex(carried[0], segmentPieces, segment);
           storeIndex(b.div(firstColumn(segment), plan.block), segmentBlocks,
                      segment);
           b.ifThen(b.less(b.index(0), count), [&] {
             storeIndex(loadPiece(carried[0]).window, segmentWindows, segment);
           });
           return Values{b.add(carried[0], count)};
         });
}

ConvGradientPartitioned::Value
ConvGradientPartitioned::numPiecesOf(Value segment) {
  Value end = firstColumn(b.add(segment, 1));
  return b.ceilDiv(b.sub(end, firstColumn(segment)), plan.block);
}

void ConvGradientPartitioned::transformRows(Value block, Value columns) {
  Value firstRow = b.mul(block, plan.block);
  Value column = b.mul(columns, plan.getColumns());
  transformTo(rowSpectra, block, columns, [&](Value row) {
    return loadTokens(rowGradients, {}, b.add(firstRow, row), column,
                      numTokens);
  });
}

void ConvGradientPartitioned::emitProducts() {
  forAll({b.index(numGroups), b.add(numBlocks, tileWindows() - 1)},
         [&](ValueRange task) { transformRows(task[1], task[0]); });
  forAllFrequencies([&](Value frequency) { correlate(frequency); });
  forAll({b.div(numWindows, lanes)},
         [&](ValueRange task) { invertWindows(b.mul(task[0], lanes)); });
  sumDeltas();
  storeProfileGradients([&](Value segment, Value lag) {
    // Halves of windows follow each other as their lags do; a segment has one
    // for each of its blocks.
    Value window = loadIndex(segmentWindows, segment);
    Value end = b.sub(numBlocks, loadIndex(segmentBlocks, segment));
    Value place = b.add(lag, b.rem(firstColumn(segment), plan.block));
    Value left = b.sub(b.mul(b.sub(end, b.index(1)), plan.block), place);
    place = b.add(b.mul(window, plan.block), place);
    Value later = b.loadVector(lagSums, {b.index(0), place});
    Value earlier = loadMasked(lagSums, {b.index(1), b.add(place, plan.block)},
                               firstLanes(left), 0.0);
    Value deltas = b.loadVector(profileGradients, scoreOffset(segment, lag));
    return b.fsub(b.fadd(later, earlier), deltas);
  });
  // The spectra of values have done their duty.
  forAllFrequencies([&](Value at) {
    Frequency frequency = locate(at, b.sub(at, b.index(1)));
    b.loop(b.index(0), numPieces, plan.outputs,
           [&](Value piece) { multiplyPieces(frequency, piece); });
  });
  forAll({b.index(numGroups), numPieces},
         [&](ValueRange task) { invertPiece(task[1], task[0]); });
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

void ConvGradientPartitioned::correlate(Value frequency) {
  for (int64_t part : {0, 1})
    b.loop(b.index(0), numWindows, lanes, [&](Value window) {
      b.storeVector(b.splat(0.0), lagSpectra,
                    {frequency, b.index(part), window});
    });
  b.loop(b.index(0), numBases, 1, [&](Value segment) {
    Value count = numPiecesOf(segment);
    b.ifThen(b.less(b.index(0), count), [&] {
      Value block = loadIndex(segmentBlocks, segment);
      b.loop(b.index(0), b.sub(numBlocks, block), tileWindows(),
             [&](Value distance) {
               correlateTile(frequency, segment, count, distance);
             });
    });
  });
}

/// A few windows of a segment with `count` pieces, from `distance` on. At
/// distances that there are no blocks for, g is zero.
void ConvGradientPartitioned::correlateTile(Value frequency, Value segment,
                                            Value count, Value distance) {
  Value block = b.add(loadIndex(segmentBlocks, segment), distance);
  Value firstPiece = loadIndex(segmentPieces, segment);
  // Real parts, then imaginary ones.
  Values sums(lanes, b.splat(0.0));
  auto visit = [&](Value t, Value columns, ValueRange carried) {
    Values next(carried);
    ComplexRow value =
        loadRow(pieceSpectra, {b.add(firstPiece, t), columns, frequency});
    value.im = arith::NegFOp::create(b, value.im);
    for (int64_t u = 0; u < tileWindows(); ++u) {
      ComplexRow row =
          loadRow(rowSpectra, {b.add(b.add(block, t), u), columns, frequency});
      Value parts[] = {next[u], next[tileWindows() + u]};
      addProduct(row, value, parts);
      next[u] = parts[0];
      next[tileWindows() + u] = parts[1];
    }
    return next;
  };
  Value rest = b.sub(numBlocks, block);
  sums = b.loop(b.index(0), b.min(count, rest), 1, sums,
                [&](Value t, ValueRange carried) {
                  return b.loop(b.index(0), b.index(numGroups), 1, carried,
                                [&](Value columns, ValueRange carried) {
                                  return visit(t, columns, carried);
                                });
                });
  Value parts = sumLanes(sums);
  Value window = b.add(loadIndex(segmentWindows, segment), distance);
  Value isThere = vector::CreateMaskOp::create(
      b, VectorType::get({tileWindows()}, b.getI1Type()), rest);
  for (int64_t part : {0, 1}) {
    Value half = vector::ExtractStridedSliceOp::create(
        b, parts, ArrayRef<int64_t>{part * tileWindows()},
        ArrayRef<int64_t>{tileWindows()}, ArrayRef<int64_t>{1});
    vector::MaskedStoreOp::create(b, lagSpectra,
                                  ValueRange{frequency, b.index(part), window},
                                  isThere, half);
  }
}

/// The vector of the sums over the lanes of each of as many vectors. Halves of
/// two vectors make one, until there is only one.
Value ConvGradientPartitioned::sumLanes(Values vectors) {
  for (int64_t width = lanes / 2; width > 0; width /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      // Runs of `width` lanes from one vector and the other in turn.
      int64_t run = lane / width, from = run / 2 * 2 * width + lane % width;
      low.push_back(run % 2 * lanes + from);
      high.push_back(run % 2 * lanes + from + width);
    }
    Values next;
    for (size_t k = 0, half = vectors.size() / 2; k < half; ++k) {
      Value one = vectors[k], other = vectors[k + half];
      next.push_back(b.fadd(vector::ShuffleOp::create(b, one, other, low),
                            vector::ShuffleOp::create(b, one, other, high)));
    }
    vectors = std::move(next);
  }
  return vectors.front();
}

/// Turns as many windows back as a vector has lanes, from `first` on.
void ConvGradientPartitioned::invertWindows(Value first) {
  Value work = b.scratch({length, plan.getColumns()}, b.getStateType());
  auto load = [&](Value row) { return loadRow(work, {row}); };
  auto store = [&](Value row, ComplexRow numbers) {
    storeRow(numbers, work, {row});
  };
  FFTKernel::Steps steps = {load, store};
  auto visit = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows)) {
      Value frequency = b.add(position, k);
      row.re = b.loadVector(lagSpectra, {frequency, b.index(0), first});
      row.im = b.loadVector(lagSpectra, {frequency, b.index(1), first});
    }
  };
  makeTransform().emit(FFTKernel::kInverse, steps, visit);
  Value factor = b.splat(1.0 / length);
  for (int64_t half : {0, 1})
    b.loop(b.index(0), b.index(plan.block), lanes, [&](Value at) {
      Value from = b.add(at, half * plan.block);
      Values rows;
      for (int64_t t = 0; t < lanes; ++t)
        rows.push_back(
            b.fmul(b.loadVector(work, {b.add(from, t), b.index(0)}), factor));
      for (auto [t, numbers] : llvm::enumerate(b.transpose(rows))) {
        Value window = b.mul(b.add(first, t), plan.block);
        b.storeVector(numbers, lagSums, {b.index(half), b.add(window, at)});
      }
    });
}

/// Stores the sums of e in place of the gradients of profiles. Lag l of a
/// segment has the rows from its first column + l on, as many as it has
/// columns: a window that moves with l.
void ConvGradientPartitioned::sumDeltas() {
  auto sumTask = [&](Value firstLag, Value endLag) {
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
      Value first = firstColumn(segment), size = b.sub(numTokens, first);
      Value length = b.sub(firstColumn(b.add(segment, 1)), first);
      Value count = b.max(b.sub(b.min(endLag, size), firstLag), 0);
      auto load = [&](Value row) {
        // Behind the last row is a vector of zeros.
        return b.loadVector(rowDeltas, b.add(b.min(row, numTokens), front));
      };
      auto store = [&](Value at, Value sums) {
        if (!b.getStateType().isF64())
          sums = arith::TruncFOp::create(b, b.getVectorType(), sums);
        b.storeVector(sums, profileGradients,
                      scoreOffset(segment, b.add(firstLag, at)));
      };
      clearWindows(count);
      addWindows(b.index(0), count, b.add(first, firstLag), length,
                 /*size=*/numTokens, load);
      finishWindows(count, store);
    });
  };
  Value size = b.clamp(b.ceilDiv(numTokens, kWindowTasks),
                       b.index(kLeastWindows), b.index(kMostWindows));
  size = b.mul(b.ceilDiv(size, lanes), lanes);
  forAllWindowTasks(size, kMostWindows, sumTask);
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
    tile.push_back(
        loadPiece(b.min(b.add(firstPiece, u), b.sub(numPieces, b.index(1)))));
  Values sums(plan.outputs * groups * 2, b.splat(0.0));
  // Blocks of pieces do not decrease: those up to the next piece's are read by
  // the pieces up to this one.
  for (int64_t last = 0; last < plan.outputs; ++last) {
    Value end = last + 1 < plan.outputs ? tile[last + 1].block : numBlocks;
    sums = b.loop(
        tile[last].block, end, 1, sums, [&](Value block, ValueRange carried) {
          Values next(carried);
          FFTKernel::Rows rows;
          for (int64_t g = 0; g < groups; ++g) {
            ComplexRow row = loadRow(
                rowSpectra, {block, b.add(firstGroup, g), frequency.at});
            rows.push_back(conjugate(row, frequency));
          }
          for (int64_t u = 0; u <= last; ++u) {
            Value distance = b.sub(block, tile[u].block);
            ComplexRow weight = loadWeight(frequency.ofWindows,
                                           b.add(tile[u].window, distance));
            weight.im = arith::NegFOp::create(b, weight.im);
            for (int64_t g = 0; g < groups; ++g)
              addProduct(rows[g], weight, &next[(u * groups + g) * 2]);
          }
          return next;
        });
  }
  for (int64_t u = 0; u < plan.outputs; ++u)
    for (int64_t g = 0; g < groups; ++g) {
      Value *sum = &sums[(u * groups + g) * 2];
      storeRow(conjugate({sum[0], sum[1]}, frequency), pieceSpectra,
               {b.add(firstPiece, u), b.add(firstGroup, g), frequency.at});
    }
}

void ConvGradientPartitioned::invertPiece(Value index, Value columns) {
  Piece piece = loadPiece(index);
  Value column = b.mul(columns, plan.getColumns());
  Value factor = b.splat(1.0 / length);
  invert(pieceSpectra, index, columns, [&](Value at, ComplexRow numbers) {
    Value token = b.add(piece.begin, at);
    b.ifThen(b.less(token, piece.end), [&] {
      addToValue(b.fmul(numbers.re, factor), token, column);
      addToValue(b.fmul(numbers.im, factor), token, b.add(column, lanes));
    });
  });
}

void fovea::attn::emitConvGradientPartitioned(OpBuilder &builder,
                                              ConvApplyBackwardOp op,
                                              const ConvPlan &plan) {
  ConvGradientPartitioned(builder, op, plan).emit();
}
