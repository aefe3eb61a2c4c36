//===- ConvPartitioned.cpp - Weights times values by transforms -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   pieces    each transformed once, padded with as many zeros as tokens
//   windows   twice as long as a block, transformed as many pairs at a time as
//             a vector has lanes
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

#include "ConvPartitioned.h"
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
/// Rows of a block that are judged one by one if any of them would be marked.
static constexpr int64_t kFewRows = 64;

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

void ConvPartitioned::allocateBuffers() {
  ConvApplyKernel::allocateBuffers();
  int64_t tokens = cast<MemRefType>(basis.getType()).getDimSize(3);
  hasFewBlocks = !ShapedType::isDynamic(tokens) &&
                 llvm::divideCeil(tokens, plan.block) <= kFewBlocks;
  if (!fuses())
    slots = std::min<int64_t>(numGroups, hasFewBlocks ? 1 : kPassGroups);
  allocatePieces();
  numResults = b.mul(b.ceilDiv(numBlocks, plan.outputs), plan.outputs);
  places = allocate(b.getIndexType(), {numResults});
  pieceTops = allocate(b.getStateType(), {b.mul(maxPieces, numGroups)});
}

/// Makes room for what is known of the rows that a transform reads.
ConvPartitioned::Measures ConvPartitioned::startMeasuring() {
  Measures measures = {b.scratch({b.getLanes()}, b.getF64Type()),
                       b.scratch({2, b.getLanes()}, b.getStateType())};
  vector::StoreOp::create(b, splatWide(0.0), measures.squares, b.index(0));
  for (int64_t part : {0, 1})
    b.storeVector(b.splat(0.0), measures.tops, {b.index(part), b.index(0)});
  return measures;
}

ComplexRow ConvPartitioned::measure(const Measures &measures, ComplexRow row) {
  auto [squares, tops] = measures;
  Value sums = vector::LoadOp::create(b, getWideType(), squares, b.index(0));
  Value parts[] = {row.re, row.im};
  for (int64_t part : {0, 1}) {
    Value numbers = parts[part], wideNumbers = widen(numbers);
    sums = b.fma(wideNumbers, wideNumbers, sums);
    Value at[] = {b.index(part), b.index(0)};
    Value top = maxMagnitude(b.loadVector(tops, at), numbers);
    b.storeVector(top, tops, at);
  }
  vector::StoreOp::create(b, sums, squares, b.index(0));
  return row;
}

/// The greater of `top` and the magnitude of `numbers`, by their bits, which
/// are in the same order: no instruction is faster, and NaN stays.
Value ConvPartitioned::maxMagnitude(Value top, Value numbers) {
  auto type = cast<VectorType>(b.getVectorType());
  auto bits = VectorType::get(type.getShape(),
                              b.getIntegerType(b.getStateType().getWidth()));
  numbers = math::AbsFOp::create(b, numbers);
  Value most = arith::MaxSIOp::create(
      b, vector::BitCastOp::create(b, bits, top).getResult(),
      vector::BitCastOp::create(b, bits, numbers).getResult());
  return vector::BitCastOp::create(b, type, most);
}

/// Stores what was measured for the pieces of both parts. The norm is the
/// 2-norm over two columns that share a complex transform, the greatest of all
/// pairs.
void ConvPartitioned::storeMeasures(const Measures &measures, Value first,
                                    Value second, Value columns) {
  auto [squares, tops] = measures;
  auto reduce = [&](Value numbers) -> Value {
    return vector::ReductionOp::create(b, vector::CombiningKind::MAXIMUMF,
                                       numbers);
  };
  auto loadTops = [&, tops = tops](int64_t part) {
    return b.loadVector(tops, {b.index(part), b.index(0)});
  };
  Value most[] = {loadTops(0), loadTops(1)};
  if (first == second)
    most[1] = maxMagnitude(most[0], most[1]);
  Value sums = vector::LoadOp::create(b, getWideType(), squares, b.index(0));
  Value norm = math::SqrtOp::create(b, reduce(sums)),
        indices[] = {first, second};
  for (auto [index, numbers] : llvm::zip(indices, most)) {
    memref::StoreOp::create(b, norm, pieceNorms, ValueRange{index, columns});
    b.storeScalar(reduce(numbers), pieceTops,
                  b.add(b.mul(index, numGroups), columns));
  }
}

void ConvPartitioned::transformWhole(Value index, Value columns, Value slot) {
  Measures measures = startMeasuring();
  Value column = firstColumnOf(columns);
  transformPiece(index, slot, column,
                 [&](ComplexRow row) { return measure(measures, row); });
  storeMeasures(measures, index, index, columns);
}

