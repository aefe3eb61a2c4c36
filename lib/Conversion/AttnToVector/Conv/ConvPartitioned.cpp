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
//===----------------------------------------------------------------------===//

#include "ConvPartitioned.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Groups of columns that go through all steps together: as many as share the
/// weights of a tile of products, since spectra of more would only be further
/// away when they are read. With few blocks, products wait for spectra anyway.
static constexpr int64_t kPassGroups = 2, kFewBlocks = 16;
/// Rows of a block that are judged one by one if any of them would be marked.
static constexpr int64_t kFewRows = 64;

static bool isWhole(const ConvBuilder &b) {
  return b.plan.algorithm == ConvAlgorithm::Single;
}

static bool areFew(ConvBuilder &b) {
  int64_t tokens = cast<MemRefType>(b.basis.getType()).getDimSize(3);
  return !ShapedType::isDynamic(tokens) &&
         llvm::divideCeil(tokens, b.plan.block) <= kFewBlocks;
}

PartitionedTables::PartitionedTables(ConvTables &tables,
                                     ConvTransform &transform, Value output)
    : t(tables), b(t.b), transform(transform), hasFewBlocks(areFew(b)),
      slots(isWhole(b) ? b.getNumGroups()
                       : std::min<int64_t>(b.getNumGroups(),
                                           hasFewBlocks ? 1 : kPassGroups)),
      spectra(t, transform, slots), results(spectra, output),
      measures(b, spectra) {}

//===----------------------------------------------------------------------===//
// Measures
//===----------------------------------------------------------------------===//

PieceMeasures::PieceMeasures(ConvBuilder &b, ConvSpectra &spectra)
    : b(b), norms(spectra.norms),
      tops(b.allocate(b.getStateType(),
                      {b.mul(spectra.pieces.maxPieces, b.getNumGroups())})) {}

PieceMeasures::Measures PieceMeasures::start() {
  Measures measures = {b.scratch({b.getLanes()}, b.getF64Type()),
                       b.scratch({2, b.getLanes()}, b.getStateType())};
  b.storeWide(b.splatWide(0.0), measures.squares, b.index(0));
  for (int64_t part : {0, 1})
    b.storeVector(b.splat(0.0), measures.tops, {b.index(part), b.index(0)});
  return measures;
}

ComplexRow PieceMeasures::add(const Measures &measures, ComplexRow row) {
  auto [squares, tops] = measures;
  Value sums = b.loadWide(squares, b.index(0));
  Value parts[] = {row.re, row.im};
  for (int64_t part : {0, 1}) {
    Value numbers = parts[part], wideNumbers = b.widen(numbers);
    sums = b.fma(wideNumbers, wideNumbers, sums);
    Value at[] = {b.index(part), b.index(0)};
    Value top = maxMagnitude(b.loadVector(tops, at), numbers);
    b.storeVector(top, tops, at);
  }
  b.storeWide(sums, squares, b.index(0));
  return row;
}

