//===- IndependentLines.h - Threads for lines of arrays ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LOOPSTOGPU_INDEPENDENTLINES_H
#define FOVEA_LIB_CONVERSION_LOOPSTOGPU_INDEPENDENTLINES_H

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {

/// Makes those loops of a nest parallel, and the outer ones, whose iterations
/// touch elements of their own, wherever in the nest they are: of sums of what
/// came before, a thread has a line. Returns whether there are any.
bool separateLines(mlir::scf::ForOp loop);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LOOPSTOGPU_INDEPENDENTLINES_H
