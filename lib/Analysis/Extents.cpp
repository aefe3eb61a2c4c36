//===- Extents.cpp - Shapes for given arguments ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/Extents.h"
#include "fovea/Analysis/ExtentOrigin.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace fovea;

Extents::Extents(FunctionOpInterface function,
                 ArrayRef<SmallVector<int64_t>> argumentShapes)
    : entry(&function.getFunctionBody().front()),
      argumentShapes(argumentShapes) {}

SmallVector<int64_t> Extents::shapeOf(Value value) {
  SmallVector<int64_t> shape;
  unsigned rank = cast<ShapedType>(value.getType()).getRank();
  for (unsigned dim = 0; dim < rank; ++dim) {
    std::optional<ExtentOrigin> origin = getExtentOrigin(value, dim, entry);
    if (!origin) {
      isKnown = false;
      return SmallVector<int64_t>(rank, 0);
    }
    shape.push_back(origin->argument
                        ? argumentShapes[*origin->argument][origin->dim]
                        : origin->constant);
  }
  return shape;
}
