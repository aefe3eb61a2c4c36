//===- Numbers.h - Formats of numbers ---------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_NUMBERS_H
#define FOVEA_LIB_EMULATOR_RUNTIME_NUMBERS_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace fovea::simt {

inline float toFloat(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t toBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

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

inline float bf16ToFloat(uint32_t bits) { return toFloat(bits << 16); }

inline float f16ToFloat(uint32_t bits) {
  uint32_t sign = (bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00)
    return toFloat(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400)
    return toFloat(sign | toBits(float(magnitude) * 0x1p-24f));
  return toFloat(sign | ((magnitude << 13) + 0x38000000));
}

/// To nearest, ties to even.
inline uint32_t floatToBf16(float value) {
  uint32_t bits = toBits(value);
  if (std::isnan(value))
    return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline uint32_t floatToF16(float value) {
  uint32_t bits = toBits(value);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return 0x7fff;
  // 65520 and above round to infinity.
  if (magnitude >= 0x477ff000)
    return sign | 0x7c00;
  if (magnitude < 0x38800000)
    // Subnormal: adding 0.5 lets the hardware round at the right bit.
    return sign | (toBits(toFloat(magnitude) + 0.5f) - 0x3f000000);
  return sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
}

/// What a tensor core reads of a register with a tf32 number.
inline float tf32ToFloat(uint32_t bits) { return toFloat(bits & 0xffffe000); }

/// Subnormal numbers become zero, as .ftz says.
inline float flush(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_NUMBERS_H
