//===- FFTKernel.cpp - Fourier transforms over columns --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/AttnToVector/FFT/FFTKernel.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

SmallVector<int64_t> fovea::attn::chooseRadices(int64_t length,
                                                int64_t numRegisters) {
  // A butterfly of radix R holds 2 R vectors.
  int64_t largest = numRegisters >= 32 ? 8 : 4;
  SmallVector<int64_t> radices;
  while (length > largest) {
    // 16 = 4 * 4 rather than 8 * 2.
    int64_t radix = largest == 8 && length == 16 ? 4 : largest;
    radices.push_back(radix);
    length /= radix;
  }
  radices.push_back(length);
  return radices;
}

int64_t fovea::attn::encodeRadices(ArrayRef<int64_t> radices) {
  int64_t code = 0;
  for (auto [stage, radix] : llvm::enumerate(radices))
    code |= static_cast<int64_t>(llvm::Log2_64(radix)) << (4 * stage);
  return code;
}

Value fovea::attn::emitTwiddles(KernelBuilder &b, Operation *op,
                                ArrayRef<int64_t> radices) {
  auto integer = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(b, value, /*width=*/64);
  };
  return RuntimeCalls::emitCall(
      b, op->getParentOfType<ModuleOp>(), "fovea_rt_fft_twiddles",
      LLVM::LLVMPointerType::get(b.getContext()),
      {integer(encodeRadices(radices)), integer(b.getStateType().isF64())});
}

/// Bytes of a transform that the second cache holds, with its source and other
/// data.
static constexpr int64_t kShort = 1 << 20;
/// Rows of a tile whose rows are far apart, at least, and at most where that
/// saves a sweep.
static constexpr int64_t kFarRows = 64, kMostFarRows = 512;
/// Neighbouring bytes that it takes of each, whole rows unless these are
/// longer: a page, which is what hardware fetches ahead within. The whole tile
/// is to stay in the second cache.
static constexpr int64_t kRun = 4096, kTile = 1 << 20;

FFTKernel::FFTKernel(KernelBuilder &builder, ArrayRef<int64_t> radices,
                     Value twiddles, bool separateAdds)
    : b(builder), radices(radices), twiddles(twiddles),
      separateAdds(separateAdds) {
  for (int64_t radix : radices)
    length *= radix;
  // A butterfly of radix R has R / 2 factors.
  int64_t offset = 0, blocks = 1;
  for (int64_t radix : radices) {
    firstFactor.push_back(offset);
    offset += blocks * radix;
    blocks *= radix;
  }
  int64_t rows = length;
  for (int64_t radix : radices) {
    firstInverseFactor.push_back(offset);
    rows /= radix;
    offset += rows * radix;
  }
  planSweeps();
}

static int64_t bytesOfRow(KernelBuilder &b) {
  return 2 * b.getLanes() * b.getStateType().getWidth() / 8;
}

void FFTKernel::planSweeps() {
  unsigned numStages = radices.size(), begin = 0;
  int64_t rowBytes = bytesOfRow(b), blocks = 1, left = length;
  while (begin + 1 < numStages && left * rowBytes > kShort) {
    unsigned end = begin;
    int64_t rows = 1;
    while (end + 1 < numStages &&
           (rows < kFarRows ||
            (rows < kMostFarRows && left / rows * rowBytes > kShort)))
      rows *= radices[end++];
    left /= rows;
    int64_t run = std::min(kRun, kTile / rows);
    int64_t neighbours = std::clamp<int64_t>(run / rowBytes, 1, left);
    neighbours = llvm::bit_floor(static_cast<uint64_t>(neighbours));
    sweeps.push_back({begin, end, blocks, rows, left, neighbours});
    blocks *= rows;
    begin = end;
  }
  sweeps.push_back({begin, numStages, blocks, left, 1, 1});
}

//===----------------------------------------------------------------------===//
// Sweeps
//===----------------------------------------------------------------------===//