/// The greater of `top` and the magnitude of `numbers`, by their bits, which
/// are in the same order: no instruction is faster, and NaN stays.
Value PieceMeasures::maxMagnitude(Value top, Value numbers) {
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
void PieceMeasures::store(const Measures &measures, Value first, Value second,
                          Value columns) {
  auto [squares, tops] = measures;
  auto reduce = [&](Value numbers) {
    return b.reduce(vector::CombiningKind::MAXIMUMF, numbers);
  };
  auto loadTops = [&, tops = tops](int64_t part) {
    return b.loadVector(tops, {b.index(part), b.index(0)});
  };
  Value most[] = {loadTops(0), loadTops(1)};
  if (first == second)
    most[1] = maxMagnitude(most[0], most[1]);
  Value sums = b.loadWide(squares, b.index(0));
  Value norm = math::SqrtOp::create(b, reduce(sums)),
        indices[] = {first, second};
  for (auto [index, numbers] : llvm::zip(indices, most)) {
    memref::StoreOp::create(b, norm, norms, ValueRange{index, columns});
    b.storeScalar(reduce(numbers), this->tops,
                  b.add(b.mul(index, b.getNumGroups()), columns));
  }
}

Value PieceMeasures::findGreatest(Value end) {
  auto visit = [&](Value at, Value mask, ValueRange carried) {
    return Values{maxMagnitude(carried[0], b.loadMasked(tops, at, mask, 0.0))};
  };
  Value most = b.forEachVector(b.index(0), b.mul(end, b.getNumGroups()),
                               b.splat(0.0), visit)[0];
  return b.widen(b.reduce(vector::CombiningKind::MAXIMUMF, most));
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

ConvResults::ConvResults(ConvSpectra &spectra, Value output)
    : s(spectra), b(s.b), output(output) {
  int64_t outputs = b.plan.outputs;
  count = b.mul(b.ceilDiv(s.pieces.numBlocks, outputs), outputs);
  places = b.allocate(b.getIndexType(), {count});
}

Value ConvResults::endOf(Value block) {
  return b.select(b.less(block, b.index(0)), b.index(0),
                  s.pieces.end(b.max(block, 0)));
}

void ConvResults::forEachTile(function_ref<void(Value result)> body) {
  int64_t outputs = b.plan.outputs;
  b.loop(b.index(0), count, outputs,
         [&](Value done) { body(b.sub(count, b.add(done, outputs))); });
}

Values ConvResults::addProducts(Value result, Value frequency, int64_t count,
                                function_ref<FFTKernel::Rows(Value piece)> load,
                                bool isMirrored) {
  Value firstBlock = b.sub(result, this->first()), begin = b.index(0);
  Values sums(b.plan.outputs * count * 2, b.splat(0.0));
  for (int64_t first = 0; first < b.plan.outputs; ++first) {
    Value end = endOf(b.add(firstBlock, first));
    sums = b.loop(begin, end, 1, sums, [&](Value index, ValueRange carried) {
      Values next(carried);
      ConvPieces::Piece piece = s.pieces.load(index);
      Value window = b.add(piece.window, b.sub(firstBlock, piece.block));
      FFTKernel::Rows rows = load(index);
      for (int64_t u = first; u < b.plan.outputs; ++u) {
        ComplexRow weight = s.windows.load(frequency, b.add(window, u));
        ComplexRow mirror = isMirrored ? s.transform.conjugate(weight) : weight;
        for (auto [g, row] : llvm::enumerate(rows))
          s.transform.addProduct(row, g % 2 ? mirror : weight,
                                 &next[(u * count + g) * 2]);
      }
      return next;
    });
    begin = end;
  }
  return sums;
}

/// Stores vectors of a row of the result, if there is one, normalised. Rows
/// before the first column read nothing, and are zero whatever a transform has
/// there: without a basis there is none.
void ConvResults::store(ArrayRef<Value> numbers, Value row, Value column,
                        double factor) {
  b.ifThen(b.less(row, b.numTokens), [&] {
    Value factors = b.broadcast(s.t.normalisers.loadReciprocal(row));
    factors = b.fmul(factors, b.splat(factor));
    Value isEmpty = b.less(row, s.t.segments.first()), zeros = b.splat(0.0);
    for (auto [k, part] : llvm::enumerate(numbers))
      b.storeColumns(b.select(isEmpty, zeros, b.fmul(part, factors)), output,
                     {b.batch, b.head, row}, b.add(column, k * b.getLanes()));
  });
}

//===----------------------------------------------------------------------===//
// The algorithm
//===----------------------------------------------------------------------===//

namespace {
class ConvPartitioned : public ConvProduct {
public:
  ConvPartitioned(ConvTables &tables, ConvTransform &transform, Value output)
      : p(tables, transform, output), t(tables), b(t.b),
        steps(b.plan.abreast > 1 ? makeConvAbreast(p)
              : isWhole(b)       ? makeConvWhole(p)
                                 : makeConvPasses(p)) {}

private:
  void emit() override;
  Value judgeBlock(Value block, Value first, Value end) override;
  Value judgeSingleRows(Value begin, Value first, Value end, Value noise,
                        Value top);
  Value addRow(Value row, Value top);

  PartitionedTables p;
  ConvTables &t;
  ConvBuilder &b;
  std::unique_ptr<ConvSteps> steps;
};
} // namespace

void ConvPartitioned::emit() {
  p.spectra.pieces.cut();
  steps->findPlaces();
  p.spectra.windows.transformAll();
  t.values.emitUntilClean(
      [&] { steps->emit(); },
      [&] {
        Value top = p.measures.findGreatest(p.spectra.pieces.numPieces);
        Value rest = b.fsub(top, top);
        Value isSpoilt = b.compare(arith::CmpFPredicate::UNO, rest, rest);
        return b.select(isSpoilt, t.segments.first(), b.numTokens);
      });
}

Value ConvPartitioned::judgeBlock(Value block, Value first, Value end) {
  Value partner, last = block;
  if (hasHalfGroup(b)) {
    Value result = b.add(block, p.results.first());
    partner = b.sub(b.add(block, 1), b.mul(b.rem(result, 2), 2));
    last = b.max(last, partner);
  }
  Value noise =
      p.spectra.boundNoise(block, p.spectra.pieces.end(last), partner);
  // Pieces that end before the block, since the longest of them would.
  Value behind =
      b.sub(block, b.index(llvm::divideCeil(b.plan.piece, b.plan.block)));
  Value count = p.spectra.pieces.end(b.max(b.sub(behind, b.index(1)), 0));
  count = b.select(b.less(b.index(0), behind), count, b.index(0));
  Value top = p.measures.findGreatest(count);
  // Later values only matter where those do not do.
  Value marked = t.marks.mark(first, end, noise, top);
  return b.select(
      b.equal(marked, b.index(0)), b.getIndexType(), [&] { return marked; },
      [&] {
        Value last =
            p.spectra.pieces.load(b.max(b.sub(count, b.index(1)), 0)).end;
        Value begin =
            b.select(b.equal(count, b.index(0)), t.segments.first(), last);
        return judgeSingleRows(begin, first, end, noise, top);
      });
}

/// The greatest value of a row, and `top`.
Value ConvPartitioned::addRow(Value row, Value top) {
  Value tops = b.overVectors(
      b.paddedWidth, b.splat(0.0), [&](Value column, ValueRange running) {
        return Values{
            p.measures.maxMagnitude(running[0], t.values.load(row, column))};
      })[0];
  Value most = b.widen(b.reduce(vector::CombiningKind::MAXIMUMF, tops));
  return arith::MaximumFOp::create(b, top, most);
}

/// Judges rows by the greatest value up to each; `top` is that before row
/// `begin`. That before a few rows usually does for all of them.
Value ConvPartitioned::judgeSingleRows(Value begin, Value first, Value end,
                                       Value noise, Value top) {
  // Values are read up to `seen`, and only where rows would be marked.
  auto judge = [&](Value few, ValueRange carried) {
    Value top = carried[0], seen = carried[1], count = carried[2];
    Value behind = b.min(b.add(few, kFewRows), end);
    Value isGood = b.equal(t.marks.mark(few, behind, noise, top), b.index(0));
    top = b.loop(seen, b.select(isGood, seen, few), 1, top,
                 [&](Value row, ValueRange carried) {
                   return Values{addRow(row, carried[0])};
                 })[0];
    Values found = b.loop(few, b.select(isGood, few, behind), 1, {top, count},
                          [&](Value row, ValueRange carried) {
                            Value top = addRow(row, carried[0]);
                            Value marked =
                                t.marks.mark(row, b.add(row, 1), noise, top);
                            return Values{top, b.add(carried[1], marked)};
                          });
    return Values{found[0], b.select(isGood, seen, behind), found[1]};
  };
  return b.loop(b.max(first, begin), end, kFewRows, {top, begin, b.index(0)},
                judge)[2];
}

void fovea::attn::conv::emitConvPartitioned(OpBuilder &builder, ConvApplyOp op,
                                            const ConvPlan &plan) {
  ConvBuilder b(builder, op, op.getBasis(), op.getSizes(), op.getValue(), plan);
  ConvTransform transform(b);
  ConvValues values(b, /*findsSpoilt=*/true);
  emitConvApply(b, values, op, [&](ConvTables &tables) {
    return std::make_unique<ConvPartitioned>(tables, transform, op.getOutput());
  });
}
