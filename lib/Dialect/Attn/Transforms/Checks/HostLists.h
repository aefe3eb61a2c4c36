//===- HostLists.h - Lists that a check on the host reads -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_HOSTLISTS_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_HOSTLISTS_H

#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea/Kernels/TargetFacts.h"

namespace fovea::attn {

/// Lists of an operation where the host can read them: the lists themselves,
/// or copies of those that a GPU has. A check is the same for both targets.
class HostLists {
public:
  HostLists(mlir::ModuleOp module, mlir::Operation *op)
      : calls(module), builder(op), loc(op->getLoc()), copies(isForGPU(op)) {}

  mlir::Value get(mlir::Value list) {
    if (!list || !copies)
      return list;
    return lists.emplace_back(calls.copyToHost(builder, loc, list));
  }
  void free() {
    for (mlir::Value list : lists)
      calls.freeOnHost(builder, loc, list);
  }
  mlir::OpBuilder &getBuilder() { return builder; }

private:
  GPURuntimeCalls calls;
  mlir::OpBuilder builder;
  mlir::Location loc;
  bool copies;
  llvm::SmallVector<mlir::Value> lists;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_HOSTLISTS_H
