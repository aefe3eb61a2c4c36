//===- CopyingTasks.h - Tasks that copy keys and values ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_COPYINGTASKS_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_COPYINGTASKS_H

#include "mlir/IR/AffineExpr.h"

namespace fovea::attn {

/// The most queries of a task that copies keys and values for several blocks of
/// queries: so that there are four tasks for each head.
inline mlir::AffineExpr getCopyingShare(mlir::AffineExpr numQueries,
                                        int64_t block) {
  constexpr int64_t kMinTasks = 4;
  return (numQueries.floorDiv(kMinTasks * block) + 1) * block;
}

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_COPYINGTASKS_H
