//===- FFTKernel.cpp - Fourier transforms over columns --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FFT/FFTKernel.h"
#include "RuntimeCalls.h"
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

FFTKernel::FFTKernel(KernelBuilder &builder, ArrayRef<int64_t> radices,
                     Value twiddles)
    : b(builder), radices(radices), twiddles(twiddles) {
  for (int64_t radix : radices)
    length *= radix;
  int64_t offset = 0, rows = length;
  for (int64_t radix : radices) {
    firstTwiddle.push_back(offset);
    rows /= radix;
    offset += 2 * rows * (radix - 1);
  }
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

void FFTKernel::forward(const Steps &steps, VisitSpectrum visit) {
  emit(0, b.index(0), length, {true, false}, steps, visit);
}

void FFTKernel::inverse(const Steps &steps, VisitSpectrum fill) {
  emit(0, b.index(0), length, {false, true}, steps, fill);
}

void FFTKernel::convolve(const Steps &steps, VisitSpectrum change) {
  emit(0, b.index(0), length, {true, true}, steps, change);
}

/// Emits the sub-transform of `rows` rows from `base` on, where earlier stages
/// are done, and the inverse of its stages.
void FFTKernel::emit(unsigned stage, Value base, int64_t rows,
                     Direction direction, const Steps &steps,
                     VisitSpectrum visit) {
  int64_t radix = radices[stage];
  if (stage + 1 < radices.size()) {
    if (direction.forward)
      emitForwardStage(stage, base, rows, steps);
    int64_t part = rows / radix;
    b.loop(base, b.add(base, rows), part, [&](Value base) {
      emit(stage + 1, base, part, direction, steps, visit);
    });
    if (direction.inverse)
      emitInverseStage(stage, base, rows, steps);
    return;
  }
  // The last stage has one butterfly, and no factors.
  bool isOnly = stage == 0;
  Rows values(radix);
  if (direction.forward) {
    bool isHalfZero = isOnly && steps.isHalfZero;
    for (int64_t t = 0; t < (isHalfZero ? radix / 2 : radix); ++t)
      values[t] = isOnly && steps.source ? steps.source(b.add(base, t))
                                         : steps.load(b.add(base, t));
    values = transform(std::move(values), isHalfZero);
  }
  visit(base, values);
  if (!direction.inverse)
    return;
  values = invert(std::move(values));
  for (int64_t t = 0; t < radix; ++t) {
    if (!isOnly || !steps.sink)
      steps.store(b.add(base, t), values[t]);
    else if (steps.wanted == Half::None ||
             (steps.wanted == Half::First) == (t < radix / 2))
      steps.sink(b.add(base, t), values[t]);
  }
}

void FFTKernel::emitForwardStage(unsigned stage, Value base, int64_t rows,
                                 const Steps &steps) {
  int64_t radix = radices[stage], stride = rows / radix;
  bool isFirst = stage == 0, isHalfZero = isFirst && steps.isHalfZero;
  b.loop(b.index(0), b.index(stride), 1, [&](Value butterfly) {
    Value first = b.add(base, butterfly);
    Rows values(radix);
    for (int64_t t = 0; t < (isHalfZero ? radix / 2 : radix); ++t) {
      Value row = b.add(first, t * stride);
      values[t] = isFirst && steps.source ? steps.source(row) : steps.load(row);
    }
    values = transform(std::move(values), isHalfZero);
    Rows factors = loadTwiddles(stage, butterfly);
    for (int64_t k = 0; k < radix; ++k)
      steps.store(b.add(first, k * stride),
                  k ? multiply(values[k], factors[k]) : values[k]);
  });
}

void FFTKernel::emitInverseStage(unsigned stage, Value base, int64_t rows,
                                 const Steps &steps) {
  int64_t radix = radices[stage], stride = rows / radix;
  bool isLast = stage == 0 && steps.sink;
  b.loop(b.index(0), b.index(stride), 1, [&](Value butterfly) {
    Value first = b.add(base, butterfly);
    Rows factors = loadTwiddles(stage, butterfly), values(radix);
    for (int64_t k = 0; k < radix; ++k) {
      values[k] = steps.load(b.add(first, k * stride));
      if (k)
        values[k] = multiply(values[k], factors[k], /*conjugate=*/true);
    }
    values = invert(std::move(values));
    for (int64_t t = 0; t < radix; ++t) {
      Value row = b.add(first, t * stride);
      if (!isLast)
        steps.store(row, values[t]);
      else if (steps.wanted == Half::None ||
               (steps.wanted == Half::First) == (t < radix / 2))
        steps.sink(row, values[t]);
    }
  });
}

FFTKernel::Rows FFTKernel::loadTwiddles(unsigned stage, Value butterfly) {
  int64_t radix = radices[stage];
  Value first = b.add(b.mul(butterfly, 2 * (radix - 1)), firstTwiddle[stage]);
  first = arith::IndexCastOp::create(b, b.getI64Type(), first);
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type type = b.getStateType();
  Value start = LLVM::GEPOp::create(b, pointer, type, twiddles,
                                    ArrayRef<LLVM::GEPArg>{first});
  auto load = [&](int32_t at) {
    Value address = LLVM::GEPOp::create(b, pointer, type, start,
                                        ArrayRef<LLVM::GEPArg>{at});
    return b.broadcast(LLVM::LoadOp::create(b, type, address));
  };
  Rows factors(1);
  for (int64_t k = 1; k < radix; ++k) {
    Value re = load(2 * k - 2);
    factors.push_back({re, load(2 * k - 1)});
  }
  return factors;
}

//===----------------------------------------------------------------------===//
// Butterflies
//===----------------------------------------------------------------------===//

ComplexRow FFTKernel::add(ComplexRow a, ComplexRow c) {
  return {b.fadd(a.re, c.re), b.fadd(a.im, c.im)};
}

ComplexRow FFTKernel::sub(ComplexRow a, ComplexRow c) {
  return {b.fsub(a.re, c.re), b.fsub(a.im, c.im)};
}

Value FFTKernel::negate(Value vector) {
  return arith::NegFOp::create(b, vector);
}

ComplexRow FFTKernel::multiply(ComplexRow a, ComplexRow c, bool conjugate) {
  Value cross = b.fmul(a.im, c.im), turned = b.fmul(a.im, c.re);
  if (conjugate)
    return {b.fma(a.re, c.re, cross), b.fsub(turned, b.fmul(a.re, c.im))};
  return {b.fma(a.re, c.re, negate(cross)), b.fma(a.re, c.im, turned)};
}

/// Multiplies by `exp(-2 pi i sixteenths / 16)`, an even number of them below
/// 8; by its conjugate for an inverse.
ComplexRow FFTKernel::rotate(ComplexRow row, int64_t sixteenths, bool inverse) {
  auto [re, im] = row;
  if (sixteenths == 0)
    return row;
  if (sixteenths == 4)
    return inverse ? ComplexRow{negate(im), re} : ComplexRow{im, negate(re)};
  Value root = b.splat(std::sqrt(0.5));
  Value sum = b.fmul(b.fadd(re, im), root);
  Value difference = b.fmul(b.fsub(re, im), root);
  if (sixteenths == 2)
    return inverse ? ComplexRow{difference, sum}
                   : ComplexRow{sum, negate(difference)};
  return inverse ? ComplexRow{negate(sum), difference}
                 : ComplexRow{negate(difference), negate(sum)};
}

/// The transform of a few rows, in natural order. Without rows from the second
/// half on if that is zero.
FFTKernel::Rows FFTKernel::transform(Rows rows, bool isHalfZero) {
  int64_t radix = rows.size(), half = radix / 2;
  if (radix == 1)
    return rows;
  Rows even, odd;
  for (int64_t t = 0; t < half; ++t) {
    even.push_back(isHalfZero ? rows[t] : add(rows[t], rows[t + half]));
    ComplexRow difference = isHalfZero ? rows[t] : sub(rows[t], rows[t + half]);
    odd.push_back(rotate(difference, t * (16 / radix), /*inverse=*/false));
  }
  even = transform(std::move(even), /*isHalfZero=*/false);
  odd = transform(std::move(odd), /*isHalfZero=*/false);
  Rows result;
  for (int64_t k = 0; k < half; ++k)
    result.append({even[k], odd[k]});
  return result;
}

/// The inverse of `transform`, times the number of rows.
FFTKernel::Rows FFTKernel::invert(Rows rows) {
  int64_t radix = rows.size(), half = radix / 2;
  if (radix == 1)
    return rows;
  Rows even, odd;
  for (int64_t k = 0; k < half; ++k) {
    even.push_back(rows[2 * k]);
    odd.push_back(rows[2 * k + 1]);
  }
  even = invert(std::move(even));
  odd = invert(std::move(odd));
  Rows result(radix);
  for (int64_t t = 0; t < half; ++t) {
    ComplexRow turned = rotate(odd[t], t * (16 / radix), /*inverse=*/true);
    result[t] = add(even[t], turned);
    result[t + half] = sub(even[t], turned);
  }
  return result;
}