/// A loop, or its body once.
static void loopOver(KernelBuilder &b, int64_t count,
                     function_ref<void(Value)> body) {
  if (count == 1)
    return body(b.index(0));
  b.loop(b.index(0), b.index(count), 1, body);
}

/// What lies between the stages of a tile. One stage needs nothing, and the
/// last sweep works in place.
Value FFTKernel::makeBuffer(const Sweep &sweep) {
  if (sweep.begin + 1 == sweep.end || sweep.end == radices.size())
    return Value();
  return b.scratch({sweep.neighbours, sweep.rows, 2 * b.getLanes()},
                   b.getStateType());
}

void FFTKernel::emit(Direction direction, const Steps &steps,
                     VisitSpectrum visit) {
  SmallVector<Value> buffers;
  for (const Sweep &sweep : sweeps)
    buffers.push_back(makeBuffer(sweep));
  unsigned last = sweeps.size() - 1;
  auto emitSweep = [&](unsigned index, Direction direction) {
    const Sweep &sweep = sweeps[index];
    int64_t tiles = sweep.blocks * (sweep.stride / sweep.neighbours);
    loopOver(b, tiles, [&](Value tile) {
      emitTile(sweep, tile, buffers[index], direction, steps, visit);
    });
  };
  for (unsigned sweep = 0; direction.forward && sweep < last; ++sweep)
    emitSweep(sweep, kForward);
  emitSweep(last, direction);
  for (unsigned sweep = last; direction.inverse && sweep > 0; --sweep)
    emitSweep(sweep - 1, kInverse);
}

void FFTKernel::emitTile(const Sweep &sweep, Value index, Value buffer,
                         Direction direction, const Steps &steps,
                         VisitSpectrum visit) {
  bool isFirst = sweep.begin == 0;
  int64_t tiles = sweep.stride / sweep.neighbours;
  Value block = b.div(index, tiles),
        neighbour = b.mul(b.rem(index, tiles), sweep.neighbours);
  Tile tile = {
      sweep,
      block,
      b.add(b.mul(block, sweep.rows * sweep.stride), neighbour),
      neighbour,
      buffer,
      direction,
      direction.forward && isFirst && steps.source ? steps.source : steps.load,
      direction.inverse && isFirst && steps.sink ? steps.sink : steps.store,
      steps,
      visit};
  emitStages(tile, sweep.begin, b.index(0), sweep.rows);
}

/// Emits the sub-transform of `rows` rows of a tile from `base` on, where
/// earlier stages are done, and the inverse of its stages.
void FFTKernel::emitStages(const Tile &tile, unsigned stage, Value base,
                           int64_t rows) {
  if (stage + 1 == radices.size())
    return emitSpectrumStage(tile, stage, base);
  if (tile.direction.forward)
    emitForwardStage(tile, stage, base, rows);
  int64_t part = rows / radices[stage];
  if (stage + 1 < tile.sweep.end)
    b.loop(base, b.add(base, rows), part,
           [&](Value base) { emitStages(tile, stage + 1, base, part); });
  if (tile.direction.inverse)
    emitInverseStage(tile, stage, base, rows);
}

//===----------------------------------------------------------------------===//
// Negative frequencies
//===----------------------------------------------------------------------===//

// The negative of a number in mixed radices keeps its lowest zeros, negates the
// next digit and complements those above. The lowest digit comes first here, so
// the outputs of a stage but the first one are reversed as a whole.

SmallVector<std::pair<int64_t, int64_t>> FFTKernel::listMirrors() const {
  SmallVector<std::pair<int64_t, int64_t>> mirrors;
  int64_t rows = length;
  for (int64_t radix : radices) {
    int64_t part = rows / radix;
    mirrors.push_back({part, rows + part - 1});
    rows = part;
  }
  return mirrors;
}

Value FFTKernel::mirror(Value position) {
  Value result = b.index(0);
  auto mirrors = listMirrors();
  for (auto [first, sum] : llvm::reverse(mirrors))
    result = b.select(b.less(position, b.index(first)), result,
                      b.sub(b.index(sum), position));
  return result;
}

