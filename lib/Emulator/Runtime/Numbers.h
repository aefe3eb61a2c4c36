//===- Numbers.h - Formats of numbers ---------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_NUMBERS_H
#define FOVEA_LIB_EMULATOR_RUNTIME_NUMBERS_H

#include "fovea_rt/half_float.h"

namespace fovea::simt {

using fovea::toBits;
using fovea::toFloat;

inline double toDouble(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

inline uint64_t toBits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return bits;
}

/// A half of a register: the lower one, 0, or the upper one, 1.
inline float halfToFloat(bool isBF16, uint32_t bits, unsigned half = 0) {
  auto part = static_cast<uint16_t>(bits >> 16 * half);
  return isBF16 ? extendBF16(part) : extendF16(part);
}

/// The device makes one NaN only.
inline uint32_t toHalfBits(bool isBF16, float value) {
  if (std::isnan(value))
    return 0x7fff;
  return isBF16 ? truncateToBF16(value) : truncateToF16(value);
}

/// What a tensor core reads of a register with a tf32 number.
inline float tf32ToFloat(uint32_t bits) { return toFloat(bits & 0xffffe000); }

/// Subnormal numbers become zero, as .ftz says.
inline float flush(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_NUMBERS_H
