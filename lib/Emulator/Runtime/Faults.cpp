//===- Faults.cpp - Accesses to memory that is not there ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Faults.h"
#include "State.h"
#include "fovea/Emulator/Runtime/Memory.h"

#include <mutex>
#include <ucontext.h>

using namespace fovea::simt;

static struct sigaction previousSegv, previousBus;
/// Top of the stack on which a bad access is reported; null outside launches.
static thread_local void *reportStack = nullptr;
static thread_local const void *faultAddress = nullptr;

[[noreturn]] static void reportFault() {
  Block &block = *currentBlock;
  if (block.stacks->isGuard(faultAddress))
    fail(nullptr,
         "stack overflow: local memory of a thread is limited to %zu "
         "bytes here",
         Stacks::kBytes);
  if (Block *owner = block.cluster->findShared(faultAddress))
    fail(nullptr, "access outside shared memory: +%zd of %u bytes",
         static_cast<const char *>(faultAddress) - owner->shared,
         owner->sharedBytes);
  if (!faultAddress)
    // The machine gives none for what it does not even try.
    fail(nullptr, "access to the null pointer, to an address that no machine "
                  "has, or to one that is not aligned as the type demands");
  std::string *near = new std::string(describeDevice(faultAddress));
  const Op *last = block.current ? block.current->op : nullptr;
  char place[160] = "";
  if (last)
    snprintf(place, sizeof(place), "; its last operation was %.60s, %.60s",
             last->name.c_str(), last->where.c_str());
  char text[256];
  snprintf(text, sizeof(text), "%s", near->c_str());
  delete near;
  fail(nullptr, "access to address %p, which is no device memory%s%s%s",
       faultAddress, text[0] ? ": " : "", text, place);
}

static void handle(int signal, siginfo_t *info, void *context) {
  // Only accesses by emulated threads are ours.
  if (!reportStack || !currentBlock ||
      (!currentBlock->current && !currentBlock->inService)) {
    const struct sigaction &previous =
        signal == SIGSEGV ? previousSegv : previousBus;
    if (previous.sa_flags & SA_SIGINFO)
      previous.sa_sigaction(signal, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
      previous.sa_handler(signal);
    else
      // The access happens again, with the default action.
      sigaction(signal, &previous, nullptr);
    return;
  }
  faultAddress = info->si_addr;
  // The thread goes on with the report when the handler returns.
  auto *machine = static_cast<ucontext_t *>(context);
#if defined(__x86_64__)
  machine->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(reportFault);
  machine->uc_mcontext.gregs[REG_RSP] =
      reinterpret_cast<greg_t>(reportStack) - 8;
#elif defined(__aarch64__)
  machine->uc_mcontext.pc = reinterpret_cast<uintptr_t>(reportFault);
  machine->uc_mcontext.sp = reinterpret_cast<uintptr_t>(reportStack);
#else
#error "the emulator needs to know the registers of this machine"
#endif
}

FaultHandler::FaultHandler(char *stack, size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, [] {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previousSegv);
    sigaction(SIGBUS, &action, &previousBus);
  });
  size_t signalBytes = 64 << 10;
  signalStack = std::make_unique<char[]>(signalBytes);
  stack_t description = {};
  description.ss_sp = signalStack.get();
  description.ss_size = signalBytes;
  sigaltstack(&description, &previousStack);
  previousReport = reportStack;
  reportStack = stack + bytes;
}

FaultHandler::~FaultHandler() {
  reportStack = previousReport;
  sigaltstack(&previousStack, nullptr);
}
