//===- scratch.h - Scratch memory of threads --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// Each thread owns one buffer per nesting depth of parallel loops. A buffer is
// reused by every later loop of that depth and only ever grows, so that warm
// kernels do not allocate.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_SCRATCH_H
#define FOVEA_RT_LIB_SCRATCH_H

#include <cstdint>

namespace fovea::rt {

/// Number of loops that this thread is inside of.
int scratchDepth();

/// Enters a loop: returns its buffer of at least `bytes` >= 0 bytes and
/// increments the depth; returns null and changes nothing if there is no
/// memory.
void *enterScratch(int64_t bytes);

/// Leaves loops until the depth is `depth`. The buffers stay for reuse.
void leaveScratch(int depth);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_SCRATCH_H
