//===- half_float.h - Floats of 16 bits -------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conversions that need no instructions of the CPU and nothing of LLVM. They
// round to nearest, ties to even, and are right where subnormal floats count as
// zero, as in kernels.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_HALF_FLOAT_H
#define FOVEA_RT_HALF_FLOAT_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace fovea {

inline float toFloat(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t toBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float extendBF16(uint16_t bits) { return toFloat(uint32_t(bits) << 16); }

inline float extendF16(uint16_t bits) {
  uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00)
    return toFloat(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  uint32_t moved = (magnitude << 13) + 0x38000000;
  // Subnormal numbers are normal in f32: arithmetic on normal numbers only.
  if (magnitude < 0x400)
    moved = toBits(toFloat(moved + 0x800000) - 0x1p-14f);
  return toFloat(sign | moved);
}

inline uint16_t truncateToBF16(float value) {
  uint32_t bits = toBits(value);
  if (std::isnan(value))
    return (bits >> 16) | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline uint16_t truncateToF16(float value) {
  uint32_t bits = toBits(value);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7e00 | (magnitude >> 13 & 0x1ff);
  // 65520 and above round to infinity.
  if (magnitude >= 0x477ff000)
    return sign | 0x7c00;
  // Subnormal: adding 0.5 lets the hardware round at the right bit.
  if (magnitude < 0x38800000)
    return sign | (toBits(toFloat(magnitude) + 0.5f) - 0x3f000000);
  return sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
}

/// Rounds to odd: a later rounding to 16 bits then sees what was cut off.
inline float truncateToOdd(double value) {
  auto rounded = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(rounded) == value)
    return rounded;
  uint32_t bits = toBits(rounded);
  // Towards zero first, then the last bit set.
  if (std::abs(static_cast<double>(rounded)) > std::abs(value))
    --bits;
  return toFloat(bits | 1);
}

} // namespace fovea

#endif // FOVEA_RT_HALF_FLOAT_H
