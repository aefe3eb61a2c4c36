//===- ConvPasses.cpp - Products of spectra, group by group ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Products take the place of pieces: those of a block that of the last piece
// that begins in it, which no block before it reads. So blocks are multiplied
// last to first.
//
// A group of columns that fills only the real part of a row has a second piece,
// or block, as its imaginary part. Their spectra are those of real numbers: the
// two are told apart by the negative frequencies, which need no products then.
//
//===----------------------------------------------------------------------===//

#include "ConvPartitioned.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;
using Frequency = ConvTransform::Frequency;
using Measures = PieceMeasures::Measures;
using Piece = ConvPieces::Piece;

namespace {
class ConvPasses : public ConvSteps {
public:
  using ConvSteps::ConvSteps;

private:
  void findPlaces() override;
  void emit() override;
  void emitPass(Value firstGroup, int64_t groups, bool hasHalf);
  void transformWhole(Value index, Value columns, Value slot);
  void transformHalves(Value first, Value columns, Value slot);
  void multiplyFrequency(Value frequency, Value mirror, int64_t groups,
                         bool hasHalf);
  void multiplyGroups(const Frequency &frequency, Value result, Value slot,
                      int64_t count);
  Values multiplyTile(const Frequency &frequency, Value firstSlot,
                      int64_t groups, Value result);
  void storeHalves(ArrayRef<Value> sums, Value frequency, Value mirror,
                   Value slot, Value result);
  void invertWhole(Value block, Value columns, Value slot);
  void invertHalves(Value result, Value columns, Value slot);
  Value firstColumnOf(Value columns) {
    return b.mul(columns, plan.getColumns());
  }
};

/// The whole sequence at once: its spectrum stays in registers.
class ConvWhole : public ConvSteps {
public:
  using ConvSteps::ConvSteps;

private:
  void emit() override {
    b.forAll({b.index(b.getNumGroups())},
             [&](ValueRange task) { convolveGroup(task[0]); });
  }
  void convolveGroup(Value group);
};
} // namespace

void ConvPasses::emit() {
  int64_t groups = b.getNumGroups() - hasHalfGroup(b), rest = groups % p.slots;
  if (groups >= p.slots)
    b.loop(b.index(0), b.index(groups - rest), p.slots,
           [&](Value group) { emitPass(group, p.slots, /*hasHalf=*/false); });
  if (rest != 0 || hasHalfGroup(b))
    emitPass(b.index(groups - rest), rest, hasHalfGroup(b));
}

/// The result of a block that no piece begins in is behind those of all others,
/// where no piece is.
void ConvPasses::findPlaces() {
  Value last = b.add(s.pieces.maxPieces, plan.outputs - 2);
  b.loop(b.index(0), p.results.count, 1, {last, b.index(0)},
         [&](Value result, ValueRange carried) {
           Value free = carried[0], pieces = carried[1];
           Value block = b.sub(result, p.results.first());
           Value end = p.results.endOf(block);
           Value hasNone = b.equal(end, pieces);
           p.results.setPlace(result,
                              b.select(hasNone, free, b.sub(end, b.index(1))));
           return Values{b.select(hasNone, b.sub(free, b.index(1)), free), end};
         });
}

/// All steps for a few groups of columns, the last of which may be half a one.
void ConvPasses::emitPass(Value firstGroup, int64_t groups, bool hasHalf) {
  Value half = b.index(groups), lastGroup = b.add(firstGroup, groups);
  if (groups != 0)
    b.forAll({s.pieces.numPieces, b.index(groups)}, [&](ValueRange task) {
      transformWhole(task[0], b.add(firstGroup, task[1]), task[1]);
    });
  if (hasHalf)
    b.forAll({b.ceilDiv(s.pieces.numPieces, 2)}, [&](ValueRange task) {
      transformHalves(b.mul(task[0], 2), lastGroup, half);
    });
  s.windows.forAllPairs([&](Value frequency, Value mirror) {
    multiplyFrequency(frequency, mirror, groups, hasHalf);
  });
  if (groups != 0)
    b.forAll({s.pieces.numBlocks, b.index(groups)}, [&](ValueRange task) {
      invertWhole(task[0], b.add(firstGroup, task[1]), task[1]);
    });
  if (hasHalf)
    b.forAll({b.div(p.results.count, 2)}, [&](ValueRange task) {
      invertHalves(b.mul(task[0], 2), lastGroup, half);
    });
}

