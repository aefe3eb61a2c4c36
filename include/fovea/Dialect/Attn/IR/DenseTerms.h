//===- DenseTerms.h - What dense attention has beside a mask ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_DENSETERMS_H
#define FOVEA_DIALECT_ATTN_IR_DENSETERMS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// Something that `attn.dense` or its gradient has beside queries, keys, values
/// and a mask, for errors: "a bias"; empty if nothing.
template <typename OpTy> llvm::StringRef findDenseTerm(OpTy op) {
  if (!op.getScore().empty())
    return "a function of scores";
  for (auto [operand, name] : {std::pair<mlir::Value, llvm::StringRef>(
                                   op.getLogWeight(), "log weights"),
                               {op.getBias(), "a bias"},
                               {op.getSink(), "a sink"},
                               {op.getLengths(), "lengths"},
                               {op.getQueryLengths(), "lengths"}})
    if (operand)
      return name;
  return "";
}

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_DENSETERMS_H