/// The piece and the next, if there is one, in one transform.
void ConvPartitioned::transformHalves(Value first, Value columns, Value slot) {
  Measures measures = startMeasuring();
  Value column = firstColumnOf(columns), second = b.add(first, 1);
  Piece one = loadPiece(first);
  Piece other = loadPiece(b.min(second, b.sub(numPieces, b.index(1))));
  other.end = b.select(b.less(second, numPieces), other.end, other.begin);
  auto load = [&](const Piece &piece, Value row) {
    return loadToken(values, {batch, group}, b.add(piece.begin, row), column,
                     piece.end);
  };
  transformTo(pieceSpectra, first, slot, [&](Value row) {
    return measure(measures, {load(one, row), load(other, row)});
  });
  // Where there is no second piece, there is room for one.
  storeMeasures(measures, first, second, columns);
  makeTransform().forEachMirrored([&](Value at, Value mirror) {
    auto [one, other] = separate(loadRow(pieceSpectra, {first, slot, at}),
                                 loadRow(pieceSpectra, {first, slot, mirror}));
    storeRow(one, pieceSpectra, {first, slot, at});
    storeRow(other, pieceSpectra, {second, slot, at});
  });
}

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

/// The greatest value of the first pieces.
Value ConvPartitioned::findGreatest(Value end) {
  auto visit = [&](Value at, Value mask, ValueRange tops) {
    Value numbers = mask ? loadMasked(pieceTops, at, mask, 0.0)
                         : b.loadVector(pieceTops, at);
    return Values{maxMagnitude(tops[0], numbers)};
  };
  Value tops =
      forEachVector(b.index(0), b.mul(end, numGroups), b.splat(0.0), visit)[0];
  return widen(
      vector::ReductionOp::create(b, vector::CombiningKind::MAXIMUMF, tops));
}

Value ConvPartitioned::judgeBlock(Value block, Value first, Value end) {
  Value partner, last = block;
  if (hasHalf()) {
    Value result = b.add(block, firstResult());
    partner = b.sub(b.add(block, 1), b.mul(b.rem(result, 2), 2));
    last = b.max(last, partner);
  }
  Value noise = boundNoise(block, loadInteger(ends, last), partner);
  // Pieces that end before the block, since the longest of them would.
  Value behind =
      b.sub(block, b.index(llvm::divideCeil(plan.piece, plan.block)));
  Value count = loadInteger(ends, b.max(b.sub(behind, b.index(1)), 0));
  count = b.select(b.less(b.index(0), behind), count, b.index(0));
  Value top = findGreatest(count);
  // Later values only matter where those do not do.
  Value marked = markRows(first, end, noise, top);
  return b.select(
      b.equal(marked, b.index(0)), b.getIndexType(), [&] { return marked; },
      [&] {
        Value last = loadPiece(b.max(b.sub(count, b.index(1)), 0)).end;
        Value begin =
            b.select(b.equal(count, b.index(0)), firstColumn(b.index(0)), last);
        return judgeSingleRows(begin, first, end, noise, top);
      });
}

