//===- Faults.h - Accesses to memory that is not there ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_FAULTS_H
#define FOVEA_LIB_EMULATOR_RUNTIME_FAULTS_H

#include <csignal>
#include <cstddef>
#include <memory>

namespace fovea::simt {

/// While it lives, a bad access by an emulated thread fails the launch instead
/// of ending the process. The failing thread goes on, to report it, on `stack`:
/// its own may be what overflowed.
class FaultHandler {
public:
  FaultHandler(char *stack, size_t bytes);
  ~FaultHandler();

private:
  stack_t previousStack = {};
  std::unique_ptr<char[]> signalStack;
  void *previousReport;
};

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_FAULTS_H
