//===- checks.h - What checks of numbers have found -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks of numbers that kernels index with run on the host or, for arrays on
// a GPU, there. Both give the same facts, of which the text of a failure is
// made here.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_CHECKS_H
#define FOVEA_RT_LIB_CHECKS_H

#include "fovea_rt/gpu.h"

#include <cstddef>
#include <initializer_list>

namespace fovea::rt {

/// Writes what is wrong by `rule`, a sentence of less than `bytes` bytes.
/// `kind` and `facts` are those of fovea_rt_gpu_rule.
void describeFailure(char *text, size_t bytes, const char *rule, int32_t kind,
                     const int64_t *facts);

/// Fails with that sentence.
[[noreturn]] void failCheck(const char *rule, int32_t kind,
                            std::initializer_list<int64_t> facts);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_CHECKS_H
