//===- FourierTransform.h - Transforms for the emulated device --*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_FOURIERTRANSFORM_H
#define FOVEA_LIB_EMULATOR_FOURIERTRANSFORM_H

#include <cstdint>

namespace fovea::simt {

/// What cuFFT does on a GPU: `count` transforms in place of `length` complex
/// numbers each, a power of two, with a positive exponent for `inverse`.
void transformLines(float *data, int64_t length, int64_t count, bool inverse);

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_FOURIERTRANSFORM_H
