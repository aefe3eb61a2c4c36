//===- parallel.h - The running body of a parallel loop ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_PARALLEL_H
#define FOVEA_RT_LIB_PARALLEL_H

#include <cstdint>

namespace fovea::rt {

/// Index of the body that this thread runs, of the innermost loop; -1 outside.
int64_t currentIndex();

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_PARALLEL_H
