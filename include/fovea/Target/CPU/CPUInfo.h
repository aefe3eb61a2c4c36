//===- CPUInfo.h - What code generation asks of a CPU -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_CPU_CPUINFO_H
#define FOVEA_TARGET_CPU_CPUINFO_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace fovea {

/// The facts about a CPU that tile sizes and instruction choice follow from.
struct CPUInfo {
  std::string name;         // as LLVM names it
  std::string features;     // LLVM feature string; empty for a named CPU
  int64_t vectorBits = 128; // width of a vector register
  int64_t numRegisters = 16;
  /// Whether the dot product of bf16 pairs, `vdpbf16ps`, is faster than
  /// converting to f32. Zen 4 runs it at the rate of an f32 product, for twice
  /// the work; Sapphire Rapids at a quarter (measured: 86 against 175 GFLOP/s).
  bool hasFastBF16Dot = false;
  /// Whether bf16 is multiplied by AMX, whose tiles do sixteen times the work
  /// of f32 products: it has them, and this process may use them if it is to.
  bool hasAMX = false;
  /// Whether additions have ports of their own beside those of multiply-adds,
  /// as on all Zen.
  bool hasSeparateAdds = false;
  /// Whether vectors of full width are executed in two halves, so that those of
  /// half the width get as much done, as on Zen 4.
  bool splitsVectors = false;
};

/// Describes `cpu`: the name of a CPU that LLVM knows, such as `x86-64`,
/// `haswell` or `znver4`, or `native` for the one this runs on. A name may be
/// followed by `,+fast-bf16-dot` or `,-fast-bf16-dot`, which decides whether
/// bf16 is multiplied by `vdpbf16ps` or as f32, not by AMX. Anything else is an
/// error.
llvm::Expected<CPUInfo> getCPUInfo(llvm::StringRef cpu);

} // namespace fovea

#endif // FOVEA_TARGET_CPU_CPUINFO_H
