//===- Serialize.h - Code of GPU modules ------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_NVVM_SERIALIZE_H
#define FOVEA_TARGET_NVVM_SERIALIZE_H

#include "fovea/Target/NVVM/GPUInfo.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace llvm {
class Module;
} // namespace llvm

namespace fovea {

struct GPUCode {
  /// PTX text.
  std::string ptx;
  /// The optimised LLVM module that the PTX was generated from.
  std::string bitcode;
};

/// Generates code of a module in the LLVM and NVVM dialects, inside the process
/// and without a CUDA toolkit. `optLevel` is that of LLVM's optimizer, 0 to 3.
llvm::Expected<GPUCode> generateGPUCode(mlir::gpu::GPUModuleOp module,
                                        const GPUInfo &gpu,
                                        unsigned optLevel = 3);

/// The same for a module that is LLVM IR already; it is optimised in place.
llvm::Expected<GPUCode> generateGPUCode(llvm::Module &module,
                                        const GPUInfo &gpu,
                                        unsigned optLevel = 3);

/// Machine code for `gpu`, by the program `ptxas`; an error says what it said,
/// or that there is none on the path or in $CUDA_HOME/bin.
llvm::Expected<std::string> assemblePTX(llvm::StringRef ptx,
                                        const GPUInfo &gpu);

} // namespace fovea

#endif // FOVEA_TARGET_NVVM_SERIALIZE_H
