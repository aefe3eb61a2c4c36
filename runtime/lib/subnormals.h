//===- subnormals.h - Subnormal numbers while kernels run -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_SUBNORMALS_H
#define FOVEA_RT_LIB_SUBNORMALS_H

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fovea::rt {

/// Makes subnormal results zero on this thread while it lives. Soft-max
/// weights far below a row's maximum make products that small; an operation on
/// one takes a hundred times longer on some CPUs (measured: a kernel 3.4 times
/// slower), and none of them reaches a result of normal size.
class FlushSubnormals {
public:
  FlushSubnormals() : saved(read()) { write(saved | kFlush); }
  ~FlushSubnormals() { write(saved); }
  FlushSubnormals(const FlushSubnormals &) = delete;
  FlushSubnormals &operator=(const FlushSubnormals &) = delete;

private:
#if defined(__x86_64__)
  // Results only: operands can be subnormal on purpose, on the way from f16 to
  // f32 where the CPU has no instruction for it.
  static constexpr uint64_t kFlush = 0x8000;
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t state) {
    _mm_setcsr(static_cast<unsigned>(state));
  }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = uint64_t(1) << 24;
  static uint64_t read() {
    uint64_t state;
    asm volatile("mrs %0, fpcr" : "=r"(state));
    return state;
  }
  static void write(uint64_t state) {
    asm volatile("msr fpcr, %0" ::"r"(state));
  }
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t read() { return 0; }
  static void write(uint64_t) {}
#endif

  uint64_t saved;
  friend class KeepSubnormals;
};

/// Lets them be again while it lives, for the host's own code.
class KeepSubnormals {
public:
  KeepSubnormals() : saved(FlushSubnormals::read()) {
    FlushSubnormals::write(saved & ~FlushSubnormals::kFlush);
  }
  ~KeepSubnormals() { FlushSubnormals::write(saved); }
  KeepSubnormals(const KeepSubnormals &) = delete;
  KeepSubnormals &operator=(const KeepSubnormals &) = delete;

private:
  uint64_t saved;
};

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_SUBNORMALS_H
