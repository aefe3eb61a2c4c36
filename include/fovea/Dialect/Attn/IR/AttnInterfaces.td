//===- AttnInterfaces.td - Interfaces of the attention dialect -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNINTERFACES_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNINTERFACES_TD

include "mlir/IR/OpBase.td"

def Attn_ContractOpInterface : OpInterface<"ContractOpInterface"> {
  let description = [{
    What an operation declares of the element types and extents of its operands
    (`Attn_Arg` in `AttnBase.td`). The verifier compares what the types tell.
  }];
  let cppNamespace = "::fovea::attn";
  let methods = [
    StaticInterfaceMethod<"What ODS declares beside the operands.",
        "const ::fovea::attn::Contract &", "getContract">,
    InterfaceMethod<[{
        The first operand of group `index`, and how many it has.
      }], "std::pair<unsigned, unsigned>", "getOperandGroup",
      (ins "unsigned":$index)>,
    InterfaceMethod<[{
        Checks numbers of operands that attributes tell, before any other method
        looks at them.
      }], "::llvm::LogicalResult", "verifyOperandCounts", (ins), "",
      "return ::mlir::success();">,
    InterfaceMethod<[{
        Adds operands whose declarations depend on attributes, such as those of
        sources.
      }], "void", "addOpenOperands",
      (ins "::fovea::attn::ContractOperands &":$operands), "", "(void)operands;">
  ];
  let verify = [{ return ::fovea::attn::detail::verifyContract($_op); }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNINTERFACES_TD
