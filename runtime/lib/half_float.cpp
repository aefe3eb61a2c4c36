//===- half_float.cpp - Conversions that compilers call -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/half_float.h"
#include "fovea_rt/abi.h"

using namespace fovea;

static float carry(uint16_t bits) { return toFloat(bits); }

// A program may have those of its libgcc, too.
#define FOVEA_RT_WEAK __attribute__((weak))

FOVEA_RT_WEAK float __truncsfbf2(float value) {
  return carry(truncateToBF16(value));
}
FOVEA_RT_WEAK float __truncdfbf2(double value) {
  return carry(truncateToBF16(truncateToOdd(value)));
}
FOVEA_RT_WEAK float __truncsfhf2(float value) {
  return carry(truncateToF16(value));
}
FOVEA_RT_WEAK float __truncdfhf2(double value) {
  return carry(truncateToF16(truncateToOdd(value)));
}
FOVEA_RT_WEAK float __extendhfsf2(float carried) {
  return extendF16(toBits(carried));
}
FOVEA_RT_WEAK float __extendbfsf2(float carried) {
  return extendBF16(toBits(carried));
}