/// Judges rows by the greatest value up to each; `top` is that before row
/// `begin`. That before a few rows usually does for all of them.
Value ConvPartitioned::judgeSingleRows(Value begin, Value first, Value end,
                                       Value noise, Value top) {
  auto addRow = [&](Value row, Value top) -> Value {
    Value tops = b.overVectors(
        paddedWidth, b.splat(0.0), [&](Value column, ValueRange running) {
          return Values{maxMagnitude(
              running[0], b.loadVector(values, {batch, group, row, column}))};
        })[0];
    Value most = widen(
        vector::ReductionOp::create(b, vector::CombiningKind::MAXIMUMF, tops));
    return arith::MaximumFOp::create(b, top, most);
  };
  // Values are read up to `seen`, and only where rows would be marked.
  auto judge = [&](Value few, ValueRange carried) {
    Value top = carried[0], seen = carried[1], count = carried[2];
    Value behind = b.min(b.add(few, kFewRows), end);
    Value isGood = b.equal(markRows(few, behind, noise, top), b.index(0));
    top = b.loop(seen, b.select(isGood, seen, few), 1, top,
                 [&](Value row, ValueRange carried) {
                   return Values{addRow(row, carried[0])};
                 })[0];
    Values found = b.loop(few, b.select(isGood, few, behind), 1, {top, count},
                          [&](Value row, ValueRange carried) {
                            Value top = addRow(row, carried[0]);
                            Value marked =
                                markRows(row, b.add(row, 1), noise, top);
                            return Values{top, b.add(carried[1], marked)};
                          });
    return Values{found[0], b.select(isGood, seen, behind), found[1]};
  };
  return b.loop(b.max(first, begin), end, kFewRows, {top, begin, b.index(0)},
                judge)[2];
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void ConvPartitioned::emitProduct() {
  cutPieces();
  findPlaces();
  transformWindows();
  if (packsValues)
    return emitSteps();
  // Where values that are no finite numbers are found as they are read, all is
  // done once more, with zeros for them.
  storeIndex(numTokens, firstSpoilt, {batch, head});
  values = b.loop(
      b.index(0), b.index(2), 1, value, [&](Value turn, ValueRange carried) {
        Value spoilt = loadIndex(firstSpoilt, {batch, head});
        Value isNeeded =
            b.either(b.equal(turn, b.index(0)), b.less(spoilt, numTokens));
        auto emit = [&] {
          values = carried[0];
          emitSteps();
          return cleanValues();
        };
        return Values{b.select(isNeeded, value.getType(), emit,
                               [&] { return carried[0]; })};
      })[0];
}

/// Copies the values of the head unless all that were read are finite numbers;
/// returns what products have to read.
Value ConvPartitioned::cleanValues() {
  Value top = findGreatest(numPieces), rest = b.fsub(top, top);
  Value isSpoilt =
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, rest, rest);
  b.ifThen(isSpoilt, [&] {
    forAllRows({}, [&](ValueRange, Value row) {
      cleanRow(batch, group, row, copies);
    });
    storeIndex(firstColumn(b.index(0)), firstSpoilt, {batch, head});
  });
  Value cleaned = memref::CastOp::create(b, value.getType(), copies);
  return b.select(isSpoilt, cleaned, values);
}

void ConvPartitioned::emitSteps() {
  if (fuses()) {
    forAll({b.index(numGroups)},
           [&](ValueRange task) { convolveGroup(task[0]); });
    return;
  }
  int64_t groups = numGroups - hasHalf(), rest = groups % slots;
  if (groups >= slots)
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
           Value end = endOf(block);
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
      transformWhole(task[0], b.add(firstGroup, task[1]), task[1]);
    });
  if (hasHalf)
    forAll({b.ceilDiv(numPieces, 2)}, [&](ValueRange task) {
      transformHalves(b.mul(task[0], 2), lastGroup, half);
    });
  forAllPairs([&](Value frequency, Value mirror) {
    multiplyFrequency(frequency, mirror, groups, hasHalf);
  });
  if (groups != 0)
    forAll({numBlocks, b.index(groups)}, [&](ValueRange task) {
      invertWhole(task[0], b.add(firstGroup, task[1]), task[1]);
    });
  if (hasHalf)
    forAll({b.div(numResults, 2)}, [&](ValueRange task) {
      invertHalves(b.mul(task[0], 2), lastGroup, half);
    });
}

void ConvPartitioned::forEachTile(function_ref<void(Value result)> body) {
  b.loop(b.index(0), numResults, plan.outputs, [&](Value done) {
    body(b.sub(numResults, b.add(done, plan.outputs)));
  });
}

void ConvPartitioned::multiplyFrequency(Value frequency, Value mirror,
                                        int64_t groups, bool hasHalf) {
  auto multiply = [&](const Frequency &frequency, Value result, Value slot,
                      int64_t count) {
    Values sums = multiplyTile(frequency, slot, count, result);
    for (int64_t u = 0; u < plan.outputs; ++u)
      for (int64_t g = 0; g < count; ++g) {
        Value *sum = &sums[(u * count + g) * 2];
        storeRow(conjugate({sum[0], sum[1]}, frequency), pieceSpectra,
                 {placeOf(b.add(result, u)), b.add(slot, g), frequency.at});
      }
  };
  int64_t whole = groups / plan.productGroups * plan.productGroups;
  if (groups != 0)
    forBoth(frequency, mirror, [&](const Frequency &frequency) {
      forEachTile([&](Value result) {
        b.loop(b.index(0), b.index(whole), plan.productGroups, [&](Value slot) {
          multiply(frequency, result, slot, plan.productGroups);
        });
        for (int64_t slot = whole; slot < groups; ++slot)
          multiply(frequency, result, b.index(slot), 1);
      });
    });
  if (hasHalf)
    forEachTile([&](Value result) {
      Value slot = b.index(groups), next = b.sub(frequency, b.index(1));
      Frequency only = {frequency, next, frequency, /*signs=*/Value()};
      Values sums = multiplyTile(only, slot, 1, result);
      storeHalves(sums, frequency, mirror, slot, result);
    });
}

