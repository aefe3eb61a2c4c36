//===- FatalErrors.cpp - Where LLVM would end the process -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LLVM has no exceptions: where it runs out of memory, or gives up, it calls a
// handler, which must not return, or operator new throws. All leave the body by
// an exception, over frames that have unwind tables but nothing to clean up.
// What these frames own is lost, and a lock would stay locked.
//
// This file alone is compiled with exceptions.
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/LLVM/FatalErrors.h"
#include "llvm/Support/ErrorHandling.h"
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <sys/mman.h>

using namespace llvm;

namespace {
/// Thrown where LLVM gives up for another reason than memory.
struct FatalError {
  std::string reason;
};
} // namespace

/// Whether somebody catches what is thrown on this thread.
static thread_local bool isCaught = false;

static void handleBadAlloc(void *, const char *reason, bool) {
  if (isCaught)
    throw std::bad_alloc();
  std::fprintf(stderr, "LLVM ERROR: out of memory\n%s\n", reason);
  std::abort();
}

static void handleFatalError(void *, const char *reason, bool) {
  if (isCaught)
    throw FatalError{reason};
  // The caller ends the process.
  std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
}

static void installHandlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    install_bad_alloc_error_handler(handleBadAlloc);
    install_fatal_error_handler(handleFatalError);
  });
}

Error fovea::catchFatalErrors(function_ref<Error()> body) {
  installHandlers();
  bool wasCaught = isCaught, ranOutOfMemory = false;
  isCaught = true;
  std::string reason;
  try {
    Error error = body();
    isCaught = wasCaught;
    return error;
  } catch (const std::bad_alloc &) {
    ranOutOfMemory = true;
  } catch (FatalError &error) {
    reason = std::move(error.reason);
  }
  isCaught = wasCaught;
  if (ranOutOfMemory)
    return createStringError("out of memory while compiling");
  return createStringError("the compiler gave up: " + reason);
}

void fovea::requireMemory(size_t bytes) {
  if (!isCaught)
    return;
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw std::bad_alloc();
  munmap(memory, bytes);
}
