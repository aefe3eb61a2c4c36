//===- LowerToReferenceFFT.cpp - Fourier transforms as plain loops --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// A complex number.
struct Complex {
  Value re, im;
};
} // namespace

static Complex multiply(ReferenceBuilder &ref, Complex a, Complex b) {
  return {
      ref.subNumbers(ref.mulNumbers(a.re, b.re), ref.mulNumbers(a.im, b.im)),
      ref.addNumbers(ref.mulNumbers(a.re, b.im), ref.mulNumbers(a.im, b.re))};
}

static Value remainder(ReferenceBuilder &ref, Value a, Value b) {
  return ref.sub(a, ref.mul(ref.div(a, b), b));
}

/// The frequency of row `position`.
static Value frequencyOf(ReferenceBuilder &ref, SpectrumAttr form,
                         Value position) {
  int64_t below = form.getLength(), above = 1;
  Value frequency = ref.index(0);
  for (int64_t radix : form.getRadices()) {
    below /= radix;
    Value digit =
        remainder(ref, ref.div(position, ref.index(below)), ref.index(radix));
    frequency = ref.add(frequency, ref.mul(digit, ref.index(above)));
    above *= radix;
  }
  return frequency;
}

/// `exp(sign 2 pi i frequency row / length)`.
static Complex rootOf(ReferenceBuilder &ref, Value frequency, Value row,
                      int64_t length, double sign) {
  constexpr double kPi = 3.14159265358979323846;
  Value turns = remainder(ref, ref.mul(frequency, row), ref.index(length));
  Value angle =
      ref.mulNumbers(ref.toNumber(turns), ref.number(sign * 2 * kPi / length));
  return {ref.cos(angle), ref.sin(angle)};
}

/// Visits all complex columns of spectra: the positions of their two parts.
static void forEachPair(ReferenceBuilder &ref, SpectrumAttr form,
                        Value spectrum,
                        llvm::function_ref<void(Value, Value, Value)> visit) {
  Value lanes = ref.index(form.getLanes()), group = ref.index(form.getGroup());
  ref.forEach(ref.extent(spectrum, 0), [&](Value b) {
    ref.forEach(ref.div(ref.extent(spectrum, 2), group), [&](Value c) {
      ref.forEach(lanes, [&](Value lane) {
        Value re = ref.add(ref.mul(c, group), lane);
        visit(b, re, ref.add(re, lanes));
      });
    });
  });
}

/// Sums `root * number(row)` over `numRows` rows.
static Complex sumRows(ReferenceBuilder &ref, Value numRows,
                       llvm::function_ref<Complex(Value row)> root,
                       llvm::function_ref<Complex(Value row)> number) {
  auto part = [&](bool imaginary) {
    return ref.accumulate(
        ref.index(0), numRows, ref.number(0.0), [&](Value row, Value sum) {
          Complex product = multiply(ref, root(row), number(row));
          return ref.addNumbers(sum, imaginary ? product.im : product.re);
        });
  };
  Value re = part(false);
  return {re, part(true)};
}

void fovea::attn::lowerToReference(FFTForwardOp op) {
  ReferenceBuilder ref(op);
  SpectrumAttr form = op.getForm();
  Value input = op.getInput(), width = ref.extent(input, 2);
  forEachPair(ref, form, op.getSpectrum(), [&](Value b, Value re, Value im) {
    ref.forEach(ref.index(form.getLength()), [&](Value position) {
      Value frequency = frequencyOf(ref, form, position);
      auto load = [&](Value row, Value column) {
        return ref.when(
            ref.less(column, width),
            [&] { return ref.load(input, {b, row, column}); }, ref.number(0.0));
      };
      Complex sum = sumRows(
          ref, ref.extent(input, 1),
          [&](Value row) {
            return rootOf(ref, frequency, row, form.getLength(), -1.0);
          },
          [&](Value row) {
            Value real = load(row, re);
            return Complex{real, load(row, im)};
          });
      ref.store(sum.re, op.getSpectrum(), {b, position, re});
      ref.store(sum.im, op.getSpectrum(), {b, position, im});
    });
  });
  op.erase();
}

void fovea::attn::lowerToReference(FFTInverseOp op) {
  ReferenceBuilder ref(op);
  SpectrumAttr form = op.getForm();
  Value spectrum = op.getSpectrum(), width = ref.extent(op.getOutput(), 2);
  Value scale = ref.number(1.0 / form.getLength());
  forEachPair(ref, form, spectrum, [&](Value b, Value re, Value im) {
    ref.forEach(ref.extent(op.getOutput(), 1), [&](Value row) {
      Value at = ref.add(row, ref.index(op.getFirst()));
      Complex sum = sumRows(
          ref, ref.index(form.getLength()),
          [&](Value position) {
            return rootOf(ref, frequencyOf(ref, form, position), at,
                          form.getLength(), 1.0);
          },
          [&](Value position) {
            Value real = ref.load(spectrum, {b, position, re});
            return Complex{real, ref.load(spectrum, {b, position, im})};
          });
      auto store = [&](Value number, Value column) {
        // No loop where there is no such column.
        Value end = ref.min(ref.add(column, ref.index(1)), width);
        ref.forEach(column, end, [&](Value column) {
          ref.store(ref.mulNumbers(number, scale), op.getOutput(),
                    {b, row, column});
        });
      };
      store(sum.re, re);
      store(sum.im, im);
    });
  });
  op.erase();
}

template <typename OpTy> static void lowerProduct(OpTy op, bool accumulates) {
  ReferenceBuilder ref(op);
  SpectrumAttr form = op.getForm();
  Value spectrum = op.getSpectrum(), factor = op.getFactor();
  forEachPair(ref, form, spectrum, [&](Value b, Value re, Value im) {
    ref.forEach(ref.index(form.getLength()), [&](Value position) {
      auto load = [&](Value column) {
        return ref.loadBroadcast(factor, {b, position, column});
      };
      Complex product =
          multiply(ref,
                   {ref.load(spectrum, {b, position, re}),
                    ref.load(spectrum, {b, position, im})},
                   {load(ref.index(0)), load(ref.index(form.getLanes()))});
      auto store = [&](Value number, Value column) {
        if (accumulates)
          number = ref.addNumbers(
              ref.load(op.getOutput(), {b, position, column}), number);
        ref.store(number, op.getOutput(), {b, position, column});
      };
      store(product.re, re);
      store(product.im, im);
    });
  });
  op.erase();
}

void fovea::attn::lowerToReference(FFTMultiplyOp op) {
  lowerProduct(op, /*accumulates=*/false);
}

void fovea::attn::lowerToReference(FFTAccumulateOp op) {
  lowerProduct(op, /*accumulates=*/true);
}
