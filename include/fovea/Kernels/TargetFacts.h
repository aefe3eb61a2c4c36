//===- TargetFacts.h - What kernels ask of their target ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Facts are entries of the devices "CPU" and "GPU" of a module's
// `dlti.target_system_spec`, which --attn-set-target writes.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_TARGETFACTS_H
#define FOVEA_KERNELS_TARGETFACTS_H

#include "fovea/Kernels/RegisterFile.h"
#include "mlir/IR/BuiltinOps.h"

namespace fovea::attn {

struct CPUFacts {
  /// Width of a vector register in bits, and the number of them.
  int64_t vectorBits = 256, numRegisters = 16;
  /// Whether additions have ports of their own beside multiply-adds.
  bool separateAdds = false;
  /// Whether vectors of half the width get as much done.
  bool splitVectors = false;
  /// Whether the dot product of bf16 pairs is faster than converting to f32.
  bool bf16Pairs = false;
  /// Whether there are AMX's tiles of bf16, and AVX-512's conversions to it.
  bool amx = false;

  RegisterFile getRegisters() const { return {vectorBits, numRegisters}; }

  /// Those of the module around `op`, which has an error if they cannot be.
  static mlir::FailureOr<CPUFacts> of(mlir::Operation *op);
  /// Makes `module` one for such a CPU.
  void setIn(mlir::ModuleOp module) const;
};

struct GPUFacts {
  /// Shared memory that a block can have, in bytes.
  int64_t sharedBytes = 166912;
  /// Whether kernels may have tiles of warpgroups, for sm_90a.
  bool warpgroups = false;

  static GPUFacts of(mlir::Operation *op);
  void setIn(mlir::ModuleOp module) const;
};

/// Whether the module around `op` is for a GPU.
bool isForGPU(mlir::Operation *op);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_TARGETFACTS_H
