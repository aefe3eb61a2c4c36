//===- relax.h - A pause in a loop that waits -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_RELAX_H
#define FOVEA_RT_LIB_RELAX_H

namespace fovea::rt {

/// Lets other threads of the core run for a moment.
inline void cpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // An instruction barrier waits longer than `yield`, which is a no-op on many
  // cores.
  asm volatile("isb" ::: "memory");
#endif
}

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_RELAX_H