void ConvPasses::transformWhole(Value index, Value columns, Value slot) {
  Measures measures = p.measures.start();
  Value column = firstColumnOf(columns);
  s.transformPiece(index, slot, column, [&](ComplexRow row) {
    return p.measures.add(measures, row);
  });
  p.measures.store(measures, index, index, columns);
}

/// The piece and the next, if there is one, in one transform.
void ConvPasses::transformHalves(Value first, Value columns, Value slot) {
  Measures measures = p.measures.start();
  Value column = firstColumnOf(columns), second = b.add(first, 1);
  Piece one = s.pieces.load(first);
  Piece other =
      s.pieces.load(b.min(second, b.sub(s.pieces.numPieces, b.index(1))));
  other.end =
      b.select(b.less(second, s.pieces.numPieces), other.end, other.begin);
  auto load = [&](const Piece &piece, Value row) {
    return transform.loadToken(s.t.values.memref, {b.batch, b.group},
                               b.add(piece.begin, row), column, piece.end);
  };
  transform.padAndTransform(s.memref, {first, slot}, [&](Value row) {
    return p.measures.add(measures, {load(one, row), load(other, row)});
  });
  // Where there is no second piece, there is room for one.
  p.measures.store(measures, first, second, columns);
  transform.make().forEachMirrored([&](Value at, Value mirror) {
    auto [one, other] =
        transform.separate(transform.loadRow(s.memref, {first, slot, at}),
                           transform.loadRow(s.memref, {first, slot, mirror}));
    transform.storeRow(one, s.memref, {first, slot, at});
    transform.storeRow(other, s.memref, {second, slot, at});
  });
}

void ConvPasses::multiplyFrequency(Value frequency, Value mirror,
                                   int64_t groups, bool hasHalf) {
  int64_t whole = groups / plan.productGroups * plan.productGroups;
  if (groups != 0)
    transform.forBoth(frequency, mirror, [&](const Frequency &frequency) {
      p.results.forEachTile([&](Value result) {
        b.loop(b.index(0), b.index(whole), plan.productGroups, [&](Value slot) {
          multiplyGroups(frequency, result, slot, plan.productGroups);
        });
        for (int64_t slot = whole; slot < groups; ++slot)
          multiplyGroups(frequency, result, b.index(slot), 1);
      });
    });
  if (hasHalf)
    p.results.forEachTile([&](Value result) {
      Value slot = b.index(groups), next = b.sub(frequency, b.index(1));
      Frequency only = {frequency, next, frequency, /*signs=*/Value()};
      Values sums = multiplyTile(only, slot, 1, result);
      storeHalves(sums, frequency, mirror, slot, result);
    });
}

void ConvPasses::multiplyGroups(const Frequency &frequency, Value result,
                                Value slot, int64_t count) {
  Values sums = multiplyTile(frequency, slot, count, result);
  for (int64_t u = 0; u < plan.outputs; ++u)
    for (int64_t g = 0; g < count; ++g) {
      Value *sum = &sums[(u * count + g) * 2];
      transform.storeRow(
          transform.conjugate({sum[0], sum[1]}, frequency), s.memref,
          {p.results.placeOf(b.add(result, u)), b.add(slot, g), frequency.at});
    }
}

/// One frequency of a few results, over `groups` groups of columns.
Values ConvPasses::multiplyTile(const Frequency &frequency, Value firstSlot,
                                int64_t groups, Value result) {
  auto load = [&](Value index) {
    FFTKernel::Rows rows;
    for (int64_t g = 0; g < groups; ++g) {
      Value slot = b.add(firstSlot, g);
      ComplexRow row = transform.loadRow(s.memref, {index, slot, frequency.at});
      rows.push_back(transform.conjugate(row, frequency));
      // Many pieces fill the first cache with one frequency.
      transform.prefetchRow(s.memref, {index, slot, frequency.next}, b.index(0),
                            /*locality=*/p.hasFewBlocks ? 3 : 2);
    }
    return rows;
  };
  return p.results.addProducts(result, frequency.ofWindows, groups, load);
}

