//===- VisitAttnOp.h - By the class of an operation -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_ANALYSIS_VISITATTNOP_H
#define FOVEA_LIB_ANALYSIS_VISITATTNOP_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include <type_traits>

namespace fovea {

/// A list of classes of operations.
template <typename... Ops> struct OpClasses {
  template <typename Visitor>
  static bool visit(mlir::Operation *op, Visitor &&visitor) {
    return (visitAs<Ops>(op, visitor) || ...);
  }

private:
  template <typename Op, typename Visitor>
  static bool visitAs(mlir::Operation *op, Visitor &visitor) {
    if constexpr (std::is_invocable_v<Visitor &, Op>)
      if (auto match = mlir::dyn_cast<Op>(op)) {
        visitor(match);
        return true;
      }
    return false;
  }
};

/// Calls `visitor` with the class of an operation of the dialect, if it can be
/// called with that class; returns whether it was.
template <typename Visitor>
bool visitAttnOp(mlir::Operation *op, Visitor &&visitor) {
  return OpClasses<
#define GET_OP_LIST
#include "fovea/Dialect/Attn/IR/AttnOps.cpp.inc"
      >::visit(op, visitor);
}

} // namespace fovea

#endif // FOVEA_LIB_ANALYSIS_VISITATTNOP_H
