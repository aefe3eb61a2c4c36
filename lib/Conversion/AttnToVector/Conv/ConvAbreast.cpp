//===- ConvAbreast.cpp - Blocks side by side in vectors -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The columns of a row fill half of a vector as its real part and half of one
// as its imaginary part. Where vectors are executed in halves, half vectors get
// as much done; but no more of them than of whole ones are on their way at a
// time, and transforms wait. So two pieces, or two blocks of results, share a
// transform, each in half of the lanes of either part.
//
// Products have a frequency and its negative together, where spectra of weights
// are conjugate.
//
// A spectrum is that of two pieces of a tile of results, and there is one for
// every two results, which take their places.
//
//===----------------------------------------------------------------------===//

#include "ConvPartitioned.h"
#include <numeric>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

namespace {
class ConvAbreast : public ConvSteps {
public:
  explicit ConvAbreast(PartitionedTables &tables);

private:
  void findPlaces() override;
  void emit() override;

  void transformPieces(Value task);
  void multiplyFrequency(Value frequency, Value mirror);
  void invertResults(Value task);

  // Vectors and their halves.
  int64_t half() const { return plan.columnLanes; }
  int64_t whole() const { return plan.abreast * half(); }
  Value join(Value one, Value other);
  Value halfOf(Value vector, int64_t index);

  /// Of every piece, the spectrum and its first column there; of every
  /// transform, the spectrum and its two pieces.
  Value placesOfPieces, transforms, numTransforms;
};
} // namespace

ConvAbreast::ConvAbreast(PartitionedTables &tables) : ConvSteps(tables) {
  Type index = b.getIndexType();
  placesOfPieces = b.allocate(index, {s.pieces.maxPieces, b.index(2)});
  transforms = b.allocate(index, {s.pieces.maxPieces, b.index(3)});
}

void ConvAbreast::findPlaces() {
  Value zero = b.index(0), inits[] = {zero, zero, zero};
  auto visitTile = [&](Value result, ValueRange carried) {
    Value place = carried[0], begin = carried[1], done = carried[2];
    for (int64_t u = 0; u < plan.outputs; ++u)
      p.results.setPlace(b.add(result, u), b.add(place, u));
    Value last = b.sub(b.add(result, plan.outputs - 1), p.results.first());
    Value end = p.results.endOf(last), count = b.sub(end, begin);
    b.loop(zero, count, 1, [&](Value at) {
      Value index = b.add(begin, at), own = b.add(place, at);
      b.storeIndex(b.div(own, plan.abreast), placesOfPieces,
                   {index, b.index(0)});
      b.storeIndex(b.mul(b.rem(own, plan.abreast), half()), placesOfPieces,
                   {index, b.index(1)});
    });
    Value spectra = b.ceilDiv(count, plan.abreast);
    b.loop(zero, spectra, 1, [&](Value at) {
      Value first = b.add(begin, b.mul(at, plan.abreast));
      // The last piece again where there are no more.
      Value second = b.min(b.add(first, 1), b.sub(end, b.index(1)));
      Value entries[] = {b.add(b.div(place, plan.abreast), at), first, second};
      for (auto [k, entry] : llvm::enumerate(entries))
        b.storeIndex(entry, transforms, {b.add(done, at), b.index(k)});
    });
    Value size = b.max(b.mul(spectra, plan.abreast), plan.outputs);
    return Values{b.add(place, size), end, b.add(done, spectra)};
  };
  numTransforms =
      b.loop(zero, p.results.count, plan.outputs, inits, visitTile)[2];
}

void ConvAbreast::emit() {
  b.forAll({numTransforms}, [&](ValueRange task) { transformPieces(task[0]); });
  s.windows.forAllPairs([&](Value frequency, Value mirror) {
    multiplyFrequency(frequency, mirror);
  });
  Value first = b.div(p.results.first(), plan.abreast);
  b.forAll({b.sub(b.div(p.results.count, plan.abreast), first)},
           [&](ValueRange task) { invertResults(b.add(task[0], first)); });
}

