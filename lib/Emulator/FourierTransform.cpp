//===- FourierTransform.cpp - Transforms for the emulated device ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FourierTransform.h"

#include <cmath>
#include <complex>
#include <utility>
#include <vector>

using Number = std::complex<float>;

/// The permutation that reverses the bits of positions.
static void reverseBits(Number *line, int64_t length) {
  for (int64_t from = 1, to = 0; from < length; ++from) {
    int64_t bit = length >> 1;
    for (; to & bit; bit >>= 1)
      to ^= bit;
    to |= bit;
    if (from < to)
      std::swap(line[from], line[to]);
  }
}

void fovea::simt::transformLines(float *data, int64_t length, int64_t count,
                                 bool inverse) {
  std::vector<Number> factors(length / 2);
  for (int64_t k = 0; k < length / 2; ++k) {
    double angle = (inverse ? 2 : -2) * 3.14159265358979323846 * k / length;
    factors[k] = Number(std::cos(angle), std::sin(angle));
  }
  auto *lines = reinterpret_cast<Number *>(data);
  for (Number *line = lines; line != lines + count * length; line += length) {
    reverseBits(line, length);
    for (int64_t half = 1; half < length; half *= 2)
      for (int64_t first = 0; first < length; first += 2 * half)
        for (int64_t k = 0; k < half; ++k) {
          Number &a = line[first + k], &b = line[first + half + k];
          Number f = factors[k * (length / 2 / half)];
          // Without the checks for infinities that operator * makes.
          Number turned(b.real() * f.real() - b.imag() * f.imag(),
                        b.real() * f.imag() + b.imag() * f.real());
          b = a - turned;
          a += turned;
        }
  }
}