/// One frequency of a few results, over `groups` groups of columns.
ConvPartitioned::Values
ConvPartitioned::multiplyTile(const Frequency &frequency, Value firstSlot,
                              int64_t groups, Value result) {
  auto load = [&](Value index) {
    FFTKernel::Rows rows;
    for (int64_t g = 0; g < groups; ++g) {
      Value slot = b.add(firstSlot, g);
      ComplexRow row = loadRow(pieceSpectra, {index, slot, frequency.at});
      rows.push_back(conjugate(row, frequency));
      // Many pieces fill the first cache with one frequency.
      prefetchRow(pieceSpectra, {index, slot, frequency.next}, b.index(0),
                  /*locality=*/hasFewBlocks ? 3 : 2);
    }
    return rows;
  };
  return addProducts(result, frequency.ofWindows, groups, load);
}

ConvPartitioned::Values
ConvPartitioned::addProducts(Value result, Value frequency, int64_t count,
                             function_ref<FFTKernel::Rows(Value piece)> load,
                             bool isMirrored) {
  Value firstBlock = b.sub(result, firstResult()), begin = b.index(0);
  Values sums(plan.outputs * count * 2, b.splat(0.0));
  for (int64_t first = 0; first < plan.outputs; ++first) {
    Value end = endOf(b.add(firstBlock, first));
    sums = b.loop(begin, end, 1, sums, [&](Value index, ValueRange carried) {
      Values next(carried);
      Piece piece = loadPiece(index);
      Value window = b.add(piece.window, b.sub(firstBlock, piece.block));
      FFTKernel::Rows rows = load(index);
      for (int64_t u = first; u < plan.outputs; ++u) {
        ComplexRow weight = loadWeight(frequency, b.add(window, u));
        ComplexRow mirror = weight;
        if (isMirrored)
          mirror.im = arith::NegFOp::create(b, weight.im);
        for (auto [g, row] : llvm::enumerate(rows))
          addProduct(row, g % 2 ? mirror : weight, &next[(u * count + g) * 2]);
      }
      return next;
    });
    begin = end;
  }
  return sums;
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

/// Stores vectors of a row of the result, if there is one, normalised. Rows
/// before the first column read nothing, and are zero whatever a transform has
/// there: without a basis there is none.
void ConvPartitioned::storeResult(ArrayRef<Value> numbers, Value row,
                                  Value column, double factor) {
  b.ifThen(b.less(row, numTokens), [&] {
    Value factors = b.broadcast(b.loadScalar(reciprocals, row));
    factors = b.fmul(factors, b.splat(factor));
    Value isEmpty = b.less(row, firstColumn(b.index(0))), zeros = b.splat(0.0);
    for (auto [k, part] : llvm::enumerate(numbers))
      storeOutput(b.select(isEmpty, zeros, b.fmul(part, factors)), row,
                  b.add(column, k * b.getLanes()));
  });
}

/// The whole sequence at once: its spectrum stays in registers.
void ConvPartitioned::convolveGroup(Value group) {
  Value piece = b.index(0), begin = firstColumn(piece);
  Measures measures = startMeasuring();
  Value column = b.mul(group, plan.getColumns());
  auto load = [&](Value row) {
    return loadRow(pieceSpectra, {piece, group, row});
  };
  auto store = [&](Value row, ComplexRow numbers) {
    storeRow(numbers, pieceSpectra, {piece, group, row});
  };
  auto source = [&](Value row) {
    return measure(measures, loadValues(b.add(begin, row), column, numTokens));
  };
  auto sink = [&](Value at, ComplexRow numbers) {
    storeResult({numbers.re, numbers.im}, b.sub(at, b.index(plan.block)),
                column, 1.0 / length);
  };
  FFTKernel::Steps steps = {load, store};
  steps.source = source;
  steps.isHalfZero = true;
  steps.sink = sink;
  steps.wantsSecondHalf = true;
  FFTKernel transform = makeTransform();
  auto visit = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows)) {
      Frequency at = locate(b.add(position, k), /*next=*/Value());
      ComplexRow weight = loadWeight(at.ofWindows, b.index(0));
      row = conjugate(transform.multiply(conjugate(row, at), weight), at);
    }
  };
  transform.emit(FFTKernel::kConvolve, steps, visit);
  storeMeasures(measures, piece, piece, group);
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
  if (plan.abreast > 1)
    return emitConvAbreast(builder, op, plan);
  ConvPartitioned(builder, op, plan).emit();
}