void FFTKernel::forEachMirrored(function_ref<void(Value, Value)> body) {
  body(b.index(0), b.index(0));
  for (auto [first, sum] : listMirrors())
    b.loop(b.index(first), b.index(sum / 2 + 1), 1,
           [&, sum = sum](Value one) { body(one, b.sub(b.index(sum), one)); });
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

void FFTKernel::forEachButterfly(
    const Tile &tile, int64_t count,
    function_ref<void(Value butterfly, Value neighbour)> body) {
  loopOver(b, count, [&](Value butterfly) {
    loopOver(b, tile.sweep.neighbours,
             [&](Value neighbour) { body(butterfly, neighbour); });
  });
}

ComplexRow FFTKernel::loadRow(const Tile &tile, Value row, Value neighbour,
                              bool fromBuffer) {
  if (fromBuffer && tile.buffer)
    return {b.loadVector(tile.buffer, {neighbour, row, b.index(0)}),
            b.loadVector(tile.buffer, {neighbour, row, b.index(b.getLanes())})};
  Value at =
      b.add(b.add(tile.firstRow, neighbour), b.mul(row, tile.sweep.stride));
  return fromBuffer ? tile.steps.load(at) : tile.load(at);
}

void FFTKernel::storeRow(const Tile &tile, Value row, Value neighbour,
                         ComplexRow numbers, bool toBuffer) {
  if (toBuffer && tile.buffer) {
    b.storeVector(numbers.re, tile.buffer, {neighbour, row, b.index(0)});
    b.storeVector(numbers.im, tile.buffer,
                  {neighbour, row, b.index(b.getLanes())});
    return;
  }
  Value at =
      b.add(b.add(tile.firstRow, neighbour), b.mul(row, tile.sweep.stride));
  return toBuffer ? tile.steps.store(at, numbers) : tile.store(at, numbers);
}

void FFTKernel::emitForwardStage(const Tile &tile, unsigned stage, Value base,
                                 int64_t rows) {
  int64_t radix = radices[stage], step = rows / radix;
  bool isHalfZero = stage == 0 && tile.steps.isHalfZero;
  // All butterflies of a block have the same factors, the first one none.
  Factors factors;
  if (stage != 0) {
    int64_t blocks = tile.sweep.rows / rows;
    factors = loadFactors(firstFactor[stage], radix,
                          b.add(b.mul(tile.block, blocks), b.div(base, rows)));
  }
  auto emitButterfly = [&](Value butterfly, Value neighbour) {
    Value first = b.add(base, butterfly);
    Rows values(radix);
    for (int64_t t = 0; t < (isHalfZero ? radix / 2 : radix); ++t)
      values[t] = loadRow(tile, b.add(first, t * step), neighbour,
                          /*fromBuffer=*/stage != tile.sweep.begin);
    values = evaluate(values, factors, /*inverse=*/false, isHalfZero);
    for (int64_t k = 0; k < radix; ++k)
      storeRow(tile, b.add(first, k * step), neighbour, values[k],
               /*toBuffer=*/stage + 1 != tile.sweep.end);
  };
  if (stage != 0 || !tile.steps.prepare)
    return forEachButterfly(tile, step, emitButterfly);
  b.loop(b.index(0), b.index(step), tile.steps.prepared, [&](Value first) {
    tile.steps.prepare(first);
    b.loop(first, b.add(first, tile.steps.prepared), 1,
           [&](Value butterfly) { emitButterfly(butterfly, b.index(0)); });
  });
}

void FFTKernel::emitInverseStage(const Tile &tile, unsigned stage, Value base,
                                 int64_t rows) {
  int64_t radix = radices[stage], step = rows / radix;
  bool wantsSecondHalf = stage == 0 && tile.steps.wantsSecondHalf;
  forEachButterfly(tile, step, [&](Value butterfly, Value neighbour) {
    Value entry = b.add(b.mul(butterfly, tile.sweep.stride),
                        b.add(tile.neighbour, neighbour));
    Factors factors = loadFactors(firstInverseFactor[stage], radix, entry);
    Value first = b.add(base, butterfly);
    Rows values(radix);
    for (int64_t k = 0; k < radix; ++k)
      values[k] = loadRow(tile, b.add(first, k * step), neighbour,
                          /*fromBuffer=*/stage + 1 != tile.sweep.end);
    values = evaluate(values, factors, /*inverse=*/true,
                      /*isHalfZero=*/false, wantsSecondHalf);
    for (int64_t t = wantsSecondHalf ? radix / 2 : 0; t < radix; ++t)
      storeRow(tile, b.add(first, t * step), neighbour, values[t],
               /*toBuffer=*/stage != tile.sweep.begin);
  });
}

/// The last stage, whose butterflies give neighbouring rows of the spectrum,
/// and the first of an inverse, which has no factors.
void FFTKernel::emitSpectrumStage(const Tile &tile, unsigned stage,
                                  Value base) {
  int64_t radix = radices[stage];
  bool isOnly = stage == 0, isBuffered = stage != tile.sweep.begin;
  bool isHalfZero = isOnly && tile.steps.isHalfZero;
  bool wantsSecondHalf = isOnly && tile.steps.wantsSecondHalf;
  Value zero = b.index(0);
  Value position = b.add(tile.firstRow, base);
  Factors factors;
  if (tile.direction.forward && !isOnly)
    factors = loadFactors(firstFactor[stage], radix, b.div(position, radix));
  Rows values(radix);
  if (tile.direction.forward) {
    for (int64_t t = 0; t < (isHalfZero ? radix / 2 : radix); ++t)
      values[t] = loadRow(tile, b.add(base, t), zero, isBuffered);
    values = evaluate(values, factors, /*inverse=*/false, isHalfZero);
  }
  tile.visit(position, values);
  if (!tile.direction.inverse)
    return;
  values = evaluate(values, /*factors=*/{}, /*inverse=*/true,
                    /*isHalfZero=*/false, wantsSecondHalf);
  for (int64_t t = wantsSecondHalf ? radix / 2 : 0; t < radix; ++t)
    storeRow(tile, b.add(base, t), zero, values[t], isBuffered);
}

/// Factors of one butterfly.
FFTKernel::Factors FFTKernel::loadFactors(int64_t first, int64_t radix,
                                          Value butterfly) {
  Value at = b.add(b.mul(butterfly, radix), first);
  at = arith::IndexCastOp::create(b, b.getI64Type(), at);
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type type = b.getStateType();
  Value start = LLVM::GEPOp::create(b, pointer, type, twiddles,
                                    ArrayRef<LLVM::GEPArg>{at});
  auto load = [&](int32_t at) {
    Value address = LLVM::GEPOp::create(b, pointer, type, start,
                                        ArrayRef<LLVM::GEPArg>{at});
    return b.broadcast(LLVM::LoadOp::create(b, type, address));
  };
  Factors factors;
  for (int64_t k = 0; k < radix; k += 2) {
    Value re = load(k);
    factors.push_back({re, load(k + 1)});
  }
  return factors;
}

//===----------------------------------------------------------------------===//
// Butterflies
//===----------------------------------------------------------------------===//

Value FFTKernel::negate(Value vector) {
  return arith::NegFOp::create(b, vector);
}

ComplexRow FFTKernel::multiply(ComplexRow a, ComplexRow c) {
  Value cross = b.fmul(a.im, c.im), turned = b.fmul(a.im, c.re);
  return {b.fma(a.re, c.re, negate(cross)), b.fma(a.re, c.im, turned)};
}

FFTKernel::Rows FFTKernel::evaluate(const Rows &rows, const Factors &factors,
                                    bool inverse, bool isHalfZero,
                                    bool wantsSecondHalf) {
  return evaluate(rows, rows.size(), /*power=*/0, factors, inverse, isHalfZero,
                  wantsSecondHalf);
}

/// The values of a polynomial at `w r^power` times the roots of unity of as
/// many as there are rows, r being that of `radix`: the sum and the difference
/// of its halves, each at half of the roots.
FFTKernel::Rows FFTKernel::evaluate(const Rows &rows, int64_t radix,
                                    int64_t power, const Factors &factors,
                                    bool inverse, bool isHalfZero,
                                    bool wantsSecondHalf) {
  int64_t count = rows.size(), half = count / 2;
  if (count == 1)
    return rows;
  int64_t eighths = 4 * power * count / radix;
  ComplexRow factor;
  if (!factors.empty()) {
    // The table has the factor at power 0 for all levels but the last, and for
    // that at every one that is no quarter turn from another.
    int64_t level = llvm::Log2_64(radix / count);
    factor = factors[level + eighths % 2];
  }
  bool onlyDifference = wantsSecondHalf && count == 2;
  Rows even, odd, result;
  for (int64_t t = 0; t < half; ++t) {
    auto [sum, difference] = isHalfZero
                                 ? std::pair(rows[t], rows[t])
                                 : combine(rows[t], rows[t + half], factor,
                                           eighths, inverse, onlyDifference);
    even.push_back(sum);
    odd.push_back(difference);
  }
  even = evaluate(even, radix, power, factors, inverse, false, wantsSecondHalf);
  odd = evaluate(odd, radix, power + radix / count, factors, inverse, false,
                 wantsSecondHalf);
  for (int64_t k = 0; k < half; ++k)
    result.append({even[k], odd[k]});
  return result;
}

/// `a + f c` and `a - f c`, where `f` is the factor times a root of unity, in
/// eighths of a turn; an odd one is in the factor already.
std::pair<ComplexRow, ComplexRow>
FFTKernel::combine(ComplexRow a, ComplexRow c, ComplexRow factor,
                   int64_t eighths, bool inverse, bool onlyDifference) {
  bool isOdd = eighths % 2;
  if (eighths >= 2)
    c = inverse ? ComplexRow{negate(c.im), c.re}
                : ComplexRow{c.im, negate(c.re)};
  if (!factor.re && !isOdd)
    return {{b.fadd(a.re, c.re), b.fadd(a.im, c.im)},
            {b.fsub(a.re, c.re), b.fsub(a.im, c.im)}};
  if (!factor.re) {
    ComplexRow turned =
        inverse ? ComplexRow{b.fsub(c.re, c.im), b.fadd(c.re, c.im)}
                : ComplexRow{b.fadd(c.re, c.im), b.fsub(c.im, c.re)};
    Value root = b.splat(std::sqrt(0.5));
    return {{b.fma(turned.re, root, a.re), b.fma(turned.im, root, a.im)},
            {b.fma(negate(turned.re), root, a.re),
             b.fma(negate(turned.im), root, a.im)}};
  }
  if (separateAdds) {
    // The product takes 4 operations, and both sums are as good as free.
    ComplexRow product = multiply(c, factor);
    return {{b.fadd(a.re, product.re), b.fadd(a.im, product.im)},
            {b.fsub(a.re, product.re), b.fsub(a.im, product.im)}};
  }
  ComplexRow minus = {negate(c.re), negate(c.im)};
  if (onlyDifference) {
    Value re = b.fma(minus.re, factor.re, a.re);
    Value im = b.fma(minus.im, factor.re, a.im);
    return {ComplexRow(),
            {b.fma(c.im, factor.im, re), b.fma(minus.re, factor.im, im)}};
  }
  Value re = b.fma(c.re, factor.re, a.re), im = b.fma(c.im, factor.re, a.im);
  ComplexRow sum = {b.fma(minus.im, factor.im, re), b.fma(c.re, factor.im, im)};
  // One operation instead of two: the difference is 2 a - sum.
  Value two = b.splat(2.0);
  return {sum,
          {b.fma(a.re, two, negate(sum.re)), b.fma(a.im, two, negate(sum.im))}};
}
