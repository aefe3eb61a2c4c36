//===- Fiber.cpp - Stacks that take turns on one thread -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fiber.h"

#include <cstdint>
#include <sys/mman.h>

using namespace fovea::simt;

static constexpr size_t kGuardBytes = 4096;

#ifdef FOVEA_SIMT_UCONTEXT

void Fiber::start(void *stack, size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}

void fovea::simt::switchFiber(Fiber &from, Fiber &to) {
  swapcontext(&from.context, &to.context);
}

#else

// Saves what the System V calling convention lets a callee keep, except the
// floating-point control words, which are the same for all fibers.
extern "C" void foveaSimtSwitch(void **save, void *to);
asm(R"(
.text
.p2align 4
.globl foveaSimtSwitch
.hidden foveaSimtSwitch
.type foveaSimtSwitch,@function
foveaSimtSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size foveaSimtSwitch,.-foveaSimtSwitch
)");

void Fiber::start(void *stack, size_t bytes, void (*entry)()) {
  // As after the call of a function: the stack pointer is 8 below a multiple
  // of 16, at a return address that is never used.
  auto *top = reinterpret_cast<uint64_t *>(static_cast<char *>(stack) + bytes);
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(entry);
  for (int i = 0; i < 6; ++i)
    *--top = 0;
  stackPointer = top;
}

void fovea::simt::switchFiber(Fiber &from, Fiber &to) {
  foveaSimtSwitch(&from.stackPointer, to.stackPointer);
}

#endif

Stacks::~Stacks() {
  if (memory)
    munmap(memory, count * (kBytes + kGuardBytes));
}

bool Stacks::reserve(size_t wanted) {
  if (wanted <= count)
    return true;
  if (memory)
    munmap(memory, count * (kBytes + kGuardBytes));
  count = 0;
  void *mapped =
      mmap(nullptr, wanted * (kBytes + kGuardBytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memory = mapped == MAP_FAILED ? nullptr : static_cast<char *>(mapped);
  if (!memory)
    return false;
  count = wanted;
  for (size_t i = 0; i < count; ++i)
    mprotect(memory + i * (kBytes + kGuardBytes), kGuardBytes, PROT_NONE);
  return true;
}

char *Stacks::get(size_t index) const {
  return memory + index * (kBytes + kGuardBytes) + kGuardBytes;
}

bool Stacks::isGuard(const void *address) const {
  auto *byte = static_cast<const char *>(address);
  return memory && byte >= memory &&
         byte < memory + count * (kBytes + kGuardBytes) &&
         (byte - memory) % (kBytes + kGuardBytes) < kGuardBytes;
}
