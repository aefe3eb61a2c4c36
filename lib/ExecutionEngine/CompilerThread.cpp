//===- CompilerThread.cpp - Compilations that may give up -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where MLIR calls malloc, it does not look at what it gets. So there has to be
// memory for more than a usual compilation before each of its steps, and what
// catchFatalErrors catches are steps that take more than that at once.
//
// A thread of its own has its stack from the start. That of the main thread
// grows as it is used, and a page that it cannot get ends the process.
//
//===----------------------------------------------------------------------===//

#include "CompilerThread.h"
#include "fovea/Target/LLVM/FatalErrors.h"
#include <csignal>
#include <cstdlib>
#include <pthread.h>

using namespace llvm;

/// Twice what the main thread of a process usually has.
static constexpr size_t kStackBytes = size_t(16) << 20;
/// What steps of compilations take, with much to spare: address space, which is
/// what limits of a process count.
static constexpr size_t kHeadroomBytes = size_t(64) << 20;

namespace {
struct Task {
  function_ref<void()> body;
  Error error = Error::success();
};
} // namespace

static thread_local bool isCompilerThread = false;

void fovea::detail::checkHeadroom() {
  if (isCompilerThread)
    requireMemory(kHeadroomBytes);
}

static void *runTask(void *argument) {
  Task &task = *static_cast<Task *>(argument);
  isCompilerThread = true;
  cantFail(std::move(task.error));
  task.error = fovea::catchFatalErrors([&] {
    // What the allocator keeps for a thread is not part of the headroom.
    std::free(static_cast<void *volatile>(std::malloc(1)));
    fovea::detail::checkHeadroom();
    task.body();
    return Error::success();
  });
  return nullptr;
}

/// Starts a thread that leaves signals to those of the host, apart from those
/// that are its own fault.
static int startThread(pthread_t &thread, Task &task) {
  sigset_t blocked, previous;
  sigfillset(&blocked);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigdelset(&blocked, signal);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &blocked, &previous);
  int code = pthread_create(&thread, &attributes, runTask, &task);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_attr_destroy(&attributes);
  return code;
}

Error fovea::detail::runOnCompilerThread(function_ref<void()> body) {
  // One compilation may ask for another.
  if (isCompilerThread) {
    body();
    return Error::success();
  }
  Task task{body};
  pthread_t thread;
  if (startThread(thread, task) != 0) {
    cantFail(std::move(task.error));
    return createStringError("out of memory while compiling");
  }
  pthread_join(thread, nullptr);
  return std::move(task.error);
}
