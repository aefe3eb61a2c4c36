//===- SourceContract.h - What a source asks of its operands ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_SOURCECONTRACT_H
#define FOVEA_DIALECT_ATTN_IR_SOURCECONTRACT_H

#include "fovea/Dialect/Attn/IR/Contract.h"

namespace fovea::attn {

/// Declarations of the operands of a source of `attn.stream`, by the names that
/// its custom form has for them. Lower-case letters belong to one source.
const Contract &getSourceContract();

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_SOURCECONTRACT_H
