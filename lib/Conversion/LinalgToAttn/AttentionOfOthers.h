//===- AttentionOfOthers.h - Attention operations of others -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTIONOFOTHERS_H
#define FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTIONOFOTHERS_H

#include "mlir/IR/Operation.h"
#include <optional>
#include <string>

namespace fovea::attn::detail {

/// Whether `op` is an attention operation of another project, in the generic
/// form: of torch-mlir, IREE, ONNX or PyTorch.
bool isAttentionOfOthers(mlir::Operation *op);

/// Replaces such an operation by the products and the soft-max that it stands
/// for. If it has parts that these cannot say, it stays, and they are returned
/// as a reason; none otherwise. Extents are compared within `root`.
std::optional<std::string> writeAsLinalg(mlir::Operation *op,
                                         mlir::Operation *root);

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTIONOFOTHERS_H
