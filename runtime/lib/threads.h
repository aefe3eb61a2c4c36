//===- threads.h - Number of threads ----------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_THREADS_H
#define FOVEA_RT_LIB_THREADS_H

namespace fovea::rt {

/// CPUs that the process may run on, at least 1.
int availableCpus();

/// Threads of the next parallel loop, at least 1.
int numThreads();

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_THREADS_H
