//===- FirstTrips.h - What loops do at first --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_TOOLS_EXPLAIN_FIRSTTRIPS_H
#define FOVEA_LIB_TOOLS_EXPLAIN_FIRSTTRIPS_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace fovea::explanation {

/// An operation of the function that is explained.
struct FunctionOp {
  mlir::Operation *op;
  /// As the trace of its compilation counts operations.
  unsigned number;
  /// How often loops run it, none where that is not known; 1 outside of loops.
  std::optional<int64_t> trips = 1;
};

/// A copy of a function in which the first trip of each loop stands before the
/// loop, with its first index and what the loop starts from: so what follows
/// from these is known in it.
struct FirstTrips {
  mlir::OwningOpRef<mlir::Operation *> module;
  mlir::FunctionOpInterface function;
  /// Those outside of loops and of first trips, but not those of loops.
  llvm::SmallVector<FunctionOp> ops;
};

FirstTrips unrollFirstTrips(mlir::FunctionOpInterface function);

} // namespace fovea::explanation

#endif // FOVEA_LIB_TOOLS_EXPLAIN_FIRSTTRIPS_H
