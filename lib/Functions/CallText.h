//===- CallText.h - What a call says in text --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_CALLTEXT_H
#define FOVEA_LIB_FUNCTIONS_CALLTEXT_H

#include "mlir/IR/Attributes.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

namespace fovea::functions {

struct SourceValue;

/// The attribute `sources` of attn.stream.
llvm::Expected<mlir::Attribute>
buildSources(mlir::MLIRContext *context, llvm::ArrayRef<SourceValue> sources);

/// What is wrong with the ranges of sources with these numbers of rows, if
/// anything is: for calls that have failed.
llvm::Error checkRanges(llvm::ArrayRef<SourceValue> sources,
                        llvm::ArrayRef<int64_t> rows, int64_t block,
                        int64_t queries);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_CALLTEXT_H
