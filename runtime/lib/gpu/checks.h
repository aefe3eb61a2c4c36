//===- checks.h - What checks on devices have found -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel that checks numbers writes what it finds into words: the place of
// the first wrong number, which is all ones without one; one more than the
// number of the rule, which is 0 meanwhile; and the facts of the failure. A
// call that waits for the device has such words on the device and copies them.
// Of a call that does not wait, the rule has words that the host reads later.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_CHECKS_H
#define FOVEA_RT_LIB_GPU_CHECKS_H

#include "device.h"

namespace fovea::rt {

constexpr int kRuleWord = 1, kFirstFact = 2;

/// The number of a rule, the same for the same text and kind; -1 without
/// memory.
int64_t numberRule(const char *text, int32_t kind);

/// The words of a rule, which the device and the host reach. They are made at
/// the first need, an error unless `mayMake`.
fovea_rt_status getReport(GPUDevice &device, int64_t rule, bool mayMake,
                          void **report, char *text);

/// Writes the sentence of a failure that `words` tell, if they tell one.
bool describeWords(const int64_t *words, char *text);

/// Takes a failure of calls that did not wait, if there is one: it is told
/// once. Waits for the device then.
bool takeReport(GPUDevice &device, char *text);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_GPU_CHECKS_H