/// Two results in the order of transformHalves, at a frequency and its
/// negative, where each is conjugate.
void ConvPasses::storeHalves(ArrayRef<Value> sums, Value frequency,
                             Value mirror, Value slot, Value result) {
  for (int64_t u = 0; u < plan.outputs; u += 2) {
    ComplexRow one = {sums[2 * u], sums[2 * u + 1]};
    ComplexRow other = {sums[2 * u + 2], sums[2 * u + 3]};
    // That of the second, which has pieces if the first has.
    Value place = p.results.placeOf(b.add(result, u + 1));
    transform.storeRow({b.fadd(one.re, other.im), b.fsub(other.re, one.im)},
                       s.memref, {place, slot, mirror});
    transform.storeRow({b.fsub(one.re, other.im), b.fadd(one.im, other.re)},
                       s.memref, {place, slot, frequency});
  }
}

void ConvPasses::invertWhole(Value block, Value columns, Value slot) {
  Value firstRow = b.mul(block, plan.block), column = firstColumnOf(columns);
  Value place = p.results.placeOf(b.add(block, p.results.first()));
  transform.invertBlock(
      s.memref, {place, slot}, [&](Value at, ComplexRow numbers) {
        p.results.store({numbers.re, numbers.im}, b.add(firstRow, at), column,
                        1.0 / transform.length);
      });
}

/// The result is real, the next one imaginary. Both are twice what they should
/// be, as their pieces are.
void ConvPasses::invertHalves(Value result, Value columns, Value slot) {
  Value column = firstColumnOf(columns);
  Value firstRow = b.mul(b.sub(result, p.results.first()), plan.block);
  Value place = p.results.placeOf(b.add(result, 1));
  transform.invertBlock(
      s.memref, {place, slot}, [&](Value at, ComplexRow numbers) {
        Value row = b.add(firstRow, at), next = b.add(row, plan.block);
        auto store = [&](Value part, Value row) {
          b.ifThen(b.less(b.index(-1), row), [&] {
            p.results.store({part}, row, column, 0.5 / transform.length);
          });
        };
        store(numbers.re, row);
        store(numbers.im, next);
      });
}

void ConvWhole::convolveGroup(Value group) {
  Value piece = b.index(0), begin = s.t.segments.first();
  Measures measures = p.measures.start();
  Value column = b.mul(group, plan.getColumns());
  auto source = [&](Value row) {
    ComplexRow numbers = s.loadValues(b.add(begin, row), column, b.numTokens);
    return p.measures.add(measures, numbers);
  };
  auto sink = [&](Value at, ComplexRow numbers) {
    p.results.store({numbers.re, numbers.im}, b.sub(at, b.index(plan.block)),
                    column, 1.0 / transform.length);
  };
  FFTKernel::Steps steps;
  steps.source = source;
  steps.isHalfZero = true;
  steps.sink = sink;
  steps.wantsSecondHalf = true;
  auto visit = [&](Value position, FFTKernel::Rows &rows) {
    for (auto [k, row] : llvm::enumerate(rows)) {
      Frequency at = transform.locate(b.add(position, k), /*next=*/Value());
      ComplexRow weight = s.windows.load(at.ofWindows, b.index(0));
      row = transform.make().multiply(transform.conjugate(row, at), weight);
      row = transform.conjugate(row, at);
    }
  };
  transform.emit(FFTKernel::kConvolve, s.memref, {piece, group}, steps, visit);
  p.measures.store(measures, piece, piece, group);
}

std::unique_ptr<ConvSteps>
fovea::attn::conv::makeConvWhole(PartitionedTables &tables) {
  return std::make_unique<ConvWhole>(tables);
}

std::unique_ptr<ConvSteps>
fovea::attn::conv::makeConvPasses(PartitionedTables &tables) {
  return std::make_unique<ConvPasses>(tables);
}