void ConvAbreast::transformPieces(Value task) {
  auto entry = [&](int64_t at) {
    return b.loadIndex(transforms, {task, b.index(at)});
  };
  Value spectrum = entry(0), indices[] = {entry(1), entry(2)};
  Value column = b.index(0);
  KernelBuilder::Lanes narrow(b, half());
  SmallVector<ConvPieces::Piece> sources;
  SmallVector<PieceMeasures::Measures> found;
  for (Value index : indices) {
    sources.push_back(s.pieces.load(index));
    found.push_back(p.measures.start());
  }
  auto load = [&](Value row) {
    KernelBuilder::Lanes narrow(b, half());
    auto loadPiece = [&](size_t k) {
      return p.measures.add(found[k], s.loadValues(b.add(sources[k].begin, row),
                                                   column, sources[k].end));
    };
    ComplexRow one = loadPiece(0), other = loadPiece(1);
    return ComplexRow{join(one.re, other.re), join(one.im, other.im)};
  };
  {
    KernelBuilder::Lanes wide(b, whole());
    transform.padAndTransform(s.memref, {spectrum, /*columns=*/b.index(0)},
                              load);
  }
  for (auto [index, measures] : llvm::zip(indices, found))
    p.measures.store(measures, index, index, /*columns=*/b.index(0));
}

void ConvAbreast::multiplyFrequency(Value frequency, Value mirror) {
  KernelBuilder::Lanes narrow(b, half());
  Value columns = b.index(0), rows[] = {frequency, mirror};
  auto locate = [&](Value spectrum, Value row, Value column, int64_t part) {
    return Values{spectrum, columns, row, b.add(column, part * whole())};
  };
  auto load = [&](Value index) {
    Value spectrum = b.loadIndex(placesOfPieces, {index, b.index(0)});
    Value column = b.loadIndex(placesOfPieces, {index, b.index(1)});
    // Each of the pieces of a spectrum asks for half of the lines.
    for (Value next : {b.sub(frequency, b.index(1)), b.add(mirror, 1)})
      transform.prefetchRow(s.memref, {spectrum, columns, next},
                            b.mul(column, plan.vectors),
                            /*locality=*/p.hasFewBlocks ? 3 : 2);
    FFTKernel::Rows found;
    for (Value row : rows) {
      Value re = b.loadVector(s.memref, locate(spectrum, row, column, 0));
      Value im = b.loadVector(s.memref, locate(spectrum, row, column, 1));
      found.push_back({re, im});
    }
    return found;
  };
  p.results.forEachTile([&](Value result) {
    Values sums = p.results.addProducts(result, frequency, /*count=*/2, load,
                                        /*isMirrored=*/true);
    Value spectrum = b.div(p.results.placeOf(result), plan.abreast);
    for (int64_t u = 0; u < plan.outputs; ++u) {
      Value at = b.add(spectrum, u / plan.abreast);
      Value column = b.index(u % plan.abreast * half());
      // Both are the same if a frequency is its own negative.
      for (auto [k, row] : llvm::enumerate(rows))
        for (int64_t part : {0, 1})
          b.storeVector(sums[(2 * u + k) * 2 + part], s.memref,
                        locate(at, row, column, part));
    }
  });
}

void ConvAbreast::invertResults(Value task) {
  Value result = b.mul(task, plan.abreast);
  Value firstRow = b.mul(b.sub(result, p.results.first()), plan.block);
  Value spectrum = b.div(p.results.placeOf(result), plan.abreast);
  KernelBuilder::Lanes wide(b, whole());
  transform.invertBlock(
      s.memref, {spectrum, b.index(0)}, [&](Value at, ComplexRow numbers) {
        KernelBuilder::Lanes narrow(b, half());
        Value row = b.add(firstRow, at);
        auto store = [&](int64_t k, Value row) {
          p.results.store({halfOf(numbers.re, k), halfOf(numbers.im, k)}, row,
                          /*column=*/b.index(0), 1.0 / transform.length);
        };
        // There may be one result before the first block.
        b.ifThen(b.less(b.index(-1), row), [&] { store(0, row); });
        store(1, b.add(row, plan.block));
      });
}

//===----------------------------------------------------------------------===//
// Vectors and their halves
//===----------------------------------------------------------------------===//

Value ConvAbreast::join(Value one, Value other) {
  SmallVector<int64_t> order(whole());
  std::iota(order.begin(), order.end(), 0);
  return vector::ShuffleOp::create(b, one, other, order);
}

Value ConvAbreast::halfOf(Value vector, int64_t index) {
  return vector::ExtractStridedSliceOp::create(b, vector, index * half(),
                                               half(), /*strides=*/1);
}

std::unique_ptr<ConvSteps>
fovea::attn::conv::makeConvAbreast(PartitionedTables &tables) {
  return std::make_unique<ConvAbreast>(tables);
}
