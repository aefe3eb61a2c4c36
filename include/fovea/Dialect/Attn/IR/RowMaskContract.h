//===- RowMaskContract.h - What a mask asks of its parts --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ROWMASKCONTRACT_H
#define FOVEA_DIALECT_ATTN_IR_ROWMASKCONTRACT_H

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/IR/Contract.h"

namespace fovea::attn {

/// Declarations of the parts of a mask of `attn.low_rank`, in their order.
const Contract &getRowMaskContract(RowMask mask);

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_ROWMASKCONTRACT_H
