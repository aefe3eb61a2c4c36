//===- Passes.td - Passes that generate GPU code -----------*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_NVVM_PASSES_TD
#define FOVEA_TARGET_NVVM_PASSES_TD

include "mlir/Pass/PassBase.td"

def SerializeGPUModulesPass
    : Pass<"fovea-serialize-gpu-modules", "::mlir::ModuleOp"> {
  let summary = "generate the code of GPU modules";
  let description = [{
    Gives every `gpu.module` in the LLVM and NVVM dialects its code as attributes:
    `attn.ptx`, PTX text, and `attn.bitcode`, the LLVM module that it comes from,
    which the emulator runs. Nothing of a CUDA toolkit is needed.
  }];
  let options = [
    Option<"chip", "chip", "std::string", /*default=*/"\"sm_80\"",
           "GPU to generate code for">,
    Option<"features", "features", "std::string", /*default=*/"\"\"",
           "PTX version, such as +ptx80; empty for the oldest that will do">,
    Option<"optLevel", "opt-level", "unsigned", /*default=*/"3",
           "effort of LLVM's optimizer, 0 to 3">
  ];
}

#endif // FOVEA_TARGET_NVVM_PASSES_TD
