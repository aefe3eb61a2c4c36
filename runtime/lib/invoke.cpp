//===- invoke.cpp - Entry of kernels --------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/fovea_rt.h"
#include "gpu/queue.h"
#include "interrupt.h"
#include "memory.h"
#include "status.h"
#include "subnormals.h"

using namespace fovea::rt;

int32_t fovea_rt_version(void) { return FOVEA_RT_ABI_VERSION; }

namespace {

struct Call {
  void (*packed)(void **);
  void **args;
};

} // namespace

static void runCall(void *context) {
  const Call &call = *static_cast<const Call *>(context);
  call.packed(call.args);
}

fovea_rt_status fovea_rt_invoke(void (*packed)(void **), void **args) {
  if (!packed) {
    setLastError("cannot invoke a null kernel");
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  Call call{packed, args};
  FlushSubnormals flush;
  Invocation invocation;
  bool returned = callGuarded(&invocation, runCall, &call);
  // The host knows that it has stopped this kernel, even one that was done
  // before it saw that.
  bool succeeded = returned && !invocation.interrupted;
  closeQueues(invocation, succeeded);
  if (succeeded) {
    invocation.disown();
    setLastError("");
    return FOVEA_RT_OK;
  }
  invocation.freeAll();
  setLastError(returned ? interruptedText : failureMessage());
  return returned ? FOVEA_RT_INTERRUPTED : failureCode();
}
