//===- DifferentiableOpInterface.td - Operations with gradients -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIFFERENTIATE_DIFFERENTIABLEOPINTERFACE_TD
#define FOVEA_DIFFERENTIATE_DIFFERENTIABLEOPINTERFACE_TD

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::fovea::attn";
  let description = [{
    An operation whose vector-Jacobian product is known. `--attn-differentiate`
    goes through a function from its end to its start and asks each operation for
    the adjoints of its operands, given those of its results.
  }];
  let methods = [
    InterfaceMethod<[{
      Adds to the adjoints of the operands what they get through this operation.
      At least one result has an adjoint; one without is zero. Operands that are
      not active need nothing. The values of the operation can be used: it comes
      before the builder's insertion point.

      The operation may replace itself by one that returns more. An error says
      which use of the operation has no gradient.
    }], "::llvm::LogicalResult", "emitVJP",
    (ins "::mlir::OpBuilder &":$builder, "::fovea::attn::Adjoints &":$adjoints)>,
    InterfaceMethod<[{
      Whether `result` can have an adjoint: if its elements are floating-point
      numbers, unless the operation says otherwise.
    }], "bool", "hasAdjoint", (ins "::mlir::OpResult":$result),
    /*methodBody=*/"", /*defaultImplementation=*/[{
      return ::llvm::isa<::mlir::FloatType>(
          ::mlir::getElementTypeOrSelf(result.getType()));
    }]>
  ];
}

#endif // FOVEA_DIFFERENTIATE_DIFFERENTIABLEOPINTERFACE_TD
