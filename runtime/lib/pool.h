//===- pool.h - Worker threads ----------------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_POOL_H
#define FOVEA_RT_LIB_POOL_H

namespace fovea::rt {

/// Work that several threads share. Each thread that takes part calls one of
/// these once; the call returns, always normally, when the thread finds nothing
/// left to do.
class SharedWork {
public:
  virtual void runOnOwner() = 0;
  virtual void runOnWorker() = 0;

protected:
  ~SharedWork() = default;
};

/// Runs `work` on the calling thread and on up to `threads - 1` workers, and
/// returns true after all of them are done. Returns false without running it
/// when the workers are busy with another caller's work.
bool runOnPool(SharedWork &work, int threads);

/// Whether a worker has to be woken, or made, before it can take part.
bool poolSleeps();

/// Ends the workers beyond the number of threads now set, unless they are in
/// use; the next loop does it then.
void trimPool();

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_POOL_H
