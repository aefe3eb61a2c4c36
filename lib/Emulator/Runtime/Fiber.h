//===- Fiber.h - Stacks that take turns on one thread -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_FIBER_H
#define FOVEA_LIB_EMULATOR_RUNTIME_FIBER_H

#include <cstddef>

#if !defined(__x86_64__)
#define FOVEA_SIMT_UCONTEXT
#include <ucontext.h>
#endif

namespace fovea::simt {

/// A suspended computation: a stack and the place where it goes on.
struct Fiber {
#ifdef FOVEA_SIMT_UCONTEXT
  ucontext_t context;
#else
  void *stackPointer = nullptr;
#endif

  /// Lets the fiber start at `entry`, which must not return, on `stack`.
  void start(void *stack, size_t bytes, void (*entry)());
};

/// Suspends the running computation in `from` and goes on with `to`.
void switchFiber(Fiber &from, Fiber &to);

/// Stacks of this thread, kept from launch to launch. Below each lies a page
/// that cannot be accessed.
class Stacks {
public:
  static constexpr size_t kBytes = 256 << 10;
  ~Stacks();

  /// At least `count` stacks; false if there is no memory.
  bool reserve(size_t count);
  /// Lowest usable address of a stack.
  char *get(size_t index) const;
  /// True if `address` is on a guard page.
  bool isGuard(const void *address) const;

private:
  char *memory = nullptr;
  size_t count = 0;
};

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_FIBER_H
