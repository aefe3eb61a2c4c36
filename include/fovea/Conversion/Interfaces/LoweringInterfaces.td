//===- LoweringInterfaces.td - Operations that have code -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_INTERFACES_LOWERINGINTERFACES_TD
#define FOVEA_CONVERSION_INTERFACES_LOWERINGINTERFACES_TD

include "mlir/IR/OpBase.td"

def LowerToVectorOpInterface : OpInterface<"LowerToVectorOpInterface"> {
  let cppNamespace = "::fovea::attn";
  let description = [{
    An operation that `--convert-attn-to-vector` replaces, on memrefs, by parallel
    vector code for a CPU.
  }];
  let methods = [
    InterfaceMethod<[{
      Finds later operations that the code of this one computes, too, before any
      is lowered.
    }], "void", "claimOthers",
    (ins "::fovea::attn::VectorLowering &":$lowering), /*methodBody=*/"",
    /*defaultImplementation=*/"(void)lowering;">,
    InterfaceMethod<[{
      Emits the code at the builder's insertion point, before the operation, and
      erases the operation and those that it claimed. An error says what the code
      cannot take.
    }], "::llvm::LogicalResult", "lowerToVector",
    (ins "::mlir::OpBuilder &":$builder,
         "::fovea::attn::VectorLowering &":$lowering)>
  ];
}

def LowerToGPUOpInterface : OpInterface<"LowerToGPUOpInterface"> {
  let cppNamespace = "::fovea::attn";
  let description = [{
    An operation that `--convert-attn-to-gpu` replaces, on memrefs, by kernels and
    parallel loops for a GPU.
  }];
  let methods = [
    InterfaceMethod<[{
      Emits the code at the builder's insertion point, before the operation, and
      erases the operation. An error says what the code cannot take.
    }], "::llvm::LogicalResult", "lowerToGPU",
    (ins "::mlir::OpBuilder &":$builder,
         "::fovea::attn::GPULowering &":$lowering)>
  ];
}

def LowerToReferenceOpInterface : OpInterface<"LowerToReferenceOpInterface"> {
  let cppNamespace = "::fovea::attn";
  let description = [{
    An operation that `--attn-lower-to-reference` replaces, on memrefs, by the most
    direct loops that compute it.
  }];
  let methods = [
    InterfaceMethod<"Replaces the operation by its loops.",
                    "::llvm::LogicalResult", "lowerToReference">
  ];
}

#endif // FOVEA_CONVERSION_INTERFACES_LOWERINGINTERFACES_TD
