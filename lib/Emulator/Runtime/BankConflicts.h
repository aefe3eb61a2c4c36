//===- BankConflicts.h - Conflicts of ordinary accesses ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_BANKCONFLICTS_H
#define FOVEA_LIB_EMULATOR_RUNTIME_BANKCONFLICTS_H

#include "fovea/Emulator/Runtime/Launch.h"

#include <array>
#include <map>
#include <vector>

namespace fovea::simt {

struct Op;

/// Accesses to shared memory of one warp. Lanes do not run in step here: the
/// i-th access of each lane by one instruction, between two points at which the
/// lanes meet, is taken for one access of the warp.
class BankCounter {
public:
  void note(const Op *op, unsigned lane, uint32_t offset, uint32_t bytes);

  /// The lanes meet: counts what has been noted.
  void flush(Counters &counters);

private:
  struct Request {
    uint32_t lanes = 0;
    uint32_t bytes = 0;
    std::array<uint32_t, 32> offsets;
  };
  struct Site {
    std::vector<Request> requests;
    /// Accesses of each lane so far.
    std::array<uint32_t, 32> made = {};
  };
  std::map<const Op *, Site> sites;
};

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_BANKCONFLICTS_H
